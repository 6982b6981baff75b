//! OPEN: the one forward message, which the acceptor and every depot of the route read.

use std::{fmt, time::Duration};

use crate::{
    CircuitGrant, DEFAULT_HOP_LIMIT, Delegation, Endpoint, Hop, KeyError, MAX_PASSED_DEPOTS,
    OpenRefusal, PublicKey, ResumeOffer, ResumeRequest, Route, ServiceName, SessionId, SigningKey,
    Transport, VERSION,
};

/// A request to carry a session. [`Open::new`] creates one; [`Open::sign`] must follow before it is
/// sent.
///
/// Depots change only `cursor`, `passed`, `hop_limit`, `setup_budget` and `trace`; the signature
/// covers the rest (LH-SIGN-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Protocol versions that the initiator supports (LH-OPEN-2).
    pub versions: VersionRange,
    /// Identifier of the session, the same at every hop.
    pub session_id: SessionId,
    /// Service requested from the acceptor (LH-OPEN-13).
    pub service: ServiceName,
    /// Endpoint of the acceptor.
    pub destination: Endpoint,
    /// Depots to pass.
    pub route: Route,
    /// Transport by which the destination must be dialled; chosen by the dialler if `None`
    /// (LH-OPEN-17).
    pub destination_transport: Option<Transport>,
    /// Number of positions of the route (its hops, then the destination) that have been dialled;
    /// see [`Open::next_receiver`] (LH-ROUTE-1).
    pub cursor: u8,
    /// Depots passed so far, in order, including those added before loose hops (LH-ROUTE-5).
    pub passed: Vec<PublicKey>,
    /// Number of further depots that may be passed (LH-ROUTE-6).
    pub hop_limit: u8,
    /// Time left to reach the acceptor, in whole milliseconds on the wire (LH-ROUTE-7).
    pub setup_budget: Duration,
    /// Expected payload of the session in its larger direction, in bytes, if the initiator knows it
    /// (LH-OPEN-15).
    pub size: Option<u64>,
    /// Purpose of the transfer, for logs: at most 64 bytes, all of them printable
    /// ([`crate::text`]).
    pub purpose: Option<String>,
    /// Name of the circuit to use, assigned by its controller: 1 to 128 bytes.
    pub circuit: Option<Vec<u8>>,
    /// Rate that the initiator would use, in bit/s, if it knows it; at least 1. A wish, honoured
    /// where circuits are available.
    pub rate: Option<u64>,
    /// Duration of that use in seconds, if the initiator knows it; at least 1. Also a wish.
    pub duration: Option<u64>,
    /// Ordinary TCP server to which the off-ramp connects the session. Present exactly if the
    /// service is [`ServiceName::TCP`] (LH-OPEN-14).
    pub onward: Option<Endpoint>,
    /// A controller's grant for this session to use a circuit (LH-GRANT-1).
    pub grant: Option<Box<CircuitGrant>>,
    /// Maximum padding of the acceptor's STATUS in bytes, 1 to
    /// [`MAX_PADDING_BYTES`](crate::MAX_PADDING_BYTES). Requested if the acceptor will send the
    /// bulk of the data (LH-STATUS-9).
    pub padding: Option<u16>,
    /// Offer to make the session resumable (LH-RESUME-1).
    pub resume_offer: Option<ResumeOffer>,
    /// Request to continue a session; present exactly if the service is [`ServiceName::RESUME`]
    /// (LH-RESUME-4).
    pub resume: Option<Box<ResumeRequest>>,
    /// Delegation to the principal, in whose principal's name the session reads (LH-DELEGATION-7).
    /// Only for the service [`ServiceName::COPY`].
    pub delegation: Option<Box<Delegation>>,
    /// Trace context for distributed tracing.
    pub trace: Option<TraceContext>,
    /// Key of the party that requests the session.
    pub principal: PublicKey,
    /// Signing time, in milliseconds since 1970-01-01 UTC (LH-SIGN-2).
    pub signed_at_unix_ms: u64,
    /// Signature of the principal; all zero until [`Open::sign`].
    pub signature: [u8; 64],
    /// Non-critical options unknown to this version, forwarded unread and unchanged (LH-OPEN-7).
    /// Their numbers ascend.
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

/// An option unknown to this version, kept for forwarding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownOption {
    /// Kind as on the wire: the mutable flag and the number; never the critical flag.
    pub kind: u16,
    /// Uninterpreted value.
    pub value: Vec<u8>,
}

/// Next receiver of an OPEN, as seen by its current holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextReceiver<'a> {
    /// This depot, or one added before it if it is loose.
    Hop(&'a Hop),
    /// The acceptor, directly.
    Destination(&'a Endpoint),
    /// The holder itself, which is the acceptor.
    Here,
}

impl NextReceiver<'_> {
    /// Returns the endpoint to dial; `None` at the acceptor.
    #[must_use]
    pub const fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::Hop(hop) => Some(&hop.endpoint),
            Self::Destination(endpoint) => Some(endpoint),
            Self::Here => None,
        }
    }

    /// Returns the key that it must prove, if the route names one.
    #[must_use]
    pub const fn key(&self) -> Option<PublicKey> {
        match self {
            Self::Hop(hop) => hop.key,
            _ => None,
        }
    }
}

impl Open {
    /// Creates an OPEN for its first dial: cursor 0, nothing passed, unsigned.
    #[must_use]
    pub const fn new(
        session_id: SessionId,
        service: ServiceName,
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
            destination_transport: None,
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
            resume_offer: None,
            resume: None,
            delegation: None,
            trace: None,
            principal: PublicKey::from_bytes([0; 32]),
            signed_at_unix_ms: 0,
            signature: [0; 64],
            unknown: Vec::new(),
        }
    }

    /// Makes `key` the principal and signs the OPEN at time `now_unix_ms` (LH-SIGN-1).
    ///
    /// # Errors
    /// [`KeyError::CannotSign`] when the cryptographic library refuses.
    pub fn sign(&mut self, key: &SigningKey, now_unix_ms: u64) -> Result<(), KeyError> {
        self.principal = key.public();
        self.signed_at_unix_ms = now_unix_ms;
        self.signature = key.sign(&self.signed_bytes())?;
        Ok(())
    }

    /// Returns the key whose rights and limits the session has: that of the delegation's principal,
    /// or the principal itself.
    #[must_use]
    pub fn acting_for(&self) -> PublicKey {
        let delegation = self.delegation.as_ref();
        delegation.map_or(self.principal, |delegation| delegation.principal)
    }

    /// Verifies the principal's signature over the signed part (LH-SIGN-1).
    ///
    /// # Errors
    /// [`OpenRefusal::BadSignature`] if it is invalid.
    pub fn verify(&self) -> Result<(), OpenRefusal> {
        if self.principal.verify(&self.signed_bytes(), &self.signature) {
            Ok(())
        } else {
            Err(OpenRefusal::BadSignature)
        }
    }

    /// Returns the value that binds a handshake to this OPEN (LH-TLS-4): the BLAKE3 hash of the
    /// signed part and of the signature.
    #[must_use]
    pub fn binding(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.signed_bytes());
        hasher.update(&self.signature);
        *hasher.finalize().as_bytes()
    }

    /// Returns the key that the route names for the current holder, if any.
    ///
    /// Compare it with [`Open::passed`] too: a depot added before a loose hop finds the key of the
    /// depot before it (LH-ROUTE-8).
    #[must_use]
    pub fn named_key(&self) -> Option<PublicKey> {
        let place = usize::from(self.cursor).checked_sub(1)?;
        self.route.hops().get(place)?.key
    }

    /// Returns the next receiver of this OPEN (LH-ROUTE-1). Decoding rejects a cursor beyond the
    /// acceptor.
    #[must_use]
    pub fn next_receiver(&self) -> NextReceiver<'_> {
        let cursor = usize::from(self.cursor);
        match self.route.hops().get(cursor) {
            Some(hop) => NextReceiver::Hop(hop),
            None if cursor == self.route.hops().len() => {
                NextReceiver::Destination(&self.destination)
            }
            None => NextReceiver::Here,
        }
    }

    /// Returns the transport by which [`Open::next_receiver`] must be dialled, if the route names
    /// one (LH-OPEN-17).
    #[must_use]
    pub fn next_transport(&self) -> Option<Transport> {
        match self.next_receiver() {
            NextReceiver::Hop(hop) => hop.transport,
            NextReceiver::Destination(_) => self.destination_transport,
            NextReceiver::Here => None,
        }
    }

    /// Returns the transport by which the current holder was to be dialled, if the route names one.
    #[must_use]
    pub fn dialled_transport(&self) -> Option<Transport> {
        let place = usize::from(self.cursor).checked_sub(1)?;
        match self.route.hops().get(place) {
            Some(hop) => hop.transport,
            None => self.destination_transport,
        }
    }

    /// Returns this OPEN as the initiator sends it to the first hop of the route.
    #[must_use]
    pub fn for_first_hop(mut self) -> Self {
        self.cursor = self.cursor.saturating_add(1);
        self
    }

    /// Returns this OPEN as depot `me` sends it to [`Open::next_receiver`]. `elapsed` is the time
    /// since it began to arrive (LH-DEPOT-7).
    ///
    /// # Errors
    /// A [`OpenRefusal`] when the hop limit (LH-ROUTE-6) or the set-up budget (LH-ROUTE-7) is used
    /// up.
    pub fn forwarded(&self, me: PublicKey, elapsed: Duration) -> Result<Self, OpenRefusal> {
        let mut open = self.with_depot_passed(me, elapsed)?;
        open.cursor = open.cursor.saturating_add(1);
        Ok(open)
    }

    /// Returns this OPEN as depot `me` sends it to a depot that it adds before the next hop, which
    /// must be loose (LH-ROUTE-3).
    ///
    /// # Errors
    /// As [`Open::forwarded`], and [`OpenRefusal::Misrouted`] if the next hop is strict.
    pub fn detour(&self, me: PublicKey, elapsed: Duration) -> Result<Self, OpenRefusal> {
        match self.next_receiver() {
            NextReceiver::Hop(hop) if !hop.strict => self.with_depot_passed(me, elapsed),
            _ => Err(OpenRefusal::Misrouted(
                "depots may be added only before a loose hop",
            )),
        }
    }

    /// Returns the 1-based position of the current holder along the chain, for
    /// [`Status::hop`](crate::Status::hop).
    #[must_use]
    pub fn position(&self) -> u8 {
        u8::try_from(self.passed.len())
            .unwrap_or(u8::MAX)
            .saturating_add(1)
    }

    fn with_depot_passed(&self, me: PublicKey, elapsed: Duration) -> Result<Self, OpenRefusal> {
        let hop_limit = self.hop_limit.checked_sub(1).ok_or(OpenRefusal::HopLimit)?;
        if self.passed.len() >= MAX_PASSED_DEPOTS {
            return Err(OpenRefusal::HopLimit);
        }
        let setup_budget = self.setup_budget.saturating_sub(elapsed);
        if setup_budget < Duration::from_millis(1) {
            return Err(OpenRefusal::SetupTimeout);
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
