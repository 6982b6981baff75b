//! The map: which sites, depots and hosts there are, and the links between the sites. Texts in,
//! values out: no I/O, no clock.
//!
//! | room | what it does |
//! |---|---|
//! | [`Map`] (`model`) | what is on a map, with units, as a service serves it in JSON |
//! | `check` | whether a map is one: names that exist once, sites that exist, shares from 0 to 1 |
//! | [`file`] | `map.toml` in, a map out, or an error that names the line |
//! | [`graphml`] | the same for GraphML, as the Internet Topology Zoo writes it |
//! | [`esnet`] | the same for ESnet's topology, as OSCARS publishes it |
//! | [`DepotNames`] (`ownership`) | names of depots, and the keys they belong to |
//! | [`registration`] | depots that report on themselves, put on a map, and off it when they fall silent |
//! | [`graph`] | nodes and directed edges, for what looks for paths |
//! | [`render`] | a map as tables for people |
//! | [`routes`] | `routes.toml` for routes that were chosen |

#![forbid(unsafe_code)]
// All that is read here was written by others.
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
mod model;
mod names;
mod ownership;
pub mod registration;
pub mod render;
pub mod routes;
mod text_form;

pub use check::{Item, MAX_ITEMS, MapFault};
pub use distance::{LIGHT_IN_FIBRE, great_circle};
pub use graph::Graph;
pub use model::{
    Capacity, CapacitySource, Depot, DepotAddress, DepotLimits, DepotSource, DepotState, Direction,
    Drawn, Host, Latency, LatencySource, Link, Map, Position, Reservable, SessionEnd, Site,
    SiteKind, Transport,
};
pub use ownership::{DepotNames, MAX_NAMES_OF_KEY, NameConflict, folded};
pub use registration::{Merged, Registration, RegistrationPolicy, RegistrationProblem, merge};

/// Seconds since the Unix epoch; fractions count.
pub type Moment = f64;

#[cfg(test)]
mod tests;
