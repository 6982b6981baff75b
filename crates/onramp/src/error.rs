//! Why an on-ramp does not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use longhaul_config::home::{HomeError, shown};
use longhaul_config::routes::RoutesError;

/// Why an on-ramp does not start.
#[derive(Debug, thiserror::Error)]
pub enum OnrampError {
    /// It would have nothing to do.
    #[error(
        "there is nowhere to come in: say --socket, --socks, --http, --forward, --redirect or --tproxy"
    )]
    NoEntry,
    /// The rules can't be had.
    #[error(transparent)]
    Routes(#[from] RoutesError),
    /// The directory of the socket can't be made.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The directory of the socket lets others in.
    #[error(
        "{}: others may enter this directory: run chmod 700 on it, or name a socket elsewhere",
        shown(directory)
    )]
    Exposed {
        /// The directory.
        directory: PathBuf,
    },
    /// Somebody answers there already.
    #[error("an on-ramp runs already at {}", shown(path))]
    Running {
        /// The socket.
        path: PathBuf,
    },
    /// The path is longer than a socket's can be.
    #[error(
        "{}: too long for a socket: set LONGHAUL_STATE to a shorter directory, or give --socket",
        shown(path)
    )]
    LongPath {
        /// The path.
        path: PathBuf,
    },
    /// The socket can't be made.
    #[error("cannot make the socket {}: {source}", shown(path))]
    Socket {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An address can't be listened on.
    #[error("cannot listen on {address} for {entry}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The entry.
        entry: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The metrics page cannot be served there: choose another address, or none.
    #[error("{address}: cannot serve metrics: {source}")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The machine's own addresses, which guests are kept from, cannot be read. Try again with more
    /// descriptors.
    #[error("cannot read this machine's addresses: {0}")]
    OwnAddresses(io::Error),
    /// Anybody could use it.
    #[error(
        "{entry} at {address} could be used by anybody who reaches it: say from which networks with --allow-from"
    )]
    Open {
        /// The address.
        address: SocketAddr,
        /// The entry.
        entry: &'static str,
    },
}
