//! STATUS: what a hop answers to an OPEN, once.

use std::fmt;

use bytes::BytesMut;

use crate::{Endpoint, KeyError, Open, PublicKey, SigningKey, UnknownOption};

/// Longest detail, in bytes of UTF-8; longer ones are cut when encoded (LH-STATUS-4).
pub(crate) const MAX_DETAIL: usize = 256;

/// One hop's answer. Depots pass on those of later hops unread, so the initiator sees them in order
/// (LH-STATUS-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// How it went.
    pub code: StatusCode,
    /// The reporter's 1-based place along the chain, the acceptor included; see
    /// [`Open::position`](crate::Open::position). 0 in a failure by one that could not read the
    /// OPEN and so does not know its place (LH-CHAIN-2).
    pub hop: u8,
    /// Whether the reporter is the acceptor, whose answer is the last (LH-STATUS-3).
    pub acceptor: bool,
    /// The reporter's key, which [`Status::verify`] proves.
    pub reporter: Option<PublicKey>,
    /// Whom the reporter tried to reach.
    pub at: Option<Endpoint>,
    /// Whether any early data went on past the reporter (LH-FALLBACK-1).
    pub payload_forwarded: bool,
    /// More, in words for a person; what is not printable ([`crate::text`]) is written out when
    /// encoded and when decoded (LH-STATUS-4).
    pub detail: String,
    /// The reporter's signature, where it must sign (LH-STATUS-7).
    pub signature: Option<[u8; 64]>,
    /// Zeros that fill the acceptor's first flight, in bytes: no more than the OPEN asked for
    /// (LH-STATUS-9).
    pub padding: u16,
    /// The reporter's clock in milliseconds since 1970-01-01 UTC, where it refuses a time of
    /// signature (LH-STATUS-10).
    pub clock_unix_ms: Option<u64>,
    /// Non-critical options not known here, which the signature covers (LH-STATUS-5). Numbers
    /// ascend.
    pub unknown: Vec<UnknownOption>,
}

impl Status {
    /// A depot's answer at place `hop`, with nothing forwarded and nothing more to say.
    #[must_use]
    pub const fn new(code: StatusCode, hop: u8) -> Self {
        Self {
            code,
            hop,
            acceptor: false,
            reporter: None,
            at: None,
            payload_forwarded: false,
            detail: String::new(),
            signature: None,
            padding: 0,
            clock_unix_ms: None,
            unknown: Vec::new(),
        }
    }

    /// The same, by the acceptor.
    #[must_use]
    pub const fn of_acceptor(code: StatusCode, hop: u8) -> Self {
        let mut status = Self::new(code, hop);
        status.acceptor = true;
        status
    }

    /// Makes `key` the reporter and signs, as the answer to `open`, unless this says `Ok` on a
    /// route that names no keys (LH-STATUS-7). To be called last.
    ///
    /// # Errors
    /// [`KeyError::CannotSign`] when the cryptographic library refuses.
    pub fn sign(&mut self, key: &SigningKey, open: &Open) -> Result<(), KeyError> {
        self.reporter = Some(key.public());
        if self.code != StatusCode::Ok || open.route.names_keys() {
            self.signature = Some(key.sign(&self.signed_bytes(&open.signature))?);
        }
        Ok(())
    }

    /// The same, signed whatever it says and whatever the route names (LH-PROBE-1).
    ///
    /// # Errors
    /// [`KeyError::CannotSign`] when the cryptographic library refuses.
    pub fn sign_always(&mut self, key: &SigningKey, open: &Open) -> Result<(), KeyError> {
        self.reporter = Some(key.public());
        self.signature = Some(key.sign(&self.signed_bytes(&open.signature))?);
        Ok(())
    }

    /// As it travels, from whoever has `key`: signed as the answer to `open`, or with the key alone
    /// if there was none that could be read.
    #[must_use]
    pub fn into_answer(mut self, key: &SigningKey, open: Option<&Open>) -> BytesMut {
        match open {
            // A key that cannot sign leaves an answer that nobody takes, which is as good as none.
            Some(open) => drop(self.sign(key, open)),
            None => self.reporter = Some(key.public()),
        }
        let mut bytes = BytesMut::new();
        self.encode(&mut bytes);
        bytes
    }

    /// The reporter, if it signed this as the answer to the OPEN with this signature (LH-STATUS-8).
    #[must_use]
    pub fn verify(&self, open_signature: &[u8; 64]) -> Option<PublicKey> {
        let (reporter, signature) = (self.reporter?, self.signature?);
        reporter
            .verify(&self.signed_bytes(open_signature), &signature)
            .then_some(reporter)
    }
}

impl StatusCode {
    /// A short stable word, for logs and metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::BadOpen => "bad open",
            Self::NoVersion => "no version",
            Self::UnknownOption => "unknown option",
            Self::Unauthorised => "unauthorised",
            Self::Refused => "refused by policy",
            Self::BadSignature => "bad signature",
            Self::Replay => "replay",
            Self::Expired => "expired",
            Self::Loop => "loop",
            Self::HopLimit => "hop limit",
            Self::Misrouted => "misrouted",
            Self::HeaderTimeout => "header timeout",
            Self::NoService => "no service",
            Self::WishRefused => "wish refused",
            Self::GrantRefused => "grant refused",
            Self::DialRefused => "dial refused",
            Self::DialUnreachable => "dial unreachable",
            Self::DialTimeout => "dial timeout",
            Self::NameNotFound => "name not found",
            Self::SetupTimeout => "set-up timeout",
            Self::Overloaded => "overloaded",
            Self::Draining => "draining",
            Self::Internal => "internal",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Whether it says that the reporter could not reach whom it dialled.
    #[must_use]
    pub const fn is_dial(self) -> bool {
        matches!(
            self,
            Self::DialRefused | Self::DialUnreachable | Self::DialTimeout | Self::NameNotFound
        )
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// What became of an OPEN at one hop. The numbers are those of the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum StatusCode {
            $($(#[$doc])* $name,)*
            /// A failure that this version has no name for.
            Unknown(u8),
        }

        impl StatusCode {
            /// Every named code.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The code with this number; numbers without a name are failures all the same.
            #[must_use]
            pub const fn from_u8(number: u8) -> Self {
                match number {
                    $($number => Self::$name,)*
                    other => Self::Unknown(other),
                }
            }

            /// The number on the wire.
            #[must_use]
            pub const fn to_u8(self) -> u8 {
                match self {
                    $(Self::$name => $number,)*
                    Self::Unknown(number) => number,
                }
            }
        }

        impl fmt::Display for StatusCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => f.write_str($text),)*
                    Self::Unknown(number) => write!(f, "failed with code {number}, which is unknown here"),
                }
            }
        }
    };
}

codes! {
    /// A depot: dialled on, and relays from now on. The acceptor: takes the session.
    Ok = 0, "ok";
    /// The OPEN breaks a rule of the codec.
    BadOpen = 1, "found the OPEN malformed";
    /// No protocol version in common.
    NoVersion = 2, "speaks no common protocol version";
    /// The OPEN carries a critical option not known there.
    UnknownOption = 3, "does not know a critical option of the OPEN";
    /// The principal is not known there.
    Unauthorised = 4, "does not know this key";
    /// The principal is known, but the policy does not grant this.
    Refused = 5, "refused by policy";
    /// The signature is not the principal's.
    BadSignature = 6, "found the signature false";
    /// The OPEN was seen before.
    Replay = 7, "has seen this OPEN before";
    /// Signed too long ago or in the future: a clock is off.
    Expired = 8, "found the time of signature outside its window: check the clocks";
    /// The depot had been passed already.
    Loop = 9, "found itself already passed: the route is a loop";
    /// The hop limit is used up.
    HopLimit = 10, "may not pass it on: the hop limit is used up";
    /// The OPEN was meant for another kind of place.
    Misrouted = 11, "is not the place the OPEN was meant for";
    /// The OPEN did not arrive in time.
    HeaderTimeout = 12, "waited too long for the OPEN";
    /// The acceptor does not offer the service asked for.
    NoService = 13, "does not offer this service";
    /// What the initiator states of the session is beyond what the policy grants (LH-WISH-1).
    WishRefused = 14, "does not allow what was stated of the session";
    /// The grant of a circuit does not count there, or all of it is in use (LH-GRANT-2,
    /// LH-GRANT-3).
    GrantRefused = 15, "does not take the grant of the circuit";
    /// The next place refused the connection.
    DialRefused = 16, "was refused the connection on";
    /// There is no way to the next place.
    DialUnreachable = 17, "cannot reach the next place";
    /// The next place did not answer in time.
    DialTimeout = 18, "got no answer from the next place";
    /// The name of the next place does not resolve.
    NameNotFound = 19, "cannot resolve the name of the next place";
    /// The time for set-up is used up.
    SetupTimeout = 20, "has no time for set-up left";
    /// It carries as many sessions as it may.
    Overloaded = 32, "is overloaded";
    /// It finishes its sessions and takes no new ones.
    Draining = 33, "is draining";
    /// It failed for a reason of its own.
    Internal = 34, "failed internally";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_codes_match() {
        for number in 0..=u8::MAX {
            assert_eq!(StatusCode::from_u8(number).to_u8(), number);
        }
        for &code in StatusCode::ALL {
            assert_eq!(StatusCode::from_u8(code.to_u8()), code);
            assert!(!code.to_string().is_empty());
        }
    }
}
