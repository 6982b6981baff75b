//! The map: sites, depots and hosts, and the links between the sites. Texts in, values out: no I/O,
//! no clock.
//!
//! | module | contents |
//! |---|---|
//! | [`Map`] (`model`) | items of a map with their units, as served in JSON |
//! | `check` | validation of maps: unique names, known sites, shares from 0 to 1 |
//! | [`file`] | parser of `map.toml`, whose errors name the line |
//! | [`graphml`] | parser of GraphML, as in the Internet Topology Zoo |
//! | [`esnet`] | parser of ESnet's topology, as published by OSCARS |
//! | [`DepotNames`] (`ownership`) | names of depots, and the keys they belong to |
//! | [`registration`] | depots that report to the map, and leave it when they fall silent |
//! | `problem` | problems of registrations, and of the names in them |
//! | [`graph`] | nodes and directed edges, for the search of paths |
//! | [`ospf`] | parser of OSPF's traffic engineering database, and a map's links in it |
//! | [`LiveNetwork`] (`live`, `live_network`) | states of links in the running network |
//! | [`render`] | a map as tables for people |
//! | [`routes`] | `routes.toml` for chosen routes |

#![forbid(unsafe_code)]
// All input here comes from others.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod check;
mod distance;
pub mod esnet;
pub mod file;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod graph;
pub mod graphml;
mod live;
mod live_network;
mod model;
mod names;
pub mod ospf;
mod ownership;
mod problem;
pub mod registration;
pub mod render;
pub mod routes;
mod text_form;

pub use check::{MAX_ITEMS, MapFault, MapItem};
pub use distance::{LIGHT_IN_FIBRE, great_circle};
pub use graph::Graph;
pub use live::{LiveDirection, LiveLink};
pub use live_network::LiveNetwork;
pub use model::{
    Capacity, CapacitySource, Depot, DepotAddress, DepotLimits, DepotSource, DepotState, Direction,
    Drawn, Host, Latency, LatencySource, Link, Map, Position, Reservable, SessionEnd, Site,
    SiteKind, Transport,
};
pub use ownership::{DepotNames, MAX_NAMES_OF_KEY, fold_name};
pub use problem::NameConflict;
pub use registration::{MergedMap, Registration, RegistrationPolicy, RegistrationProblem, merge};

/// Seconds since the Unix epoch; fractions count.
pub type Moment = f64;

#[cfg(test)]
mod tests;
