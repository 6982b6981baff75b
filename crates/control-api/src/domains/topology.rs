//! Abstract topology of a domain: its edges, and what may cross between them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::names::{DomainName, TerminationPoint};
use crate::forecasts::Spread;
use crate::measurements::Quantity;
use crate::{End, Key, Moment};

/// Maximum number of edges of a domain.
pub const MAX_EDGES: usize = 64;
/// Maximum number of crossings between edges.
pub const MAX_CROSSINGS: usize = MAX_EDGES * MAX_EDGES;
/// Maximum number of steps of an available rate.
pub const MAX_STEPS: usize = 64;
/// Maximum number of forecasts that a domain publishes.
pub const MAX_FORECASTS: usize = 1_000;

/// Edge of a domain: its end of a link to a neighbour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// Name of the edge: a site of the domain's map.
    pub name: String,
    /// The neighbour's edge on the same link.
    #[schema(value_type = String, example = "east:to-west")]
    pub peer: TerminationPoint,
    /// Name of the first site behind the edge, if disclosed: the part of the domain that it leads
    /// to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leads_to: Option<String>,
}

/// Rate that is available from a moment on, until the next one of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AvailableRate {
    /// First moment.
    #[schema(value_type = u64)]
    pub from_ms: Moment,
    /// Rate, in bit/s.
    pub rate_bps: u64,
}

/// Traffic that may cross a domain from one edge to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Crossing {
    /// Edge at which it enters.
    pub from: String,
    /// Edge at which it leaves.
    pub to: String,
    /// Latency of the best path, in microseconds.
    pub latency_us: u64,
    /// Rates over time, as far as the domain discloses them.
    #[schema(max_items = 64)]
    pub available: Vec<AvailableRate>,
}

/// Traffic that may pass between an edge and the ends within a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// The edge.
    pub edge: String,
    /// Largest rates over time into the domain.
    #[schema(max_items = 64)]
    pub inward: Vec<AvailableRate>,
    /// Largest rates over time out of the domain.
    #[schema(max_items = 64)]
    pub outward: Vec<AvailableRate>,
}

/// Neighbour of a domain, with its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerDomain {
    /// Name of the neighbour.
    #[schema(value_type = String)]
    pub domain: DomainName,
    /// Its key, as the publishing domain knows it.
    #[schema(value_type = String)]
    pub key: Key,
}

/// Forecast of a path within a domain, as its controller makes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DomainForecast {
    /// End where the path begins.
    #[schema(value_type = String)]
    pub from: End,
    /// End where the path ends.
    #[schema(value_type = String)]
    pub to: End,
    /// Quantity, which determines the unit.
    pub quantity: Quantity,
    /// Expected next value.
    pub next: Spread,
    /// Latest measured value, if disclosed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<f64>,
    /// Time of the latest measurement.
    #[schema(value_type = u64)]
    pub measured_ms: Moment,
    /// Number of values that the forecast uses.
    pub samples: u64,
}

/// Abstract topology of a domain, as its owner publishes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DomainTopology {
    /// Name of the domain.
    #[schema(value_type = String)]
    pub domain: DomainName,
    /// Time at which it was made, by the owner's clock.
    #[schema(value_type = u64)]
    pub made_ms: Moment,
    /// Neighbours, with their keys.
    #[schema(max_items = 64)]
    pub peers: Vec<PeerDomain>,
    /// Edges.
    #[schema(max_items = 64)]
    pub edges: Vec<Edge>,
    /// Traffic that may cross.
    #[schema(max_items = 4096)]
    pub crossings: Vec<Crossing>,
    /// Traffic that may enter and leave.
    #[schema(max_items = 64)]
    pub accesses: Vec<Access>,
    /// Forecasts of paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub forecasts: Vec<DomainForecast>,
}

/// Abstract topology with its owner's signature, which stays valid when others pass it on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignedTopology {
    /// The topology, as the JSON text that was signed.
    pub document: String,
    /// Key of the owner.
    #[schema(value_type = String)]
    pub key: Key,
    /// Ed25519 signature over `longhaul-domain-topology` and a zero byte, followed by the document;
    /// in hexadecimal.
    #[schema(min_length = 128, max_length = 128)]
    pub signature: String,
}

/// A domain that the controller knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KnownDomain {
    /// Its topology.
    pub topology: DomainTopology,
    /// Key that signed it.
    #[schema(value_type = String)]
    pub key: Key,
    /// Neighbour that passed it on; left out for the controller's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub learned_from: Option<DomainName>,
    /// Age, in seconds.
    pub age_s: u64,
    /// Signed form, for others to check.
    pub signed: SignedTopology,
}

/// Domains that the controller knows: `GET /domain/topology`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KnownDomains {
    /// Name of the controller's own domain.
    #[schema(value_type = String)]
    pub domain: DomainName,
    /// The domains, the controller's own first.
    pub items: Vec<KnownDomain>,
}

/// Forecasts of other domains with their origin: `GET /domain/forecasts`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DomainForecastList {
    /// Forecasts by domain.
    pub items: Vec<DomainForecasts>,
}

/// Forecasts of one domain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DomainForecasts {
    /// Domain that made them.
    #[schema(value_type = String)]
    pub domain: DomainName,
    /// Key of the domain.
    #[schema(value_type = String)]
    pub key: Key,
    /// Age of the publication, in seconds.
    pub age_s: u64,
    /// Forecasts.
    pub forecasts: Vec<DomainForecast>,
}
