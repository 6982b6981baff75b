//! The map: sites, hosts, depots and links. An operator puts it there; depots that register
//! themselves are added to it.
//!
//! `PUT /map` takes a [`Map`]; what was read from files of any format is sent as that.
//! `PUT /depots/{key}` takes a [`Registration`], signed with that key, and again before it ends.

pub use longhaul_map::{
    Depot, DepotAddress, DepotLimits, DepotSource, DepotState, Host, Link, Map, Registration,
    SessionEnd, Site, Transport,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{End, Key, Moment};

/// The answer to a registration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Registered {
    /// What the depot is called on the map: its own name, unless that belongs to another key.
    pub name: String,
    /// The next registration is expected within this many seconds: a third of the time for which
    /// this one holds.
    pub again_in_s: f64,
    /// Until when it holds, in milliseconds since the Unix epoch: from then on the depot is stale.
    #[schema(value_type = u64)]
    pub until_ms: Moment,
}

/// All depots that are known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DepotList {
    /// As they stand on the map.
    pub items: Vec<Depot>,
}

/// The name of a depot, and the key that it belongs to: the first that registered it. It stays with
/// that key until the operator releases it: `DELETE /names/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DepotName {
    /// The name as it was registered; case does not tell names apart.
    pub name: String,
    /// Its key.
    #[schema(value_type = String)]
    pub key: Key,
    /// When it was first registered, in milliseconds since the Unix epoch.
    #[schema(value_type = u64)]
    pub since_ms: Moment,
}

/// All names that depots registered: `GET /names`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DepotNameList {
    /// By name.
    pub items: Vec<DepotName>,
}

/// The map as it is now: `GET /map`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KnownMap {
    /// Grows with each change.
    pub version: u64,
    /// When it was made.
    #[schema(value_type = u64)]
    pub made_ms: Moment,
    /// What the operator put there, with depots that registered themselves.
    pub map: Map,
    /// What registrations say that could not be taken as it is, a line each.
    pub problems: Vec<String>,
}

/// The answer to a map that was put there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapChanged {
    /// How many sites there are now.
    pub sites: usize,
    /// How many depots, without those that registered themselves alone.
    pub depots: usize,
    /// How many hosts.
    pub hosts: usize,
    /// How many links.
    pub links: usize,
}

/// Which table: `GET /routes.toml`, as depots, clients and on-ramps read it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RoutesFileQuery {
    /// Where the routes begin; whoever asks, if left out.
    #[param(value_type = Option<String>)]
    pub from: Option<End>,
}
