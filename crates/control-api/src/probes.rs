//! What depots are to measure between each other.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::measurements::Measurement;
use crate::{End, Key, Moment};

/// One thing to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProbeTask {
    /// Its number.
    pub id: String,
    /// Who is to measure: whoever asked.
    #[schema(value_type = String)]
    pub from: End,
    /// Towards whom.
    #[schema(value_type = String)]
    pub to: End,
    /// Where that one listens: HOST:PORT.
    pub address: String,
    /// Its key, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub key: Option<Key>,
    /// How.
    pub kind: ProbeKind,
    /// Not before this moment.
    #[schema(value_type = u64)]
    pub not_before_ms: Moment,
    /// Not after it: the time is then somebody else's.
    #[schema(value_type = u64)]
    pub not_after_ms: Moment,
}

/// How something is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeKind {
    /// Some exchanges of a few bytes: the round-trip time.
    RoundTrips {
        /// How many.
        count: u32,
    },
    /// That many bytes from here to there.
    Bulk {
        /// How many.
        bytes: u64,
    },
}

/// What a depot is to measure next: `GET /probes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProbeList {
    /// By time.
    pub items: Vec<ProbeTask>,
    /// When to ask again, in seconds.
    pub again_in_s: u64,
}

/// What came of it: `POST /probes/{id}/result`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProbeResult {
    /// What was measured; none where nothing was.
    #[serde(default)]
    #[schema(max_items = 5000)]
    pub measurements: Vec<Measurement>,
    /// Why nothing was, in one line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1000)]
    pub error: Option<String>,
    /// Whether it was left out because the path carried real traffic.
    #[serde(default)]
    pub path_in_use: bool,
}
