//! Asks HTTP services of Longhaul's, as who has a key here.
//!
//! | room | what it does |
//! |---|---|
//! | [`client`] | one service: a request, and the answer to it, over TLS or at a Unix socket |
//! | [`https`] | a service on another machine: known by its key or an authority; requests are signed |
//! | [`url`] | how a service is named: `https://HOST[:PORT]`, `unix:/PATH` |
//! | [`settings`] | `controller.toml`: which controller this machine asks, and how it is known |
//! | [`spool`] | what is to be reported to a controller, until it has been |
//! | [`controller`] | what can be asked of a controller, by the types of `longhaul-control-api` |

#![forbid(unsafe_code)]

pub mod client;
pub mod controller;
mod error;
pub mod https;
pub mod settings;
pub mod spool;
pub mod url;

pub use client::ServiceClient;
pub use controller::{Controller, encoded};
pub use error::ClientError;
pub use https::Https;
pub use longhaul_api::tls::TlsError;
pub use longhaul_hop::unix_ms;
pub use settings::{Settings, SettingsError};
pub use spool::Spool;
pub use url::ServiceUrl;
