//! Measurements of paths.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{End, Key, Moment};

/// Maximum number of measurements in one batch.
pub const MAX_BATCH: usize = 5_000;

/// Measured property of a path, which determines the unit.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Throughput, in bits per second.
    Rate,
    /// Round-trip time, in seconds.
    Rtt,
    /// One-way delay, in seconds.
    Delay,
    /// Share of segments or packets that were lost, from 0 to 1.
    Loss,
}

impl Quantity {
    /// All quantities.
    pub const ALL: [Self; 4] = [Self::Rate, Self::Rtt, Self::Delay, Self::Loss];

    /// Returns the quantity's name in JSON.
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

/// Method of a measurement.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A small exchange made for the measurement.
    Probe,
    /// A client's copy.
    Transfer,
    /// A hop over which a depot relayed.
    Relay,
    /// Archive of another program, such as pScheduler.
    Archive,
}

/// Factor that limited a flow: the verdict of `drs`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The sending program.
    Application,
    /// The send buffer.
    SendBuffer,
    /// The receive window.
    ReceiveWindow,
    /// A pacing rate.
    Pacing,
    /// The congestion window.
    CongestionWindow,
    /// The path itself.
    Path,
}

/// Conditions of a measurement. Unknown ones are left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Conditions {
    /// Number of bytes moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Duration, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub duration_s: Option<f64>,
    /// Number of parallel streams; `rate` is their sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub streams: Option<u32>,
    /// Congestion control algorithm, as the system names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 32)]
    pub congestion: Option<String>,
    /// Factor that limited the flow. If it is neither the congestion window nor the path, the
    /// measured rate is only a lower bound of what the path can carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// ID of the transfer that the measurement belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128)]
    pub transfer: Option<String>,
}

/// One value of one quantity of one path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Measurement {
    /// End where the path begins.
    #[schema(value_type = String, min_length = 1, max_length = 253, example = "depot-a")]
    pub from: End,
    /// End where the path ends.
    #[schema(value_type = String, min_length = 1, max_length = 253, example = "depot-b")]
    pub to: End,
    /// Measured quantity.
    pub quantity: Quantity,
    /// Time of the measurement: the middle of its duration.
    #[schema(value_type = u64)]
    pub at_ms: Moment,
    /// Value, in the quantity's unit.
    #[schema(minimum = 0)]
    pub value: f64,
    /// Method of the measurement.
    pub source: Source,
    /// Conditions of the measurement.
    #[serde(default)]
    pub conditions: Conditions,
}

/// Measurements to store: `POST /measurements`. Either all of them are stored, or none.
///
/// A depot may report hops that it is an end of, a client paths that it is an end of. Measurements
/// with the same reporter, path, quantity and time are stored once, however often they arrive.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Batch {
    /// At most 5,000.
    #[schema(min_items = 1, max_items = 5000)]
    pub measurements: Vec<Measurement>,
}

/// Answer to a batch, sent once the batch is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchKept {
    /// Number of measurements that were new.
    pub kept: usize,
    /// Number of measurements that were already stored.
    pub duplicates: usize,
}

/// Query of `GET /measurements`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MeasurementQuery {
    /// Only paths that begin at this end.
    #[param(value_type = Option<String>)]
    pub from: Option<End>,
    /// Only paths that end at this end.
    #[param(value_type = Option<String>)]
    pub to: Option<End>,
    /// Only this quantity.
    pub quantity: Option<Quantity>,
    /// Only measurements taken at or after this time.
    #[param(value_type = Option<u64>)]
    pub since_ms: Option<Moment>,
    /// Only measurements taken before this time.
    #[param(value_type = Option<u64>)]
    pub before_ms: Option<Moment>,
    /// Only measurements stored after this position: `next` of the previous page.
    pub after: Option<String>,
    /// Maximum number of items in one answer.
    #[param(minimum = 1, maximum = 5000)]
    pub limit: Option<u32>,
}

/// Stored measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KeptMeasurement {
    /// The measurement.
    #[serde(flatten)]
    pub measurement: Measurement,
    /// Key of its reporter.
    #[schema(value_type = String)]
    pub reporter: Key,
}

/// One page of measurements, in the order in which they were stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MeasurementPage {
    /// Measurements on this page.
    pub items: Vec<KeptMeasurement>,
    /// Value of `after` for the next page, including measurements that arrive later; left out if
    /// this page is empty.
    pub next: Option<String>,
}

/// Measurements in pScheduler's format: `GET /pscheduler`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PschedulerPage {
    /// Each measurement as pScheduler's HTTP archiver would send it. Measurements between ends
    /// without a host name or an address are left out.
    #[schema(value_type = Vec<Object>)]
    pub items: Vec<serde_json::Value>,
    /// Value of `after` for the next page, including measurements that arrive later; left out if
    /// this page is empty.
    pub next: Option<String>,
}

/// Summary of old measurements of one path over one period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// End where the path begins.
    #[schema(value_type = String)]
    pub from: End,
    /// End where the path ends.
    #[schema(value_type = String)]
    pub to: End,
    /// Measured quantity.
    pub quantity: Quantity,
    /// Start of the period.
    #[schema(value_type = u64)]
    pub at_ms: Moment,
    /// Length of the period, in seconds.
    pub span_s: u64,
    /// Number of measurements in the period.
    pub count: u64,
    /// Smallest value.
    pub least: f64,
    /// Mean value.
    pub mean: f64,
    /// Largest value.
    pub greatest: f64,
}

/// One page of summaries, ordered by time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SummaryPage {
    /// Summaries on this page.
    pub items: Vec<Summary>,
    /// Value of `after` for the next page; left out on the last one.
    pub next: Option<String>,
}
