//! A server's voucher in its STATUS, for clients that ask for it in their OPEN (LH-VOUCHER-6). Both
//! options are optional, so the codecs keep them like unknown ones.

use super::Voucher;
use crate::tlv::NUMBER;
use crate::{MAX_PADDING_BYTES, Open, Status, UnknownOption};

/// Number of the OPEN's option: maximum size of the server's voucher, in bytes (2).
const WANTED: u16 = 36;
/// Number of the option of STATUS.
const VOUCHER: u16 = 12;
/// Size of an option's kind and length, in bytes.
const OPTION_HEADER_BYTES: usize = 4;

impl Open {
    /// Asks the acceptor for its voucher, of at most this many bytes. The signature covers it, so
    /// this must precede it.
    pub fn request_server_voucher(&mut self, max_bytes: u16) {
        put(&mut self.unknown, WANTED, max_bytes.to_be_bytes().to_vec());
    }

    /// Returns the maximum size of the acceptor's voucher, in bytes; 0 if it is not asked for.
    #[must_use]
    pub fn server_voucher_bytes(&self) -> u16 {
        let mut options = self.unknown.iter();
        let wanted = options.find(|option| option.kind == WANTED);
        let value = wanted.and_then(|option| option.value.as_slice().try_into().ok());
        value.map_or(0, u16::from_be_bytes).min(MAX_PADDING_BYTES)
    }
}

impl Status {
    /// Adds the acceptor's voucher if `open` asks for it and it is small enough. The padding is
    /// reduced by its size, because both fill the same flight.
    pub fn add_server_voucher(&mut self, voucher: &Voucher, open: &Open) {
        let Ok(value) = voucher.to_bytes() else {
            return;
        };
        let bytes = value.len() + OPTION_HEADER_BYTES;
        if bytes > usize::from(open.server_voucher_bytes()) {
            return;
        }
        let filled = u16::try_from(bytes).unwrap_or(u16::MAX);
        self.padding = self.padding.saturating_sub(filled);
        put(&mut self.unknown, VOUCHER, value);
    }

    /// Returns the acceptor's voucher, if there is a valid encoding of one.
    #[must_use]
    pub fn server_voucher(&self) -> Option<Voucher> {
        let mut options = self.unknown.iter();
        let option = options.find(|option| option.kind == VOUCHER)?;
        Voucher::from_bytes(&option.value).ok()
    }

    /// Returns the size of the option with the voucher, in bytes. A STATUS may be longer by it.
    pub(crate) fn server_voucher_bytes(&self) -> usize {
        let mut options = self.unknown.iter();
        let option = options.find(|option| option.kind == VOUCHER);
        let bytes = option.map_or(0, |option| OPTION_HEADER_BYTES + option.value.len());
        bytes.min(MAX_PADDING_BYTES.into())
    }
}

/// Adds or replaces an option at its place among those that are kept unread.
fn put(options: &mut Vec<UnknownOption>, kind: u16, value: Vec<u8>) {
    options.retain(|option| option.kind & NUMBER != kind);
    let at = options.partition_point(|option| option.kind & NUMBER < kind);
    options.insert(at, UnknownOption { kind, value });
}
