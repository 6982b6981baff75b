//! Listening for other machines, with TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{Acceptor, ListenError, Opening, serve};
use crate::access::Peer;

/// Listens on any address of this machine.
///
/// # Errors
/// The socket cannot be created.
pub async fn anywhere(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| ListenError::Socket {
            place: address.to_string(),
            source,
        })
}

/// Serves `router` over TLS until `stop` is true, as [`serve`] does. Each connection uses the
/// configuration that `tls` holds when it is accepted.
///
/// # Errors
/// None; it returns once `stop` is true.
pub async fn serve_secured(
    listener: TcpListener,
    router: Router,
    tls: watch::Receiver<Arc<ServerConfig>>,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    serve(Secured { listener, tls }, router, stop).await
}

struct Secured {
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
}

impl Acceptor for Secured {
    type Stream = TlsStream<TcpStream>;

    async fn accept(&self) -> io::Result<(Opening<Self::Stream>, Peer)> {
        let (stream, peer) = self.listener.accept().await?;
        let handshake = TlsAcceptor::from(self.tls.borrow().clone()).accept(stream);
        Ok((Box::pin(handshake), Peer::Network(peer)))
    }
}
