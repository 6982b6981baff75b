//! Accepts connections, and hands out their streams.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{
    AcceptingStream, AdmittedConnection, Conn, ConnectionGate, GateLimits, StreamListener,
    is_successor,
};
use longhaul_proto::SigningKey;
use s2n_quic::provider::tls::rustls as tls_provider;
use s2n_quic::{Connection, Server};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::limits::{
    AttemptLimiter, ConnectionLimiter, Handshakes, PromisedWindow, QuicLimits, WindowBudget,
};
use crate::measures::MeasuringSubscriber;
use crate::shared::SharedConnection;
use crate::socket::endpoint_io;
use crate::stream::QuicStream;
use crate::{controller, tls};

/// Accepted streams that wait for [`QuicListener::accept`].
const BACKLOG: usize = 128;
/// Time limit for the first verified session of a connection, and the limit when there are many
/// such connections.
const FIRST_SESSION_TIMEOUT: Duration = Duration::from_secs(20);
const LEAST_FIRST_SESSION_TIMEOUT: Duration = Duration::from_secs(4);
/// Interval between attempts to use the port of a process that drains.
const REBIND_INTERVAL: Duration = Duration::from_millis(500);
/// Application error code of a connection that is closed because it has no verified session.
const NO_SESSION_CODE: u32 = 2;

/// A listening UDP socket whose connections' streams are accepted one by one.
///
/// Connections without a verified session are pending: they are bounded by a [`ConnectionGate`] of
/// their own, which closes the oldest of the fullest source. Streams are not admitted here; their
/// receiver treats each like an accepted TCP connection.
#[derive(Debug)]
pub struct QuicListener {
    address: SocketAddr,
    streams: mpsc::Receiver<(Conn, SocketAddr)>,
    _accepting: JoinSet<()>,
}

impl QuicListener {
    /// Listens on the UDP port `address` and proves `key` to clients. Must be called within a tokio
    /// runtime, which then runs the connections.
    ///
    /// # Errors
    /// The address cannot be bound: check for another program on the port.
    pub fn bind(address: SocketAddr, key: &SigningKey, limits: QuicLimits) -> io::Result<Self> {
        let endpoint = Endpoint::open(address, key, limits)?;
        let (sender, streams) = mpsc::channel(BACKLOG);
        let mut accepting = JoinSet::new();
        let address = endpoint.address;
        accepting.spawn(accept_connections(endpoint, limits, sender));
        Ok(Self {
            address,
            streams,
            _accepting: accepting,
        })
    }

    /// Listens as soon as the process that this one replaces has drained: its connections keep the
    /// UDP port. Meanwhile clients use TCP.
    fn bind_when_free(address: SocketAddr, key: &SigningKey, limits: QuicLimits) -> Self {
        let (sender, streams) = mpsc::channel(BACKLOG);
        let key = key.clone();
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let endpoint = loop {
                match Endpoint::open(address, &key, limits) {
                    Ok(endpoint) => break endpoint,
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                        tokio::time::sleep(REBIND_INTERVAL).await;
                    }
                    Err(error) => {
                        tracing::warn!(%address, %error, "no QUIC at this address");
                        return;
                    }
                }
            };
            accept_connections(endpoint, limits, sender).await;
        });
        Self {
            address,
            streams,
            _accepting: accepting,
        }
    }

    /// Listens on the UDP port of the same number as a TCP listener at `address`. If the system
    /// chose that number (`requested` has port 0) and UDP's is in use, returns `None` and logs it.
    /// If the process that this one replaces still uses it, waits for that in the background.
    ///
    /// # Errors
    /// As [`QuicListener::bind`].
    pub fn bind_beside(
        address: SocketAddr,
        requested: SocketAddr,
        key: &SigningKey,
        limits: QuicLimits,
    ) -> io::Result<Option<Self>> {
        match Self::bind(address, key, limits) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_successor() => {
                Ok(Some(Self::bind_when_free(address, key, limits)))
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && requested.port() == 0 => {
                tracing::warn!(%address, %error, "no QUIC at this address");
                Ok(None)
            }
            bound => bound.map(Some),
        }
    }

    /// Returns the local address, with the actual port if port 0 was requested.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl StreamListener for QuicListener {
    /// Returns the next stream and its peer. Never completes once the endpoint has failed.
    fn accept(&mut self) -> AcceptingStream<'_> {
        Box::pin(async {
            match self.streams.recv().await {
                Some(accepted) => accepted,
                None => std::future::pending().await,
            }
        })
    }
}

/// An endpoint that listens.
struct Endpoint {
    server: Server,
    handshakes: Arc<Handshakes>,
    address: SocketAddr,
}

impl Endpoint {
    fn open(address: SocketAddr, key: &SigningKey, limits: QuicLimits) -> io::Result<Self> {
        let handshakes = Handshakes::new(WindowBudget::new(limits.memory));
        let socket = UdpSocket::bind(address)?;
        let address = socket.local_addr()?;
        let server = Server::builder()
            .with_tls(tls_provider::Server::from(tls::server_config(key)?))
            .map_err(io::Error::other)?
            .with_io(endpoint_io(socket, &Handle::current())?)
            .map_err(io::Error::other)?
            .with_limits(ConnectionLimiter {
                handshakes: Arc::clone(&handshakes),
                streams: limits.streams,
            })
            .map_err(io::Error::other)?
            .with_endpoint_limits(AttemptLimiter {
                connections: limits.connections,
            })
            .map_err(io::Error::other)?
            .with_congestion_controller(controller::Controllers::default())
            .map_err(io::Error::other)?
            .with_event(MeasuringSubscriber)
            .map_err(io::Error::other)?
            .start()
            .map_err(io::Error::other)?;
        Ok(Self {
            server,
            handshakes,
            address,
        })
    }
}

/// Accepts connections for as long as the endpoint lives. Those that exist outlive this future, as
/// accepted sessions do.
async fn accept_connections(
    endpoint: Endpoint,
    limits: QuicLimits,
    streams: mpsc::Sender<(Conn, SocketAddr)>,
) {
    let Endpoint {
        mut server,
        handshakes,
        ..
    } = endpoint;
    let gate = ConnectionGate::new(GateLimits {
        newcomers: limits.connections,
        verified: limits.connections,
        reserves_for_keys: false,
        header: FIRST_SESSION_TIMEOUT,
        least_header: LEAST_FIRST_SESSION_TIMEOUT,
    });
    while let Some(connection) = server.accept().await {
        let Ok(peer) = connection.remote_addr() else {
            continue;
        };
        let admitted = gate.admit(peer.ip());
        let window = handshakes.complete();
        let streams = streams.clone();
        tokio::spawn(async move {
            // An error has ended the connection, and each of its streams reports it.
            let ended = serve_connection(connection, window, admitted, streams).await;
            tracing::debug!(%peer, ?ended, "QUIC connection ended");
        });
    }
}

/// Hands out the streams of one connection until it ends, or is evicted as a stranger's.
async fn serve_connection(
    connection: Connection,
    window: PromisedWindow,
    admitted: AdmittedConnection,
    streams: mpsc::Sender<(Conn, SocketAddr)>,
) -> io::Result<()> {
    let AdmittedConnection {
        permit,
        mut eviction,
        header,
    } = admitted;
    let shared = SharedConnection::new(connection.handle(), window)?;
    let mut permit = Some(permit);
    let mut limit = Box::pin(tokio::time::sleep(header));
    let (_, mut acceptor) = connection.split();
    loop {
        tokio::select! {
            stream = acceptor.accept_bidirectional_stream() => {
                let Some(stream) = stream? else { return Ok(()) };
                let stream = QuicStream::new(stream, Arc::clone(&shared));
                let conn = Conn::Stream(Box::new(stream));
                // Once nobody accepts any more, the stream is dropped, and so reset. Those that
                // were accepted go on.
                let _ = streams.send((conn, shared.peer)).await;
            }
            () = shared.verified(), if permit.is_some() => permit = None,
            () = eviction.wait(), if permit.is_some() => break,
            () = limit.as_mut(), if permit.is_some() => break,
            () = streams.closed(), if permit.is_some() => break,
        }
    }
    shared.handle().close(NO_SESSION_CODE.into());
    Ok(())
}
