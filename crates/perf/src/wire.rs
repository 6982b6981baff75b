//! Messages between the two ends of a measurement, and their framing.
//!
//! ```text
//! 0      length of the message (4, big-endian), 1 to 65,536
//! 4      the message, as JSON
//! ```
//!
//! One session, the *control session*, carries [`Hello`], READY, START and the closing
//! [`EndReport`]. Every other session of the measurement begins with [`Attach`]. After that it
//! carries only measured bytes, in one direction (LH-PERF-1 to LH-PERF-6 of `docs/protocol.md`).

#![deny(clippy::indexing_slicing)] // the input comes from the network

use std::fmt;

use longhaul_hop::read_announced;
use longhaul_proto::text::printable_within;
use quantities::ByteCount;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::Error;

/// Version of these messages.
pub const VERSION: u16 = 1;
/// Maximum size of a message, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// Maximum number of streams in one direction. A report on twice as many fits a message.
pub const MAX_STREAMS: u16 = 128;
/// Maximum length of text from the other end that is kept, in bytes.
const MAX_REASON_BYTES: usize = 256;
/// Maximum bytes, and maximum segments, that a report may count for one stream. The sum over all
/// streams then fits 64 bits.
const MAX_COUNT: u64 = 1 << 54;
const _: () = assert!((MAX_COUNT as u128 * 2) * (MAX_STREAMS as u128 * 2) <= u64::MAX as u128);

/// Message of either end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// Request of the client; first on the control session.
    Hello(Hello),
    /// The server accepts the measurement; the client now opens the other sessions.
    Ready,
    /// The server refuses the measurement.
    Refused {
        /// Reason, for a person.
        reason: String,
    },
    /// First message of every other session.
    Attach(Attach),
    /// The server has joined the session to its measurement.
    Attached,
    /// All sessions are established: the clock starts.
    Start,
    /// Counts of the server; last on the control session.
    Report(EndReport),
}

/// Request for a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Oldest and newest version that the client supports.
    pub versions: [u16; 2],
    /// Token that identifies the measurement to the other sessions.
    pub token: MeasurementToken,
    /// Number of streams in each measured direction.
    pub streams: u16,
    /// Direction of the data.
    pub direction: FlowDirection,
    /// Length of the measurement.
    pub length: Length,
    /// Time at the beginning that is not counted, in milliseconds, in addition to the length.
    pub omit_ms: u64,
    /// Protection of the measured bytes.
    pub protection: Protection,
    /// True if the ends fit their sending rate to the path.
    pub right_size: bool,
}

/// Identifier of a measurement at a server: 128 random bits, in hexadecimal.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MeasurementToken([u8; 16]);

/// Direction of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowDirection {
    /// From client to server.
    Forward,
    /// From server to client.
    Reverse,
    /// Both at once, on separate streams.
    Both,
}

/// Length of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// After this many milliseconds of sending.
    Milliseconds(u64),
    /// After this many bytes in each direction.
    Bytes(u64),
}

/// Protection of the measured bytes. Independently of it, both ends have proved their keys, and
/// counts are compared inside TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// TLS 1.3, as for every session.
    Tls,
    /// Plaintext (LH-PLAIN-1).
    None,
}

/// Request to join a session to a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// Token of the measurement.
    pub token: MeasurementToken,
    /// Number of the stream: forward streams count from 0, and reverse streams follow them.
    pub stream: u16,
}

/// Counts of one end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EndReport {
    /// Counts of the streams, by number.
    pub streams: Vec<StreamReport>,
    /// Processor time, in percent of one processor over the measurement.
    pub cpu: CpuShare,
    /// Congestion control of the streams.
    pub congestion: String,
}

/// One end's counts of one stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamReport {
    /// Number of the stream.
    pub stream: u16,
    /// Counted payload that was sent or received, in bytes.
    pub bytes: u64,
    /// Payload before counting began, in bytes.
    pub omitted: u64,
    /// Time from START, or from the end of the omitted beginning, to the last byte, in seconds.
    pub seconds: f64,
    /// Segments retransmitted on the sender's first hop; `None` at a receiver.
    pub retransmits: Option<u64>,
}

/// Processor time in percent of one processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuShare {
    /// Total of user and system time.
    pub total: f64,
    /// Time in the program.
    pub user: f64,
    /// Time in the kernel on the program's behalf.
    pub system: f64,
}

impl MeasurementToken {
    /// Generates a token with the system's random generator.
    ///
    /// # Errors
    /// Errors of the random generator.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 16];
        longhaul_platform::random::fill(&mut bytes)?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for MeasurementToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for MeasurementToken {
    /// Shows only the beginning, as the token is a secret of the two ends.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, ..] = self.0;
        write!(f, "Token({first:02x}{second:02x}..)")
    }
}

impl From<MeasurementToken> for String {
    fn from(token: MeasurementToken) -> Self {
        token.to_string()
    }
}

impl TryFrom<String> for MeasurementToken {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        const WRONG: &str = "a token has 32 hexadecimal digits";
        let digits = text.as_bytes();
        if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(WRONG);
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| WRONG)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| WRONG)?;
        }
        Ok(Self(bytes))
    }
}

impl Hello {
    /// Returns true if streams flow from the client.
    #[must_use]
    pub const fn has_forward(&self) -> bool {
        matches!(self.direction, FlowDirection::Forward | FlowDirection::Both)
    }

    /// Returns the number of sessions besides the control session.
    #[must_use]
    pub fn sessions(&self) -> u16 {
        match self.direction {
            FlowDirection::Both => self.streams.saturating_mul(2),
            _ => self.streams,
        }
    }

    /// Returns true if the client sends on stream number `stream`.
    #[must_use]
    pub const fn client_sends(&self, stream: u16) -> bool {
        self.has_forward() && stream < self.streams
    }

    /// Returns the time at the beginning that is not counted.
    #[must_use]
    pub const fn omit(&self) -> std::time::Duration {
        std::time::Duration::from_millis(self.omit_ms)
    }

    /// Returns the number of bytes in each direction, if the length is given in bytes.
    #[must_use]
    pub const fn bytes(&self) -> Option<ByteCount> {
        match self.length {
            Length::Bytes(bytes) => Some(ByteCount(bytes)),
            Length::Milliseconds(_) => None,
        }
    }
}

impl Message {
    /// Returns a refusal whose text is truncated to the peer's limit.
    pub(crate) fn refusal(reason: impl fmt::Display) -> Self {
        let reason = printable_within(reason.to_string().as_bytes(), MAX_REASON_BYTES);
        Self::Refused { reason }
    }

    /// Encodes the message with its length prefix.
    ///
    /// # Errors
    /// [`Error::Protocol`] when it is longer than [`MAX_MESSAGE_BYTES`].
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; 4];
        serde_json::to_writer(&mut bytes, self)
            .map_err(|error| Error::Protocol(error.to_string()))?;
        let length = bytes.len() - 4;
        match u32::try_from(length) {
            Ok(prefix) if length <= MAX_MESSAGE_BYTES => {
                bytes.splice(..4, prefix.to_be_bytes());
                Ok(bytes)
            }
            _ => Err(Error::Protocol("a message outgrew its bound".to_owned())),
        }
    }

    /// Decodes the JSON of one message.
    ///
    /// # Errors
    /// [`Error::Protocol`] if it is not a message, or contains impossible values.
    pub fn decode(json: &[u8]) -> Result<Self, Error> {
        let message: Self = serde_json::from_slice(json).map_err(|error| {
            // The error quotes unknown input, so it is escaped and truncated.
            let error = printable_within(error.to_string().as_bytes(), MAX_REASON_BYTES);
            Error::Protocol(format!("not a message of a measurement: {error}"))
        })?;
        match message {
            Self::Refused { reason } => Ok(Self::Refused {
                reason: printable_within(reason.as_bytes(), MAX_REASON_BYTES),
            }),
            Self::Report(mut report) => {
                report.congestion =
                    printable_within(report.congestion.as_bytes(), MAX_REASON_BYTES);
                report.check()?;
                Ok(Self::Report(report))
            }
            other => Ok(other),
        }
    }

    /// Reads one message from a stream, and no byte after it.
    ///
    /// # Errors
    /// [`Error::Protocol`] if the bytes are not a message; [`Error::Cut`] when the stream ends.
    pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Self, Error> {
        let mut length = [0; 4];
        stream.read_exact(&mut length).await.map_err(Error::Cut)?;
        let length = u32::from_be_bytes(length) as usize;
        if length == 0 || length > MAX_MESSAGE_BYTES {
            return Err(Error::Protocol(format!("a message of {length} bytes")));
        }
        let json = read_announced(stream, length).await.map_err(Error::Cut)?;
        Self::decode(&json)
    }

    /// Writes the message, and flushes the stream.
    ///
    /// # Errors
    /// [`Error::Cut`] when the stream fails.
    pub async fn write(&self, stream: &mut (impl AsyncWrite + Unpin)) -> Result<(), Error> {
        stream
            .write_all(&self.encode()?)
            .await
            .map_err(Error::Cut)?;
        stream.flush().await.map_err(Error::Cut)
    }
}

impl EndReport {
    /// Checks the other end's counts: impossible values are refused before anything is computed
    /// from them.
    fn check(&self) -> Result<(), Error> {
        let sane = |value: f64| (0.0..1e9).contains(&value);
        let counts = |stream: &StreamReport| {
            [
                stream.bytes,
                stream.omitted,
                stream.retransmits.unwrap_or_default(),
            ]
        };
        let streams = self.streams.len() <= usize::from(MAX_STREAMS) * 2
            && self.streams.iter().all(|stream| {
                sane(stream.seconds) && counts(stream).into_iter().all(|count| count <= MAX_COUNT)
            });
        let cpu = [self.cpu.total, self.cpu.user, self.cpu.system];
        match streams && cpu.into_iter().all(sane) {
            true => Ok(()),
            false => Err(Error::Protocol(
                "a report with impossible numbers".to_owned(),
            )),
        }
    }
}

#[cfg(test)]
mod tests;
