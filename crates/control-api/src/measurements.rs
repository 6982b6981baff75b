//! What was measured of paths.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{End, Key, Moment};

/// Most measurements of one batch.
pub const MAX_BATCH: usize = 5_000;

/// What of a path was measured, and in which unit.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// What it carried, in bits per second.
    Rate,
    /// The round-trip time, in seconds.
    Rtt,
    /// The time in one direction, in seconds.
    Delay,
    /// The share of segments or packets that were lost, from 0 to 1.
    Loss,
}

impl Quantity {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Rate, Self::Rtt, Self::Delay, Self::Loss];

    /// As it is written.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Rtt => "rtt",
            Self::Delay => "delay",
            Self::Loss => "loss",
        }
    }
}

/// What it was measured with.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A small exchange made for it.
    Probe,
    /// A copy of a client's.
    Transfer,
    /// A hop that a depot relayed over.
    Relay,
    /// Another program's archive, as pScheduler's.
    Archive,
}

/// What held a flow back: the verdict of `drs`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The sending program.
    Application,
    /// The send buffer.
    SendBuffer,
    /// The receiver's window.
    ReceiveWindow,
    /// A pacing rate.
    Pacing,
    /// The congestion window.
    CongestionWindow,
    /// The path itself.
    Path,
}

/// Under which conditions. What is not known is left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Conditions {
    /// How many bytes were moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How long it took, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub duration_s: Option<f64>,
    /// By how many streams at once; `rate` is theirs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub streams: Option<u32>,
    /// By which congestion control, as the system names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 32)]
    pub congestion: Option<String>,
    /// What held it back. A rate that anything but the congestion window or the path held back is a
    /// lower bound of what the path carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The transfer that it was part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128)]
    pub transfer: Option<String>,
}

/// One value of one quantity of one path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Measurement {
    /// Where the path begins.
    #[schema(value_type = String, min_length = 1, max_length = 253, example = "depot-a")]
    pub from: End,
    /// Where it ends.
    #[schema(value_type = String, min_length = 1, max_length = 253, example = "depot-b")]
    pub to: End,
    /// What of it.
    pub quantity: Quantity,
    /// When: the middle of the time that it took.
    #[schema(value_type = u64)]
    pub at_ms: Moment,
    /// How much, in the quantity's unit.
    #[schema(minimum = 0)]
    pub value: f64,
    /// With what.
    pub source: Source,
    /// Under which conditions.
    #[serde(default)]
    pub conditions: Conditions,
}

/// Measurements to keep: `POST /measurements`. All of them are kept, or none.
///
/// A depot may report hops that it is an end of, a client paths that it is an end of. The same
/// measurement (reporter, path, quantity and moment) is kept once, however often it comes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Batch {
    /// At most 5,000.
    #[schema(min_items = 1, max_items = 5000)]
    pub measurements: Vec<Measurement>,
}

/// The answer to a batch, given when it is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchKept {
    /// How many were new.
    pub kept: usize,
    /// How many were there before.
    pub duplicates: usize,
}

/// Which measurements: `GET /measurements`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MeasurementQuery {
    /// Only of paths that begin there.
    #[param(value_type = Option<String>)]
    pub from: Option<End>,
    /// Only of paths that end there.
    #[param(value_type = Option<String>)]
    pub to: Option<End>,
    /// Only of this quantity.
    pub quantity: Option<Quantity>,
    /// Only those measured at or after this moment.
    #[param(value_type = Option<u64>)]
    pub since_ms: Option<Moment>,
    /// Only those measured before this moment.
    #[param(value_type = Option<u64>)]
    pub before_ms: Option<Moment>,
    /// Only those kept later: `next` of the answer before.
    pub after: Option<String>,
    /// Most of one answer.
    #[param(minimum = 1, maximum = 5000)]
    pub limit: Option<u32>,
}

/// A measurement as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KeptMeasurement {
    /// What was measured.
    #[serde(flatten)]
    pub measurement: Measurement,
    /// Who said so.
    #[schema(value_type = String)]
    pub reporter: Key,
}

/// Some of the measurements, in the order in which they were kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MeasurementPage {
    /// What was found.
    pub items: Vec<KeptMeasurement>,
    /// What to ask for as `after` for those that follow, also for those that come in later; none if
    /// nothing was found.
    pub next: Option<String>,
}

/// Measurements as pScheduler reports them: `GET /pscheduler`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PschedulerPage {
    /// Each as its HTTP archiver would send it. Those of ends without a host name or an address are
    /// left out.
    #[schema(value_type = Vec<Object>)]
    pub items: Vec<serde_json::Value>,
    /// What to ask for as `after` for those that follow, also for those that come in later; none if
    /// nothing was found.
    pub next: Option<String>,
}

/// Measurements of one path in one span of time, brought together when they were old.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// Where the path begins.
    #[schema(value_type = String)]
    pub from: End,
    /// Where it ends.
    #[schema(value_type = String)]
    pub to: End,
    /// What of it.
    pub quantity: Quantity,
    /// When the span begins.
    #[schema(value_type = u64)]
    pub at_ms: Moment,
    /// How long it is, in seconds.
    pub span_s: u64,
    /// How many measurements there were.
    pub count: u64,
    /// The least of them.
    pub least: f64,
    /// Their mean.
    pub mean: f64,
    /// The greatest of them.
    pub greatest: f64,
}

/// Some of the summaries, by time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SummaryPage {
    /// What was found.
    pub items: Vec<Summary>,
    /// What to ask for as `after` for those that follow; none if nothing does.
    pub next: Option<String>,
}
