//! The session-layer relay: accepts, authorises, dials the next hop, splices, and drains.
//!
//! A depot reads one OPEN from each connection, checks it against its policy, and dials the next
//! hop. It forwards the OPEN with the early data that came with it, and answers with one status.
//! From then on it moves bytes unread in both directions with splice(2). `docs/close-states.md`
//! defines how each end of a connection is relayed. `docs/threat-model.md` lists what a depot
//! defends against, and what it does not.
//!
//! [`run`] does all of this. [`Depot`] does the same in two steps, for callers that need to know
//! the ports first.

mod circuit;
mod config;
mod depot;
mod dial;
mod error;
mod experience;
mod forwarding;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod grants;
mod grants_in_use;
mod marking;
mod metrics;
mod next_hop;
mod observe;
mod probe;
mod refusal;
mod refuse;
mod registration;
mod relay;
mod serve;
mod setup;
mod state;
mod workers;

pub use config::{
    DepotConfig, DepotTimeouts, NextCongestion, NextHopSetting, NextTransport, RelayLimits,
};
pub use depot::{Activity, Depot, run};
pub use error::Error;
pub use grants_in_use::{GrantInUse, GrantsInUse};
pub use longhaul_hop::ListenerConfig;
pub use longhaul_policy::{
    ForwardingError, ForwardingTable, HostPattern, Network, Policy, PolicyError,
};
pub use longhaul_quic::QuicLimits;
pub use observe::{HopEnd, HopObservation, HopObserver, HopReport};
pub use probe::{PROBE_TIMEOUT, ProbeFailure, ProbeFigures, ProbePlan, Train, probe};
