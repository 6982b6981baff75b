//! Where a service listens.

mod secured;

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

pub use secured::{anywhere, serve_secured};

use crate::access::Peer;

/// A service cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Others could reach it.
    #[error(
        "{0} is not a loopback address: with --authorized-keys FILE an agent listens there, by TLS and for those keys"
    )]
    NotLoopback(SocketAddr),
    /// The socket cannot be made.
    #[error("cannot listen on {place}: {source}")]
    Socket {
        /// Where.
        place: String,
        /// Why.
        source: io::Error,
    },
}

/// Listens on a Unix socket, in a directory that only the user can open. Whoever listened there before must be known to
/// be gone: its socket is removed.
///
/// # Errors
/// The socket cannot be made.
pub fn unix(path: &Path) -> Result<UnixListener, ListenError> {
    let failed = |source| ListenError::Socket {
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
/// The address is not one of this machine alone, or the socket cannot be made.
pub async fn loopback(address: SocketAddr) -> Result<TcpListener, ListenError> {
    if !address.ip().is_loopback() {
        return Err(ListenError::NotLoopback(address));
    }
    TcpListener::bind(address)
        .await
        .map_err(|source| ListenError::Socket {
            place: address.to_string(),
            source,
        })
}

/// Serves `router` there until `stop` is true.
///
/// # Errors
/// The system refuses to go on listening.
pub async fn serve<L>(listener: L, router: Router, stop: watch::Receiver<bool>) -> io::Result<()>
where
    L: Listener,
    L::Addr: std::fmt::Debug,
    Peer: for<'a> Connected<IncomingStream<'a, L>>,
{
    let service = router.into_make_service_with_connect_info::<Peer>();
    axum::serve(listener, service)
        .with_graceful_shutdown(stopped(stop))
        .await
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // Who could have said so is gone: that is an end, too.
    let _ = stop.wait_for(|stop| *stop).await;
}
