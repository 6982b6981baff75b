//! Serving HTTP connections within bounds that hold for any behaviour of the peers.
//!
//! A connection is pending until its handler charges its permit. Pending connections have little
//! time. When there are too many, the oldest connection of the source with the most is reset
//! ([`longhaul_hop::ConnectionGate`]). Each listener has its own gate, so a crowd at one leaves
//! capacity at the others.
//!
//! A connection that ends with an unread request is read and discarded for a while, so that no
//! reset destroys the answer. It keeps its permit meanwhile.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use longhaul_hop::{AdmittedConnection, ConnectionGate, ConnectionPermit, EventLog, GateLimits};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

mod lingering;
#[cfg(test)]
mod tests;

use lingering::LingeringStream;

/// Wait after an accept that failed because descriptors or memory ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Maximum time for pending answers when the service ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Future of a connection that becomes a stream of requests: at once, or after a TLS handshake.
pub type PendingStream<S> = Pin<Box<dyn Future<Output = io::Result<S>> + Send>>;

/// Permit of an open connection, shared by its requests. The connection stays pending until one of
/// them charges it.
pub type SharedPermit = Arc<Mutex<ConnectionPermit>>;

/// Peer of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerIdentity {
    /// Process on this machine with this user ID; `None` if the system does not report one.
    Local(Option<u32>),
    /// Peer that connected over TCP.
    Network(SocketAddr),
}

impl PeerIdentity {
    /// Returns the source that a connection is counted for. All programs on this machine are one
    /// source.
    #[must_use]
    pub const fn source_address(self) -> IpAddr {
        match self {
            Self::Network(address) => address.ip(),
            Self::Local(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }
}

/// Bounds of a listener's connections.
#[derive(Debug, Clone, Copy)]
pub struct HttpLimits {
    /// Maximum numbers of connections, and the time for a TLS handshake, for each head, and for
    /// what the peer still sends after the last answer.
    pub gate: GateLimits,
    /// Maximum size of a request's head, in bytes; at least 8 KiB.
    pub max_head_bytes: usize,
    /// If true, a connection carries one request, and has the time for a head for all of it.
    pub single_request: bool,
}

/// Listener of a service.
pub trait Acceptor: Send + Sync + 'static {
    /// Stream that carries requests.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts a connection.
    ///
    /// # Errors
    /// The system has no descriptors or memory left for it.
    fn accept(
        &self,
    ) -> impl Future<Output = io::Result<(PendingStream<Self::Stream>, PeerIdentity)>> + Send;
}

impl Acceptor for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(PendingStream<Self::Stream>, PeerIdentity)> {
        let (stream, peer) = Self::accept(self).await?;
        Ok((
            Box::pin(std::future::ready(Ok(stream))),
            PeerIdentity::Network(peer),
        ))
    }
}

impl Acceptor for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(PendingStream<Self::Stream>, PeerIdentity)> {
        let (stream, _) = Self::accept(self).await?;
        let user = stream.peer_cred().ok().map(|peer| peer.uid());
        Ok((
            Box::pin(std::future::ready(Ok(stream))),
            PeerIdentity::Local(user),
        ))
    }
}

/// Handler of requests.
pub trait RequestHandler: Send + Sync + 'static {
    /// Body of its answers.
    type Body: Body<Data: Send, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static;

    /// Answers a request that arrived from `peer` on the connection of `permit`.
    fn answer(
        &self,
        request: Request<Incoming>,
        peer: PeerIdentity,
        permit: &SharedPermit,
    ) -> impl Future<Output = Result<Response<Self::Body>, Infallible>> + Send;
}

/// Serves requests until `stop` is true or its sender is dropped.
pub async fn serve<A: Acceptor, H: RequestHandler>(
    listener: A,
    handler: H,
    limits: HttpLimits,
    mut stop: watch::Receiver<bool>,
) {
    let handler = Arc::new(handler);
    let (gate, events) = (ConnectionGate::new(limits.gate), EventLog::new());
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((opening, peer)) => {
                let connection = Connection {
                    peer,
                    admitted: gate.admit(peer.source_address()),
                    limits,
                    stop: stop.clone(),
                };
                connections.spawn(connection.serve(opening, Arc::clone(&handler)));
            }
            Err(error) => {
                events.log(
                    None,
                    |left_out| tracing::warn!(%error, left_out, "cannot accept a connection"),
                );
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    // Connections that remain are aborted when the set is dropped.
    let _ = timeout(SHUTDOWN_TIMEOUT, all).await;
}

struct Connection {
    peer: PeerIdentity,
    admitted: AdmittedConnection,
    limits: HttpLimits,
    stop: watch::Receiver<bool>,
}

impl Connection {
    async fn serve<S, H>(self, opening: PendingStream<S>, handler: Arc<H>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        H: RequestHandler,
    {
        let Self {
            peer,
            limits,
            mut stop,
            admitted:
                AdmittedConnection {
                    permit,
                    mut eviction,
                    header,
                },
        } = self;
        let permit = Arc::new(Mutex::new(permit));
        let served = async {
            let Ok(Ok(stream)) = timeout(header, opening).await else {
                return;
            };
            let stream = LingeringStream::new(stream, header, stop.clone());
            let service = service_fn(|request| handler.answer(request, peer, &permit));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(header)
                .max_buf_size(limits.max_head_bytes)
                .keep_alive(!limits.single_request)
                .half_close(limits.single_request)
                .serve_connection(TokioIo::new(stream), service);
            tokio::pin!(connection);
            let whole = async {
                match limits.single_request {
                    true => sleep(header).await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                // Errors of a connection are the peer's concern.
                _ = connection.as_mut() => return,
                () = whole => return,
                _ = stop.wait_for(|stop| *stop) => {}
            }
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        };
        tokio::select! {
            () = served => {}
            () = eviction.wait() => {}
        }
    }
}
