//! A voucher says whose a key is: an X.509 certificate chain, and the signature of its leaf over
//! the key (LH-VOUCHER-1 to LH-VOUCHER-5). This crate reads and writes vouchers; it does not judge
//! certificates.

mod in_open;
mod in_status;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use data_encoding::BASE64URL_NOPAD;

use crate::PublicKey;
use crate::replay::MAX_SIGNATURE_AHEAD;
use crate::tlv::{FieldReader, FieldResult};

/// Version of the encoding.
const VERSION: u8 = 1;
/// Padding before the context. A TLS 1.2 server signs 64 bytes that its client influences; as in
/// TLS 1.3 (RFC 8446, section 4.4.3), 64 spaces prevent such a signature from being a voucher.
const SIGNATURE_PADDING: [u8; 64] = [0x20; 64];
/// Domain separation: prevents the signature from being valid for any other message
/// (LH-VOUCHER-2).
const SIGNATURE_CONTEXT: &[u8] = b"longhaul voucher signature v1\0";
/// Prefix of the text of a voucher; the digit is the version of the text form.
const PREFIX: &str = "lhv1:";
/// Maximum number of certificates in a voucher.
pub const MAX_VOUCHER_CERTIFICATES: usize = 8;
/// Maximum size of an encoded voucher, in bytes.
pub const MAX_VOUCHER_BYTES: usize = 16 * 1024;
/// Maximum length of the signature, in bytes: that of an RSA key of 8192 bits.
const MAX_SIGNATURE_BYTES: usize = 1024;
/// Maximum time from the start of a voucher to its end (LH-VOUCHER-3).
pub const MAX_VOUCHER_LIFETIME: Duration = Duration::from_secs(31 * 24 * 3600);

/// A certificate's statement that a key is used in its name.
#[derive(Clone, PartialEq, Eq)]
pub struct Voucher {
    /// Key that the certificate vouches for.
    pub key: PublicKey,
    /// Start of the voucher (inclusive), in milliseconds since 1970-01-01 UTC.
    pub start_unix_ms: u64,
    /// End of the voucher (exclusive), in milliseconds since 1970-01-01 UTC; later than the start.
    pub end_unix_ms: u64,
    /// Certificates in DER: the leaf, then those that issued it, up to but without the trust
    /// anchor; 1 to [`MAX_VOUCHER_CERTIFICATES`].
    pub certificates: Vec<Vec<u8>>,
    /// Algorithm of the signature: a `SignatureScheme` of TLS 1.3 (RFC 8446, section 4.2.3).
    pub scheme: u16,
    /// Signature of the leaf's key over [`Voucher::signed_bytes`]; empty until it is signed.
    pub signature: Vec<u8>,
}

/// Error for bytes that are not a voucher, and for values that cannot be encoded as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a voucher: {0}; make it again with: longhaul keys vouch")]
pub struct InvalidVoucher(&'static str);

/// Reason why a receiver does not believe a voucher (LH-VOUCHER-3, LH-VOUCHER-5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VoucherFault {
    /// It is malformed, or for another key. Make it again with `longhaul keys vouch`.
    #[error(transparent)]
    Invalid(#[from] InvalidVoucher),
    /// It begins this many milliseconds from now. If it should have begun, check the clocks.
    #[error("the voucher begins in {} s: check the clocks", .0.div_ceil(1000))]
    NotYetValid(u64),
    /// It ended this many milliseconds ago. Make a new one with `longhaul keys vouch`.
    #[error("the voucher ended {} s ago: make a new one with: longhaul keys vouch", .0 / 1000)]
    Expired(u64),
    /// It lasts longer than receivers accept. Make a shorter one with `longhaul keys vouch`.
    #[error(
        "the voucher lasts longer than {} days: make a shorter one with: longhaul keys vouch",
        MAX_VOUCHER_LIFETIME.as_secs() / 86_400
    )]
    LifetimeTooLong,
    /// The signature is not that of the certificate's key. It was changed in transit, or forged.
    #[error("the voucher's signature does not match its certificate")]
    Signature,
    /// The certificate, or one that issued it, has expired. Ask the authority for a new one.
    #[error("the certificate has expired: ask its authority for a new one")]
    CertificateExpired,
    /// The certificate, or one that issued it, is not valid yet. Check the clocks.
    #[error("the certificate is not valid yet: check the clocks")]
    CertificateNotYetValid,
    /// The certificate, or one that issued it, was revoked. Ask the authority for a new one.
    #[error("the certificate was revoked: ask its authority for a new one")]
    Revoked,
    /// The revocation list of the authority is too old, or of a kind that cannot be read, so nobody
    /// can tell whether the certificate was revoked. The operator of this server has to fetch a
    /// new one.
    #[error(
        "the revocation list of its authority is out of date or unreadable here: tell the operator"
    )]
    UnusableRevocationList,
    /// No authority that this server trusts has issued the certificate. If it trusts the root,
    /// include the certificates between it and yours in the file for `longhaul keys vouch`.
    #[error(
        "no authority that is trusted here issued the certificate: check that the file for \
         longhaul keys vouch includes the certificates of its issuers"
    )]
    UnknownIssuer,
    /// The authority may not vouch for any name of the certificate here. Ask the operator to add
    /// its subject to the `subjects` of the authority.
    #[error("none of the certificate's names is accepted from its authority: tell the operator")]
    Name,
    /// The certificate cannot be used for this. Ask the authority for another one.
    #[error("the certificate is not accepted: {0}")]
    Certificate(&'static str),
    /// The server remembers as many vouched keys as it may. Try again later.
    #[error("too many keys are vouched for here: try again later")]
    Full,
    /// The server checks many other certificates at the moment. Try again.
    #[error("too many certificates are being checked here: try again")]
    Busy,
}

impl Voucher {
    /// Checks that the voucher is valid at this time (LH-VOUCHER-3).
    ///
    /// # Errors
    /// [`VoucherFault`]: it begins later, has ended, or lasts too long.
    pub fn check_time(&self, now_unix_ms: u64) -> Result<(), VoucherFault> {
        let early = self.start_unix_ms.saturating_sub(now_unix_ms);
        if Duration::from_millis(early) > MAX_SIGNATURE_AHEAD {
            return Err(VoucherFault::NotYetValid(early));
        }
        if let Some(late) = now_unix_ms.checked_sub(self.end_unix_ms) {
            return Err(VoucherFault::Expired(late));
        }
        let lifetime = self.end_unix_ms.saturating_sub(self.start_unix_ms);
        if Duration::from_millis(lifetime) > MAX_VOUCHER_LIFETIME {
            return Err(VoucherFault::LifetimeTooLong);
        }
        Ok(())
    }

    /// Returns the text that the leaf's key signs: 64 spaces, the context, and all of the voucher
    /// except the signature (LH-VOUCHER-2).
    #[must_use]
    pub fn signed_bytes(&self) -> Vec<u8> {
        let mut out = BytesMut::with_capacity(4096);
        out.put_slice(&SIGNATURE_PADDING);
        out.put_slice(SIGNATURE_CONTEXT);
        self.put_unsigned(&mut out);
        out.to_vec()
    }

    /// Encodes the voucher as on the wire.
    ///
    /// # Errors
    /// [`InvalidVoucher`]: a value breaks a rule.
    pub fn to_bytes(&self) -> Result<Vec<u8>, InvalidVoucher> {
        self.validate().map_err(InvalidVoucher)?;
        let mut out = BytesMut::with_capacity(4096);
        self.put_unsigned(&mut out);
        put_long(&mut out, &self.signature);
        if out.len() > MAX_VOUCHER_BYTES {
            return Err(InvalidVoucher("its certificates exceed 16 KiB"));
        }
        Ok(out.to_vec())
    }

    /// Decodes a voucher from `bytes`, which must contain nothing else.
    ///
    /// # Errors
    /// [`InvalidVoucher`]: the bytes are not a voucher.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidVoucher> {
        if bytes.len() > MAX_VOUCHER_BYTES {
            return Err(InvalidVoucher("longer than 16 KiB"));
        }
        let mut reader = FieldReader(bytes);
        let voucher = Self::take(&mut reader).map_err(InvalidVoucher)?;
        reader.expect_end().map_err(InvalidVoucher)?;
        Ok(voucher)
    }

    /// Encodes the voucher as text: `lhv1:` and base64url digits without padding (RFC 4648).
    ///
    /// # Errors
    /// [`InvalidVoucher`]: a value breaks a rule.
    pub fn to_text(&self) -> Result<String, InvalidVoucher> {
        Ok(format!(
            "{PREFIX}{}",
            BASE64URL_NOPAD.encode(&self.to_bytes()?)
        ))
    }

    fn put_unsigned(&self, out: &mut BytesMut) {
        out.put_u8(VERSION);
        out.put_slice(self.key.as_bytes());
        out.put_u64(self.start_unix_ms);
        out.put_u64(self.end_unix_ms);
        // `validate` bounds the number.
        out.put_u8(u8::try_from(self.certificates.len()).unwrap_or(u8::MAX));
        for certificate in &self.certificates {
            put_long(out, certificate);
        }
        out.put_u16(self.scheme);
    }

    fn take(value: &mut FieldReader<'_>) -> FieldResult<Self> {
        if value.u8()? != VERSION {
            return Err("an unsupported version");
        }
        let voucher = Self {
            key: PublicKey::from_bytes(value.array()?),
            start_unix_ms: value.u64()?,
            end_unix_ms: value.u64()?,
            certificates: {
                let count = value.u8()?;
                if usize::from(count) > MAX_VOUCHER_CERTIFICATES {
                    return Err("more than 8 certificates");
                }
                let certificates = (0..count).map(|_| take_long(value));
                certificates.collect::<FieldResult<_>>()?
            },
            scheme: value.u16()?,
            signature: take_long(value)?,
        };
        voucher.validate()?;
        Ok(voucher)
    }

    /// Checks the rules that the type system does not enforce (LH-VOUCHER-1).
    fn validate(&self) -> FieldResult<()> {
        if self.end_unix_ms <= self.start_unix_ms {
            return Err("an end before its start");
        }
        if !(1..=MAX_VOUCHER_CERTIFICATES).contains(&self.certificates.len()) {
            return Err("not 1 to 8 certificates");
        }
        if self.certificates.iter().any(Vec::is_empty) {
            return Err("an empty certificate");
        }
        let total: usize = self.certificates.iter().map(Vec::len).sum();
        if total > MAX_VOUCHER_BYTES {
            return Err("its certificates exceed 16 KiB");
        }
        if !(1..=MAX_SIGNATURE_BYTES).contains(&self.signature.len()) {
            return Err("a signature that is not 1 to 1024 bytes long");
        }
        Ok(())
    }
}

impl FromStr for Voucher {
    type Err = InvalidVoucher;

    fn from_str(text: &str) -> Result<Self, InvalidVoucher> {
        let digits = text.strip_prefix(PREFIX).unwrap_or_default();
        // Base64 encodes every 3 bytes as 4 digits.
        if digits.is_empty() || digits.len() > MAX_VOUCHER_BYTES * 4 / 3 + 4 {
            return Err(InvalidVoucher("not of the form lhv1:..."));
        }
        let bytes = BASE64URL_NOPAD
            .decode(digits.as_bytes())
            .map_err(|_| InvalidVoucher("digits that are not base64url"))?;
        Self::from_bytes(&bytes)
    }
}

/// Shows the key and the sizes; certificates are long.
impl fmt::Debug for Voucher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Voucher")
            .field("key", &self.key)
            .field("start_unix_ms", &self.start_unix_ms)
            .field("end_unix_ms", &self.end_unix_ms)
            .field("certificates", &self.certificates.len())
            .field("scheme", &self.scheme)
            .finish_non_exhaustive()
    }
}

/// Appends a length of two bytes, and the value. `validate` bounds lengths far below 64 KiB.
fn put_long(out: &mut BytesMut, value: &[u8]) {
    out.put_u16(u16::try_from(value.len()).unwrap_or(u16::MAX));
    out.put_slice(value);
}

fn take_long(value: &mut FieldReader<'_>) -> FieldResult<Vec<u8>> {
    let length = usize::from(value.u16()?);
    Ok(value.bytes(length)?.to_vec())
}
