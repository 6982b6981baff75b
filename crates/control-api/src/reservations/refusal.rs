//! Refusals: the proof that bandwidth is missing, and counter-offers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{LinkDirection, Piece, ReservationRequest};
use crate::Moment;

/// A link of a cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FullLink {
    /// The direction of the link.
    #[serde(flatten)]
    pub link: LinkDirection,
    /// Bandwidth left on it throughout the window, in bit/s.
    pub left_bps: u64,
    /// Time when it is fullest.
    #[schema(value_type = u64)]
    pub at_ms: Moment,
    /// Reservations that occupy it at that time, of those that the caller may see.
    pub by: Vec<u64>,
    /// Number of other reservations that occupy it at that time.
    pub by_others: u32,
}

/// Proof that there is not enough bandwidth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Proof {
    /// All traffic between the ends passes these links, and too little is left on them.
    Cut {
        /// The links, and the reservations that occupy them.
        links: Vec<FullLink>,
        /// Rate that the requested number of paths carries through them, in bit/s.
        rate_bps: u64,
        /// The links stay too full for every start before this time. Left out if they are too
        /// narrow even when empty.
        #[schema(value_type = Option<u64>)]
        until_ms: Option<Moment>,
    },
    /// Less than the volume passes these links within the window.
    Volume {
        /// The links, and the reservations that occupy them when they are fullest.
        links: Vec<FullLink>,
        /// Maximum volume through the links, in bytes.
        bytes: u64,
    },
    /// In each part of the window in which nothing changes, some cut is too full.
    Stretches {
        /// Maximum volume in all parts together, in bytes.
        bytes: u64,
    },
    /// All choices of that many paths were tried. More paths would carry the request.
    Searched {
        /// Rate that all paths together carry, in bit/s.
        all_bps: u64,
    },
    /// No choice of paths within the constraints of the request carries it.
    Constrained {
        /// Maximum rate that was found, in bit/s.
        most_bps: u64,
        /// If true, all choices were tried.
        complete: bool,
    },
    /// Unproven: no choice was found, but there are too many to try all. More paths may carry the
    /// request.
    Unknown,
}

/// Counter-offer: granted if it is requested before anything else is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Offer {
    /// Request to send for this offer.
    pub request: ReservationRequest,
    /// Paths that would be promised.
    pub pieces: Vec<Piece>,
}

/// Counter-offers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Offers {
    /// The same request later. For a rate, the earliest start that was found; for a volume, the
    /// earliest end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub later: Option<Offer>,
    /// Highest rate in the same window that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slower: Option<Offer>,
    /// Largest volume by the end of the window that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<Offer>,
    /// Number of the journal record after which the offers were valid, if they were computed while
    /// other requests were being decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<u64>,
    /// If true, there may be more offers: the search was skipped because others were running, or
    /// some offers were taken meanwhile. Asking again may show them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
}

impl Offers {
    /// Returns no offers, marked as left out.
    #[must_use]
    pub fn left_out() -> Self {
        Self {
            left_out: true,
            ..Self::default()
        }
    }
}

/// Constraint of a request that makes it fail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ConstraintCause {
    /// Sites to pass.
    Via {
        /// The sites.
        sites: Vec<String>,
    },
    /// Links to which paths are limited.
    OnlyLinks {
        /// The links.
        links: Vec<String>,
    },
    /// Sites to avoid.
    AvoidSite {
        /// The sites.
        sites: Vec<String>,
    },
    /// Links to avoid.
    AvoidLink {
        /// The links.
        links: Vec<String>,
    },
    /// Maximum number of hops.
    MaxHops {
        /// The maximum.
        most: u32,
        /// Hops that the request needs without this constraint.
        needed: u32,
        /// If true, no path is that short, even if nothing is reserved.
        unreachable: bool,
    },
    /// Maximum latency.
    MaxLatency {
        /// The maximum, in microseconds.
        most_us: u64,
        /// Latency that the request needs without this constraint, in microseconds.
        needed_us: u64,
        /// If true, no path is that fast, even if nothing is reserved.
        unreachable: bool,
    },
    /// Paths that share no link or site.
    Disjoint,
    /// A named path has a hop without enough bandwidth.
    Path {
        /// Number of the path in the request, from 1.
        path: u32,
        /// Site at which the hop begins.
        from: String,
        /// Site at which the hop ends.
        to: String,
        /// Rate of all named paths over the hop, in bit/s.
        needed_bps: u64,
        /// Rate left on the hop, in bit/s.
        left_bps: u64,
    },
}

/// Constraints of a request that make it fail although bandwidth is available.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusalCause {
    /// The constraints. Without any one of them, the request would be granted.
    pub constraints: Vec<ConstraintCause>,
    /// If true, it would be granted only without all of them.
    #[serde(default)]
    pub together: bool,
    /// Requested rate, in bit/s, if a rate was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_bps: Option<u64>,
    /// Maximum rate that was found within the constraints, in bit/s, if a rate was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_bps: Option<u64>,
}

/// Reason for a refusal, with counter-offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refusal {
    /// Number of the first occurrence of a recurring request that does not fit, counted from 1.
    /// Proof and offers refer to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurrence: Option<u32>,
    /// Start of that window.
    #[schema(value_type = u64)]
    pub start_ms: Moment,
    /// End of that window.
    #[schema(value_type = u64)]
    pub end_ms: Moment,
    /// Proof that there is not enough bandwidth.
    pub proof: Proof,
    /// Constraints without which the request would be granted. Left out if bandwidth is short
    /// whatever paths are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RefusalCause>,
    /// Counter-offers.
    pub offers: Offers,
}

/// Refusal as a problem document (RFC 9457) with its proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedProblem {
    /// Kind of problem: `urn:longhaul:problem:` and a word.
    #[serde(rename = "type")]
    pub kind: String,
    /// Title of the kind, for people to read.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// Description of this problem, in one line.
    pub detail: String,
    /// Reason and counter-offers.
    pub refusal: Refusal,
}

/// Problem document (RFC 9457) that refers the caller to the controller that leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotLeadingProblem {
    /// Kind of problem: `urn:longhaul:problem:` and a word.
    #[serde(rename = "type")]
    pub kind: String,
    /// Title of the kind, for people to read.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// Description of this problem, in one line.
    pub detail: String,
    /// URL of the controller that leads, if known.
    pub leader: Option<String>,
}
