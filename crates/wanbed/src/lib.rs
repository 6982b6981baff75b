//! Emulated wide-area networks on one machine, in network namespaces.
//!
//! A [`Scenario`] is a TOML file of nodes, links and routes. [`Lab::up`] builds it and gives access
//! to it. Dropping the [`Lab`] takes it down and leaves nothing behind. The command line
//! (`wanbed up`, `exec`, `run`, `check`, ...) is a thin layer over the same calls. `docs/wanbed.md`
//! describes the scenario language, what must be installed, and how far the emulation can be
//! trusted.

mod awake;
mod check;
mod control;
pub mod daemon;
pub mod drs_trace;
mod error;
mod lab;
pub mod link;
mod machine;
mod namespace;
mod place;
mod report;
mod route;
pub mod scenario;
mod setup;
pub mod spec;

pub use awake::{Awake, stay_awake};
pub use check::{Finding, LinkCheck, Verdict};
pub use error::{Error, Result, ScenarioError};
pub use lab::{Lab, become_command, exit_code};
pub use machine::CpuUse;
pub use namespace::end_with_parent;
pub use report::{LinkReport, Report};
pub use scenario::{Backend, Network, Overrides, Scenario, Setting};
