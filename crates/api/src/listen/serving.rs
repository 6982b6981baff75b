//! Serving connections within bounds that hold for any behaviour of the peers.
//!
//! A connection is pending until one of its requests has been admitted. Pending connections have
//! little time. When there are too many, the oldest connection of the source with the most is reset
//! ([`longhaul_hop::ConnectionGate`]). Admitted connections are charged to their key or source.
//! Each listener has its own gate, so a crowd at one leaves capacity at the others.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use longhaul_hop::{AdmittedConnection, ConnectionGate, EventLog, GateLimits};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};

use crate::access::PeerIdentity;

/// Wait after an accept that failed because descriptors or memory ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Maximum numbers of pending and of admitted connections.
const GATE_LIMITS: GateLimits = GateLimits {
    newcomers: 128,
    verified: 512,
    // For the TLS handshake, and again for the head of each request.
    header: Duration::from_secs(10),
    least_header: Duration::from_secs(2),
};
/// Maximum size of a request's head, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Maximum time to receive a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for pending answers when the service ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Future of a connection that becomes a stream of requests: at once, or after a TLS handshake.
pub type PendingStream<S> = Pin<Box<dyn Future<Output = io::Result<S>> + Send>>;

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
    type Stream = tokio::net::TcpStream;

    async fn accept(&self) -> io::Result<(PendingStream<Self::Stream>, PeerIdentity)> {
        let (stream, peer) = Self::accept(self).await?;
        Ok((
            Box::pin(std::future::ready(Ok(stream))),
            PeerIdentity::Network(peer),
        ))
    }
}

impl Acceptor for UnixListener {
    type Stream = tokio::net::UnixStream;

    async fn accept(&self) -> io::Result<(PendingStream<Self::Stream>, PeerIdentity)> {
        let (stream, _) = Self::accept(self).await?;
        let user = stream.peer_cred().ok().map(|peer| peer.uid());
        Ok((
            Box::pin(std::future::ready(Ok(stream))),
            PeerIdentity::Local(user),
        ))
    }
}

/// Serves `router` until `stop` is true. Each request carries its [`PeerIdentity`] and the
/// [`SharedPermit`](crate::key_gate::SharedPermit) of its connection.
///
/// # Errors
/// None; it returns once `stop` is true.
pub async fn serve<A: Acceptor>(
    listener: A,
    router: Router,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let (gate, events) = (ConnectionGate::new(GATE_LIMITS), EventLog::new());
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((opening, peer)) => {
                let entered = gate.admit(source_address(peer));
                connections.spawn(serve_connection(
                    opening,
                    peer,
                    entered,
                    router.clone(),
                    stop.clone(),
                ));
            }
            Err(error) => {
                events.log(
                    None,
                    |left_out| tracing::warn!(%error, left_out, "a connection was not accepted"),
                );
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    // Connections that remain are aborted when the set is dropped.
    let _ = timeout(SHUTDOWN_TIMEOUT, all).await;
    Ok(())
}

/// Returns the source that a connection is counted for. All programs on this machine are one
/// source.
pub(crate) fn source_address(peer: PeerIdentity) -> IpAddr {
    match peer {
        PeerIdentity::Network(address) => address.ip(),
        PeerIdentity::Local(_) => Ipv4Addr::LOCALHOST.into(),
    }
}

async fn serve_connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    opening: PendingStream<S>,
    peer: PeerIdentity,
    entered: AdmittedConnection,
    router: Router,
    mut stop: watch::Receiver<bool>,
) {
    let AdmittedConnection {
        permit: place,
        mut eviction,
        header,
    } = entered;
    let place = Arc::new(Mutex::new(place));
    let served = async {
        let Ok(Ok(stream)) = timeout(header, opening).await else {
            return;
        };
        let router = TowerToHyperService::new(router);
        let service = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(place.clone());
            request.extensions_mut().insert(ConnectInfo(peer));
            router.call(request.map(with_body_timeout))
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(header)
            .max_buf_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        tokio::select! {
            // Errors of a connection are the peer's concern.
            _ = connection.as_mut() => return,
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

fn with_body_timeout(body: Incoming) -> Body {
    match body.is_end_stream() {
        true => Body::empty(),
        false => Body::new(TimedBody {
            body,
            deadline: Box::pin(sleep(BODY_TIMEOUT)),
        }),
    }
}

/// Body of a request, which fails if it is not complete in time.
struct TimedBody {
    body: Incoming,
    deadline: Pin<Box<Sleep>>,
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)));
        }
        ready!(self.deadline.as_mut().poll(cx));
        let late = io::Error::new(io::ErrorKind::TimedOut, "the body took too long");
        Poll::Ready(Some(Err(late)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
