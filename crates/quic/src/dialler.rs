//! Opens streams, each on a connection that exists already if possible.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{Conn, DialError, DialledConnection, OpeningStream, StreamDialler, dial_stream};
use longhaul_proto::PublicKey;
use parking_lot::Mutex;
use s2n_quic::Client;
use s2n_quic::client::Connect;
use s2n_quic::provider::tls::rustls as tls_provider;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use crate::limits::{ConnectionLimiter, Handshakes, QuicLimits, WindowBudget};
use crate::measures::MeasuringSubscriber;
use crate::reachability::Reachability;
use crate::shared::SharedConnection;
use crate::socket::endpoint_io;
use crate::stream::QuicStream;
use crate::{controller, tls};

/// Maximum number of connections kept for later streams.
const MAX_POOLED: usize = 256;
/// Time for the handshake before TCP is tried instead. It leaves time for a lost first packet on a
/// path of 300 ms.
const QUIC_PATIENCE: Duration = Duration::from_millis(1500);

/// Opens streams to servers. All streams to the same address and key share one connection.
#[derive(Debug)]
pub struct QuicDialler {
    limits: QuicLimits,
    handshakes: Arc<Handshakes>,
    /// Endpoint of each address family, opened when first needed.
    endpoints: Mutex<Endpoints>,
    pool: Mutex<HashMap<PoolKey, Arc<PoolEntry>>>,
    reachability: Mutex<Reachability>,
    created: Instant,
    /// Runtime of the connections.
    runtime: Handle,
}

/// Address, and the key that the server must prove.
type PoolKey = (SocketAddr, Option<PublicKey>);
/// Connection to one server; the lock is held while it is established.
type PoolEntry = tokio::sync::Mutex<Option<Arc<SharedConnection>>>;

#[derive(Debug, Default)]
struct Endpoints {
    v4: Option<Client>,
    v6: Option<Client>,
}

impl QuicDialler {
    /// Creates a dialler without connections. The current tokio runtime will run them.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn new(limits: QuicLimits) -> Arc<Self> {
        Arc::new(Self {
            handshakes: Handshakes::new(WindowBudget::new(limits.memory)),
            limits,
            endpoints: Mutex::default(),
            pool: Mutex::default(),
            reachability: Mutex::default(),
            created: Instant::now(),
            runtime: Handle::current(),
        })
    }

    /// Dials one of `addresses` by QUIC, or by TCP with `dial_tcp` if QUIC does not get through. A
    /// server that did not answer by QUIC is dialled by TCP at once for the next ten minutes.
    ///
    /// # Errors
    /// Those of `dial_tcp`.
    pub async fn dial_or_tcp(
        &self,
        addresses: &[SocketAddr],
        key: Option<PublicKey>,
        deadline: Instant,
        dial_tcp: impl Future<Output = Result<DialledConnection, DialError>>,
    ) -> Result<DialledConnection, DialError> {
        let Some(first) = addresses.first() else {
            return dial_tcp.await;
        };
        if self
            .reachability
            .lock()
            .may_dial(*first, self.created.elapsed())
        {
            let limit = deadline.min(Instant::now() + QUIC_PATIENCE);
            match dial_stream(addresses, self, key, limit).await {
                Ok(dialled) => {
                    self.reachability.lock().record_success(*first);
                    return Ok(dialled);
                }
                Err(error) => {
                    let now = self.created.elapsed();
                    if self.reachability.lock().record_failure(*first, now) {
                        tracing::warn!(server = %first, %error, "no QUIC: using TCP");
                    }
                }
            }
        }
        dial_tcp.await
    }

    async fn open_stream(
        &self,
        address: SocketAddr,
        key: Option<PublicKey>,
        deadline: Instant,
    ) -> io::Result<Conn> {
        let opening = async {
            let entry = self.pool_entry((address, key));
            let mut slot = entry.lock().await;
            if let Some(connection) = slot.as_ref() {
                match open_stream(connection).await {
                    Ok(conn) => return Ok(conn),
                    // The connection ended in the meantime; another is opened once.
                    Err(error) => tracing::debug!(%address, %error, "QUIC connection ended"),
                }
            }
            let connection = self.connect(address, key).await?;
            let conn = open_stream(&connection).await?;
            *slot = Some(connection);
            Ok(conn)
        };
        timeout_at(deadline, opening)
            .await
            .unwrap_or_else(|_| Err(no_answer()))
    }

    /// Returns the entry for `key`. Entries that nobody uses are dropped when there are many.
    fn pool_entry(&self, key: PoolKey) -> Arc<PoolEntry> {
        let mut pool = self.pool.lock();
        if pool.len() >= MAX_POOLED && !pool.contains_key(&key) {
            pool.retain(|_, entry| {
                let is_used = |slot: &Option<Arc<SharedConnection>>| {
                    slot.as_ref()
                        .is_some_and(|connection| Arc::strong_count(connection) > 1)
                };
                entry.try_lock().map_or(true, |slot| is_used(&slot))
            });
        }
        Arc::clone(pool.entry(key).or_default())
    }

    async fn connect(
        &self,
        address: SocketAddr,
        key: Option<PublicKey>,
    ) -> io::Result<Arc<SharedConnection>> {
        let client = self.endpoint(address)?;
        let connect = Connect::new(address).with_server_name(tls::server_name(key.as_ref()));
        let connection =
            client
                .connect(connect)
                .await
                .map_err(|error| match io::Error::from(error) {
                    error if error.kind() == io::ErrorKind::TimedOut => no_answer(),
                    error => error,
                })?;
        SharedConnection::new(connection.handle(), self.handshakes.complete())
    }

    fn endpoint(&self, address: SocketAddr) -> io::Result<Client> {
        let mut endpoints = self.endpoints.lock();
        let (slot, any) = match address {
            SocketAddr::V4(_) => (&mut endpoints.v4, (Ipv4Addr::UNSPECIFIED, 0).into()),
            SocketAddr::V6(_) => (&mut endpoints.v6, (Ipv6Addr::UNSPECIFIED, 0).into()),
        };
        match slot {
            Some(client) => Ok(client.clone()),
            None => Ok(slot.insert(self.start(any)?).clone()),
        }
    }

    fn start(&self, address: SocketAddr) -> io::Result<Client> {
        Client::builder()
            .with_tls(tls_provider::Client::from(tls::client_config()?))
            .map_err(io::Error::other)?
            .with_io(endpoint_io(UdpSocket::bind(address)?, &self.runtime)?)
            .map_err(io::Error::other)?
            .with_limits(ConnectionLimiter {
                handshakes: Arc::clone(&self.handshakes),
                streams: self.limits.streams,
            })
            .map_err(io::Error::other)?
            .with_congestion_controller(controller::Controllers::default())
            .map_err(io::Error::other)?
            .with_event(MeasuringSubscriber)
            .map_err(io::Error::other)?
            .start()
            .map_err(io::Error::other)
    }
}

impl StreamDialler for QuicDialler {
    fn open(
        &self,
        address: SocketAddr,
        key: Option<PublicKey>,
        deadline: Instant,
    ) -> OpeningStream<'_> {
        Box::pin(self.open_stream(address, key, deadline))
    }
}

async fn open_stream(connection: &Arc<SharedConnection>) -> io::Result<Conn> {
    let stream = connection.handle().open_bidirectional_stream().await?;
    let stream = QuicStream::new(stream, Arc::clone(connection));
    Ok(Conn::Stream(Box::new(stream)))
}

fn no_answer() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "no answer over UDP in time: a firewall may drop it",
    )
}
