//! Errors that prevent a depot from running. An error of one session is a status for its initiator
//! instead.

use std::io;
use std::net::SocketAddr;

use longhaul_policy::PolicyError;

/// Reason why a depot does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that every service needs is not available, as the message says.
    #[error(transparent)]
    Service(#[from] longhaul_service::Error),
    /// QUIC cannot be listened for: check for another program on the UDP port, or turn QUIC off
    /// (`--no-quic`).
    #[error("{address} (UDP): cannot listen for QUIC: {source}")]
    ListenQuic {
        /// Address of the listener.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// The policy is invalid: fix the line that the error names.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The threads that run sessions cannot be started: free some, or configure fewer.
    #[error("cannot start the threads for sessions: {0}")]
    Threads(io::Error),
    /// The kernel does not report this machine's addresses, which the policy needs: check that
    /// descriptors are left.
    #[error("cannot read this machine's addresses: {0}")]
    OwnAddresses(io::Error),
}
