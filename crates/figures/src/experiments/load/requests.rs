//! Requests for sessions through relays, and the clients' ends of them.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use longhaul_hostile::opens;
use longhaul_proto::{
    Endpoint, Hop, Open, PublicKey, Route, ServiceName, SessionId, SigningKey, StatusCode,
    StatusDecoder,
};
use tokio::net::TcpStream;

use super::ends::{read_some, write_all};
use super::relay::{Relay, RelayKind};

/// Keys of the clients. One alone could open 7,281 sessions within 130 s, and have half of
/// `--max-sessions`.
pub const KEYS: usize = 16;
/// Beginning of the error of a request that a depot refuses.
pub const REFUSAL: &str = "refused by the depot:";
/// Time for set-up that the requests allow.
const SETUP_BUDGET: Duration = Duration::from_secs(10);

/// Keys of the clients, made for one run.
pub struct ClientKeys(Vec<SigningKey>);

impl ClientKeys {
    /// Makes [`KEYS`] keys.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn generate() -> Result<Self> {
        let keys = (0..KEYS).map(|_| SigningKey::generate());
        let keys: Result<Vec<_>, _> = keys.collect();
        Ok(Self(keys.context("cannot make keys")?))
    }

    /// Returns their public halves.
    pub fn public(&self) -> Vec<PublicKey> {
        self.0.iter().map(SigningKey::public).collect()
    }
}

/// Requests for sessions through a chain of relays to one server.
pub struct Requests {
    kind: RelayKind,
    chain: Vec<SocketAddr>,
    server: SocketAddr,
    keys: ClientKeys,
    /// Number of signed requests. The keys take turns.
    signed: AtomicUsize,
}

impl Requests {
    /// Prepares requests through `chain`, relays of this kind.
    pub fn new(kind: RelayKind, chain: &[Relay], server: SocketAddr, keys: ClientKeys) -> Self {
        Self {
            kind,
            chain: chain.iter().map(|relay| relay.address).collect(),
            server,
            keys,
            signed: AtomicUsize::new(0),
        }
    }

    /// Signs a request for the server, and returns its bytes. Only depots read requests.
    ///
    /// # Errors
    /// The cryptographic library refuses.
    pub fn sign(&self) -> Result<Vec<u8>> {
        self.sign_for(self.server.into())
    }

    /// Signs a request for `destination`, and returns its bytes.
    ///
    /// # Errors
    /// As [`Requests::sign`].
    pub fn sign_for(&self, destination: Endpoint) -> Result<Vec<u8>> {
        if self.kind != RelayKind::Depot {
            return Ok(Vec::new());
        }
        let number = self.signed.fetch_add(1, Ordering::Relaxed);
        let key = &self.keys.0[number % self.keys.0.len()];
        let hops = self.chain.iter().map(|address| Hop {
            endpoint: (*address).into(),
            strict: true,
            key: None,
            transport: None,
        });
        let mut open = Open::new(
            SessionId::random().context("cannot make a session id")?,
            ServiceName::COPY,
            Route::new(hops.collect()).context("the chain is no route")?,
            destination,
            SETUP_BUDGET,
        );
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        open.sign(key, u64::try_from(now.as_millis())?)
            .context("cannot sign a request")?;
        opens::bytes(&open.for_first_hop()).context("cannot encode a request")
    }

    /// Returns the address to which clients connect.
    pub fn first_hop(&self) -> SocketAddr {
        self.chain.first().copied().unwrap_or(self.server)
    }

    /// Opens a session with this request, and returns it once all relays have said that it is
    /// established. HAProxy says nothing.
    ///
    /// # Errors
    /// A relay refuses it, or the connection is lost.
    pub async fn open(&self, request: &[u8]) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.first_hop()).await?;
        stream.set_nodelay(true)?;
        match self.kind {
            RelayKind::None | RelayKind::Haproxy => {}
            RelayKind::Depot => {
                write_all(&stream, request).await?;
                read_statuses(&stream, self.chain.len()).await?;
            }
            RelayKind::Dante => connect_by_socks(&stream, self.server).await?,
        }
        Ok(stream)
    }
}

/// Reads the statuses of this many depots, which must all be `Ok`.
async fn read_statuses(stream: &TcpStream, mut depots: usize) -> io::Result<()> {
    let mut decoder = StatusDecoder::new();
    while depots > 0 {
        read_some(stream, |mut bytes| {
            while depots > 0
                && let Some((status, used)) = decoder.feed(bytes).map_err(io::Error::other)?
            {
                if status.code != StatusCode::Ok {
                    let refusal = format!("{REFUSAL} {} {}", status.code, status.detail);
                    return Err(io::Error::other(refusal));
                }
                bytes = &bytes[used..];
                depots -= 1;
            }
            Ok(())
        })
        .await??;
    }
    Ok(())
}

/// Connects to an IPv4 server by SOCKS5 without a login (RFC 1928).
async fn connect_by_socks(stream: &TcpStream, server: SocketAddr) -> io::Result<()> {
    const REPLY_BYTES: usize = 10;
    let SocketAddr::V4(server) = server else {
        return Err(io::Error::other("SOCKS requests here are for IPv4"));
    };
    write_all(stream, &[5, 1, 0]).await?;
    if read_exactly(stream, 2).await? != [5, 0] {
        return Err(io::Error::other("the SOCKS server wants a login"));
    }
    let mut request = vec![5, 1, 0, 1];
    request.extend(server.ip().octets());
    request.extend(server.port().to_be_bytes());
    write_all(stream, &request).await?;
    match read_exactly(stream, REPLY_BYTES).await?.get(1) {
        Some(0) => Ok(()),
        code => Err(io::Error::other(format!(
            "the SOCKS server refused: {code:?}"
        ))),
    }
}

/// Reads this many bytes. More do not come before this end has answered.
async fn read_exactly(stream: &TcpStream, count: usize) -> io::Result<Vec<u8>> {
    let mut read = Vec::with_capacity(count);
    while read.len() < count {
        read_some(stream, |bytes| read.extend_from_slice(bytes)).await?;
    }
    Ok(read)
}
