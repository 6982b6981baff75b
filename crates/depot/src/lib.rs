//! The session-layer relay: accept, authorise, dial on, splice, drain.
//!
//! A depot reads one OPEN from each connection, holds it against its policy, dials the next hop,
//! passes the OPEN on with the early data that came with it, answers one status, and from then on
//! moves bytes blindly both ways with splice(2). How each end of a connection is passed on is in
//! `docs/close-states.md`; what a depot defends against, and what not, is in
//! `docs/threat-model.md`.
//!
//! [`run`] is the whole of it; [`Depot`] is the same in two steps, for those who need to know the
//! ports first.

mod config;
mod depot;
mod dial;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod grants;
mod metrics;
mod observe;
mod probe;
mod refusal;
mod relay;
mod serve;
mod setup;
mod workers;

pub use config::{DepotConfig, Limits, NextCongestion, Timeouts};
pub use depot::{Activity, Depot, run};
pub use error::Error;
pub use grants::{GrantInUse, GrantsInUse};
pub use longhaul_hop::Listen;
pub use longhaul_policy::{HostPattern, Network, Policy, PolicyError};
pub use observe::{HopEnd, HopObserver, HopReport, HopSeen};
pub use probe::{PROBE_TIMEOUT, ProbeFailure, ProbeFigures, ProbePlan, Train, probe};
