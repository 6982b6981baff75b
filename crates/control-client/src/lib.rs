//! Client of Longhaul's HTTP services, with a key of its own.
//!
//! | module | purpose |
//! |---|---|
//! | [`client`] | one service: a request and its answer, over TLS or a Unix socket |
//! | [`https`] | a service on another machine: verified TLS with signed requests |
//! | [`url`] | name of a service: `https://HOST[:PORT]`, `unix:/PATH` |
//! | [`settings`] | `controller.toml`: the controllers of this machine, and how they are verified |
//! | [`spool`] | reports that wait until a controller has received them |
//! | [`controller`] | requests to a controller, with the types of `longhaul-control-api` |
//! | [`routes`] | routes from the user's rules, a controller, or its last tables |

#![forbid(unsafe_code)]

pub mod client;
pub mod controller;
mod error;
pub mod https;
pub mod routes;
pub mod settings;
pub mod spool;
pub mod url;

pub use client::ServiceClient;
pub use controller::{ControllerClient, percent_encode};
pub use error::ClientError;
pub use https::Https;
pub use longhaul_api_common::tls::TlsError;
pub use longhaul_hop::unix_ms;
pub use settings::{ControllerSettings, SettingsError};
pub use spool::Spool;
pub use url::{ServiceUrl, UrlError};
