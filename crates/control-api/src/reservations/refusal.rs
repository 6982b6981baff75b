//! Why there is no room, and what could be had instead.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{LinkDirection, Piece, ReservationRequest};
use crate::Moment;

/// A link of a cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FullLink {
    /// Which.
    #[serde(flatten)]
    pub link: LinkDirection,
    /// What is left of it throughout the window, in bit/s.
    pub left_bps: u64,
    /// When it is fullest.
    #[schema(value_type = u64)]
    pub at_ms: Moment,
    /// The reservations that have it then, of those that the asker may see.
    pub by: Vec<u64>,
    /// How many others have it then.
    pub by_others: u32,
}

/// How it is known that there is no room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Proof {
    /// Whatever goes from one end to the other passes these links, and too little is left on them.
    Cut {
        /// The links, and who has them.
        links: Vec<FullLink>,
        /// What so many paths carry through them, in bit/s.
        rate_bps: u64,
        /// They are too full whenever it starts before this moment; none where they are too narrow
        /// even when nobody has them.
        #[schema(value_type = Option<u64>)]
        until_ms: Option<Moment>,
    },
    /// Within the window, less than the volume passes these links.
    Volume {
        /// The links, and who has them when they are fullest.
        links: Vec<FullLink>,
        /// What passes them at most, in bytes.
        bytes: u64,
    },
    /// In each stretch of the window in which nothing changes, some cut is too full.
    Stretches {
        /// What goes in all of them together at most, in bytes.
        bytes: u64,
    },
    /// All choices of so many paths were looked at. More paths would carry it.
    Searched {
        /// What all paths together carry, in bit/s.
        all_bps: u64,
    },
    /// None: no choice was found, but there are too many to look at all. More paths may carry it.
    Unknown,
}

/// What could be had: granted when it is asked for before anything else is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Offer {
    /// To be asked for in these words.
    pub request: ReservationRequest,
    /// What would be promised.
    pub pieces: Vec<Piece>,
}

/// What could be had instead.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Offers {
    /// The same, later: of a rate from the earliest start, of a volume by the earliest end that is
    /// found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub later: Option<Offer>,
    /// The highest rate in the same window, as far as it is found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slower: Option<Offer>,
    /// The largest volume by the end of the window, as far as it is found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<Offer>,
    /// The record of the journal behind which they were good, where they were looked for beside
    /// what was decided meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<u64>,
    /// Whether there may be more: none were looked for because others were being looked for, or
    /// some went to others meanwhile. Asking again may show it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
}

impl Offers {
    /// None, because none were looked for.
    #[must_use]
    pub fn left_out() -> Self {
        Self {
            left_out: true,
            ..Self::default()
        }
    }
}

/// Why there is no room, and what there is instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refusal {
    /// Which window of a recurring request there is no room for, from 1 on. Proof and offers are
    /// about that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurrence: Option<u32>,
    /// When that window begins.
    #[schema(value_type = u64)]
    pub start_ms: Moment,
    /// When it ends.
    #[schema(value_type = u64)]
    pub end_ms: Moment,
    /// How it is known.
    pub proof: Proof,
    /// What could be had.
    pub offers: Offers,
}

/// A refusal as a problem document (RFC 9457) with the proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedProblem {
    /// What kind: `urn:longhaul:problem:` and a word.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind, for people.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What it is this time, in one line for people.
    pub detail: String,
    /// Why, and what else.
    pub refusal: Refusal,
}

/// That another controller is asked, as a problem document (RFC 9457), with where it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotLeadingProblem {
    /// What kind: `urn:longhaul:problem:` and a word.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind, for people.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What it is this time, in one line for people.
    pub detail: String,
    /// Where the controller that leads answers, as a URL, if that is known.
    pub leader: Option<String>,
}
