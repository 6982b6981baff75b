//! By which depots a transfer goes.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::forecasts::Spread;
use crate::{End, Key, Moment};

/// What is to be moved, and from where to where: `POST /routes/question`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteQuestion {
    /// The end that opens connections; whoever asks, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 253)]
    pub from: Option<End>,
    /// The other end: an end, or a name or address that a host of the map is known by.
    #[schema(value_type = String, min_length = 1, max_length = 253, example = "dtn1.campus.example")]
    pub to: End,
    /// Whether the bytes come from `to`: it is fetched, not sent. Routes are still those that the
    /// one who asks opens, from `from` to `to`.
    #[serde(default)]
    pub receives: bool,
    /// How many bytes; if left out, many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// By how many streams it may go; as many as are good, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1024)]
    pub streams: Option<u32>,
    /// By which congestion control, as the system names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 32)]
    pub congestion: Option<String>,
    /// The route that is used until now, in the form of `--route`: it is left for another only
    /// where that gains enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 4096)]
    pub current: Option<String>,
    /// Whether a route may be tried of which little is known, at a stated cost. Never for small or
    /// urgent transfers.
    #[serde(default)]
    pub may_explore: bool,
    /// Depots that are not to be used, by name: those that have just failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub avoid: Vec<String>,
}

/// A depot on a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Passed {
    /// Its name on the map.
    pub depot: String,
    /// Where it listens: HOST:PORT.
    pub address: String,
    /// Its key, if it is known: whoever answers there must show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub key: Option<Key>,
}

/// What holds a route back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bottleneck {
    /// Where the hop begins.
    #[schema(value_type = String)]
    pub from: End,
    /// Where it ends.
    #[schema(value_type = String)]
    pub to: End,
    /// What of it: `set-up`, `slow-start`, `rate`, `window`, `loss`, `relay` or `host`.
    pub why: String,
}

/// One route, and what is expected of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RouteOption {
    /// The depots to pass, in order; none is the direct route.
    pub via: Vec<Passed>,
    /// The same in the form of `--route`: `direct`, or HOST:PORT with commas between them, with
    /// keys where they are known.
    pub route: String,
    /// How long the whole transfer would take by it alone, in seconds; none where that is not
    /// known.
    pub seconds: Option<Spread>,
    /// The rate that it would come to, in bits per second.
    pub rate_bps: Option<Spread>,
    /// What holds it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<Bottleneck>,
    /// The share of the bytes that goes by it, from 0 to 1; 0 of those that are not used.
    pub share: f64,
    /// Whether it is used to learn what it is worth.
    #[serde(default)]
    pub explores: bool,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RouteAnswer {
    /// What to use, all at once, each for its share. Never empty: where nothing is known, it is the
    /// direct route.
    pub routes: Vec<RouteOption>,
    /// What else was looked at, the best first.
    pub others: Vec<RouteOption>,
    /// Where to go when all of `routes` fail, in this order; the direct route is among these or
    /// those.
    pub fall_back: Vec<RouteOption>,
    /// How long it takes by `routes` together, in seconds: what is promised. None where too little
    /// is known to promise anything.
    pub seconds: Option<Spread>,
    /// Why, in at most five lines for people.
    #[schema(max_items = 5)]
    pub why: Vec<String>,
    /// The version of the map that it rests on.
    pub map_version: u64,
    /// When it was given.
    #[schema(value_type = u64)]
    pub made_ms: Moment,
    /// Until when it is worth anything.
    #[schema(value_type = u64)]
    pub valid_until_ms: Moment,
}

/// Which table: `GET /routes/table`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TableQuery {
    /// Where the routes begin; whoever asks, if left out.
    #[param(value_type = Option<String>)]
    pub from: Option<End>,
    /// Only to this end.
    #[param(value_type = Option<String>)]
    pub to: Option<End>,
    /// Whether the bytes come from there: they are fetched, not sent. Not, if left out.
    pub receives: Option<bool>,
    /// Only those that follow: `next` of the answer before.
    pub after: Option<String>,
    /// Most destinations of one answer.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Routes from one end to others, to keep: what a client goes by when the controller does not
/// answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RouteTable {
    /// Where they begin.
    #[schema(value_type = String)]
    pub from: End,
    /// Whether they are for bytes that come from the destinations.
    #[serde(default)]
    pub receives: bool,
    /// The version of the map that it rests on.
    pub map_version: u64,
    /// When it was made.
    #[schema(value_type = u64)]
    pub made_ms: Moment,
    /// Until when it is worth anything: later it is as if it were not there.
    #[schema(value_type = u64)]
    pub valid_until_ms: Moment,
    /// Where to, by name.
    pub destinations: Vec<Destination>,
    /// What to ask for as `after` for the destinations that follow; none if none does.
    pub next: Option<String>,
}

/// Routes to one end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Destination {
    /// The end.
    #[schema(value_type = String)]
    pub to: End,
    /// Names, addresses and networks that it is known by.
    pub addresses: Vec<String>,
    /// By size of the transfer, ascending; none where all simply go direct.
    pub sizes: Vec<SizeClass>,
    /// How long transfers of some sizes take by the direct route, by size, ascending; none where
    /// that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub direct: Vec<DirectTime>,
}

/// How long a transfer takes by the direct route.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DirectTime {
    /// Of so many bytes.
    pub bytes: u64,
    /// In seconds.
    pub seconds: Spread,
}

/// What to use for transfers of some sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SizeClass {
    /// For transfers of at least so many bytes, and fewer than those of the next class.
    pub at_least_bytes: u64,
    /// How many bytes a typical transfer of this class has; 0 where that is not said.
    #[serde(default)]
    pub typical_bytes: u64,
    /// What to use, all at once, the first one before all; `seconds` and `rate_bps` are those of a
    /// typical transfer of this class.
    pub routes: Vec<RouteOption>,
    /// Where to go when these fail, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fall_back: Vec<RouteOption>,
    /// How long a typical transfer would take by the direct route, in seconds; none where that is
    /// not known, or dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_seconds: Option<Spread>,
}
