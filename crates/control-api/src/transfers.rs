//! Promised and actual durations of transfers.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::forecasts::{Coverage, Spread};
use crate::{End, Key, Moment};

/// Outcome of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Everything was transferred.
    Done,
    /// Some of it was not, for reasons unrelated to the network, such as a file that cannot be
    /// read.
    Incomplete,
    /// It failed before its end.
    Failed,
    /// A user cancelled it.
    Cancelled,
}

/// Bytes that a transfer moved over one route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RouteUsed {
    /// Depots that it passed, in order from the reporter, by their names on the map or their
    /// addresses; empty for the direct route.
    #[schema(max_items = 16)]
    pub via: Vec<String>,
    /// Number of content bytes.
    pub bytes: u64,
    /// Number of streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// If true, the route failed during the transfer.
    #[serde(default)]
    pub failed: bool,
}

/// Report of a finished transfer: `POST /transfers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TransferReport {
    /// ID, unique among the reporter's transfers. The same report sent twice counts once.
    #[schema(min_length = 1, max_length = 128)]
    pub id: String,
    /// End where the transfer began; the reporter, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 253)]
    pub from: Option<End>,
    /// End where the transfer ended; the reporter, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 253)]
    pub to: Option<End>,
    /// Number of content bytes that travelled. Compressed ones count as they travelled.
    pub bytes: u64,
    /// Time when it began.
    #[schema(value_type = u64)]
    pub began_ms: Moment,
    /// Duration, in seconds.
    #[schema(minimum = 0)]
    pub seconds: f64,
    /// Outcome of the transfer.
    pub outcome: Outcome,
    /// Duration promised at its start: `seconds` of the answer. Left out if none was promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<Spread>,
    /// Routes that it used.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub routes: Vec<RouteUsed>,
    /// Reason for a failure, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1000)]
    pub error: Option<String>,
}

/// Answer to a report, sent once the report is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportKept {
    /// If true, the report was new.
    pub is_new: bool,
}

/// Stored report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KeptReport {
    /// The report.
    #[serde(flatten)]
    pub report: TransferReport,
    /// Key of its reporter.
    #[schema(value_type = String)]
    pub reporter: Key,
}

/// Query of `GET /transfers`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TransferQuery {
    /// Only reports stored after this position: `next` of the previous page.
    pub after: Option<String>,
    /// Maximum number of items in one answer.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// One page of reports, in the order in which they were stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TransferPage {
    /// Reports on this page.
    pub items: Vec<KeptReport>,
    /// Value of `after` for the next page; left out if this page is empty.
    pub next: Option<String>,
}

/// Accuracy of promises: `GET /transfers/score`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Score {
    /// Number of promises that could be scored.
    pub scored: u64,
    /// Number of transfers that ended early, before it was clear whether they would have kept the
    /// promise.
    pub undecided: u64,
    /// Share that took between p10 and p90; the target is 0.8.
    pub within: Option<f64>,
    /// Shares that had finished by p10, by p50 and by p90; the targets are 0.1, 0.5 and 0.9.
    pub over_by: Option<Spread>,
    /// Number of successful transfers without a promise.
    pub unpromised: u64,
    /// Number of failed transfers.
    pub failed: u64,
    /// `within` over the last transfers.
    pub coverage: Coverage,
}
