//! Measurements that depots are asked to take between each other.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::measurements::Measurement;
use crate::{End, Key, Moment};

/// One measurement to take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProbeTask {
    /// ID of the task.
    pub id: String,
    /// Depot that measures: the caller.
    #[schema(value_type = String)]
    pub from: End,
    /// End to measure towards.
    #[schema(value_type = String)]
    pub to: End,
    /// Address where the target listens: HOST:PORT.
    pub address: String,
    /// Key of the target, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub key: Option<Key>,
    /// Kind of measurement.
    pub kind: ProbeKind,
    /// Earliest start.
    #[schema(value_type = u64)]
    pub not_before_ms: Moment,
    /// End of the time slot. After it, the slot belongs to another depot.
    #[schema(value_type = u64)]
    pub not_after_ms: Moment,
}

/// Kind of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeKind {
    /// Exchanges of a few bytes each, which measure the round-trip time.
    RoundTrips {
        /// Number of exchanges.
        count: u32,
    },
    /// A bulk transfer to the target.
    Bulk {
        /// Number of bytes.
        bytes: u64,
    },
}

/// Measurements that a depot is to take next: `GET /probes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProbeList {
    /// The tasks, ordered by time.
    pub items: Vec<ProbeTask>,
    /// Seconds until the depot should ask again.
    pub again_in_s: u64,
}

/// Result of a task: `POST /probes/{id}/result`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProbeResult {
    /// Measurements taken; empty if there are none.
    #[serde(default)]
    #[schema(max_items = 5000)]
    pub measurements: Vec<Measurement>,
    /// Reason why nothing was measured, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1000)]
    pub error: Option<String>,
    /// If true, the task was skipped because the path carried real traffic.
    #[serde(default)]
    pub path_in_use: bool,
}
