//! The initiator's view of a chain: collects the statuses, hop by hop, until the route is
//! established or a hop has failed.

use std::fmt;

use crate::replay::{MAX_SIGNATURE_AGE, MAX_SIGNATURE_AHEAD};
use crate::{
    Endpoint, MAX_PASSED_DEPOTS, Open, PublicKey, Route, Status, StatusCode, StatusDecoder,
    StatusError,
};

/// State of a chain during set-up; reads the statuses at the start of the return stream
/// (LH-CHAIN-1).
#[derive(Debug, Clone)]
pub struct Chain {
    route: Route,
    destination: Endpoint,
    /// True if the session ends at an off-ramp.
    offramp: bool,
    /// Time at which the OPEN was signed, by the local clock, in milliseconds since 1970-01-01 UTC.
    signed_at_unix_ms: u64,
    /// Signature of the OPEN, which the signature of every answer covers (LH-STATUS-7).
    open_signature: [u8; 64],
    acceptor: Option<PublicKey>,
    decoder: StatusDecoder,
    statuses: Vec<Status>,
}

/// Progress of the set-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainProgress {
    /// All input was consumed and the acceptor has not answered yet.
    Waiting,
    /// The acceptor accepted the session. Input after `consumed` bytes is payload.
    Established {
        /// Number of bytes of this input that were statuses.
        consumed: usize,
    },
}

/// Failure of a chain: the hop, the reason, and whether a direct connection may be tried instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainFailure {
    /// Reason of the failure.
    pub kind: FailureKind,
    /// 1-based position along the chain of the hop that failed or reported the failure.
    pub hop: u8,
    /// Endpoint of that hop, if the route determines it. It is unknown after an added depot.
    pub endpoint: Option<Endpoint>,
    /// Endpoint that the reporter tried to reach, if it reported one.
    pub tried: Option<Endpoint>,
    /// Details from the reporter: printable, at most 256 bytes.
    pub detail: String,
    /// Milliseconds by which the reporter's clock is ahead of the local one, including the transit
    /// time of the OPEN; negative if it is behind. Present if the reporter refused the signing time
    /// (LH-STATUS-10).
    pub clock_ahead_ms: Option<i64>,
    /// True if the session was to end at an off-ramp, so that the acceptor is an off-ramp.
    pub offramp: bool,
    /// True if the unreachable party is the server itself: the destination, or the server that the
    /// off-ramp was to connect to.
    pub at_server: bool,
    /// True if no payload can have reached the acceptor, so a direct attempt repeats nothing
    /// (LH-FALLBACK-1).
    pub nothing_forwarded: bool,
}

/// Reason why a chain failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// A depot reported a failure.
    Depot(StatusCode),
    /// The acceptor refused.
    Acceptor(StatusCode),
    /// The first hop could not be connected to, so nothing left the initiator.
    NotConnected,
    /// The stream ended before this hop answered. Another program listens there, or the hop was
    /// stopped or is flooded. Check the port, then try again.
    Closed,
    /// Time ran out before this hop answered. The hop is overloaded, or another program listens at
    /// that port.
    TimedOut,
    /// The returned bytes are not a status record.
    Garbled(StatusError),
    /// The statuses contradict each other or the route. The hop is faulty or hostile: use another
    /// route.
    OutOfOrder,
    /// A status is not signed by the expected hop (LH-STATUS-8), so another party on the path
    /// forged it.
    Forged,
}

impl Chain {
    /// Creates the chain of a signed OPEN that is about to be dialled. `acceptor` is the acceptor's
    /// key, if it is known beforehand.
    #[must_use]
    pub fn new(open: &Open, acceptor: Option<PublicKey>) -> Self {
        Self {
            route: open.route.clone(),
            destination: open.destination.clone(),
            offramp: open.onward.is_some(),
            signed_at_unix_ms: open.signed_at_unix_ms,
            open_signature: open.signature,
            acceptor,
            decoder: StatusDecoder::with_padding({
                let padding = open.padding.unwrap_or(0);
                padding.saturating_add(open.server_voucher_bytes())
            }),
            statuses: Vec::new(),
        }
    }

    /// Consumes statuses from `input`.
    ///
    /// # Errors
    /// A [`ChainFailure`] on the first failing, malformed or contradictory status. The chain is
    /// then over.
    pub fn feed(&mut self, input: &[u8]) -> Result<ChainProgress, Box<ChainFailure>> {
        let mut consumed = 0;
        while let Some(rest) = input.get(consumed..).filter(|rest| !rest.is_empty()) {
            let fed = self
                .decoder
                .feed(rest)
                .map_err(|error| Box::new(self.local_failure(FailureKind::Garbled(error))))?;
            let Some((status, used)) = fed else { break };
            consumed += used;
            if !self.is_in_order(&status) {
                return Err(Box::new(self.local_failure(FailureKind::OutOfOrder)));
            }
            let Ok(proof) = self.check_signature(&status) else {
                return Err(Box::new(self.local_failure(FailureKind::Forged)));
            };
            self.statuses.push(status.clone());
            if status.code != StatusCode::Ok {
                return Err(Box::new(self.reported_failure(status, proof)));
            }
            if status.acceptor {
                return Ok(ChainProgress::Established { consumed });
            }
        }
        Ok(ChainProgress::Waiting)
    }

    /// Returns the failure to report if the first hop could not be connected to.
    #[must_use]
    pub fn not_connected(&self) -> ChainFailure {
        self.local_failure(FailureKind::NotConnected)
    }

    /// Returns the failure to report if the stream ends now.
    #[must_use]
    pub fn closed(&self) -> ChainFailure {
        self.local_failure(FailureKind::Closed)
    }

    /// Returns the failure to report if time runs out now.
    #[must_use]
    pub fn timed_out(&self) -> ChainFailure {
        self.local_failure(FailureKind::TimedOut)
    }

    /// Returns the statuses received so far, in order.
    #[must_use]
    pub fn statuses(&self) -> &[Status] {
        &self.statuses
    }

    /// Returns the key that signed `status` as an answer to this chain's OPEN, if one did.
    #[must_use]
    pub fn signer(&self, status: &Status) -> Option<PublicKey> {
        status.verify(&self.open_signature)
    }

    /// Returns true if the status fits its position in the chain (LH-CHAIN-2).
    ///
    /// Positions count up from 1. Position 0 is allowed only in a failure by a hop that could not
    /// read the OPEN. The acceptor cannot come before the last listed hop, and a route without a
    /// loose hop has no added depots.
    fn is_in_order(&self, status: &Status) -> bool {
        let place = self.statuses.len() + 1;
        let unplaced = status.hop == 0 && status.code != StatusCode::Ok;
        let in_place =
            (unplaced || usize::from(status.hop) == place) && place <= MAX_PASSED_DEPOTS + 1;
        let hops = self.route.hops();
        let kind_in_place = if status.acceptor {
            place > hops.len()
        } else {
            status.code != StatusCode::Ok
                || place <= hops.len()
                || hops.iter().any(|hop| !hop.strict)
        };
        in_place && kind_in_place
    }

    /// Checks the signature of a status (LH-STATUS-8).
    ///
    /// With loose hops, the initiator cannot tell which hop of the route a status is from. So a key
    /// of the route may appear anywhere after the previous one. All of them must have appeared
    /// before the acceptor's status.
    fn check_signature(&self, status: &Status) -> Result<ReporterProof, UnprovenReporter> {
        let place = self.statuses.len();
        let hops = self.route.hops();
        let strict = hops.iter().skip(1).all(|hop| hop.strict);
        let expected = match (status.acceptor, strict) {
            // The handshake proves the key of an acceptor that accepts the session, and its error
            // names both keys.
            (true, _) => self.acceptor.filter(|_| status.code != StatusCode::Ok),
            (false, true) => hops.get(place).and_then(|hop| hop.key),
            (false, false) => self.unseen_keys().next(),
        };
        if status.signature.is_none() {
            // A hop that could not read the OPEN only reports that it failed: `in_order` has
            // checked that.
            let needless = status.code == StatusCode::Ok && !self.route.names_keys();
            return match (status.hop, expected) {
                _ if needless => Ok(ReporterProof::NotRequired),
                (0, None) => Ok(ReporterProof::NotRequired),
                (0, Some(_)) => Ok(ReporterProof::Missing),
                _ => Err(UnprovenReporter),
            };
        }
        let signer = status
            .verify(&self.open_signature)
            .ok_or(UnprovenReporter)?;
        if status.acceptor && status.code == StatusCode::Ok && self.unseen_keys().next().is_some() {
            return Err(UnprovenReporter);
        }
        match expected {
            Some(key) if key == signer => Ok(ReporterProof::Signed),
            // A depot that was added, or a hop for which the route names no key.
            Some(_) if !strict && !status.acceptor => Ok(match status.code {
                StatusCode::Ok => ReporterProof::Signed,
                _ => ReporterProof::Missing,
            }),
            Some(_) => Err(UnprovenReporter),
            None => Ok(ReporterProof::NotRequired),
        }
    }

    /// Iterates over the keys of the route, in order, that have not signed a status yet.
    fn unseen_keys(&self) -> impl Iterator<Item = PublicKey> {
        let mut reporters = self.statuses.iter().filter_map(|status| status.reporter);
        let keys = self.route.hops().iter().filter_map(|hop| hop.key);
        keys.skip_while(move |key| reporters.any(|reporter| reporter == *key))
    }

    /// Turns a failing status into a failure (LH-FALLBACK-1): a depot that forwarded nothing
    /// answers for all hops after it.
    fn reported_failure(&self, status: Status, proof: ReporterProof) -> ChainFailure {
        // The status is already in the list, and in order.
        let hop = u8::try_from(self.statuses.len()).unwrap_or(u8::MAX);
        let kind = if status.acceptor {
            FailureKind::Acceptor(status.code)
        } else {
            FailureKind::Depot(status.code)
        };
        let at_server = match self.offramp {
            true => status.acceptor,
            false => !status.acceptor && status.at.as_ref() == Some(&self.destination),
        };
        ChainFailure {
            kind,
            hop,
            offramp: self.offramp,
            at_server: at_server && status.code.is_dial_failure(),
            endpoint: if status.acceptor {
                Some(self.destination.clone())
            } else {
                self.endpoint_at(hop)
            },
            tried: status.at,
            detail: status.detail,
            clock_ahead_ms: status
                .clock_unix_ms
                .filter(|_| status.code == StatusCode::Expired)
                .and_then(|clock| clock.checked_signed_diff(self.signed_at_unix_ms)),
            nothing_forwarded: !status.acceptor
                && !status.payload_forwarded
                && proof != ReporterProof::Missing,
        }
    }

    /// Returns a failure detected locally, attributed to the hop after the last that answered.
    fn local_failure(&self, kind: FailureKind) -> ChainFailure {
        let hop = u8::try_from(self.statuses.len() + 1).unwrap_or(u8::MAX);
        ChainFailure {
            kind,
            hop,
            endpoint: self.endpoint_at(hop),
            tried: None,
            offramp: self.offramp,
            at_server: false,
            clock_ahead_ms: None,
            detail: String::new(),
            nothing_forwarded: kind == FailureKind::NotConnected,
        }
    }

    /// Returns the endpoint of position `hop`. It is certain only if every hop up to it is strict,
    /// since no depot can have been added then.
    fn endpoint_at(&self, hop: u8) -> Option<Endpoint> {
        let index = usize::from(hop).checked_sub(1)?;
        // The initiator itself dials the first hop, and it adds no depots.
        if self
            .route
            .hops()
            .iter()
            .take(index + 1)
            .skip(1)
            .any(|hop| !hop.strict)
        {
            return None;
        }
        match self.route.hops().get(index) {
            Some(hop) => Some(hop.endpoint.clone()),
            None if index == self.route.hops().len() => Some(self.destination.clone()),
            None => None,
        }
    }
}

/// Degree to which the reporter of a status is authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReporterProof {
    /// The expected key signed the status.
    Signed,
    /// The route names no key for this reporter.
    NotRequired,
    /// The route names a key for this reporter, and that key did not sign the status.
    Missing,
}

/// Error for a status that the expected key did not sign.
struct UnprovenReporter;

/// Writes by how much the reporter's clock differs, and the difference that is allowed.
fn write_clock(f: &mut fmt::Formatter<'_>, ahead_ms: i64) -> fmt::Result {
    let seconds = ahead_ms.unsigned_abs().div_ceil(1000);
    let (side, allowed) = match ahead_ms > 0 {
        true => ("ahead of", MAX_SIGNATURE_AGE),
        false => ("behind", MAX_SIGNATURE_AHEAD),
    };
    write!(
        f,
        "has a clock that is {seconds} s {side} this machine's, and at most {} s are allowed: set \
         the one that is wrong (timedatectl set-ntp true)",
        allowed.as_secs()
    )
}

impl std::error::Error for ChainFailure {}

impl fmt::Display for ChainFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.kind, &self.endpoint) {
            (FailureKind::Acceptor(_), _) if self.offramp => f.write_str("the off-ramp ")?,
            (FailureKind::Acceptor(_), _) => f.write_str("the server ")?,
            (FailureKind::Depot(_), _) => write!(f, "depot {} ", self.hop)?,
            _ => write!(f, "hop {} ", self.hop)?,
        }
        if let Some(endpoint) = &self.endpoint {
            write!(f, "({endpoint}) ")?;
        }
        if let Some(ahead_ms) = self.clock_ahead_ms {
            return write_clock(f, ahead_ms);
        }
        match self.kind {
            FailureKind::Depot(code) | FailureKind::Acceptor(code) => write!(f, "{code}")?,
            FailureKind::NotConnected => f.write_str("cannot be connected to")?,
            FailureKind::Closed => f.write_str("closed the connection before it answered")?,
            FailureKind::TimedOut => f.write_str("did not answer in time")?,
            FailureKind::Garbled(error) => write!(f, "answered with {error}")?,
            FailureKind::OutOfOrder => f.write_str("answered out of turn")?,
            FailureKind::Forged => f.write_str(
                "sent an answer that is not signed with its key: it was forged on the way, or the \
                 route names another key",
            )?,
        }
        if let Some(tried) = &self.tried {
            write!(f, " ({tried})")?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}
