//! The controller: keeps a map and what was measured of its paths, and answers with forecasts and
//! routes, over HTTP.
//!
//! | room | what it does |
//! |---|---|
//! | [`authority`] | who may do what: roles, rights, constraints. Pure |
//! | [`places`] | the map with depots that registered themselves, and who speaks for which end of a path. Pure |
//! | [`probes`] | who measures what between depots, and when. Pure |
//! | [`weather`] | forecasts and routes in memory: brings [`longhaul_weather`] what it decides on. No I/O |
//! | [`reservations`] | bandwidth that is promised: brings [`longhaul_circuits`] what it decides on, and its journal to the store |
//! | [`circuits`] | reservations as circuits: brings [`longhaul_setup`] what is to be there, and the book what became of it |
//! | [`leader`] | which of the controllers that share a store leads |
//! | [`store`] | what is kept, in SQLite or PostgreSQL |
//! | [`controller`] | what is known at the moment, and how that follows the store |
//! | [`metrics`] | what is counted, as OpenMetrics |
//! | [`http`] | the API, with the types of [`longhaul_control_api`] |
//!
//! It stores, asks and answers; what decides is elsewhere and does no I/O.

#![forbid(unsafe_code)]

pub mod authority;
pub mod circuits;
pub mod controller;
pub mod http;
pub mod leader;
pub mod metrics;
pub mod places;
pub mod probes;
pub mod reservations;
pub mod store;
pub mod weather;

pub use controller::{Controller, Settings};
pub use store::{Store, StoreError};
