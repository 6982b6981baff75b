//! Entries of the journal, and the faults that an entry can have.

use serde::{Deserialize, Serialize};

use crate::ledger::ReservationId;
use crate::machine::{InvalidTransition, ReservationEvent};
use crate::network::LinkId;
use crate::request::{CircuitRequest, ReservationPlan};
use crate::time::MomentMs;

/// A hold for a new reservation, or for a change of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Reservation that it belongs to.
    pub id: ReservationId,
    /// Request that it answers.
    pub request: CircuitRequest,
    /// Complete plan to be promised.
    pub plan: ReservationPlan,
}

/// A change of the book.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BookChange {
    /// Bandwidth is held for new reservations: for all of them, or none.
    Held {
        /// The holds.
        holds: Vec<Hold>,
        /// Time at which they expire.
        until: MomentMs,
    },
    /// Bandwidth is held for a change of a reservation, in addition to what is promised.
    Changing {
        /// The hold.
        hold: Box<Hold>,
        /// Time at which it expires.
        until: MomentMs,
    },
    /// An event happens to a reservation.
    Event {
        /// The reservation.
        id: ReservationId,
        /// The event.
        event: ReservationEvent,
    },
    /// A reservation returns its bandwidth from a moment on.
    Returned {
        /// The reservation.
        id: ReservationId,
        /// First moment that is returned.
        from: MomentMs,
    },
    /// An ended reservation is deleted.
    Forgotten {
        /// The reservation.
        id: ReservationId,
    },
}

/// A change with its position in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// Number of the entry, from 0.
    pub number: u64,
    /// Time of writing by the writer's clock, but never before that of the preceding entry.
    pub at: MomentMs,
    /// The change.
    pub change: BookChange,
}

/// Reason why an entry cannot be applied. The book is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BookFault {
    /// An entry is missing or repeated: apply each entry once, in order.
    #[error(
        "the journal continues with entry {found} instead of {expected}: apply each entry once, in \
         order"
    )]
    Order {
        /// Number that is next.
        expected: u64,
        /// Number of the entry.
        found: u64,
    },
    /// The entry is older than the one before it: write the later of the clock and that entry's
    /// time.
    #[error(
        "entry {number} is dated {at}, earlier than the previous entry, dated {before}: write the \
         later of the clock and that"
    )]
    Time {
        /// Number of the entry.
        number: u64,
        /// Time of the entry.
        at: MomentMs,
        /// Time of the entry before it.
        before: MomentMs,
    },
    /// The reservation does not exist: look it up in the list.
    #[error("there is no reservation {}: ask for the list", .0.0)]
    UnknownReservation(ReservationId),
    /// The reservation's number is not the next one, because it exists already, or a number was
    /// skipped: decide again.
    #[error("reservation {} does not have the next number: decide again", .0.0)]
    NotNext(ReservationId),
    /// The state of the reservation does not allow the event: read the state, and do what it
    /// allows.
    #[error("reservation {}: {not_now}", id.0)]
    NotNow {
        /// The reservation.
        id: ReservationId,
        /// The event, and the states that do not allow it.
        not_now: InvalidTransition,
    },
    /// A part of the reservation is returned while a change of it is held: commit or abort the
    /// change first.
    #[error("reservation {} is being changed: commit or abort the change first", .0.0)]
    Changing(ReservationId),
    /// The plan is invalid: its links form no path between the ends, or its pieces are out of
    /// order.
    #[error(
        "the plan of reservation {} is invalid: its links form no path, or its times are out of \
         order",
        .0.0
    )]
    Plan(ReservationId),
    /// The plan needs more than is left on a link: decide again.
    #[error("reservation {} needs more of link {} than is free: decide again", id.0, link.0)]
    Overbooked {
        /// The reservation.
        id: ReservationId,
        /// The link.
        link: LinkId,
    },
    /// The reservation has not ended: terminate it first.
    #[error("reservation {} has not ended: terminate it first", .0.0)]
    Alive(ReservationId),
}
