//! What was promised of transfers, and what they took.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::forecasts::{Coverage, Spread};
use crate::{End, Key, Moment};

/// How a transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All is there.
    Done,
    /// Some is not, for reasons that have nothing to do with the network: a file that cannot be
    /// read.
    Incomplete,
    /// It broke off.
    Failed,
    /// Somebody ended it.
    Cancelled,
}

/// By which route how much went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RouteUsed {
    /// The depots that it passed, in order from the one who reports, by their names on the map or
    /// their addresses; none is the direct route.
    #[schema(max_items = 16)]
    pub via: Vec<String>,
    /// How many bytes of content it carried.
    pub bytes: u64,
    /// By how many streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// Whether it failed in between.
    #[serde(default)]
    pub failed: bool,
}

/// What a transfer took: `POST /transfers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TransferReport {
    /// What tells it from all others of whoever reports it; the same report twice counts once.
    #[schema(min_length = 1, max_length = 128)]
    pub id: String,
    /// Where it began; whoever reports it, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 253)]
    pub from: Option<End>,
    /// Where it ended; whoever reports it, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 253)]
    pub to: Option<End>,
    /// How many bytes of content it carried.
    pub bytes: u64,
    /// When it began.
    #[schema(value_type = u64)]
    pub began_ms: Moment,
    /// How long it took, in seconds.
    #[schema(minimum = 0)]
    pub seconds: f64,
    /// How it ended.
    pub outcome: Outcome,
    /// What was promised when it began: `seconds` of the answer; none where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<Spread>,
    /// By which routes it went.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub routes: Vec<RouteUsed>,
    /// Why it failed, in one line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1000)]
    pub error: Option<String>,
}

/// The answer to a report, given when it is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportKept {
    /// Whether it was new.
    pub is_new: bool,
}

/// A report as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KeptReport {
    /// What was said.
    #[serde(flatten)]
    pub report: TransferReport,
    /// Who said so.
    #[schema(value_type = String)]
    pub reporter: Key,
}

/// Which reports: `GET /transfers`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TransferQuery {
    /// Only those kept later: `next` of the answer before.
    pub after: Option<String>,
    /// Most of one answer.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Some of the reports, in the order in which they were kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TransferPage {
    /// What was found.
    pub items: Vec<KeptReport>,
    /// What to ask for as `after` for those that follow; none if nothing was found.
    pub next: Option<String>,
}

/// How promises were kept: `GET /transfers/score`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Score {
    /// How many promises could be scored.
    pub scored: u64,
    /// Transfers that were given up before it was clear whether they would have kept their time.
    pub undecided: u64,
    /// The share that took between p10 and p90; 0.8 is meant.
    pub within: Option<f64>,
    /// The shares that were over by p10, by p50 and by p90; 0.1, 0.5 and 0.9 are meant.
    pub over_by: Option<Spread>,
    /// Transfers that ended well and of which nothing was promised.
    pub unpromised: u64,
    /// Transfers that broke off.
    pub failed: u64,
    /// `within` of the last ones.
    pub coverage: Coverage,
}
