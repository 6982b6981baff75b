//! Input and output of the agent.

use std::collections::BTreeSet;

use longhaul_control_api::domains::{
    ConnectionId, Criteria, DomainName, GlobalReservationId, Message, SegmentProblem,
};

use crate::connection::PlannedLeg;

/// Maximum length of a reservation's identifier, in bytes. Identifiers of its connections and
/// requests are made of it.
pub(super) const MAX_GLOBAL_BYTES: usize = 64;

/// Limits of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AgentLimits {
    /// Maximum number of remembered connections of one requester, terminated ones included.
    pub connections_per_requester: usize,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            connections_per_requester: 4_096,
        }
    }
}

/// Command for this domain's book of reservations. Its result is given to
/// [`DomainAgent::record_result`](super::DomainAgent::record_result). A command that is repeated
/// has the same effect once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BookCommand {
    /// Hold the segment.
    Reserve(Criteria),
    /// Promise the segment that is held as this reservation.
    Commit(u64),
    /// Return the hold or the promise; `None` if its reservation is not known.
    Cancel(Option<u64>),
    /// Set up the reservation's paths in its window, or tear them down.
    SetProvisioned {
        /// Number of the reservation.
        reservation: u64,
        /// Number of the request.
        sequence: u32,
        /// True if the paths are to be set up.
        is_provisioned: bool,
    },
}

/// Result of a command for the book.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BookResult {
    /// The segment is held as this reservation.
    Held {
        /// Number of the reservation.
        reservation: u64,
        /// Time for which it is held from now on, in milliseconds.
        hold_ms: u64,
    },
    /// The segment is promised.
    Promised,
    /// Nothing is held or promised: the command was to end it, it was refused, or the operator
    /// ended it.
    Ended(Option<SegmentProblem>),
    /// The request of this number to set up or tear down is carried out.
    SetProvisioned(u32),
}

/// Effect of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Send a message.
    Send(Message),
    /// Carry out a command of a connection's leg in the book.
    Book {
        /// The connection.
        connection: ConnectionId,
        /// Index of the leg.
        leg: usize,
        /// The command.
        command: BookCommand,
    },
}

/// Outcome of a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Connections to store, or to remove if the agent has them no more, before any effect.
    pub changed: BTreeSet<ConnectionId>,
    /// Effects.
    pub effects: Vec<Effect>,
}

/// Finds the legs of a connection.
pub trait Planner {
    /// Returns the legs of a segment, in the direction of the bytes. `path_trace` are the domains
    /// that the request has passed.
    ///
    /// # Errors
    /// The reason why there are none.
    fn plan(
        &self,
        criteria: &Criteria,
        path_trace: &[DomainName],
    ) -> Result<Vec<PlannedLeg>, SegmentProblem>;
}

/// A message is refused before it reaches a connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageFault {
    /// The message names another sender than the domain whose key signed it. Check the peers of
    /// both domains.
    #[error("the message is from {sender}, and {peer} signed it: name the sender's own domain")]
    Sender {
        /// Sender that the message names.
        sender: DomainName,
        /// Domain whose key signed it.
        peer: DomainName,
    },
    /// The message is for another domain. Check the URL of the peer.
    #[error("the message is for {receiver}, and this is {domain}: check the peer's URL")]
    Receiver {
        /// Receiver that the message names.
        receiver: DomainName,
        /// This domain.
        domain: DomainName,
    },
    /// The identifier of the reservation is too long.
    #[error("globalReservationId: at most {MAX_GLOBAL_BYTES} bytes: choose a shorter one")]
    GlobalId,
    /// The requester has its full share of connections. They are forgotten a day after their end.
    #[error("{0} has its full share of {1} connections here: try again later")]
    Full(String, usize),
    /// The request has no legs: no path was found.
    #[error("{0}: no path leads there")]
    NoLegs(GlobalReservationId),
    /// There is no such connection of this user, or its state does not allow the request.
    #[error("{0}: there is no such reservation, or it has ended")]
    Unknown(ConnectionId),
}

/// Request of a user for a reservation across domains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRequest {
    /// User: a key, or `operator`.
    pub user: String,
    /// New identifier of the reservation.
    pub global: GlobalReservationId,
    /// Segment from end to end.
    pub criteria: Criteria,
    /// Legs, in the direction of the bytes.
    pub legs: Vec<PlannedLeg>,
    /// If true, it is only held until the user commits it.
    pub is_hold_only: bool,
    /// If true, the paths are set up in the window.
    pub is_provisioned: bool,
}
