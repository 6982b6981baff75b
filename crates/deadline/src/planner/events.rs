//! Inputs and outputs of the planner.

use std::fmt;
use std::str::FromStr;

use quantities::Rate;
use serde::{Deserialize, Serialize};

use crate::UnixMillis;
use crate::estimate::{RateMeasurement, Rates};
use crate::promise::{PathId, PromisedPiece};

/// Kind of reservation that a copy may make. Text: `auto`, `never`, or a rate, which is bit/s if it
/// has no unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ReservationMode {
    /// The bandwidth that the deadline needs.
    Auto,
    /// No reservation.
    Never,
    /// This rate, in bit/s, for as long as the copy is expected to take.
    Rate(f64),
}

impl FromStr for ReservationMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "never" => Ok(Self::Never),
            rate => match rate.parse::<Rate>() {
                Ok(rate) if rate > Rate::ZERO => Ok(Self::Rate(rate.bits_per_second())),
                Ok(_) => Err("write auto, never or a rate over 0".to_owned()),
                Err(error) => Err(format!("write auto, never or a rate: {error}")),
            },
        }
    }
}

impl TryFrom<String> for ReservationMode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for ReservationMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Never => f.write_str("never"),
            Self::Rate(bps) => bps.fmt(f),
        }
    }
}

impl From<ReservationMode> for String {
    fn from(mode: ReservationMode) -> Self {
        mode.to_string()
    }
}

/// Sample of a copy's progress.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProgressSample {
    /// Bytes that are not at the destination yet.
    pub left: u64,
    /// If true, `left` is final; otherwise the directory walk may still find more.
    pub is_all: bool,
    /// Forecast of the best-effort rate.
    pub forecast: Option<Rates>,
    /// Best-effort rate of the copy since the promise last changed. `None` if it cannot be
    /// distinguished from traffic over a reserved path.
    pub measured: Option<RateMeasurement>,
}

/// Input of the planner.
#[derive(Debug, Clone, PartialEq)]
pub enum PlannerEvent {
    /// The copy was sampled.
    Look(ProgressSample),
    /// The requested bandwidth is held, and lost unless it is committed.
    Held(Vec<PromisedPiece>),
    /// The held bandwidth is promised.
    Committed,
    /// There is not enough bandwidth.
    Refused(RefusalOffers),
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
pub struct RefusalOffers {
    /// Largest volume by the deadline, in bytes.
    pub volume: Option<u64>,
    /// Earliest time by which the volume could be sent.
    pub later: Option<UnixMillis>,
}

/// Requested bandwidth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BandwidthRequest {
    /// A volume by a deadline.
    Volume {
        /// Number of bytes.
        bytes: u64,
        /// Deadline.
        by: UnixMillis,
    },
    /// A rate until a point in time.
    Rate {
        /// Rate, in bit/s.
        bps: f64,
        /// End of the window.
        until: UnixMillis,
    },
}

/// Action for the caller to take. At most one request is pending at a time.
#[derive(Debug, Clone, PartialEq)]
pub enum PlannerAction {
    /// Request bandwidth, held.
    Reserve(BandwidthRequest),
    /// Request a change of what is promised, held in addition to it.
    Change(BandwidthRequest),
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
    pub expected_end: Option<UnixMillis>,
    /// Counter-offers.
    pub instead: RefusalOffers,
}

/// Reason for the current state, for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanReason {
    /// Too little is known yet.
    Undecided,
    /// Best effort suffices.
    BestEffort,
    /// Best effort would not suffice: something is reserved.
    Reserved,
    /// There is not enough bandwidth.
    InsufficientBandwidth,
    /// Reservations are not possible: the controller does not answer, or does not admit this key.
    Unable,
    /// Reservations are disabled.
    Never,
    /// The reservation was returned, as it was not needed any more.
    Returned,
}
