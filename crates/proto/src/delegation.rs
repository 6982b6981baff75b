//! A principal's signed permission for another key to act for it: what for, between which ends, how
//! fast, and until when (LH-DELEGATION-1 to LH-DELEGATION-7). Pure: the caller passes the time.

mod in_open;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use data_encoding::{BASE32_NOPAD, HEXLOWER};

use crate::replay::MAX_SIGNATURE_AHEAD;
use crate::tlv::{FieldReader, FieldResult};
use crate::{KeyError, PublicKey, SigningKey, text};

pub use in_open::MAX_OPEN_DELEGATIONS;

/// Version of the encoding.
const VERSION: u8 = 1;
/// Domain separation: prevents the signature from being valid for any other message
/// (LH-DELEGATION-1).
const SIGNATURE_CONTEXT: &[u8] = b"longhaul delegation signature v1\0";
/// Prefix of the text of a delegation; the digit is the version of the text form.
const PREFIX: &str = "lhd1:";
/// Maximum length of an end, in bytes: that of a host name.
const MAX_END_BYTES: usize = 253;
/// Flag: a circuit may also lead from the second end to the first.
const BOTH_WAYS: u8 = 1;
/// Flag: the delegation is for one controller, whose key follows.
const WITH_AUDIENCE: u8 = 2;
/// Maximum time from the start of a delegation to its end (LH-DELEGATION-2).
pub const MAX_DELEGATION_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Maximum time from the start of a delegation for reading to its end (LH-DELEGATION-7). The
/// principal renews it while its copy runs.
pub const MAX_READ_LIFETIME: Duration = Duration::from_secs(2 * 3600);
/// Maximum size of an encoded delegation, in bytes.
pub const MAX_DELEGATION_BYTES: usize = 3 + 16 + 3 * 32 + 2 * (1 + MAX_END_BYTES) + 3 * 8 + 64;
/// Maximum length of the text of a delegation: base32 encodes every 5 bytes as 8 digits.
pub const MAX_DELEGATION_TEXT_BYTES: usize = PREFIX.len() + MAX_DELEGATION_BYTES * 8 / 5 + 8;

/// Action for which a delegation is valid. Every number has one meaning, so a delegation for one
/// action is never valid for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegatedAction {
    /// Reserving a circuit for the principal's sessions.
    Circuit,
    /// Copying from a server what one request names (LH-DELEGATION-6).
    Read,
    /// An action that this version does not know, by its number.
    Other(u8),
}

/// A principal's permission to a delegate. [`Delegation::sign`] makes a key its principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegation {
    /// Random number, unique among the principal's delegations.
    pub id: [u8; 16],
    /// Rights of the delegate.
    pub action: DelegatedAction,
    /// Key in whose name the delegate acts.
    pub principal: PublicKey,
    /// Key that may act.
    pub delegate: PublicKey,
    /// Key of the only controller or server that accepts it. If `None`, any controller that knows
    /// the principal, and no server.
    pub audience: Option<PublicKey>,
    /// First end: a key, a host name or an address, in text form. 1 to 253 printable bytes. For
    /// reading, the hash of the request that is permitted (LH-DELEGATION-6).
    pub from: String,
    /// Second end, in the same form. For reading, the server that copies, as the principal named
    /// it.
    pub to: String,
    /// True if circuits from the second end to the first are permitted as well.
    pub both_ways: bool,
    /// Maximum rate of circuits, in bit/s; at least 1. Without meaning for reading.
    pub max_rate: u64,
    /// Start (inclusive), in milliseconds since 1970-01-01 UTC.
    pub start_unix_ms: u64,
    /// End (exclusive), in milliseconds since 1970-01-01 UTC. Circuits end by then as well.
    pub end_unix_ms: u64,
    /// Signature of the principal; all zero until [`Delegation::sign`].
    pub signature: [u8; 64],
}

/// Circuit that a delegate asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegatedCircuit {
    /// Rate, in bit/s.
    pub rate: u64,
    /// End, in milliseconds since 1970-01-01 UTC.
    pub end_unix_ms: u64,
}

/// Reason why a controller or a server rejects a delegation (LH-DELEGATION-2, LH-DELEGATION-7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DelegationFault {
    /// It was given to another key. A delegation is valid only for the key that it names.
    #[error("the delegation is for {0}: only that key can use it")]
    Delegate(PublicKey),
    /// It is for another controller or server.
    #[error("the delegation is for the controller or server {0}: ask that one")]
    Audience(PublicKey),
    /// It is for reading and names no server that accepts it.
    #[error("the delegation names no server: the principal must sign one that does")]
    NoAudience,
    /// It is for another action, such as one of a later release.
    #[error("the delegation is not {0}: the principal must sign one that is")]
    Action(&'static str),
    /// It begins this many milliseconds from now. If it should have begun, check the clocks.
    #[error("the delegation begins in {} s: check both clocks", .0.div_ceil(1000))]
    NotYetValid(u64),
    /// It ended this many milliseconds ago.
    #[error("the delegation ended {} s ago: the principal must sign a new one", .0 / 1000)]
    Expired(u64),
    /// It lasts longer than a delegation may.
    #[error(
        "the delegation is valid for {} s, and at most {} s are accepted: sign a shorter one",
        .lifetime.as_secs(),
        .maximum.as_secs()
    )]
    LifetimeTooLong {
        /// Time from its start to its end.
        lifetime: Duration,
        /// Maximum for its action.
        maximum: Duration,
    },
    /// The circuit is faster than delegated.
    #[error("the delegation is for at most {0} bit/s: ask for less")]
    Rate(u64),
    /// The circuit ends after the delegation, by this many milliseconds.
    #[error("the circuit ends {} s after the delegation: ask for a shorter one", .0.div_ceil(1000))]
    Outlasts(u64),
    /// The signature is not the principal's. It was changed in transit, or forged.
    #[error("the delegation's signature does not match its principal")]
    Signature,
}

/// Error for bytes that are not a delegation, and for values that cannot be encoded as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a delegation: {0}")]
pub struct InvalidDelegation(&'static str);

impl DelegatedAction {
    const fn number(self) -> u8 {
        match self {
            Self::Circuit => 1,
            Self::Read => 2,
            Self::Other(number) => number,
        }
    }

    const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Circuit,
            2 => Self::Read,
            other => Self::Other(other),
        }
    }
}

impl Delegation {
    /// Makes `key` the principal and signs the delegation (LH-DELEGATION-1).
    ///
    /// # Errors
    /// [`KeyError::CannotSign`] when the cryptographic library refuses.
    pub fn sign(&mut self, key: &SigningKey) -> Result<(), KeyError> {
        self.principal = key.public();
        self.signature = key.sign(&self.signed_bytes())?;
        Ok(())
    }

    /// Checks that `delegate` may reserve this circuit at the controller `me` now
    /// (LH-DELEGATION-2). The caller compares the ends, whose names are those of its map. The
    /// signature is checked last.
    ///
    /// # Errors
    /// [`DelegationFault`]: the first fault found.
    pub fn check_circuit(
        &self,
        delegate: &PublicKey,
        me: &PublicKey,
        now_unix_ms: u64,
        circuit: DelegatedCircuit,
    ) -> Result<(), DelegationFault> {
        self.check_parties(delegate, me)?;
        if self.action != DelegatedAction::Circuit {
            return Err(DelegationFault::Action("for circuits"));
        }
        self.check_time(now_unix_ms, MAX_DELEGATION_LIFETIME)?;
        if circuit.rate > self.max_rate {
            return Err(DelegationFault::Rate(self.max_rate));
        }
        let after = circuit.end_unix_ms.saturating_sub(self.end_unix_ms);
        if after > 0 {
            return Err(DelegationFault::Outlasts(after));
        }
        self.check_signature()
    }

    /// Checks that `delegate` may read at the server `me` now (LH-DELEGATION-7). The caller
    /// compares the request with [`Delegation::from`]. The signature is checked last.
    ///
    /// # Errors
    /// [`DelegationFault`]: the first fault found.
    pub fn check_read(
        &self,
        delegate: &PublicKey,
        me: &PublicKey,
        now_unix_ms: u64,
    ) -> Result<(), DelegationFault> {
        self.check_parties(delegate, me)?;
        if self.action != DelegatedAction::Read {
            return Err(DelegationFault::Action("for reading"));
        }
        if self.audience.is_none() {
            return Err(DelegationFault::NoAudience);
        }
        self.check_time(now_unix_ms, MAX_READ_LIFETIME)?;
        self.check_signature()
    }

    fn check_parties(&self, delegate: &PublicKey, me: &PublicKey) -> Result<(), DelegationFault> {
        if self.delegate != *delegate {
            return Err(DelegationFault::Delegate(self.delegate));
        }
        match self.audience.filter(|audience| audience != me) {
            Some(other) => Err(DelegationFault::Audience(other)),
            None => Ok(()),
        }
    }

    fn check_time(&self, now_unix_ms: u64, maximum: Duration) -> Result<(), DelegationFault> {
        let lifetime = Duration::from_millis(self.end_unix_ms.saturating_sub(self.start_unix_ms));
        if lifetime > maximum {
            return Err(DelegationFault::LifetimeTooLong { lifetime, maximum });
        }
        // The principal's clock may be ahead, as for an OPEN (LH-SIGN-2).
        let tolerance = u64::try_from(MAX_SIGNATURE_AHEAD.as_millis()).unwrap_or(u64::MAX);
        let early = self.start_unix_ms.saturating_sub(now_unix_ms);
        if early > tolerance {
            return Err(DelegationFault::NotYetValid(early));
        }
        match now_unix_ms.checked_sub(self.end_unix_ms) {
            Some(late) => Err(DelegationFault::Expired(late)),
            None => Ok(()),
        }
    }

    fn check_signature(&self) -> Result<(), DelegationFault> {
        if !self.principal.verify(&self.signed_bytes(), &self.signature) {
            return Err(DelegationFault::Signature);
        }
        Ok(())
    }

    /// Encodes the delegation as on the wire.
    ///
    /// # Errors
    /// [`InvalidDelegation`]: a value breaks a rule.
    pub fn to_bytes(&self) -> Result<Vec<u8>, InvalidDelegation> {
        self.validate().map_err(InvalidDelegation)?;
        let mut out = BytesMut::with_capacity(MAX_DELEGATION_BYTES);
        self.put(&mut out);
        Ok(out.to_vec())
    }

    /// Decodes a delegation from `bytes`, which must contain nothing else.
    ///
    /// # Errors
    /// [`InvalidDelegation`]: the bytes are not a delegation.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidDelegation> {
        let mut reader = FieldReader(bytes);
        let delegation = Self::take(&mut reader).map_err(InvalidDelegation)?;
        reader.expect_end().map_err(InvalidDelegation)?;
        Ok(delegation)
    }

    /// Encodes the delegation as text: `lhd1:` and base32 digits (RFC 4648, no padding) in lower
    /// case.
    ///
    /// # Errors
    /// [`InvalidDelegation`]: a value breaks a rule.
    pub fn to_text(&self) -> Result<String, InvalidDelegation> {
        let digits = BASE32_NOPAD.encode(&self.to_bytes()?);
        Ok(format!("{PREFIX}{}", digits.to_ascii_lowercase()))
    }

    fn put_unsigned(&self, out: &mut BytesMut) {
        out.put_u8(VERSION);
        out.put_u8(self.action.number());
        let both_ways = if self.both_ways { BOTH_WAYS } else { 0 };
        let audience = self.audience.map_or(0, |_| WITH_AUDIENCE);
        out.put_u8(both_ways | audience);
        out.put_slice(&self.id);
        out.put_slice(self.principal.as_bytes());
        out.put_slice(self.delegate.as_bytes());
        if let Some(audience) = &self.audience {
            out.put_slice(audience.as_bytes());
        }
        for end in [&self.from, &self.to] {
            // `validate` has checked the length.
            out.put_u8(u8::try_from(end.len()).unwrap_or(u8::MAX));
            out.put_slice(end.as_bytes());
        }
        out.put_u64(self.max_rate);
        out.put_u64(self.start_unix_ms);
        out.put_u64(self.end_unix_ms);
    }

    fn signed_bytes(&self) -> BytesMut {
        let mut out = BytesMut::with_capacity(MAX_DELEGATION_BYTES);
        out.put_slice(SIGNATURE_CONTEXT);
        self.put_unsigned(&mut out);
        out
    }

    /// Appends the delegation, which has been validated, to an option of an OPEN.
    pub(crate) fn put(&self, out: &mut BytesMut) {
        self.put_unsigned(out);
        out.put_slice(&self.signature);
    }

    pub(crate) fn take(value: &mut FieldReader<'_>) -> FieldResult<Self> {
        if value.u8()? != VERSION {
            return Err("an unsupported version");
        }
        let action = DelegatedAction::from_number(value.u8()?);
        let flags = value.u8()?;
        if flags & !(BOTH_WAYS | WITH_AUDIENCE) != 0 {
            return Err("unknown flags");
        }
        let delegation = Self {
            id: value.array()?,
            action,
            principal: PublicKey::from_bytes(value.array()?),
            delegate: PublicKey::from_bytes(value.array()?),
            audience: match flags & WITH_AUDIENCE {
                0 => None,
                _ => Some(PublicKey::from_bytes(value.array()?)),
            },
            from: take_end(value)?,
            to: take_end(value)?,
            both_ways: flags & BOTH_WAYS != 0,
            max_rate: value.u64()?,
            start_unix_ms: value.u64()?,
            end_unix_ms: value.u64()?,
            signature: value.array()?,
        };
        delegation.validate()?;
        Ok(delegation)
    }

    /// Checks the rules that the type system does not enforce.
    pub(crate) fn validate(&self) -> FieldResult<()> {
        for end in [&self.from, &self.to] {
            if !(1..=MAX_END_BYTES).contains(&end.len()) || !end.chars().all(text::is_printable) {
                return Err("an end that is not 1 to 253 printable bytes");
            }
        }
        if self.end_unix_ms <= self.start_unix_ms {
            return Err("an end before its start");
        }
        if self.max_rate == 0 {
            return Err("a rate of 0");
        }
        if matches!(self.action, DelegatedAction::Other(0..=2)) {
            return Err("an action with another's number");
        }
        Ok(())
    }
}

fn take_end(value: &mut FieldReader<'_>) -> FieldResult<String> {
    let length = usize::from(value.u8()?);
    let text = std::str::from_utf8(value.bytes(length)?).map_err(|_| "text not in UTF-8")?;
    Ok(text.to_owned())
}

impl FromStr for Delegation {
    type Err = InvalidDelegation;

    fn from_str(text: &str) -> Result<Self, InvalidDelegation> {
        let digits = text.strip_prefix(PREFIX).unwrap_or_default();
        if digits.is_empty() || text.len() > MAX_DELEGATION_TEXT_BYTES {
            return Err(InvalidDelegation(
                "not of the form lhd1:...: copy it again completely",
            ));
        }
        let bytes = BASE32_NOPAD
            .decode(digits.to_ascii_uppercase().as_bytes())
            .map_err(|_| {
                InvalidDelegation("digits that are not base32: copy it again completely")
            })?;
        Self::from_bytes(&bytes)
    }
}

/// Writes the number, the ends and the delegate on one line.
impl fmt::Display for Delegation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = HEXLOWER.encode(&self.id);
        let Self {
            from, to, delegate, ..
        } = self;
        write!(f, "delegation {id} to {delegate} from {from} to {to}")
    }
}
