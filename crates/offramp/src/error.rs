//! What can stop an off-ramp from running. What can go wrong with one session is a status for its
//! initiator, not an error here.

use std::io;
use std::net::SocketAddr;

use longhaul_hop::CongestionError;

/// Why an off-ramp does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A listener cannot be opened: is another program there, or is the port below 1024?
    #[error("{address}: cannot listen: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Nowhere to listen: give at least one address.
    #[error("no address to listen at: give at least one")]
    NoListener,
    /// The metrics page cannot be served there: choose another address, or none.
    #[error("{address}: cannot serve metrics: {source}")]
    Metrics {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The policy lets an off-ramp connect to no server: add a rule with `servers`.
    #[error(
        "no rule of the policy has servers, so the off-ramp may connect to none: add one, with servers and ports"
    )]
    NoServers,
    /// The kernel does not let this process use that congestion control: choose one of those it
    /// lists.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
    /// Signals cannot be waited for, which reloading the policy needs.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
    /// The kernel does not report this machine's addresses, which the policy must know: are there
    /// descriptors left?
    #[error("cannot read this machine's addresses: {0}")]
    OwnAddresses(io::Error),
}
