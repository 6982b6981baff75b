//! STATUS as bytes: the rules LH-STATUS-1 to LH-STATUS-5.

use bytes::{BufMut, BytesMut};

use crate::{
    Endpoint, MAX_PADDING, MAX_STATUS, PublicKey, Status, StatusCode, UnknownOption, VERSION,
    frame::{self, FrameError, FrameReader},
    status::MAX_DETAIL,
    text,
    tlv::{self, CRITICAL, Field, NUMBER, Reader},
};

const MAGIC: [u8; 4] = [0xf1, b'L', b'H', b'S'];

const FLAG_ACCEPTOR: u8 = 1;
const FLAG_FORWARDED: u8 = 2;

const REPORTER: u16 = 1;
const AT: u16 = 2;
const DETAIL: u16 = 3;
const SIGNATURE: u16 = 4;
const PADDING: u16 = 5;
const CLOCK: u16 = 6;
const LAST_KNOWN: u16 = CLOCK;
/// Keeps a signature made here from meaning anything elsewhere (LH-STATUS-7).
const SIGNATURE_CONTEXT: &[u8] = b"longhaul STATUS signature v1\0";

/// Takes a STATUS from a stream, piece by piece. Holds at most [`MAX_STATUS`] bytes, and as many
/// more as padding was asked for; never more than have arrived.
#[derive(Debug, Clone)]
pub struct StatusDecoder {
    frame: FrameReader,
}

impl StatusDecoder {
    /// A decoder at the start of a status record.
    #[must_use]
    pub const fn new() -> Self {
        Self::with_padding(0)
    }

    /// The same, of records that may have so many bytes of padding, [`MAX_PADDING`] at most
    /// (LH-STATUS-9).
    #[must_use]
    pub const fn with_padding(padding: u16) -> Self {
        let padding = if padding < MAX_PADDING {
            padding
        } else {
            MAX_PADDING
        };
        Self {
            frame: FrameReader::new(MAGIC, MAX_STATUS + padding as usize, |[version, _]| {
                version == VERSION
            }),
        }
    }

    /// Takes what belongs to one record off `input`; when that completes it, returns it and how
    /// many bytes of *this* input it took. The decoder is then ready for the next. `None` means
    /// that all of `input` was taken.
    ///
    /// # Errors
    /// A [`StatusError`] as soon as it is certain; the stream is then of no more use.
    pub fn feed(&mut self, input: &[u8]) -> Result<Option<(Status, usize)>, StatusError> {
        let (used, frame) = self.frame.feed(input)?;
        let Some(frame) = frame else { return Ok(None) };
        let &[_, _, _, _, _, flags, ..] = frame.as_slice() else {
            return Err(StatusError::Length(frame.len()));
        };
        let status = decode(flags, frame.get(frame::HEADER..).unwrap_or_default())
            .map_err(StatusError::Malformed)?;
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
    /// Appends this record as it travels. A detail over 256 bytes is cut; an ill-formed endpoint is
    /// left out, since a failure must never fail to be reported.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut body = BytesMut::with_capacity(256);
        self.put_body(&mut body, true);
        let own = [VERSION, self.flags()];
        let longest = MAX_STATUS + usize::from(self.padding());
        if frame::write(out, MAGIC, own, longest, &body).is_err() {
            // Only options that this version does not know can be that long; they are no part of
            // what a status says.
            let known = Self {
                unknown: Vec::new(),
                ..self.clone()
            };
            body.clear();
            known.put_body(&mut body, true);
            // 2 + 36 + 262 + 260 + 68 + 12 bytes at most, and padding: always within MAX_STATUS and
            // that.
            let written = frame::write(out, MAGIC, own, longest, &body);
            debug_assert!(written.is_ok(), "a status record is bounded by its parts");
        }
    }

    /// LH-STATUS-7: the context, the OPEN's signature, version and flags, and all of the body but
    /// the signature.
    pub(crate) fn signed_bytes(&self, open_signature: &[u8; 64]) -> BytesMut {
        let mut out = BytesMut::with_capacity(512);
        out.put_slice(SIGNATURE_CONTEXT);
        out.put_slice(open_signature);
        out.put_slice(&[VERSION, self.flags()]);
        self.put_body(&mut out, false);
        out
    }

    fn flags(&self) -> u8 {
        let acceptor = if self.acceptor { FLAG_ACCEPTOR } else { 0 };
        acceptor
            | if self.payload_forwarded {
                FLAG_FORWARDED
            } else {
                0
            }
    }

    /// What is sent of [`Status::padding`].
    fn padding(&self) -> u16 {
        self.padding.min(MAX_PADDING)
    }

    fn put_body(&self, body: &mut BytesMut, signature: bool) {
        body.put_u8(self.code.to_u8());
        body.put_u8(self.hop);
        if let Some(reporter) = &self.reporter {
            tlv::put(body, REPORTER, |out| out.put_slice(reporter.as_bytes()));
        }
        if let Some(at) = self.at.as_ref().filter(|at| at.check().is_ok()) {
            tlv::put(body, AT, |out| at.put(out));
        }
        let detail = text::printable_within(self.detail.as_bytes(), MAX_DETAIL);
        if !detail.is_empty() {
            tlv::put(body, DETAIL, |out| out.put_slice(detail.as_bytes()));
        }
        if let Some(bytes) = self.signature.as_ref().filter(|_| signature) {
            tlv::put(body, SIGNATURE, |out| out.put_slice(bytes));
        }
        if self.padding > 0 {
            tlv::put(body, PADDING, |out| out.put_bytes(0, self.padding().into()));
        }
        if let Some(clock) = self.clock_unix_ms {
            tlv::put(body, CLOCK, |out| out.put_u64(clock));
        }
        for option in &self.unknown {
            tlv::put(body, option.kind, |out| out.put_slice(&option.value));
        }
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
    #[error(
        "a status record of {0} bytes, which is shorter than its header or longer than {MAX_STATUS} and the padding that was asked for"
    )]
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
            DETAIL => {
                status.detail = text::printable_within(value.bytes(value.0.len())?, MAX_DETAIL)
            }
            SIGNATURE => status.signature = Some(value.array()?),
            PADDING => status.padding = take_padding(&mut value)?,
            CLOCK => status.clock_unix_ms = Some(value.u64()?),
            // LH-STATUS-5: like an OPEN, but nobody passes a record on; what is unknown is kept for
            // the signature alone.
            _ if kind & CRITICAL != 0 => return Err("an unknown critical option"),
            _ if kind & NUMBER <= LAST_KNOWN => return Err("flags other than the option's own"),
            _ => {
                status.unknown.push(UnknownOption {
                    kind,
                    value: value.0.to_vec(),
                });
                continue;
            }
        }
        value.end()?;
    }
    Ok(status)
}

/// LH-STATUS-9: zeros, so that there is one way to write a STATUS.
fn take_padding(value: &mut Reader<'_>) -> Field<u16> {
    let bytes = value.bytes(value.0.len())?;
    match u16::try_from(bytes.len()) {
        Ok(length @ 1..=MAX_PADDING) if bytes.iter().all(|byte| *byte == 0) => Ok(length),
        _ => Err("padding that is not 1 to 16384 zeros"),
    }
}
