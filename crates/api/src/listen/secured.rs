//! Listening for other machines, with TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use longhaul_service::http::{Acceptor, PeerIdentity, PendingStream};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{ServiceListenError, serve};

/// Listens on any address of this machine.
///
/// # Errors
/// The socket cannot be created.
pub async fn any_address(address: SocketAddr) -> Result<TcpListener, ServiceListenError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| ServiceListenError::Socket {
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
    serve(TlsListener { listener, tls }, router, stop).await
}

struct TlsListener {
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
}

impl Acceptor for TlsListener {
    type Stream = TlsStream<TcpStream>;

    async fn accept(&self) -> io::Result<(PendingStream<Self::Stream>, PeerIdentity)> {
        let (stream, peer) = self.listener.accept().await?;
        let handshake = TlsAcceptor::from(self.tls.borrow().clone()).accept(stream);
        Ok((Box::pin(handshake), PeerIdentity::Network(peer)))
    }
}
