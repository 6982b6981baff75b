//! A voucher in an OPEN (LH-VOUCHER-4). Receivers without trust anchors do not read it, so the
//! codec keeps it like an unknown option, and passes it on unchanged.

use super::{InvalidVoucher, Voucher};
use crate::tlv::NUMBER;
use crate::{MAX_OPEN_BYTES, MAX_PASSED_DEPOTS, Open, UnknownOption};

/// Number of the option, which is neither critical nor mutable.
const VOUCHER: u16 = 35;
/// Room in an OPEN for the depots that it will pass (LH-ROUTE-5), in bytes.
const PASSED_BYTES: usize = 32 * MAX_PASSED_DEPOTS;
/// Size of an option's kind and length, in bytes.
const OPTION_HEADER_BYTES: usize = 4;

impl Open {
    /// Adds the voucher if the OPEN has room for it and for all depots that it may pass, and
    /// returns true then. The signature covers it, so this must precede it, and follow all other
    /// options.
    ///
    /// # Errors
    /// [`InvalidVoucher`]: the voucher breaks a rule, or is for another key than `principal`.
    pub fn add_voucher(&mut self, voucher: &Voucher) -> Result<bool, InvalidVoucher> {
        let value = voucher.to_bytes()?;
        self.unknown
            .retain(|option| option.kind & NUMBER != VOUCHER);
        let needed = self.encoded_bytes() + OPTION_HEADER_BYTES + value.len() + PASSED_BYTES;
        if needed > MAX_OPEN_BYTES {
            return Ok(false);
        }
        let at = self
            .unknown
            .partition_point(|option| option.kind & NUMBER < VOUCHER);
        let kind = VOUCHER;
        self.unknown.insert(at, UnknownOption { kind, value });
        Ok(true)
    }

    /// Returns true if the OPEN has a voucher, which may be malformed.
    #[must_use]
    pub fn has_voucher(&self) -> bool {
        self.unknown.iter().any(|option| option.kind == VOUCHER)
    }

    /// Returns the voucher for the principal, if there is one.
    ///
    /// # Errors
    /// [`InvalidVoucher`]: the option is malformed, or the voucher is for another key. The rest of
    /// the OPEN is unaffected.
    pub fn voucher(&self) -> Result<Option<Voucher>, InvalidVoucher> {
        let mut options = self.unknown.iter();
        let Some(option) = options.find(|option| option.kind == VOUCHER) else {
            return Ok(None);
        };
        let voucher = Voucher::from_bytes(&option.value)?;
        if voucher.key != self.principal {
            return Err(InvalidVoucher("it is for another key"));
        }
        Ok(Some(voucher))
    }
}
