//! STATUS messages by hand, as a hostile depot sends and an attacker receives them.

use std::io;

use longhaul_proto::{Open, SigningKey, StatusCode};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Number of bytes before the code.
const HEADER: usize = 12;
/// Maximum length of a message, in bytes (LH-STATUS-2).
const MAX_STATUS_BYTES: usize = 1024;
const FROM_ACCEPTOR: u8 = 1;
const FORWARDED: u8 = 2;
const OPTION_REPORTER: u16 = 1;
const OPTION_DETAIL: u16 = 3;
const OPTION_SIGNATURE: u16 = 4;
const SIGNATURE_CONTEXT: &[u8] = b"longhaul STATUS signature v1\0";

/// Content of a STATUS, of which only the length was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedStatus {
    /// Status code.
    pub code: StatusCode,
    /// Position on the route that the reporter claims.
    pub place: u8,
    /// If true, the reporter claims to be the acceptor.
    pub acceptor: bool,
    /// Detail text.
    pub detail: String,
}

/// A STATUS to be built.
#[derive(Clone, Debug)]
pub struct StatusToSend<'a> {
    /// Status code.
    pub code: StatusCode,
    /// Position on the route to claim.
    pub place: u8,
    /// If true, it claims to come from the acceptor.
    pub acceptor: bool,
    /// If true, it claims that early data was forwarded.
    pub forwarded: bool,
    /// Key of the alleged reporter.
    pub reporter: Option<[u8; 32]>,
    /// Detail text, as bytes: they need not be valid in a STATUS.
    pub detail: &'a [u8],
}

impl StatusToSend<'_> {
    /// Encodes the STATUS, with a valid checksum and without a signature.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.sealed(self.body())
    }

    /// Encodes the STATUS, signed by `key` as the answer to `open` (LH-STATUS-7). It may name
    /// another reporter.
    ///
    /// # Errors
    /// The library does not sign.
    pub fn signed(&self, key: &SigningKey, open: &Open) -> io::Result<Vec<u8>> {
        let mut body = self.body();
        let own = [1, self.flags()];
        let message = [SIGNATURE_CONTEXT, &open.signature[..], &own, &body].concat();
        let signature = key.sign(&message).map_err(io::Error::other)?;
        put(&mut body, OPTION_SIGNATURE, &signature);
        Ok(self.sealed(body))
    }

    fn flags(&self) -> u8 {
        (u8::from(self.acceptor) * FROM_ACCEPTOR) | (u8::from(self.forwarded) * FORWARDED)
    }

    fn body(&self) -> Vec<u8> {
        let mut bytes = vec![self.code.to_u8(), self.place];
        if let Some(key) = &self.reporter {
            put(&mut bytes, OPTION_REPORTER, key);
        }
        if !self.detail.is_empty() {
            put(&mut bytes, OPTION_DETAIL, self.detail);
        }
        bytes
    }

    fn sealed(&self, body: Vec<u8>) -> Vec<u8> {
        let mut bytes = vec![0xf1, 0x4c, 0x48, 0x53, 1, self.flags(), 0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(&body);
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        bytes[6..8].copy_from_slice(&length.to_be_bytes());
        let checksum = crc32fast::hash(&bytes);
        bytes[8..12].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}

fn put(bytes: &mut Vec<u8>, option: u16, value: &[u8]) {
    bytes.extend_from_slice(&option.to_be_bytes());
    bytes.extend_from_slice(&u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend_from_slice(value);
}

/// Reads one STATUS from the beginning of `stream`.
///
/// # Errors
/// The stream ends, or contains something else.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<ReceivedStatus> {
    let mut bytes = vec![0; HEADER];
    stream.read_exact(&mut bytes).await?;
    let length = usize::from(u16::from_be_bytes([bytes[6], bytes[7]]));
    if bytes[..4] != [0xf1, 0x4c, 0x48, 0x53] || !(HEADER + 2..=MAX_STATUS_BYTES).contains(&length)
    {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a STATUS"));
    }
    bytes.resize(length, 0);
    stream.read_exact(&mut bytes[HEADER..]).await?;
    let mut reported = ReceivedStatus {
        code: StatusCode::from_u8(bytes[HEADER]),
        place: bytes[HEADER + 1],
        acceptor: bytes[5] & FROM_ACCEPTOR != 0,
        detail: String::new(),
    };
    let mut options = &bytes[HEADER + 2..];
    while let [a, b, c, d, rest @ ..] = options {
        let (option, length) = (
            u16::from_be_bytes([*a, *b]),
            usize::from(u16::from_be_bytes([*c, *d])),
        );
        let (value, left) = rest.split_at_checked(length).unwrap_or((rest, &[]));
        if option == OPTION_DETAIL {
            reported.detail = String::from_utf8_lossy(value).into_owned();
        }
        options = left;
    }
    Ok(reported)
}
