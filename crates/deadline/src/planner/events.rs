//! Inputs and outputs of the planner.

use crate::Moment;
use crate::estimate::{Measured, Rates};
use crate::promise::{PathId, Piece};

/// Kind of reservation that a copy may make.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// The bandwidth that the deadline needs.
    Auto,
    /// No reservation.
    Never,
    /// This rate, in bit/s, for as long as the copy is expected to take.
    Rate(f64),
}

/// Sample of a copy's progress.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Look {
    /// Bytes that are not at the destination yet.
    pub left: u64,
    /// If true, `left` is final; otherwise the directory walk may still find more.
    pub is_all: bool,
    /// Forecast of the best-effort rate.
    pub forecast: Option<Rates>,
    /// Best-effort rate of the copy since the promise last changed. `None` if it cannot be
    /// distinguished from traffic over a reserved path.
    pub measured: Option<Measured>,
}

/// Input of the planner.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The copy was sampled.
    Look(Look),
    /// The requested bandwidth is held, and lost unless it is committed.
    Held(Vec<Piece>),
    /// The held bandwidth is promised.
    Committed,
    /// There is not enough bandwidth.
    Refused(Refusal),
    /// A request or a commit failed.
    Failed {
        /// If true, a retry may succeed.
        is_passing: bool,
    },
    /// The promised bandwidth was returned.
    Returned,
    /// The promise no longer holds: the network could not be set up for it, or it was cancelled.
    Lost,
    /// A granted path has failed, or works again.
    Path {
        /// The path.
        path: PathId,
        /// If true, the path works.
        works: bool,
    },
    /// The copy is over: done, failed or interrupted.
    Over,
}

/// Counter-offers of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Refusal {
    /// Largest volume by the deadline, in bytes.
    pub volume: Option<u64>,
    /// Earliest time by which the volume could be sent.
    pub later: Option<Moment>,
}

/// Requested bandwidth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ask {
    /// A volume by a deadline.
    Volume {
        /// Number of bytes.
        bytes: u64,
        /// Deadline.
        by: Moment,
    },
    /// A rate until a point in time.
    Rate {
        /// Rate, in bit/s.
        bps: f64,
        /// End of the window.
        until: Moment,
    },
}

/// Action for the caller to take. At most one request is pending at a time.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Request bandwidth, held.
    Reserve(Ask),
    /// Request a change of what is promised, held in addition to it.
    Change(Ask),
    /// Commit what is held.
    Commit,
    /// Abort what is held, as it is no longer needed.
    Abort,
    /// Return all that is promised.
    Release,
    /// Report that the deadline is at risk.
    Warn(Outlook),
}

/// Expectation about the deadline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlook {
    /// If true, the deadline is missed in at least nine of ten cases; otherwise it may be missed.
    pub is_missed: bool,
    /// Median end of the copy by best effort; `None` if unknown.
    pub expected_end: Option<Moment>,
    /// Counter-offers.
    pub instead: Refusal,
}

/// Reason for the current state, for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Too little is known yet.
    Undecided,
    /// Best effort suffices.
    BestEffort,
    /// Best effort would not suffice: something is reserved.
    Reserved,
    /// There is not enough bandwidth.
    NoRoom,
    /// Reservations are not possible: the controller does not answer, or does not admit this key.
    Unable,
    /// Reservations are disabled.
    Never,
    /// The reservation was returned, as it was not needed any more.
    Returned,
}
