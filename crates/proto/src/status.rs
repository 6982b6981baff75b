//! STATUS: a hop's single answer to an OPEN.

use std::fmt;

use bytes::BytesMut;

use crate::{
    Endpoint, HopDetails, KeyError, Open, PublicKey, ResumeAnswer, ResumeOffer, SigningKey,
    UnknownOption,
};

/// Maximum length of a detail, in bytes of UTF-8; longer ones are truncated when encoded
/// (LH-STATUS-4).
pub(crate) const MAX_DETAIL_BYTES: usize = 256;

/// One hop's answer. Depots relay the answers of later hops unread, so the initiator receives them
/// in order (LH-STATUS-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Outcome at this hop.
    pub code: StatusCode,
    /// The reporter's 1-based position along the chain, the acceptor included; see
    /// [`Open::position`](crate::Open::position). 0 if the reporter could not read the OPEN, so it
    /// does not know its position (LH-CHAIN-2).
    pub hop: u8,
    /// True if the reporter is the acceptor, whose answer is the last (LH-STATUS-3).
    pub acceptor: bool,
    /// Key of the reporter; [`Status::verify`] proves it.
    pub reporter: Option<PublicKey>,
    /// Endpoint that the reporter tried to reach.
    pub at: Option<Endpoint>,
    /// True if the reporter forwarded any early data (LH-FALLBACK-1).
    pub payload_forwarded: bool,
    /// Details for a person. Characters that are not printable ([`crate::text`]) are escaped on
    /// encoding and on decoding (LH-STATUS-4).
    pub detail: String,
    /// Signature of the reporter, if it must sign (LH-STATUS-7).
    pub signature: Option<[u8; 64]>,
    /// Number of zero bytes that fill the acceptor's first flight; at most as many as the OPEN
    /// requested (LH-STATUS-9).
    pub padding: u16,
    /// The reporter's clock in milliseconds since 1970-01-01 UTC, if it refuses the signing time
    /// (LH-STATUS-10).
    pub clock_unix_ms: Option<u64>,
    /// Details of the connection that the reporter dialled, if it tells them (LH-STATUS-11).
    pub dialled: Option<HopDetails>,
    /// Consent of the acceptor to make the session resumable (LH-RESUME-2).
    pub resume_offer: Option<ResumeOffer>,
    /// Answer of the acceptor that continues a session (LH-RESUME-5).
    pub resumed: Option<ResumeAnswer>,
    /// Non-critical options unknown to this version, which the signature covers (LH-STATUS-5).
    /// Their numbers ascend.
    pub unknown: Vec<UnknownOption>,
}

impl Status {
    /// Creates a depot's answer at position `hop`, with nothing forwarded and no details.
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
            dialled: None,
            resume_offer: None,
            resumed: None,
            unknown: Vec::new(),
        }
    }

    /// Creates the same answer from the acceptor.
    #[must_use]
    pub const fn from_acceptor(code: StatusCode, hop: u8) -> Self {
        let mut status = Self::new(code, hop);
        status.acceptor = true;
        status
    }

    /// Makes `key` the reporter and signs the status as the answer to `open`. An `Ok` on a route
    /// without named keys stays unsigned (LH-STATUS-7). Call it last.
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

    /// Makes `key` the reporter and signs the status regardless of its code and the route
    /// (LH-PROBE-1).
    ///
    /// # Errors
    /// [`KeyError::CannotSign`] when the cryptographic library refuses.
    pub fn sign_always(&mut self, key: &SigningKey, open: &Open) -> Result<(), KeyError> {
        self.reporter = Some(key.public());
        self.signature = Some(key.sign(&self.signed_bytes(&open.signature))?);
        Ok(())
    }

    /// Encodes the answer of the holder of `key`. It is signed as the answer to `open`, or only
    /// names the key if no OPEN could be read.
    #[must_use]
    pub fn into_answer(mut self, key: &SigningKey, open: Option<&Open>) -> BytesMut {
        match open {
            // If signing fails, the unsigned answer is rejected, which is as good as no answer.
            Some(open) => drop(self.sign(key, open)),
            None => self.reporter = Some(key.public()),
        }
        let mut bytes = BytesMut::new();
        self.encode(&mut bytes);
        bytes
    }

    /// Returns the reporter if it signed this status as the answer to the OPEN with this signature
    /// (LH-STATUS-8).
    #[must_use]
    pub fn verify(&self, open_signature: &[u8; 64]) -> Option<PublicKey> {
        let (reporter, signature) = (self.reporter?, self.signature?);
        reporter
            .verify(&self.signed_bytes(open_signature), &signature)
            .then_some(reporter)
    }
}

impl StatusCode {
    /// Returns a short stable word, for logs and metrics.
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
            Self::NotResumable => "not resumable",
            Self::Overloaded => "overloaded",
            Self::Draining => "draining",
            Self::Internal => "internal",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Returns true if the reporter could not reach the endpoint that it dialled.
    #[must_use]
    pub const fn is_dial_failure(self) -> bool {
        matches!(
            self,
            Self::DialRefused | Self::DialUnreachable | Self::DialTimeout | Self::NameNotFound
        )
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// Outcome of an OPEN at one hop. The numbers are those of the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum StatusCode {
            $($(#[$doc])* $name,)*
            /// A failure code unknown to this version.
            Unknown(u8),
        }

        impl StatusCode {
            /// All named codes.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the code with this number. Numbers without a name count as failures.
            #[must_use]
            pub const fn from_u8(number: u8) -> Self {
                match number {
                    $($number => Self::$name,)*
                    other => Self::Unknown(other),
                }
            }

            /// Returns the number on the wire.
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
                    Self::Unknown(number) => {
                        write!(f, "failed with code {number}, which this release does not know")
                    }
                }
            }
        }
    };
}

codes! {
    /// Success. A depot has dialled the next hop and relays from now on; the acceptor accepts the
    /// session.
    Ok = 0, "ok";
    /// The OPEN breaks a rule of the codec. Use the same release at both ends.
    BadOpen = 1, "could not parse the request";
    /// The protocol versions do not overlap. The hop's release is too old or too new: update the
    /// older side.
    NoVersion = 2, "speaks no common protocol version";
    /// The OPEN carries a critical option unknown to the reporter. The hop runs an older release:
    /// update it.
    UnknownOption = 3, "does not support an option of the request";
    /// The principal is unknown to the reporter. Send the hop's operator what `longhaul keys show`
    /// prints.
    Unauthorised = 4, "does not know this key";
    /// The principal is known, but the policy does not grant this. Ask the operator for a rule.
    Refused = 5, "refused by policy";
    /// The signature is not the principal's. The request was changed in transit.
    BadSignature = 6, "rejected the signature of the request";
    /// The OPEN was seen before. The request arrived twice: an attacker replays it, or a network
    /// device repeats connections. Try again.
    Replay = 7, "has already seen this request";
    /// The OPEN was signed too long ago or in the future: a clock is off. Set both clocks
    /// (`timedatectl set-ntp true`).
    Expired = 8, "rejected the time at which the request was signed: check both clocks";
    /// The OPEN had already passed this depot. Name each depot once in `--route`.
    Loop = 9, "found a loop in the route";
    /// The hop limit is used up. Use a route with fewer depots.
    HopLimit = 10, "refused the route: it has too many hops";
    /// The OPEN was meant for another kind of receiver. A server's port is named as a depot's, or
    /// the reverse: depots listen on 7510, servers on 7511.
    Misrouted = 11, "is not the hop that the request is for";
    /// The OPEN did not arrive in time. The client sent nothing, or the hop is flooded: try again.
    HeaderTimeout = 12, "received no request in time";
    /// The acceptor does not offer the requested service. For measurements, the server needs
    /// `--perf`.
    NoService = 13, "does not offer this service";
    /// The size, rate, duration or purpose that the initiator states is not what the policy permits
    /// (LH-WISH-1). The text names the bound: state less, or ask the operator.
    WishRefused = 14, "does not permit the stated size, rate, duration or purpose";
    /// The circuit grant is invalid at this depot, or fully in use (LH-GRANT-2, LH-GRANT-3).
    GrantRefused = 15, "rejected the circuit's grant";
    /// The next hop refused the connection. Nothing listens at that port: check that the server
    /// runs.
    DialRefused = 16, "was refused a connection by the next hop";
    /// The next hop is unreachable. The depot has no network path to it: check address and routing.
    DialUnreachable = 17, "cannot reach the next hop";
    /// The next hop did not answer in time. The machine is down, or a firewall drops the packets.
    DialTimeout = 18, "got no answer from the next hop";
    /// The name of the next hop does not resolve. Give the address of a name that only your network
    /// knows.
    NameNotFound = 19, "cannot resolve the name of the next hop";
    /// The set-up budget is used up. The hops before it took too long. Try again; if it happens
    /// again, leave out a depot.
    SetupTimeout = 20, "had no time left to connect";
    /// The acceptor has no session that this request could continue (LH-RESUME-5): it was
    /// restarted, it waited too long, or the request is not of the party that opened the session.
    /// Connect again.
    NotResumable = 21, "has no such session to resume";
    /// The reporter already carries its maximum number of sessions. Try again later; its operator
    /// can raise `--max-sessions`.
    Overloaded = 32, "is overloaded";
    /// The reporter is draining: it finishes its sessions and accepts no new ones. It is being
    /// stopped: try again in a minute, or use another depot.
    Draining = 33, "is draining";
    /// The reporter failed for an internal reason. Its log says more.
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
