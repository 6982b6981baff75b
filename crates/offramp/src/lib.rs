//! The off-ramp: ends sessions at ordinary TCP servers, which know nothing of sessions.
//!
//! An off-ramp is an acceptor of the service `tcp`. It holds the server that an OPEN names
//! (`onward`) against its policy, which allows nothing by default, connects to it, and only then
//! answers: the initiator's own connect ends when the server has been reached, or with the reason
//! why not. From then on it moves bytes both ways, between the session and the server's connection.
//! The end-to-end protection of the session ends here; what goes on to the server is what the
//! program sends.
//!
//! How each end of a connection is passed on is in `docs/close-states.md`, what an operator sets up
//! in `docs/offramp.md`.

#![forbid(unsafe_code)]

mod config;
mod error;
mod metrics;
mod offramp;
mod serve;
mod setup;

pub use config::{Limits, OfframpConfig, Timeouts};
pub use error::Error;
pub use longhaul_hop::Listen;
pub use offramp::Offramp;
