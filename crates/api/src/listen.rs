//! Listeners of a service.

mod secured;
mod serving;

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use tokio::net::{TcpListener, UnixListener};

pub use secured::{any_address, serve_secured};
pub use serving::serve;

/// A service cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ServiceListenError {
    /// Other machines could reach the address.
    #[error(
        "{0} is not a loopback address: give --authorized-keys FILE to listen there over TLS, for \
         the keys in that file"
    )]
    NotLoopback(SocketAddr),
    /// The socket cannot be created. If the address is in use, another server runs; ports below
    /// 1024 need root.
    #[error("cannot listen on {place}: {source}")]
    Socket {
        /// Path or address.
        place: String,
        /// Cause.
        source: io::Error,
    },
}

/// Listens on a Unix socket, in a directory that only the user can open. Removes an existing
/// socket, so the caller must know that its previous listener has ended.
///
/// # Errors
/// The socket cannot be created.
pub fn unix(path: &Path) -> Result<UnixListener, ServiceListenError> {
    let failed = |source| ServiceListenError::Socket {
        place: path.display().to_string(),
        source,
    };
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    UnixListener::bind(path).map_err(failed)
}

/// Listens on loopback.
///
/// # Errors
/// The address is not a loopback address, or the socket cannot be created.
pub async fn loopback(address: SocketAddr) -> Result<TcpListener, ServiceListenError> {
    if !address.ip().is_loopback() {
        return Err(ServiceListenError::NotLoopback(address));
    }
    TcpListener::bind(address)
        .await
        .map_err(|source| ServiceListenError::Socket {
            place: address.to_string(),
            source,
        })
}
