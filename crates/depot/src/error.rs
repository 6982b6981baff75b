//! Errors that prevent a depot from running. An error of one session is a status for its initiator
//! instead.

use std::io;
use std::net::SocketAddr;

use longhaul_hop::CongestionError;
use longhaul_policy::PolicyError;

/// Reason why a depot does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A listener cannot be opened: check for another program on the address, or a port below 1024.
    /// On a machine without IPv6, listen on an IPv4 address such as `0.0.0.0:7510`.
    #[error("{address}: cannot listen: {source}")]
    Listen {
        /// Address of the listener.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// QUIC cannot be listened for: check for another program on the UDP port, or turn QUIC off
    /// (`--no-quic`).
    #[error("{address} (UDP): cannot listen for QUIC: {source}")]
    ListenQuic {
        /// Address of the listener.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// The configuration names no address to listen on: give at least one.
    #[error("no address to listen on: give at least one")]
    NoListener,
    /// The metrics page cannot be served there: choose another address, or none. Check that the
    /// address of `--metrics` is this machine's and not in use.
    #[error("{address}: cannot serve metrics: {source}")]
    Metrics {
        /// Address of the metrics page.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// The kernel does not let this process use that congestion control: choose a listed one.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
    /// The policy is invalid: fix the line that the error names.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The threads that run sessions cannot be started: free some, or configure fewer.
    #[error("cannot start the threads for sessions: {0}")]
    Threads(io::Error),
    /// Signals cannot be received, which reloading the policy needs.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
    /// The kernel does not report this machine's addresses, which the policy needs: check that
    /// descriptors are left.
    #[error("cannot read this machine's addresses: {0}")]
    OwnAddresses(io::Error),
}
