//! Errors that prevent an on-ramp from starting.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use longhaul_config::home::{HomeError, display_path};
use longhaul_config::routes::RoutesError;

/// Reason why an on-ramp does not start.
#[derive(Debug, thiserror::Error)]
pub enum OnrampError {
    /// The configuration has no entry.
    #[error(
        "nothing to listen on: give --socket, --socks, --http, --forward, --redirect or --tproxy"
    )]
    NoEntry,
    /// The rules cannot be loaded.
    #[error(transparent)]
    Routes(#[from] RoutesError),
    /// The directory of the socket cannot be created.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// Other users may enter the directory of the socket. Anybody who can open the socket can use
    /// this user's routes.
    #[error(
        "{}: other users can enter this directory: run chmod 700 on it, or name a socket elsewhere",
        display_path(directory)
    )]
    Exposed {
        /// The directory.
        directory: PathBuf,
    },
    /// Another process already listens on the socket. One on-ramp serves all programs of a user.
    /// Stop it, or give this one another `--socket`.
    #[error("an on-ramp already runs at {}", display_path(path))]
    Running {
        /// The socket.
        path: PathBuf,
    },
    /// The path is too long for a socket.
    #[error(
        "{}: too long for a socket: set LONGHAUL_STATE to a shorter directory, or give --socket",
        display_path(path)
    )]
    LongPath {
        /// The path.
        path: PathBuf,
    },
    /// The socket cannot be created.
    #[error("cannot make the socket {}: {source}", display_path(path))]
    Socket {
        /// The path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// An address cannot be listened on. Check that the address is this machine's and not in use.
    #[error("cannot listen on {address} for {entry}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The entry.
        entry: &'static str,
        /// Cause.
        source: io::Error,
    },
    /// Something that every service needs is not available, as the message says.
    #[error(transparent)]
    Service(#[from] longhaul_service::Error),
    /// The machine's own addresses, which guests must not reach, cannot be read. Try again with
    /// more descriptors.
    #[error("cannot read this machine's addresses: {0}")]
    OwnAddresses(io::Error),
    /// The entry would be open to anybody.
    #[error(
        "{entry} at {address} would be open to everyone who can reach it: name the permitted \
         networks with --allow-from"
    )]
    Open {
        /// The address.
        address: SocketAddr,
        /// The entry.
        entry: &'static str,
    },
}
