//! The entries of a journal, and what can be wrong with one.

use serde::{Deserialize, Serialize};

use crate::ledger::ReservationId;
use crate::machine::{Event, NotNow};
use crate::network::LinkId;
use crate::request::{Plan, Request};
use crate::time::Moment;

/// A reservation that is held, or a change of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Which.
    pub id: ReservationId,
    /// What was asked for.
    pub request: Request,
    /// What will be promised, in all.
    pub plan: Plan,
}

/// What changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Room is held for new reservations: for all of them, or none.
    Held {
        /// The reservations.
        holds: Vec<Hold>,
        /// Until when.
        until: Moment,
    },
    /// Room is held for a change of a reservation, besides what is promised.
    Changing {
        /// What it will be.
        hold: Hold,
        /// Until when.
        until: Moment,
    },
    /// Something happens to a reservation.
    Event {
        /// Which.
        id: ReservationId,
        /// What.
        event: Event,
    },
    /// A reservation gives back all that it has from a moment on.
    Returned {
        /// Which.
        id: ReservationId,
        /// From when on.
        from: Moment,
    },
    /// A reservation that has ended is not kept any longer.
    Forgotten {
        /// Which.
        id: ReservationId,
    },
}

/// A change, with its place in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Which entry, from 0 on.
    pub number: u64,
    /// When it was written, as the writer's clock had it, but never before the entry before it.
    pub at: Moment,
    /// What changes.
    pub change: Change,
}

/// Why an entry can't be applied. The book is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An entry is missing, or there twice.
    #[error(
        "the journal goes on with entry {found} where {expected} is next: apply each entry once, in order"
    )]
    Order {
        /// The number that is next.
        expected: u64,
        /// The number that it has.
        found: u64,
    },
    /// It was written before the entry before it.
    #[error(
        "entry {number} was written at {at}, before the one before it, at {before}: write the later of the clock and that"
    )]
    Time {
        /// Which entry.
        number: u64,
        /// When it was written.
        at: Moment,
        /// When the one before it was.
        before: Moment,
    },
    /// There is no such reservation.
    #[error("there is no reservation {}: ask for the list", .0.0)]
    None(ReservationId),
    /// There is such a reservation already, or its number is one that was passed over.
    #[error("reservation {} is not the next one: decide again", .0.0)]
    NotNext(ReservationId),
    /// It can't be, in its state.
    #[error("reservation {}: {not_now}", id.0)]
    NotNow {
        /// Which.
        id: ReservationId,
        /// What can't be.
        not_now: NotNow,
    },
    /// What is held would change while a part of it is returned.
    #[error("reservation {} is being changed: commit or abort that first", .0.0)]
    Changing(ReservationId),
    /// A plan that is none: no path, or pieces out of order.
    #[error("the plan of reservation {} is none: it names links that don't follow each other, or times out of order", .0.0)]
    Plan(ReservationId),
    /// More would be promised than there is.
    #[error("reservation {} needs more of link {} than is left: decide again", id.0, link.0)]
    Overbooked {
        /// Which.
        id: ReservationId,
        /// The link.
        link: LinkId,
    },
    /// It has not ended.
    #[error("reservation {} has not ended: terminate it first", .0.0)]
    Alive(ReservationId),
}
