//! Listening for other machines: TLS, and bounds that hold whatever those do.
//!
//! A connection is a newcomer until a request that came by it has been let in: newcomers have little time, and when they are too many the oldest of the
//! fullest source goes ([`longhaul_hop::Gate`]). What is let in goes on the account of its key.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use longhaul_hop::{Entered, Gate, GateLimits};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::ListenError;

/// Wait after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Connections at a time: of those that nothing has been let in by, and of the others.
const LIMITS: GateLimits = GateLimits {
    newcomers: 128,
    verified: 512,
    // For TLS, and again for the head of each request.
    header: Duration::from_secs(10),
    least_header: Duration::from_secs(2),
};
/// Most bytes of a request's head.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// How long answers that are under way may take when the service ends.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Listens on any address of this machine.
///
/// # Errors
/// The socket cannot be made.
pub async fn anywhere(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| ListenError::Socket {
            place: address.to_string(),
            source,
        })
}

/// Serves `router` there by TLS until `stop` is true. Connections are made with what `tls` holds in that moment. Each request has the
/// [`SharedPlace`](crate::key_gate::SharedPlace) of its connection.
///
/// # Errors
/// None; it ends when it is told to.
pub async fn serve_secured(
    listener: TcpListener,
    router: Router,
    tls: watch::Receiver<Arc<ServerConfig>>,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let gate = Gate::new(LIMITS);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let entered = gate.enter(peer.ip());
                let acceptor = TlsAcceptor::from(tls.borrow().clone());
                connections.spawn(connection(
                    stream,
                    entered,
                    acceptor,
                    router.clone(),
                    stop.clone(),
                ));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    // What is left is given up with the set.
    let _ = timeout(END_TIMEOUT, all).await;
    Ok(())
}

async fn connection(
    stream: TcpStream,
    entered: Entered,
    acceptor: TlsAcceptor,
    router: Router,
    mut stop: watch::Receiver<bool>,
) {
    let Entered {
        place,
        mut eviction,
        header,
    } = entered;
    let place = Arc::new(Mutex::new(place));
    let served = async {
        let Ok(Ok(stream)) = timeout(header, acceptor.accept(stream)).await else {
            return;
        };
        let router = TowerToHyperService::new(router);
        let service = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(place.clone());
            router.call(request.map(Body::new))
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(header)
            .max_buf_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        tokio::select! {
            // Whatever was wrong with it is the peer's affair.
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
