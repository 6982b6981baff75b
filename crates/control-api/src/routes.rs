//! Routes of transfers over depots.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::forecasts::Spread;
use crate::{End, Key, Moment};

/// Transfer for which routes are requested: `POST /routes/question`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteQuestion {
    /// End that opens the connections; the caller, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 253)]
    pub from: Option<End>,
    /// The other end: its name, or a name or address that a host of the map is known by.
    #[schema(
        value_type = String,
        min_length = 1,
        max_length = 253,
        example = "dtn1.campus.example"
    )]
    pub to: End,
    /// If true, the bytes come from `to`: they are fetched, not sent. Routes still lead from `from`
    /// to `to`, as the caller opens the connections.
    #[serde(default)]
    pub receives: bool,
    /// Number of bytes; if left out, a large transfer is assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Maximum number of streams; if left out, as many as are useful.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1024)]
    pub streams: Option<u32>,
    /// Congestion control algorithm, as the system names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 32)]
    pub congestion: Option<String>,
    /// Route in use, in the form of `--route`. Another one is chosen only if it gains enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 4096)]
    pub current: Option<String>,
    /// If true, a route about which little is known may be tried, at a stated cost. Never set it
    /// for small or urgent transfers.
    #[serde(default)]
    pub may_explore: bool,
    /// Names of depots to avoid: those that have just failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub avoid: Vec<String>,
}

/// A depot on a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Passed {
    /// Name of the depot on the map.
    pub depot: String,
    /// Address where it listens: HOST:PORT.
    pub address: String,
    /// Key that the server at this address must present, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub key: Option<Key>,
}

/// Limiting factor of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bottleneck {
    /// End where the hop begins.
    #[schema(value_type = String)]
    pub from: End,
    /// End where the hop ends.
    #[schema(value_type = String)]
    pub to: End,
    /// Kind of limit: `set-up`, `slow-start`, `rate`, `window`, `loss`, `relay` or `host`.
    pub why: String,
}

/// A route and its forecast.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RouteOption {
    /// Depots to pass, in order; empty for the direct route.
    pub via: Vec<Passed>,
    /// The route in the form of `--route`: `direct`, or HOST:PORT with commas between them, with
    /// keys where they are known.
    pub route: String,
    /// Duration of the whole transfer over this route alone, in seconds; left out if unknown.
    pub seconds: Option<Spread>,
    /// Rate that the transfer would reach, in bits per second.
    pub rate_bps: Option<Spread>,
    /// Limiting factor of the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<Bottleneck>,
    /// Share of the bytes that takes this route, from 0 to 1; 0 if it is not used.
    pub share: f64,
    /// If true, the route is used to measure it.
    #[serde(default)]
    pub explores: bool,
}

/// Answer to a route question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RouteAnswer {
    /// Routes to use in parallel, each for its share. Never empty: if nothing is known, it is the
    /// direct route.
    pub routes: Vec<RouteOption>,
    /// Other routes that were considered, the best first.
    pub others: Vec<RouteOption>,
    /// Routes to try, in this order, when all of `routes` fail. The direct route is in `routes` or
    /// here.
    pub fall_back: Vec<RouteOption>,
    /// Promised duration over `routes` together, in seconds. Left out if too little is known for a
    /// promise.
    pub seconds: Option<Spread>,
    /// Explanation in at most five lines.
    #[schema(max_items = 5)]
    pub why: Vec<String>,
    /// Version of the map that was used.
    pub map_version: u64,
    /// Time of the answer.
    #[schema(value_type = u64)]
    pub made_ms: Moment,
    /// Time when the answer expires.
    #[schema(value_type = u64)]
    pub valid_until_ms: Moment,
}

/// Query of `GET /routes/table`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TableQuery {
    /// End where the routes begin; the caller, if left out.
    #[param(value_type = Option<String>)]
    pub from: Option<End>,
    /// Only routes to this end.
    #[param(value_type = Option<String>)]
    pub to: Option<End>,
    /// If true, the bytes come from the destinations: they are fetched, not sent. False, if left
    /// out.
    pub receives: Option<bool>,
    /// Only items after this position: `next` of the previous page.
    pub after: Option<String>,
    /// Maximum number of destinations in one answer.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Routes from one end to others. A client stores the table and uses it when the controller does
/// not answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RouteTable {
    /// End where the routes begin.
    #[schema(value_type = String)]
    pub from: End,
    /// If true, the routes are for bytes that come from the destinations.
    #[serde(default)]
    pub receives: bool,
    /// Version of the map that was used.
    pub map_version: u64,
    /// Time when the table was made.
    #[schema(value_type = u64)]
    pub made_ms: Moment,
    /// Time when the table expires. After it, the table is ignored.
    #[schema(value_type = u64)]
    pub valid_until_ms: Moment,
    /// Destinations, in alphabetical order.
    pub destinations: Vec<Destination>,
    /// Value of `after` for the next page of destinations; left out on the last one.
    pub next: Option<String>,
}

/// Routes to one end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Destination {
    /// The destination.
    #[schema(value_type = String)]
    pub to: End,
    /// Names, addresses and networks that the destination is known by.
    pub addresses: Vec<String>,
    /// Routes by size of the transfer, ascending; empty if all sizes simply take the direct route.
    pub sizes: Vec<SizeClass>,
    /// Durations over the direct route by size of the transfer, ascending; empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub direct: Vec<DirectTime>,
}

/// Duration of a transfer over the direct route.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DirectTime {
    /// Size of the transfer, in bytes.
    pub bytes: u64,
    /// Duration, in seconds.
    pub seconds: Spread,
}

/// Routes for transfers of a range of sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SizeClass {
    /// Minimum size of a transfer, in bytes. The class ends where the next one begins.
    pub at_least_bytes: u64,
    /// Size of a typical transfer of this class, in bytes; 0 if not stated.
    #[serde(default)]
    pub typical_bytes: u64,
    /// Routes to use in parallel, the most important one first. `seconds` and `rate_bps` are those
    /// of a typical transfer of this class.
    pub routes: Vec<RouteOption>,
    /// Routes to try when these fail, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fall_back: Vec<RouteOption>,
    /// Duration of a typical transfer over the direct route, in seconds; left out if unknown or if
    /// the direct route is dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_seconds: Option<Spread>,
}
