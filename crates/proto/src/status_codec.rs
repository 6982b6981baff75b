//! STATUS as bytes: the rules LH-STATUS-1 to LH-STATUS-5.

use bytes::{BufMut, BytesMut};

use crate::{
    Endpoint, MAX_STATUS, PublicKey, Status, StatusCode, VERSION,
    frame::{self, FrameError, FrameReader},
    status::MAX_DETAIL,
    tlv::{self, CRITICAL, Field, NUMBER, Reader},
};

const MAGIC: [u8; 4] = [0xf1, b'L', b'H', b'S'];

const FLAG_ACCEPTOR: u8 = 1;
const FLAG_FORWARDED: u8 = 2;

const REPORTER: u16 = 1;
const AT: u16 = 2;
const DETAIL: u16 = 3;

/// Takes a STATUS from a stream, piece by piece. Holds at most [`MAX_STATUS`] bytes, and never more than have arrived.
#[derive(Debug, Clone)]
pub struct StatusDecoder {
    frame: FrameReader,
}

impl StatusDecoder {
    /// A decoder at the start of a status record.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            frame: FrameReader::new(MAGIC, MAX_STATUS, |[version, _]| version == VERSION),
        }
    }

    /// Takes what belongs to one record off `input`; when that completes it, returns it and how many bytes of *this*
    /// input it took. The decoder is then ready for the next. `None` means that all of `input` was taken.
    ///
    /// # Errors
    /// A [`StatusError`] as soon as it is certain; the stream is then of no more use.
    pub fn feed(&mut self, input: &[u8]) -> Result<Option<(Status, usize)>, StatusError> {
        let (used, frame) = self.frame.feed(input)?;
        let Some(frame) = frame else { return Ok(None) };
        let &[_, _, _, _, _, flags, ..] = frame.as_slice() else {
            return Err(StatusError::Length(frame.len()));
        };
        let status =
            decode(flags, frame.get(frame::HEADER..).unwrap_or_default()).map_err(StatusError::Malformed)?;
        Ok(Some((status, used)))
    }

    /// Bytes of an incomplete record held so far.
    #[must_use]
    pub fn held(&self) -> usize {
        self.frame.held()
    }
}

impl Default for StatusDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Status {
    /// Appends this record as it travels. A detail over 256 bytes is cut; an ill-formed endpoint is left out, since a
    /// failure must never fail to be told.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut body = BytesMut::with_capacity(128);
        body.put_u8(self.code.to_u8());
        body.put_u8(self.hop);
        if let Some(reporter) = &self.reporter {
            tlv::put(&mut body, REPORTER, |out| out.put_slice(reporter.as_bytes()));
        }
        if let Some(at) = self.at.as_ref().filter(|at| at.check().is_ok()) {
            tlv::put(&mut body, AT, |out| at.put(out));
        }
        let detail = printable(&self.detail);
        if !detail.is_empty() {
            tlv::put(&mut body, DETAIL, |out| out.put_slice(detail.as_bytes()));
        }
        let acceptor = if self.acceptor { FLAG_ACCEPTOR } else { 0 };
        let forwarded = if self.payload_forwarded { FLAG_FORWARDED } else { 0 };
        // 2 + 36 + 262 + 260 bytes at most: always within MAX_STATUS.
        let written = frame::write(out, MAGIC, [VERSION, acceptor | forwarded], MAX_STATUS, &body);
        debug_assert!(written.is_ok(), "a status record is bounded by its parts");
    }
}

/// Why bytes are no status record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StatusError {
    /// The peer speaks something else: check the port.
    #[error("not a status record: the magic differs, so the peer speaks another protocol")]
    Magic,
    /// The peer answered in another version.
    #[error("a status record of protocol version {0}, which is unknown here")]
    Version(u8),
    /// Too long or too short.
    #[error("a status record of {0} bytes: the length must lie between its header and {MAX_STATUS}")]
    Length(usize),
    /// Damaged on the way.
    #[error("the CRC of the status record differs from its bytes")]
    Crc,
    /// A field breaks a rule.
    #[error("malformed status record: {0}")]
    Malformed(&'static str),
}

impl From<FrameError> for StatusError {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Magic => Self::Magic,
            FrameError::Own([version, _]) => Self::Version(version),
            FrameError::Length(length) => Self::Length(length),
            FrameError::Crc => Self::Crc,
        }
    }
}

fn decode(flags: u8, body: &[u8]) -> Field<Status> {
    if flags & !(FLAG_ACCEPTOR | FLAG_FORWARDED) != 0 {
        return Err("unknown flags");
    }
    let mut reader = Reader(body);
    let mut status = Status::new(StatusCode::from_u8(reader.u8()?), reader.u8()?);
    status.acceptor = flags & FLAG_ACCEPTOR != 0;
    status.payload_forwarded = flags & FLAG_FORWARDED != 0;
    let mut previous = None;
    while let Some((kind, mut value)) = reader.option(&mut previous)? {
        match kind {
            REPORTER => status.reporter = Some(PublicKey::from_bytes(value.array()?)),
            AT => status.at = Some(Endpoint::take(&mut value)?),
            DETAIL => status.detail = printable(&String::from_utf8_lossy(value.bytes(value.0.len())?)),
            // LH-STATUS-5: like an OPEN, but nobody passes a record on, so what is unknown is skipped.
            _ if kind & CRITICAL != 0 => return Err("an unknown critical option"),
            _ if kind & NUMBER <= DETAIL => return Err("flags other than the option's own"),
            _ => continue,
        }
        value.end()?;
    }
    Ok(status)
}

/// LH-STATUS-4: details end up on terminals, so nothing in them may steer one, and their length is bounded.
fn printable(detail: &str) -> String {
    let mut text = String::new();
    for char in detail
        .chars()
        .map(|char| if char.is_control() { '\u{fffd}' } else { char })
    {
        if text.len() + char.len_utf8() > MAX_DETAIL {
            break;
        }
        text.push(char);
    }
    text
}
