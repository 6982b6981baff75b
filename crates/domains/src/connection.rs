//! Connections of an agent, as they are stored.

use longhaul_circuits::time::MomentMs;
use longhaul_control_api::domains::{
    ConnectionId, CorrelationId, Criteria, DomainName, GlobalReservationId, ProblemReason, Segment,
    SegmentProblem,
};
use serde::{Deserialize, Serialize};

/// Requester of a connection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requester {
    /// A user of this domain: a key, or `operator`.
    User(String),
    /// Another domain.
    Peer(DomainName),
}

impl Requester {
    /// Returns true for a user of this domain, who makes this domain the first of the path.
    #[must_use]
    pub const fn is_user(&self) -> bool {
        matches!(self, Self::User(_))
    }
}

/// Provider of a leg.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// The book of this domain.
    Book,
    /// Another domain.
    Peer(DomainName),
}

/// Part of a connection to be asked of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PlannedLeg {
    /// Provider.
    pub provider: Provider,
    /// Segment to ask for.
    pub criteria: Criteria,
}

/// State of a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LegState {
    /// It was asked to hold its segment.
    Asked,
    /// It holds its segment.
    Held,
    /// It promises its segment.
    Promised,
    /// It holds and promises nothing.
    Ended,
}

/// Leg of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Leg {
    /// Provider.
    pub provider: Provider,
    /// Segment.
    pub criteria: Criteria,
    /// Last known state.
    pub state: LegState,
    /// Identifier of the segment at a peer, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_id: Option<ConnectionId>,
    /// Number of the reservation in this domain's book, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<u64>,
    /// Segments behind the provider, in the direction of the bytes.
    #[serde(default)]
    pub segments: Vec<Segment>,
    /// True once a commit was requested: from then on the segment may be promised.
    #[serde(default)]
    pub is_commit_sent: bool,
    /// Number of renewals that were begun.
    #[serde(default)]
    pub renewals: u32,
    /// Time of the next renewal.
    #[serde(default)]
    pub next_renewal: MomentMs,
    /// True while a renewal is not confirmed.
    #[serde(default)]
    pub is_renewing: bool,
    /// Number of the last request to set up or tear down that was confirmed.
    #[serde(default)]
    pub provisioned: u32,
    /// Time of the first attempt of the current request.
    pub asked_at: MomentMs,
    /// Earliest time at which the provider may drop its segment.
    pub until: MomentMs,
    /// Number of attempts of the current request. Not stored: a restarted agent repeats it at once.
    #[serde(skip)]
    pub attempts: u32,
    /// Time of the next attempt.
    #[serde(skip)]
    pub next_attempt: Option<MomentMs>,
}

/// Phase of a connection. Phases follow each other in this order, and none comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// All legs are asked to hold their segments.
    Reserving,
    /// All legs hold their segments.
    Held,
    /// All legs are asked to promise their segments.
    Committing,
    /// All legs of this connection promise theirs. The requester has not said yet that all others
    /// do, too.
    Committed,
    /// All segments of the reservation are promised.
    Active,
    /// All legs are asked to end.
    Terminating,
    /// Nothing is held or promised.
    Terminated,
}

/// Kind of a request to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestKind {
    /// Hold the segment.
    Reserve,
    /// Promise the held segment.
    Commit,
    /// Return the hold.
    Abort,
    /// End the segment.
    Terminate,
    /// Renew the promise.
    Renew,
    /// Set up the paths; the request has this number.
    Provision(u32),
    /// Tear down the paths.
    Release(u32),
}

/// Request of a peer that has not been answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PendingRequest {
    /// Kind of the request.
    pub kind: RequestKind,
    /// Identifier for the answer.
    pub correlation: CorrelationId,
}

/// Connection: the part of a reservation that one requester asked of this domain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Connection {
    /// Identifier.
    pub id: ConnectionId,
    /// Requester.
    pub requester: Requester,
    /// End-to-end reservation.
    pub global: GlobalReservationId,
    /// Criteria as requested.
    pub criteria: Criteria,
    /// Domains that the request had passed.
    #[serde(default)]
    pub path_trace: Vec<DomainName>,
    /// Phase.
    pub phase: Phase,
    /// End of the phase: what is reached by then ends.
    pub until: MomentMs,
    /// Legs, in the direction of the bytes.
    pub legs: Vec<Leg>,
    /// Last request of a peer, until it is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingRequest>,
    /// If true, the user commits it; otherwise it is committed once all legs hold.
    #[serde(default)]
    pub is_hold_only: bool,
    /// True if the paths are to be set up in the window.
    #[serde(default)]
    pub is_provisioned: bool,
    /// Number of the last request to set up or tear down.
    #[serde(default)]
    pub provision_sequence: u32,
    /// Reason for which it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<SegmentProblem>,
    /// True while the requester has to learn of an end that it did not ask for.
    #[serde(default)]
    pub is_report_due: bool,
    /// Number of attempts to report.
    #[serde(skip)]
    pub report_attempts: u32,
    /// Time of the next attempt to report.
    #[serde(skip)]
    pub next_report: Option<MomentMs>,
}

impl Connection {
    /// Creates a connection without legs, which has to be reserved by `until`.
    pub(crate) fn new(
        id: ConnectionId,
        requester: Requester,
        global: GlobalReservationId,
        criteria: Criteria,
        until: MomentMs,
    ) -> Self {
        let mut connection = Self {
            id,
            requester,
            global,
            criteria,
            path_trace: Vec::new(),
            phase: Phase::Reserving,
            until,
            legs: Vec::new(),
            pending: None,
            is_hold_only: false,
            is_provisioned: false,
            provision_sequence: 0,
            problem: None,
            is_report_due: false,
            report_attempts: 0,
            next_report: None,
        };
        connection.until = until.min(connection.window_end());
        connection
    }

    /// Returns true if all legs are in this state.
    #[must_use]
    pub fn all_legs(&self, state: LegState) -> bool {
        self.legs.iter().all(|leg| leg.state == state)
    }

    /// Returns the segments of all legs, in the direction of the bytes.
    #[must_use]
    pub fn segments(&self) -> Vec<Segment> {
        let legs = self.legs.iter();
        legs.flat_map(|leg| leg.segments.clone()).collect()
    }

    /// Returns the end of the window.
    #[must_use]
    pub fn window_end(&self) -> MomentMs {
        MomentMs::try_from(self.criteria.end_ms).unwrap_or(MomentMs::MAX)
    }

    /// Returns the connection as it is stored: without what a restart forgets.
    #[must_use]
    pub fn stored_form(&self) -> Self {
        let mut stored = self.clone();
        (stored.report_attempts, stored.next_report) = (0, None);
        for leg in &mut stored.legs {
            (leg.attempts, leg.next_attempt) = (0, None);
        }
        stored
    }

    /// Returns the reason of an ended connection.
    #[must_use]
    pub fn problem_or(&self, domain: &DomainName) -> SegmentProblem {
        self.problem.clone().unwrap_or_else(|| SegmentProblem {
            reason: ProblemReason::Terminated,
            domain: domain.clone(),
            text: "it was terminated".to_owned(),
        })
    }
}

impl Leg {
    /// Creates a leg to be asked now.
    #[must_use]
    pub fn new(planned: PlannedLeg, now: MomentMs) -> Self {
        Self {
            provider: planned.provider,
            criteria: planned.criteria,
            state: LegState::Asked,
            connection_id: None,
            reservation: None,
            segments: Vec::new(),
            is_commit_sent: false,
            renewals: 0,
            next_renewal: now,
            is_renewing: false,
            provisioned: 0,
            asked_at: now,
            until: MomentMs::MAX,
            attempts: 0,
            next_attempt: Some(now),
        }
    }

    /// Begins a new request, to be sent now.
    pub fn begin_request(&mut self, now: MomentMs) {
        self.asked_at = now;
        self.attempts = 0;
        self.next_attempt = Some(now);
    }
}
