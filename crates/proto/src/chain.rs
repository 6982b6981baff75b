//! The initiator's view of a chain: it collects the statuses, hop by hop, until the route stands or
//! a hop has failed.

use std::fmt;

use crate::replay::{SIGNING_AHEAD, SIGNING_WINDOW};
use crate::{
    Endpoint, MAX_PASSED, Open, PublicKey, Route, Status, StatusCode, StatusDecoder, StatusError,
};

/// Reads the statuses off the front of the stream that comes back (LH-CHAIN-1).
#[derive(Debug, Clone)]
pub struct Chain {
    route: Route,
    destination: Endpoint,
    /// The session is to end at an off-ramp.
    offramp: bool,
    /// When the OPEN was signed, by this end's clock, in milliseconds since 1970-01-01 UTC.
    signed_at_unix_ms: u64,
    /// What every answer to this OPEN is signed with (LH-STATUS-7).
    open_signature: [u8; 64],
    acceptor: Option<PublicKey>,
    decoder: StatusDecoder,
    statuses: Vec<Status>,
}

/// How far the set-up is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// All input was taken and the acceptor has not answered.
    Waiting,
    /// The acceptor took the session; what follows these bytes of the input is payload.
    Established {
        /// Bytes of this input that were statuses.
        consumed: usize,
    },
}

/// Which hop failed, why, and whether a direct connection may be tried instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainFailure {
    /// What happened.
    pub kind: FailureKind,
    /// The 1-based place along the chain that failed or reported.
    pub hop: u8,
    /// Where that place listens, if the route says so (after an added depot nobody can know).
    pub endpoint: Option<Endpoint>,
    /// Whom it tried to reach, if it said so.
    pub tried: Option<Endpoint>,
    /// More, in the reporter's words; printable, at most 256 bytes.
    pub detail: String,
    /// Milliseconds by which the reporter's clock is ahead of this end's, less the way of the OPEN;
    /// negative if it is behind. Known where it refused the time of signature (LH-STATUS-10).
    pub clock_ahead_ms: Option<i64>,
    /// Whether the session was to end at an off-ramp, so that the acceptor is one.
    pub offramp: bool,
    /// Whether it is the server itself that could not be reached, whom the initiator wants: the
    /// destination, or what an off-ramp was to connect to.
    pub at_server: bool,
    /// Whether no payload can have reached the acceptor, so that a direct attempt repeats nothing
    /// (LH-FALLBACK-1).
    pub nothing_forwarded: bool,
}

/// What happened to a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// A depot reported a failure.
    Depot(StatusCode),
    /// The acceptor refused.
    Acceptor(StatusCode),
    /// The first place could not be connected to, so nothing left the initiator.
    NotConnected,
    /// The stream ended before this hop had answered.
    Closed,
    /// Time ran out before this hop had answered.
    TimedOut,
    /// What came back is no status record.
    Garbled(StatusError),
    /// The statuses contradict each other or the route.
    OutOfOrder,
    /// A status is not signed by who should have sent it (LH-STATUS-8): somebody on the way made
    /// it.
    Forged,
}

impl Chain {
    /// The chain of a signed OPEN about to be dialled. `acceptor` is the acceptor's key, where it
    /// is known beforehand.
    #[must_use]
    pub fn new(open: &Open, acceptor: Option<PublicKey>) -> Self {
        Self {
            route: open.route.clone(),
            destination: open.destination.clone(),
            offramp: open.onward.is_some(),
            signed_at_unix_ms: open.signed_at_unix_ms,
            open_signature: open.signature,
            acceptor,
            decoder: StatusDecoder::with_padding(open.padding.unwrap_or(0)),
            statuses: Vec::new(),
        }
    }

    /// Takes statuses off `input`.
    ///
    /// # Errors
    /// A [`ChainFailure`] on the first failing, malformed or contradictory status. The chain is
    /// then over.
    pub fn feed(&mut self, input: &[u8]) -> Result<Progress, Box<ChainFailure>> {
        let mut consumed = 0;
        while let Some(rest) = input.get(consumed..).filter(|rest| !rest.is_empty()) {
            let fed = self
                .decoder
                .feed(rest)
                .map_err(|error| Box::new(self.failure(FailureKind::Garbled(error))))?;
            let Some((status, used)) = fed else { break };
            consumed += used;
            if !self.in_order(&status) {
                return Err(Box::new(self.failure(FailureKind::OutOfOrder)));
            }
            let Ok(proof) = self.proof(&status) else {
                return Err(Box::new(self.failure(FailureKind::Forged)));
            };
            self.statuses.push(status.clone());
            if status.code != StatusCode::Ok {
                return Err(Box::new(self.reported(status, proof)));
            }
            if status.acceptor {
                return Ok(Progress::Established { consumed });
            }
        }
        Ok(Progress::Waiting)
    }

    /// The failure when the first place could not be connected to at all.
    #[must_use]
    pub fn not_connected(&self) -> ChainFailure {
        self.failure(FailureKind::NotConnected)
    }

    /// The failure when the stream ends now.
    #[must_use]
    pub fn closed(&self) -> ChainFailure {
        self.failure(FailureKind::Closed)
    }

    /// The failure when time runs out now.
    #[must_use]
    pub fn timed_out(&self) -> ChainFailure {
        self.failure(FailureKind::TimedOut)
    }

    /// The statuses so far, in order.
    #[must_use]
    pub fn statuses(&self) -> &[Status] {
        &self.statuses
    }

    /// LH-CHAIN-2: places count up from 1, and only who could not read the OPEN may not know its
    /// own; the acceptor cannot stand before the last listed hop, nor an added depot on a route
    /// without a loose hop.
    fn in_order(&self, status: &Status) -> bool {
        let place = self.statuses.len() + 1;
        let unplaced = status.hop == 0 && status.code != StatusCode::Ok;
        let in_place = (unplaced || usize::from(status.hop) == place) && place <= MAX_PASSED + 1;
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

    /// LH-STATUS-8. Between loose hops nobody can tell which place of the route a status is from,
    /// so there a key of the route may stand anywhere behind the one before it; before the
    /// acceptor's, all of them must have been seen.
    fn proof(&self, status: &Status) -> Result<Proof, Unproved> {
        let place = self.statuses.len();
        let hops = self.route.hops();
        let strict = hops.iter().skip(1).all(|hop| hop.strict);
        let expected = match (status.acceptor, strict) {
            // The key of an acceptor that takes the session is proved by the handshake, and an
            // error there names both keys.
            (true, _) => self.acceptor.filter(|_| status.code != StatusCode::Ok),
            (false, true) => hops.get(place).and_then(|hop| hop.key),
            (false, false) => self.unseen_keys().next(),
        };
        if status.signature.is_none() {
            // Who could not read the OPEN says no more than that it failed: `in_order` has seen to
            // that.
            let needless = status.code == StatusCode::Ok && !self.route.names_keys();
            return match (status.hop, expected) {
                _ if needless => Ok(Proof::NoneAsked),
                (0, None) => Ok(Proof::NoneAsked),
                (0, Some(_)) => Ok(Proof::Missing),
                _ => Err(Unproved),
            };
        }
        let signer = status.verify(&self.open_signature).ok_or(Unproved)?;
        if status.acceptor && status.code == StatusCode::Ok && self.unseen_keys().next().is_some() {
            return Err(Unproved);
        }
        match expected {
            Some(key) if key == signer => Ok(Proof::Signed),
            // A depot that was added, or stands where no key is named.
            Some(_) if !strict && !status.acceptor => Ok(match status.code {
                StatusCode::Ok => Proof::Signed,
                _ => Proof::Missing,
            }),
            Some(_) => Err(Unproved),
            None => Ok(Proof::NoneAsked),
        }
    }

    /// The keys of the route, in order, that no status so far was signed with.
    fn unseen_keys(&self) -> impl Iterator<Item = PublicKey> {
        let mut reporters = self.statuses.iter().filter_map(|status| status.reporter);
        let keys = self.route.hops().iter().filter_map(|hop| hop.key);
        keys.skip_while(move |key| reporters.any(|reporter| reporter == *key))
    }

    /// LH-FALLBACK-1: a depot that says nothing went on past it answers for all hops behind it.
    fn reported(&self, status: Status, proof: Proof) -> ChainFailure {
        // It has been counted among the statuses already, and is in its place.
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
            at_server: at_server && status.code.is_dial(),
            endpoint: if status.acceptor {
                Some(self.destination.clone())
            } else {
                self.place(hop)
            },
            tried: status.at,
            detail: status.detail,
            clock_ahead_ms: status
                .clock_unix_ms
                .filter(|_| status.code == StatusCode::Expired)
                .and_then(|clock| clock.checked_signed_diff(self.signed_at_unix_ms)),
            nothing_forwarded: !status.acceptor
                && !status.payload_forwarded
                && proof != Proof::Missing,
        }
    }

    /// A failure seen at this end: the hop after the last that answered.
    fn failure(&self, kind: FailureKind) -> ChainFailure {
        let hop = u8::try_from(self.statuses.len() + 1).unwrap_or(u8::MAX);
        ChainFailure {
            kind,
            hop,
            endpoint: self.place(hop),
            tried: None,
            offramp: self.offramp,
            at_server: false,
            clock_ahead_ms: None,
            detail: String::new(),
            nothing_forwarded: kind == FailureKind::NotConnected,
        }
    }

    /// Where place `hop` listens; certain only as long as every hop up to it is strict, since none
    /// can have been added.
    fn place(&self, hop: u8) -> Option<Endpoint> {
        let index = usize::from(hop).checked_sub(1)?;
        // The first place is dialled by the initiator itself, which adds no depots.
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

/// How far the reporter of a status is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// It is the key that should have reported.
    Signed,
    /// Nobody said which key should have reported.
    NoneAsked,
    /// Some key should have reported, and this is not signed by it.
    Missing,
}

/// The status is not from whom it should be.
struct Unproved;

/// Writes how far the reporter's clock is off, and what is allowed.
fn write_clock(f: &mut fmt::Formatter<'_>, ahead_ms: i64) -> fmt::Result {
    let seconds = ahead_ms.unsigned_abs().div_ceil(1000);
    let (side, allowed) = match ahead_ms > 0 {
        true => ("ahead of", SIGNING_WINDOW),
        false => ("behind", SIGNING_AHEAD),
    };
    write!(
        f,
        "has a clock that is {seconds} s {side} this machine's, and at most {} s are allowed: set the one that \
         is wrong (timedatectl set-ntp true)",
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
            FailureKind::OutOfOrder => f.write_str("answered out of its place along the route")?,
            FailureKind::Forged => f.write_str("has an answer that it did not sign: somebody on the way made it, or the route names another key")?,
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
