//! Encoding of STATUS: the rules LH-STATUS-1 to LH-STATUS-5.

use bytes::{BufMut, BytesMut};

use crate::{
    Endpoint, HopDetails, MAX_PADDING_BYTES, MAX_STATUS_BYTES, PublicKey, ResumeAnswer,
    ResumeOffer, Status, StatusCode, UnknownOption, VERSION,
    frame::{self, FrameError, FrameReader},
    status::MAX_DETAIL_BYTES,
    text,
    tlv::{self, CRITICAL, FieldReader, FieldResult, NUMBER},
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
const DIALLED: u16 = 7;
const RESUME_OFFER: u16 = 10;
const RESUMED: u16 = 11;
/// Highest number of the options that are numbered without a gap.
const LAST_CONSECUTIVE: u16 = DIALLED;
/// Domain separation: prevents the signature from being valid for any other message (LH-STATUS-7).
const SIGNATURE_CONTEXT: &[u8] = b"longhaul STATUS signature v1\0";

/// Incremental decoder of status records. Buffers at most [`MAX_STATUS_BYTES`] bytes plus the
/// requested padding, and never more than have arrived.
#[derive(Debug, Clone)]
pub struct StatusDecoder {
    frame: FrameReader,
}

impl StatusDecoder {
    /// Creates a decoder at the start of a status record.
    #[must_use]
    pub const fn new() -> Self {
        Self::with_padding(0)
    }

    /// Creates a decoder for records that may have this many bytes of padding, at most
    /// [`MAX_PADDING_BYTES`] (LH-STATUS-9).
    #[must_use]
    pub const fn with_padding(padding: u16) -> Self {
        let padding = if padding < MAX_PADDING_BYTES {
            padding
        } else {
            MAX_PADDING_BYTES
        };
        Self {
            frame: FrameReader::new(
                MAGIC,
                MAX_STATUS_BYTES + padding as usize,
                |[version, _]| version == VERSION,
            ),
        }
    }

    /// Consumes one record's bytes from `input`. Returns `None` if all of `input` was consumed and
    /// the record is incomplete.
    ///
    /// Once complete, returns the record and the number of bytes consumed of *this* input. The
    /// decoder is then ready for the next record.
    ///
    /// # Errors
    /// A [`StatusError`] as soon as it is certain. The stream is then unusable.
    pub fn feed(&mut self, input: &[u8]) -> Result<Option<(Status, usize)>, StatusError> {
        let (used, frame) = self.frame.feed(input)?;
        let Some(frame) = frame else { return Ok(None) };
        let &[_, _, _, _, _, flags, ..] = frame.as_slice() else {
            return Err(StatusError::Length(frame.len()));
        };
        let status = decode(flags, frame.get(frame::HEADER_BYTES..).unwrap_or_default())
            .map_err(StatusError::Malformed)?;
        Ok(Some((status, used)))
    }

    /// Returns the number of bytes buffered of an incomplete record.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.frame.buffered_bytes()
    }
}

impl Default for StatusDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Status {
    /// Appends the encoded record to `out`. A detail over 256 bytes is truncated and an ill-formed
    /// endpoint is omitted, since reporting a failure must never fail.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut body = BytesMut::with_capacity(256);
        self.put_body(&mut body, true);
        let own = [VERSION, self.flags()];
        let longest =
            MAX_STATUS_BYTES + usize::from(self.sent_padding()) + self.server_voucher_bytes();
        if frame::write_frame(out, MAGIC, own, longest, &body).is_err() {
            // Only unknown options can make the record too long, and they carry none of its
            // meaning.
            let known = Self {
                unknown: Vec::new(),
                ..self.clone()
            };
            body.clear();
            known.put_body(&mut body, true);
            // At most 2 + 36 + 262 + 260 + 68 + 12 + 25 + 8 + 44 bytes, plus padding: always within
            // MAX_STATUS plus padding.
            let written = frame::write_frame(out, MAGIC, own, longest, &body);
            debug_assert!(written.is_ok(), "a status record is bounded by its parts");
        }
    }

    /// Returns the signed part (LH-STATUS-7): the context, the OPEN's signature, version and flags,
    /// and the body without its signature.
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

    /// Returns the part of [`Status::sent_padding`] that is sent.
    fn sent_padding(&self) -> u16 {
        self.padding.min(MAX_PADDING_BYTES)
    }

    fn put_body(&self, body: &mut BytesMut, signature: bool) {
        body.put_u8(self.code.to_u8());
        body.put_u8(self.hop);
        if let Some(reporter) = &self.reporter {
            tlv::put_option(body, REPORTER, |out| out.put_slice(reporter.as_bytes()));
        }
        if let Some(at) = self.at.as_ref().filter(|at| at.check().is_ok()) {
            tlv::put_option(body, AT, |out| at.encode(out));
        }
        let detail = text::printable_within(self.detail.as_bytes(), MAX_DETAIL_BYTES);
        if !detail.is_empty() {
            tlv::put_option(body, DETAIL, |out| out.put_slice(detail.as_bytes()));
        }
        if let Some(bytes) = self.signature.as_ref().filter(|_| signature) {
            tlv::put_option(body, SIGNATURE, |out| out.put_slice(bytes));
        }
        if self.padding > 0 {
            tlv::put_option(body, PADDING, |out| {
                out.put_bytes(0, self.sent_padding().into())
            });
        }
        if let Some(clock) = self.clock_unix_ms {
            tlv::put_option(body, CLOCK, |out| out.put_u64(clock));
        }
        if let Some(details) = &self.dialled {
            tlv::put_option(body, DIALLED, |out| details.encode(out));
        }
        let is_between = |option: &&UnknownOption| option.kind & NUMBER < RESUME_OFFER;
        for option in self.unknown.iter().take_while(is_between) {
            tlv::put_option(body, option.kind, |out| out.put_slice(&option.value));
        }
        if let Some(offer) = self.resume_offer.filter(|offer| offer.check().is_ok()) {
            tlv::put_option(body, RESUME_OFFER, |out| offer.encode(out));
        }
        if let Some(answer) = &self.resumed {
            tlv::put_option(body, RESUMED, |out| answer.encode(out));
        }
        for option in self.unknown.iter().skip_while(is_between) {
            tlv::put_option(body, option.kind, |out| out.put_slice(&option.value));
        }
    }
}

/// Reason why bytes are not a status record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StatusError {
    /// The peer speaks another protocol: check the port.
    #[error("not a Longhaul answer: the peer speaks another protocol")]
    Magic,
    /// The peer answered with another protocol version. It runs a newer release.
    #[error("a status record of protocol version {0}, which this release does not know")]
    Version(u8),
    /// The record is too long or too short.
    #[error(
        "a status record of {0} bytes, which is shorter than its header or longer than \
         {MAX_STATUS_BYTES} bytes plus the requested padding"
    )]
    Length(usize),
    /// The record was damaged in transit.
    #[error("the status record was corrupted on the way: its checksum does not match")]
    Crc,
    /// A field breaks a rule. The hop is faulty.
    #[error("malformed status record: {0}")]
    Malformed(&'static str),
}

impl From<FrameError> for StatusError {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Magic => Self::Magic,
            FrameError::MessageBytes([version, _]) => Self::Version(version),
            FrameError::Length(length) => Self::Length(length),
            FrameError::Crc => Self::Crc,
        }
    }
}

/// Returns true if this version knows the option with this number.
const fn is_known(number: u16) -> bool {
    matches!(number, 0..=LAST_CONSECUTIVE | RESUME_OFFER | RESUMED)
}

fn decode(flags: u8, body: &[u8]) -> FieldResult<Status> {
    if flags & !(FLAG_ACCEPTOR | FLAG_FORWARDED) != 0 {
        return Err("unknown flags");
    }
    let mut reader = FieldReader(body);
    let mut status = Status::new(StatusCode::from_u8(reader.u8()?), reader.u8()?);
    status.acceptor = flags & FLAG_ACCEPTOR != 0;
    status.payload_forwarded = flags & FLAG_FORWARDED != 0;
    let mut previous = None;
    while let Some((kind, mut value)) = reader.next_option(&mut previous)? {
        match kind {
            REPORTER => status.reporter = Some(PublicKey::from_bytes(value.array()?)),
            AT => status.at = Some(Endpoint::decode(&mut value)?),
            DETAIL => {
                status.detail =
                    text::printable_within(value.bytes(value.0.len())?, MAX_DETAIL_BYTES)
            }
            SIGNATURE => status.signature = Some(value.array()?),
            PADDING => status.padding = read_padding(&mut value)?,
            CLOCK => status.clock_unix_ms = Some(value.u64()?),
            DIALLED => status.dialled = Some(HopDetails::decode(&mut value)?),
            RESUME_OFFER => status.resume_offer = Some(ResumeOffer::decode(&mut value)?),
            RESUMED => status.resumed = Some(ResumeAnswer::decode(&mut value)?),
            // LH-STATUS-5: as in an OPEN. Nobody forwards a record, so unknown options are kept
            // only for the signature.
            _ if kind & CRITICAL != 0 => return Err("an unknown critical option"),
            _ if is_known(kind & NUMBER) => return Err("flags other than the option's own"),
            _ => {
                status.unknown.push(UnknownOption {
                    kind,
                    value: value.0.to_vec(),
                });
                continue;
            }
        }
        value.expect_end()?;
    }
    Ok(status)
}

/// Reads the padding (LH-STATUS-9). It must be zeros, so that a STATUS has one encoding.
fn read_padding(value: &mut FieldReader<'_>) -> FieldResult<u16> {
    let bytes = value.bytes(value.0.len())?;
    match u16::try_from(bytes.len()) {
        Ok(length @ 1..=MAX_PADDING_BYTES) if bytes.iter().all(|byte| *byte == 0) => Ok(length),
        _ => Err("padding that is not 1 to 16384 zeros"),
    }
}
