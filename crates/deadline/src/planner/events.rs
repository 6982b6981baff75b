//! What the planner is given, and what it answers.

use crate::Moment;
use crate::estimate::{Measured, Rates};
use crate::promise::{PathId, Piece};

/// What may be reserved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// What the deadline needs.
    Auto,
    /// Nothing.
    Never,
    /// This rate, in bit/s, for as long as the copy is expected to take.
    Rate(f64),
}

/// A look at the copy.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Look {
    /// Bytes that are not in place yet.
    pub left: u64,
    /// Whether those are all: else the walk goes on and finds more.
    pub is_all: bool,
    /// What best effort is forecast to carry.
    pub forecast: Option<Rates>,
    /// What the copy carries by best effort, since what is promised last changed; none where that
    /// cannot be distinguished from what goes over a reserved path.
    pub measured: Option<Measured>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Somebody looked at the copy.
    Look(Look),
    /// What was asked for is held, and is lost unless it is committed.
    Held(Vec<Piece>),
    /// What was held is promised.
    Committed,
    /// There is no room.
    Refused(Refusal),
    /// A request, or a commit, came to nothing.
    Failed {
        /// Whether another attempt may do better.
        is_passing: bool,
    },
    /// What was promised is given back.
    Returned,
    /// What was promised is promised no more: the network could not be set up for it, or somebody
    /// cancelled it.
    Lost,
    /// A path of those granted has failed, or works again.
    Path {
        /// Which.
        path: PathId,
        /// Whether it works.
        works: bool,
    },
    /// The copy is over: done, failed or interrupted.
    Over,
}

/// What could be had in place of what there was no room for.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Refusal {
    /// The largest volume by the deadline, in bytes.
    pub volume: Option<u64>,
    /// By when the volume could be had.
    pub later: Option<Moment>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ask {
    /// So many bytes by a moment.
    Volume {
        /// How many.
        bytes: u64,
        /// By when.
        by: Moment,
    },
    /// A rate until a moment.
    Rate {
        /// In bit/s.
        bps: f64,
        /// Until when.
        until: Moment,
    },
}

/// What is to be done. Of requests, one is under way at a time.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Ask for room, and have it held.
    Reserve(Ask),
    /// Ask for a change of what is promised, and have it held beside.
    Change(Ask),
    /// Take what is held.
    Commit,
    /// Give back what is held: it is not needed any more.
    Abort,
    /// Give back all that is promised.
    Release,
    /// Report that the deadline is at risk.
    Warn(Outlook),
}

/// What is expected of the deadline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlook {
    /// Whether it is missed in nine of ten cases or more; else it may be.
    pub is_missed: bool,
    /// When best effort is done in half of all cases; none where nobody knows.
    pub expected_end: Option<Moment>,
    /// What could be had.
    pub instead: Refusal,
}

/// Why it stands as it does, for a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Too little is known yet.
    Undecided,
    /// Best effort will do.
    BestEffort,
    /// Best effort would not do: something is reserved.
    Reserved,
    /// There is no room.
    NoRoom,
    /// Nothing can be reserved: the controller does not answer, or does not let this key.
    Unable,
    /// Nothing is to be reserved.
    Never,
    /// What was reserved was not needed any more.
    Returned,
}
