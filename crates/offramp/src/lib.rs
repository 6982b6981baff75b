//! The off-ramp: ends sessions at ordinary TCP servers, which are unaware of sessions.
//!
//! An off-ramp is an acceptor of the service `tcp`. It checks the server that an OPEN names
//! (`onward`) against its policy, which allows nothing by default. It connects to the server, and
//! only then answers. So the initiator's own connect completes when the server has been reached, or
//! fails with the reason. From then on the off-ramp moves bytes in both directions between the
//! session and the server's connection. The end-to-end protection of the session ends here: the
//! server receives what the program sends.
//!
//! `docs/close-states.md` defines how each end of a connection is relayed. `docs/offramp.md`
//! describes what an operator sets up.

#![forbid(unsafe_code)]

mod config;
mod error;
mod metrics;
mod offramp;
mod resuming;
mod serve;
mod setup;
mod state;

pub use config::{OfframpConfig, OfframpLimits, OfframpTimeouts};
pub use error::Error;
pub use longhaul_hop::ListenerConfig;
pub use longhaul_session::ResumeLimits;
pub use offramp::Offramp;
