//! Emulated wide-area networks on one machine, in network namespaces.
//!
//! A [`Scenario`] is a TOML file of nodes, links and routes; [`Lab::up`] builds it and gives access to it; dropping the
//! [`Lab`] takes it down and leaves nothing behind. The command line (`wanbed up`, `exec`, `run`, `check`, ...) is a thin
//! layer over the same calls. `docs/wanbed.md` describes the scenario language, what must be installed, and how far the
//! emulation can be trusted.

mod error;
pub mod link;
mod route;
pub mod scenario;
pub mod spec;

pub use error::{Error, Result, ScenarioError};
pub use scenario::{Backend, Network, Overrides, Scenario, Setting};
