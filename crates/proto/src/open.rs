//! OPEN: the one forward message, which every depot of the route and the acceptor read.

use std::{fmt, time::Duration};

use crate::{
    CircuitGrant, DEFAULT_HOP_LIMIT, Endpoint, Hop, KeyError, MAX_PASSED, PublicKey, Refusal,
    Route, Service, SessionId, SigningKey, VERSION,
};

/// A request to carry a session. [`Open::new`] makes one; [`Open::sign`] must follow before it
/// travels.
///
/// Depots change only `cursor`, `passed`, `hop_limit`, `setup_budget` and `trace`; the signature
/// covers the rest (LH-SIGN-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The versions the initiator speaks (LH-OPEN-2).
    pub versions: VersionRange,
    /// Which session this is, the same at every hop.
    pub session_id: SessionId,
    /// What the acceptor is asked for (LH-OPEN-13).
    pub service: Service,
    /// Where the acceptor listens.
    pub destination: Endpoint,
    /// The depots to pass.
    pub route: Route,
    /// How many places of the route (its hops, then the destination) have been dialled; see
    /// [`Open::next`] (LH-ROUTE-1).
    pub cursor: u8,
    /// The depots passed so far, in order, those added before loose hops included (LH-ROUTE-5).
    pub passed: Vec<PublicKey>,
    /// How many more depots may be passed (LH-ROUTE-6).
    pub hop_limit: u8,
    /// Time left to reach the acceptor, in whole milliseconds on the wire (LH-ROUTE-7).
    pub setup_budget: Duration,
    /// Bytes the initiator means the session to carry, in the direction that carries more, if it
    /// knows (LH-OPEN-15).
    pub size: Option<u64>,
    /// What the transfer is for, in words for a log: at most 64 bytes, all of them printable
    /// ([`crate::text`]).
    pub purpose: Option<String>,
    /// A circuit to use, as its controller named it: 1 to 128 bytes.
    pub circuit: Option<Vec<u8>>,
    /// Bits a second that the initiator would use, if it knows; at least 1. A wish, to be honoured
    /// where circuits can be had.
    pub rate: Option<u64>,
    /// For how many seconds, if it knows; at least 1. A wish as well.
    pub duration: Option<u64>,
    /// The ordinary TCP server at which the off-ramp is to end the session: there exactly if the
    /// service is [`Service::TCP`] (LH-OPEN-14).
    pub onward: Option<Endpoint>,
    /// A controller's word that this session may use a circuit (LH-GRANT-1).
    pub grant: Option<Box<CircuitGrant>>,
    /// Bytes of padding that the acceptor's STATUS may have, 1 to
    /// [`MAX_PADDING`](crate::MAX_PADDING), where it is the acceptor that will send the bulk of the
    /// data (LH-STATUS-9).
    pub padding: Option<u16>,
    /// Trace context, for those who trace requests through several programs.
    pub trace: Option<TraceContext>,
    /// Who asks.
    pub principal: PublicKey,
    /// When it was signed, in milliseconds since 1970-01-01 UTC (LH-SIGN-2).
    pub signed_at_unix_ms: u64,
    /// The principal's signature; all zero until [`Open::sign`].
    pub signature: [u8; 64],
    /// Non-critical options not known here; they pass on unread and unchanged (LH-OPEN-7). Numbers
    /// ascend.
    pub unknown: Vec<UnknownOption>,
}

/// Protocol versions from `min` to `max`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRange {
    /// The lowest.
    pub min: u8,
    /// The highest.
    pub max: u8,
}

/// A W3C trace context (Trace Context level 1): trace id, parent id, flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The span that made this request.
    pub parent_id: [u8; 8],
    /// Trace flags.
    pub flags: u8,
}

/// An option that this version does not know, kept to be passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownOption {
    /// The kind as it travels: the mutable flag and the number; never the critical flag.
    pub kind: u16,
    /// The value, unread.
    pub value: Vec<u8>,
}

/// Where an OPEN goes from the place that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// To this depot, or to one added before it when it is loose.
    Hop(&'a Hop),
    /// To the acceptor, directly.
    Destination(&'a Endpoint),
    /// Nowhere: the holder is the acceptor.
    Here,
}

impl Next<'_> {
    /// The endpoint to dial; `None` at the acceptor.
    #[must_use]
    pub const fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::Hop(hop) => Some(&hop.endpoint),
            Self::Destination(endpoint) => Some(endpoint),
            Self::Here => None,
        }
    }
}

impl Open {
    /// An OPEN as its initiator holds it before the first dial: cursor 0, nothing passed, unsigned.
    #[must_use]
    pub const fn new(
        session_id: SessionId,
        service: Service,
        route: Route,
        destination: Endpoint,
        budget: Duration,
    ) -> Self {
        Self {
            versions: VersionRange {
                min: VERSION,
                max: VERSION,
            },
            session_id,
            service,
            destination,
            route,
            cursor: 0,
            passed: Vec::new(),
            hop_limit: DEFAULT_HOP_LIMIT,
            setup_budget: budget,
            size: None,
            purpose: None,
            circuit: None,
            rate: None,
            duration: None,
            onward: None,
            grant: None,
            padding: None,
            trace: None,
            principal: PublicKey::from_bytes([0; 32]),
            signed_at_unix_ms: 0,
            signature: [0; 64],
            unknown: Vec::new(),
        }
    }

    /// Makes `key` the principal and signs, as of `now_unix_ms` (LH-SIGN-1).
    ///
    /// # Errors
    /// [`KeyError::CannotSign`] when the cryptographic library refuses.
    pub fn sign(&mut self, key: &SigningKey, now_unix_ms: u64) -> Result<(), KeyError> {
        self.principal = key.public();
        self.signed_at_unix_ms = now_unix_ms;
        self.signature = key.sign(&self.signed_bytes())?;
        Ok(())
    }

    /// Whether the signature is the principal's over what it must cover (LH-SIGN-1).
    ///
    /// # Errors
    /// [`Refusal::BadSignature`] when it is not.
    pub fn verify(&self) -> Result<(), Refusal> {
        if self.principal.verify(&self.signed_bytes(), &self.signature) {
            Ok(())
        } else {
            Err(Refusal::BadSignature)
        }
    }

    /// What a handshake is bound to, so that it belongs to this OPEN and no other (LH-TLS-4): the
    /// BLAKE3 hash of what the signature covers and of the signature.
    #[must_use]
    pub fn binding(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.signed_bytes());
        hasher.update(&self.signature);
        *hasher.finalize().as_bytes()
    }

    /// The key that the route names for whoever holds this OPEN, if it names one; to be compared
    /// with [`Open::passed`], since a depot that was added before a loose hop finds the key of the
    /// depot before it (LH-ROUTE-8).
    #[must_use]
    pub fn named_key(&self) -> Option<PublicKey> {
        let place = usize::from(self.cursor).checked_sub(1)?;
        self.route.hops().get(place)?.key
    }

    /// Where this OPEN goes from its holder (LH-ROUTE-1). A cursor beyond the acceptor never
    /// decodes.
    #[must_use]
    pub fn next(&self) -> Next<'_> {
        let cursor = usize::from(self.cursor);
        match self.route.hops().get(cursor) {
            Some(hop) => Next::Hop(hop),
            None if cursor == self.route.hops().len() => Next::Destination(&self.destination),
            None => Next::Here,
        }
    }

    /// This OPEN as the initiator sends it to the first place of the route.
    #[must_use]
    pub fn departing(mut self) -> Self {
        self.cursor = self.cursor.saturating_add(1);
        self
    }

    /// This OPEN as depot `me` sends it to [`Open::next`], `elapsed` after it began to arrive
    /// (LH-DEPOT-7).
    ///
    /// # Errors
    /// A [`Refusal`] when the hop limit (LH-ROUTE-6) or the set-up budget (LH-ROUTE-7) is used up.
    pub fn passed_on(&self, me: PublicKey, elapsed: Duration) -> Result<Self, Refusal> {
        let mut open = self.passing(me, elapsed)?;
        open.cursor = open.cursor.saturating_add(1);
        Ok(open)
    }

    /// This OPEN as depot `me` sends it to a depot that it adds before the next hop, which must be
    /// loose (LH-ROUTE-3).
    ///
    /// # Errors
    /// As [`Open::passed_on`], and [`Refusal::Misrouted`] when what follows is strict.
    pub fn detour(&self, me: PublicKey, elapsed: Duration) -> Result<Self, Refusal> {
        match self.next() {
            Next::Hop(hop) if !hop.strict => self.passing(me, elapsed),
            _ => Err(Refusal::Misrouted(
                "only before a loose hop may depots be added",
            )),
        }
    }

    /// The 1-based place along the chain of whoever holds this OPEN, for
    /// [`Status::hop`](crate::Status::hop).
    #[must_use]
    pub fn position(&self) -> u8 {
        u8::try_from(self.passed.len())
            .unwrap_or(u8::MAX)
            .saturating_add(1)
    }

    fn passing(&self, me: PublicKey, elapsed: Duration) -> Result<Self, Refusal> {
        let hop_limit = self.hop_limit.checked_sub(1).ok_or(Refusal::HopLimit)?;
        if self.passed.len() >= MAX_PASSED {
            return Err(Refusal::HopLimit);
        }
        let setup_budget = self.setup_budget.saturating_sub(elapsed);
        if setup_budget < Duration::from_millis(1) {
            return Err(Refusal::SetupTimeout);
        }
        let mut open = Self {
            hop_limit,
            setup_budget,
            ..self.clone()
        };
        open.passed.push(me);
        Ok(open)
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.min, self.max)
    }
}
