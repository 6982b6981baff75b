//! What can stop a depot from running. What can go wrong with one session is a status for its
//! initiator, not an error here.

use std::io;
use std::net::SocketAddr;

use longhaul_hop::CongestionError;
use longhaul_policy::PolicyError;

/// Why a depot does not run.
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
    /// The kernel does not let this process use that congestion control: choose one of those it
    /// lists.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
    /// The policy is wrong: mend the line it names.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The threads that sessions run on cannot be started: free some, or ask for fewer.
    #[error("cannot start the threads that sessions run on: {0}")]
    Threads(io::Error),
    /// Signals cannot be waited for, which reloading the policy needs.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
    /// The kernel does not report this machine's addresses, which the policy must know: are there
    /// descriptors left?
    #[error("cannot read this machine's addresses: {0}")]
    OwnAddresses(io::Error),
}
