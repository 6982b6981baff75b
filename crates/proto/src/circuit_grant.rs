//! A controller's signed grant for a session to use a circuit at a depot: the circuit, the holder,
//! the time and the share (LH-GRANT-1 to LH-GRANT-4).

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use data_encoding::BASE32_NOPAD;

use crate::replay::MAX_SIGNATURE_AHEAD;
use crate::tlv::{FieldReader, FieldResult};
use crate::{KeyError, PublicKey, SigningKey, text};

/// Version of the encoding.
const VERSION: u8 = 1;
/// Domain separation: prevents the signature from being valid for any other message (LH-GRANT-1).
const SIGNATURE_CONTEXT: &[u8] = b"longhaul circuit grant signature v1\0";
/// Prefix of the text of a grant; the digit is the version of the text form.
const PREFIX: &str = "lhg1:";
/// Maximum length of a circuit's name, in bytes: as in [`Open::circuit`](crate::Open::circuit).
const MAX_CIRCUIT_BYTES: usize = 128;
/// Maximum length of the name of a circuit's end, in bytes.
const MAX_END_BYTES: usize = 64;
/// Maximum number of depots that one grant covers.
pub const MAX_GRANT_DEPOTS: usize = 32;
/// Maximum time from the issue of a grant to its end (LH-GRANT-1).
///
/// A withdrawn grant expires after this time even at depots that the controller cannot reach.
pub const MAX_GRANT_LIFETIME: Duration = Duration::from_secs(60);
/// Maximum remaining lifetime of a grant that depots accept. The controller's clock may be ahead by
/// as much as an initiator's may (LH-GRANT-2).
const MAX_ACCEPTED_LIFETIME: Duration = MAX_GRANT_LIFETIME.saturating_add(MAX_SIGNATURE_AHEAD);
/// Maximum size of an encoded grant, in bytes.
pub const MAX_GRANT_BYTES: usize = 1
    + 1
    + MAX_CIRCUIT_BYTES
    + 32
    + 2 * (1 + MAX_END_BYTES)
    + 8
    + 8
    + 8
    + 2
    + 1
    + 32 * MAX_GRANT_DEPOTS
    + 32
    + 64;

/// A controller's grant to one key. [`CircuitGrant::sign`] makes the controller its issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitGrant {
    /// Name of the circuit, assigned by its controller: 1 to 128 bytes.
    pub circuit: Vec<u8>,
    /// Key whose sessions may use the circuit: the principal of their OPENs.
    pub holder: PublicKey,
    /// Name of the circuit's first end, for logs: 1 to 64 bytes, all of them printable
    /// ([`crate::text`]).
    pub from: String,
    /// Name of the circuit's other end, in the same form.
    pub to: String,
    /// Start of the grant (inclusive), in milliseconds since 1970-01-01 UTC.
    pub start_unix_ms: u64,
    /// End of the grant (exclusive), in milliseconds since 1970-01-01 UTC; later than the start.
    pub end_unix_ms: u64,
    /// Rate in bit/s that all sessions together may use in each direction; at least 1. It includes
    /// packet headers ([`payload_rate`]).
    pub rate: u64,
    /// Maximum number of concurrent sessions; at least 1.
    pub sessions: u16,
    /// Depots at which the grant is valid: 1 to 32, in ascending order, without duplicates.
    pub depots: Vec<PublicKey>,
    /// Key of the controller.
    pub issuer: PublicKey,
    /// Signature of the controller; all zero until [`CircuitGrant::sign`].
    pub signature: [u8; 64],
}

/// Reason why a depot rejects a grant (LH-GRANT-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GrantFault {
    /// The issuer is not a controller that the depot trusts.
    #[error(
        "the grant was issued by {0}, which this depot does not trust: its operator must list it \
         under controllers in the policy"
    )]
    Issuer(PublicKey),
    /// The grant is for another key. A grant is valid only for the key that it names.
    #[error("the grant is for another key: ask the controller for one of this key")]
    Holder,
    /// The grant is for other depots.
    #[error("the grant is for other depots: take the route that the controller names with it")]
    Depot,
    /// The signature is not the issuer's. It was changed in transit, or forged.
    #[error("the grant's signature does not match its issuer")]
    Signature,
    /// The grant begins this many milliseconds from now. If it should have begun, check the clocks.
    #[error("the grant begins in {} s: wait until then", .0.div_ceil(1000))]
    NotYetValid(u64),
    /// The grant ended this many milliseconds ago. Grants last a minute. If it is new, check the
    /// clocks.
    #[error("the grant ended {} s ago: ask the controller for a new one", .0 / 1000)]
    Expired(u64),
    /// The remaining lifetime exceeds the maximum, so a withdrawal would take too long.
    #[error(
        "the grant is valid for another {} s, and a depot accepts at most {} s: update the \
         controller",
        .0 / 1000,
        MAX_ACCEPTED_LIFETIME.as_secs()
    )]
    LifetimeTooLong(u64),
}

/// Error for bytes that are not a grant, and for values that cannot be encoded as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a circuit's grant: {0}")]
pub struct InvalidGrant(&'static str);

/// Payload and frame size, in bytes, of a full TCP segment with timestamps (RFC 7323) over
/// Ethernet.
const SEGMENT_PAYLOAD: u128 = 1448;
const SEGMENT_FRAME: u128 = 1514;

/// Returns the payload rate, in bit/s, that fits a circuit of this rate. Reserved rates count
/// packets with their headers, as network devices do.
#[must_use]
pub const fn payload_rate(rate: u64) -> u64 {
    // The result is less than `rate`, so the cast cannot truncate.
    (rate as u128 * SEGMENT_PAYLOAD / SEGMENT_FRAME) as u64
}

impl CircuitGrant {
    /// Makes `key` the issuer and signs the grant (LH-GRANT-1).
    ///
    /// # Errors
    /// [`KeyError::CannotSign`] when the cryptographic library refuses.
    pub fn sign(&mut self, key: &SigningKey) -> Result<(), KeyError> {
        self.issuer = key.public();
        self.signature = key.sign(&self.signed_bytes())?;
        Ok(())
    }

    /// Checks that `holder` may use the circuit at depot `me` now (LH-GRANT-2). `trusts` returns
    /// true for trusted controllers. The signature is checked last.
    ///
    /// # Errors
    /// [`GrantFault`]: the first fault found.
    pub fn check(
        &self,
        holder: &PublicKey,
        me: &PublicKey,
        now_unix_ms: u64,
        trusts: impl FnOnce(&PublicKey) -> bool,
    ) -> Result<(), GrantFault> {
        if !trusts(&self.issuer) {
            return Err(GrantFault::Issuer(self.issuer));
        }
        if self.holder != *holder {
            return Err(GrantFault::Holder);
        }
        if !self.depots.contains(me) {
            return Err(GrantFault::Depot);
        }
        if let Some(early) = self
            .start_unix_ms
            .checked_sub(now_unix_ms)
            .filter(|early| *early > 0)
        {
            return Err(GrantFault::NotYetValid(early));
        }
        if let Some(late) = now_unix_ms.checked_sub(self.end_unix_ms) {
            return Err(GrantFault::Expired(late));
        }
        let left = self.end_unix_ms.saturating_sub(now_unix_ms);
        if Duration::from_millis(left) > MAX_ACCEPTED_LIFETIME {
            return Err(GrantFault::LifetimeTooLong(left));
        }
        if !self.issuer.verify(&self.signed_bytes(), &self.signature) {
            return Err(GrantFault::Signature);
        }
        Ok(())
    }

    /// Encodes the grant as on the wire.
    ///
    /// # Errors
    /// [`InvalidGrant`]: a value breaks a rule.
    pub fn to_bytes(&self) -> Result<Vec<u8>, InvalidGrant> {
        self.validate().map_err(InvalidGrant)?;
        let mut out = BytesMut::with_capacity(512);
        self.put(&mut out);
        Ok(out.to_vec())
    }

    /// Decodes a grant from `bytes`, which must contain nothing else.
    ///
    /// # Errors
    /// [`InvalidGrant`]: the bytes are not a grant.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidGrant> {
        let mut reader = FieldReader(bytes);
        let grant = Self::take(&mut reader).map_err(InvalidGrant)?;
        reader.expect_end().map_err(InvalidGrant)?;
        Ok(grant)
    }

    /// Encodes the grant as text for people and programs: `lhg1:` and base32 digits (RFC 4648, no
    /// padding) in lower case.
    ///
    /// # Errors
    /// [`InvalidGrant`]: a value breaks a rule.
    pub fn to_text(&self) -> Result<String, InvalidGrant> {
        let digits = BASE32_NOPAD.encode(&self.to_bytes()?);
        Ok(format!("{PREFIX}{}", digits.to_ascii_lowercase()))
    }

    pub(crate) fn put(&self, out: &mut BytesMut) {
        self.put_unsigned(out);
        out.put_slice(&self.signature);
    }

    fn put_unsigned(&self, out: &mut BytesMut) {
        // `sound` has checked that all lengths are within their bounds.
        let length = |length: usize| u8::try_from(length).unwrap_or(u8::MAX);
        out.put_u8(VERSION);
        out.put_u8(length(self.circuit.len()));
        out.put_slice(&self.circuit);
        out.put_slice(self.holder.as_bytes());
        for end in [&self.from, &self.to] {
            out.put_u8(length(end.len()));
            out.put_slice(end.as_bytes());
        }
        out.put_u64(self.start_unix_ms);
        out.put_u64(self.end_unix_ms);
        out.put_u64(self.rate);
        out.put_u16(self.sessions);
        out.put_u8(length(self.depots.len()));
        for depot in &self.depots {
            out.put_slice(depot.as_bytes());
        }
        out.put_slice(self.issuer.as_bytes());
    }

    fn signed_bytes(&self) -> BytesMut {
        let mut out = BytesMut::with_capacity(512);
        out.put_slice(SIGNATURE_CONTEXT);
        self.put_unsigned(&mut out);
        out
    }

    pub(crate) fn take(value: &mut FieldReader<'_>) -> FieldResult<Self> {
        if value.u8()? != VERSION {
            return Err("an unsupported version");
        }
        let circuit = usize::from(value.u8()?);
        let grant = Self {
            circuit: value.bytes(circuit)?.to_vec(),
            holder: PublicKey::from_bytes(value.array()?),
            from: take_end(value)?,
            to: take_end(value)?,
            start_unix_ms: value.u64()?,
            end_unix_ms: value.u64()?,
            rate: value.u64()?,
            sessions: value.u16()?,
            depots: {
                let count = value.u8()?;
                if usize::from(count) > MAX_GRANT_DEPOTS {
                    return Err("more than 32 depots");
                }
                let depots = (0..count).map(|_| Ok(PublicKey::from_bytes(value.array()?)));
                depots.collect::<FieldResult<_>>()?
            },
            issuer: PublicKey::from_bytes(value.array()?),
            signature: value.array()?,
        };
        grant.validate()?;
        Ok(grant)
    }

    /// Checks the rules that the type system does not enforce.
    pub(crate) fn validate(&self) -> FieldResult<()> {
        if !(1..=MAX_CIRCUIT_BYTES).contains(&self.circuit.len()) {
            return Err("a circuit's name that is not 1 to 128 bytes long");
        }
        for end in [&self.from, &self.to] {
            if !(1..=MAX_END_BYTES).contains(&end.len()) || !end.chars().all(text::is_printable) {
                return Err("an end that is not 1 to 64 printable bytes");
            }
        }
        if self.end_unix_ms <= self.start_unix_ms {
            return Err("an end before its start");
        }
        if self.rate == 0 || self.sessions == 0 {
            return Err("a rate or a number of sessions of 0");
        }
        let ascend = self.depots.is_sorted_by(|one, next| one < next);
        if self.depots.is_empty() || self.depots.len() > MAX_GRANT_DEPOTS || !ascend {
            return Err("not 1 to 32 depots in ascending order");
        }
        Ok(())
    }
}

impl FromStr for CircuitGrant {
    type Err = InvalidGrant;

    fn from_str(text: &str) -> Result<Self, InvalidGrant> {
        let digits = text.strip_prefix(PREFIX).unwrap_or_default();
        // Base32 encodes every 5 bytes as 8 digits.
        if digits.is_empty() || digits.len() > MAX_GRANT_BYTES * 8 / 5 + 8 {
            return Err(InvalidGrant(
                "not of the form lhg1:...: copy it again completely",
            ));
        }
        let bytes = BASE32_NOPAD
            .decode(digits.to_ascii_uppercase().as_bytes())
            .map_err(|_| InvalidGrant("digits that are not base32: copy it again completely"))?;
        Self::from_bytes(&bytes)
    }
}

fn take_end(value: &mut FieldReader<'_>) -> FieldResult<String> {
    let length = usize::from(value.u8()?);
    let text = std::str::from_utf8(value.bytes(length)?).map_err(|_| "text not in UTF-8")?;
    Ok(text.to_owned())
}

/// Writes the circuit and its ends on one line.
impl fmt::Display for CircuitGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let circuit = text::printable(&self.circuit);
        write!(f, "circuit {circuit} from {} to {}", self.from, self.to)
    }
}
