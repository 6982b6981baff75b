//! The map: sites, hosts, depots and links. An operator uploads it; depots that register themselves
//! are added to it.
//!
//! `PUT /map` takes a [`Map`], whatever file format it was read from. `PUT /depots/{key}` takes a
//! [`Registration`] signed with that key, and must be repeated before the registration expires.

pub use longhaul_map::{
    Depot, DepotAddress, DepotLimits, DepotSource, DepotState, Host, Link, Map, Registration,
    SessionEnd, Site, Transport,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{End, Key, Moment};

/// Answer to a registration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Registered {
    /// Name of the depot on the map: its own, unless that name belongs to another key.
    pub name: String,
    /// Seconds until the next registration is expected: a third of this one's validity.
    pub again_in_s: f64,
    /// Time when the registration expires. From then on the depot is stale.
    #[schema(value_type = u64)]
    pub until_ms: Moment,
}

/// All known depots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DepotList {
    /// The depots, as they are on the map.
    pub items: Vec<Depot>,
}

/// Name of a depot and the key that owns it: the first that registered the name. The key keeps it
/// until the operator releases it: `DELETE /names/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DepotName {
    /// Name as it was registered. Names are compared without regard to case.
    pub name: String,
    /// Key that owns the name.
    #[schema(value_type = String)]
    pub key: Key,
    /// Time of the first registration under this name.
    #[schema(value_type = u64)]
    pub since_ms: Moment,
}

/// All names that depots registered: `GET /names`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DepotNameList {
    /// The names, in alphabetical order.
    pub items: Vec<DepotName>,
}

/// Current map: `GET /map`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KnownMap {
    /// Version of the map; each change increments it.
    pub version: u64,
    /// Time of the last change.
    #[schema(value_type = u64)]
    pub made_ms: Moment,
    /// The operator's map, with depots that registered themselves.
    pub map: Map,
    /// Registrations that could not be applied as they are, one line each.
    pub problems: Vec<String>,
}

/// Answer to an uploaded map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapChanged {
    /// Number of sites on the new map.
    pub sites: usize,
    /// Number of depots on the new map, without those that only registered themselves.
    pub depots: usize,
    /// Number of hosts on the new map.
    pub hosts: usize,
    /// Number of links on the new map.
    pub links: usize,
}

/// Query of `GET /routes.toml`, the table that depots, clients and on-ramps read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RoutesFileQuery {
    /// End where the routes begin; the caller, if left out.
    #[param(value_type = Option<String>)]
    pub from: Option<End>,
}
