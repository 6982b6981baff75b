//! The TLS 1.3 record layer after the handshake (RFC 8446, section 5): seals bytes into records and
//! opens records.
//!
//! Data to seal is copied into its record once. Opened data goes from the record directly into the
//! caller's memory. Keys come from rustls, the cipher from aws-lc-rs.

#![deny(clippy::indexing_slicing)] // the input comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use rustls::ConnectionTrafficSecrets;
use strum::FromRepr;

/// Size of a record header, in bytes (section 5.1).
pub(super) const HEADER_BYTES: usize = 5;
/// Maximum data in one record, in bytes (section 5.1).
pub(super) const MAX_DATA_BYTES: usize = 1 << 14;
/// Maximum record size without the header, in bytes (section 5.2).
pub(super) const MAX_BODY_BYTES: usize = MAX_DATA_BYTES + 256;
/// Size of the authentication tag in bytes, the same for every cipher.
pub(super) const TAG_BYTES: usize = 16;
/// Outer content type of a protected record, and its version (section 5.2).
const OUTER_TYPE: u8 = 23;
const LEGACY_VERSION: [u8; 2] = [3, 3];

/// Content of a record (section 5.1). The number is its type on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRepr)]
#[repr(u8)]
pub(super) enum Content {
    Alert = 21,
    Handshake = 22,
    Data = 23,
}

/// Error for a record that the peer's record layer cannot have sent. It ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecordError {
    /// The outer type, version or length is not that of a protected record.
    #[error("received data that is not a protected TLS record")]
    Malformed,
    /// The record was modified in transit, or belongs elsewhere in the stream. A faulty or hostile
    /// device changes bytes. Nothing of the record is used; try another route.
    #[error("cannot decrypt a TLS record: it was changed on the way")]
    Forged,
    /// The padding has no content type, or the content type is not allowed here. One of the ends is
    /// faulty: report it, with both releases.
    #[error("unexpected type of TLS record")]
    Unexpected,
    /// The key has reached its limit of records (section 5.5).
    #[error("a TLS key was used for too many records")]
    Exhausted,
}

/// One direction's key, and the number of the next record.
struct RecordKey {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
}

impl RecordKey {
    fn new(sequence: u64, secrets: &ConnectionTrafficSecrets) -> Result<Self, RecordError> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(RecordError::Unexpected),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| RecordError::Unexpected)?;
        let iv = iv
            .as_ref()
            .try_into()
            .map_err(|_| RecordError::Unexpected)?;
        Ok(Self {
            key: LessSafeKey::new(key),
            iv,
            sequence,
        })
    }

    /// Returns the next record's nonce (section 5.3). Each is returned once.
    fn nonce(&mut self) -> Result<Nonce, RecordError> {
        let number = self.sequence;
        self.sequence = number.checked_add(1).ok_or(RecordError::Exhausted)?;
        let mut nonce = self.iv;
        let behind_padding = nonce.iter_mut().skip(NONCE_LEN - size_of::<u64>());
        for (byte, of_number) in behind_padding.zip(number.to_be_bytes()) {
            *byte ^= of_number;
        }
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

/// Seals records.
pub(super) struct Sealer {
    keyed: RecordKey,
    /// Maximum number of records that the key may protect (section 5.5).
    limit: u64,
}

impl Sealer {
    pub(super) fn new(
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
        limit: u64,
    ) -> Result<Self, RecordError> {
        let keyed = RecordKey::new(sequence, &secrets)?;
        Ok(Self { keyed, limit })
    }

    /// Returns true if only one more record may use this key.
    pub(super) fn is_nearly_exhausted(&self) -> bool {
        self.keyed.sequence.saturating_add(1) >= self.limit
    }

    /// Sets the limit so that only one more record may use this key.
    #[cfg(test)]
    pub(super) fn exhaust(&mut self) {
        self.limit = self.keyed.sequence + 1;
    }

    /// Appends one record with `data`, at most [`MAX_DATA_BYTES`] bytes, to `out`.
    pub(super) fn seal(
        &mut self,
        content: Content,
        data: &[u8],
        out: &mut OutgoingRecords,
    ) -> Result<(), RecordError> {
        if data.len() > MAX_DATA_BYTES {
            return Err(RecordError::Malformed);
        }
        if self.keyed.sequence >= self.limit {
            return Err(RecordError::Exhausted);
        }
        let body = data.len() + 1 + TAG_BYTES;
        let [high, low] = (body as u16).to_be_bytes();
        let [major, minor] = LEGACY_VERSION;
        let header: [u8; HEADER_BYTES] = [OUTER_TYPE, major, minor, high, low];
        let room = out.reserve(HEADER_BYTES + body);
        let (front, rest) = room
            .split_first_chunk_mut::<HEADER_BYTES>()
            .ok_or(RecordError::Malformed)?;
        *front = header;
        // Copying first and sealing in place keeps the data in the nearest cache. The cipher alone
        // fetches data far more slowly.
        let (inner, tag) = rest
            .split_at_mut_checked(data.len() + 1)
            .ok_or(RecordError::Malformed)?;
        let (kind, copied) = inner.split_last_mut().ok_or(RecordError::Malformed)?;
        copied.copy_from_slice(data);
        *kind = content as u8;
        let nonce = self.keyed.nonce()?;
        let key = &self.keyed.key;
        let sealed = key.seal_in_place_separate_tag(nonce, Aad::from(header), inner);
        tag.copy_from_slice(sealed.map_err(|_| RecordError::Malformed)?.as_ref());
        out.filled += HEADER_BYTES + body;
        Ok(())
    }
}

/// Records that wait to be written. Memory is reused without zeroing, since sealing overwrites it.
#[derive(Default)]
pub(super) struct OutgoingRecords {
    bytes: Vec<u8>,
    filled: usize,
    written: usize,
}

impl OutgoingRecords {
    /// Returns the next `len` bytes to be filled.
    fn reserve(&mut self, len: usize) -> &mut [u8] {
        let end = self.filled + len;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes.get_mut(self.filled..end).unwrap_or_default()
    }

    /// Returns the unwritten bytes.
    pub(super) fn unwritten(&self) -> &[u8] {
        self.bytes
            .get(self.written..self.filled)
            .unwrap_or_default()
    }

    /// Records that `len` more bytes have been written.
    pub(super) fn consume(&mut self, len: usize) {
        self.written += len;
        if self.written >= self.filled {
            (self.filled, self.written) = (0, 0);
        }
    }
}

/// Opens records.
pub(super) struct Opener(RecordKey);

impl Opener {
    pub(super) fn new(
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Result<Self, RecordError> {
        RecordKey::new(sequence, &secrets).map(Self)
    }

    /// Opens a record (header and `record_body_len` bytes) into the front of `out`, which must have
    /// room for [`open_buffer_len`] bytes. Returns the content type and the number of data bytes.
    pub(super) fn open(
        &mut self,
        record: &[u8],
        out: &mut [u8],
    ) -> Result<(Content, usize), RecordError> {
        let (header, body) = record
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(RecordError::Malformed)?;
        let sealed_len = body
            .len()
            .checked_sub(TAG_BYTES)
            .ok_or(RecordError::Malformed)?;
        let (sealed, tag) = body
            .split_at_checked(sealed_len)
            .ok_or(RecordError::Malformed)?;
        let out = out.get_mut(..sealed_len).ok_or(RecordError::Malformed)?;
        let nonce = self.0.nonce()?;
        self.0
            .key
            .open_separate_gather(nonce, Aad::from(header), sealed, tag, out)
            .map_err(|_| RecordError::Forged)?;
        // Section 5.4: the type is the last byte that is not zero.
        let len = out
            .iter()
            .rposition(|byte| *byte != 0)
            .ok_or(RecordError::Unexpected)?;
        let content = out.get(len).copied().and_then(Content::from_repr);
        let content = content.ok_or(RecordError::Unexpected)?;
        match len > MAX_DATA_BYTES {
            true => Err(RecordError::Malformed),
            false => Ok((content, len)),
        }
    }
}

/// Returns the body length of the record at the start of `bytes`, if its header is complete.
pub(super) fn record_body_len(bytes: &[u8]) -> Result<Option<usize>, RecordError> {
    let Some(&[kind, major, minor, high, low]) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    let plausible = kind == OUTER_TYPE && [major, minor] == LEGACY_VERSION;
    match plausible && len > TAG_BYTES && len <= MAX_BODY_BYTES {
        true => Ok(Some(len)),
        false => Err(RecordError::Malformed),
    }
}

/// Returns the bytes needed to open a record with a body of `body` bytes: data, type and padding.
pub(super) const fn open_buffer_len(body: usize) -> usize {
    body.saturating_sub(TAG_BYTES)
}
