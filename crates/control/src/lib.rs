//! The controller: stores a map and measurements of its paths, and answers with forecasts and
//! routes, over HTTP.
//!
//! | module | purpose |
//! |---|---|
//! | [`authority`] | access control: roles, rights, constraints. Pure |
//! | [`places`] | the map with registered depots, and the ends that each key speaks for. Pure |
//! | [`probes`] | schedule of measurements between depots. Pure |
//! | [`weather`] | forecasts and routes in memory: the inputs of [`longhaul_routing`]. No I/O |
//! | [`reservations`] | reserved bandwidth: inputs of [`longhaul_circuits`], and the journal |
//! | [`circuits`] | circuits: requests to [`longhaul_provisioning`], and results to the book |
//! | [`topology`] | live topology: states of links in a network that runs OSPF |
//! | [`domains`] | reservations across domains: the I/O around [`longhaul_domains`] |
//! | [`leader`] | election of a leader among controllers that share a store |
//! | [`store`] | stored data, in SQLite or PostgreSQL |
//! | [`controller`] | state in memory, and its updates from the store |
//! | [`metrics`] | metrics as OpenMetrics |
//! | [`http`] | the API, with the types of [`longhaul_control_api`] |
//!
//! This crate stores, asks and answers. Decisions are made by other crates, which do no I/O.

#![forbid(unsafe_code)]

pub mod authority;
pub mod circuits;
pub mod controller;
pub mod domains;
pub mod http;
pub mod leader;
pub mod metrics;
pub mod places;
pub mod probes;
pub mod reservations;
pub mod store;
pub mod topology;
pub mod weather;

pub use controller::{Controller, ControllerConfig};
pub use store::{ControllerStore, StoreError};
