//! Errors that prevent a service from running.

use std::io;
use std::net::SocketAddr;

use longhaul_hop::CongestionError;

/// Reason why a service does not run.
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
    /// Signals cannot be received, which reading files again needs.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
}
