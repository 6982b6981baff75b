//! The initiator's side of a session set-up: dials the first hop, sends OPEN and the TLS hello in
//! one flight, and waits until the chain is established.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    sync::{Arc, LazyLock},
    time::Duration,
};

use bytes::BytesMut;
use longhaul_hop::{
    Conn, DialledConnection, HopOptions, Resolver, StreamDialler, check_congestion, dial,
    dial_stream, unix_ms,
};
use longhaul_proto::{
    Chain, ChainFailure, CircuitGrant, Endpoint, MAX_PADDING_BYTES, Open, Route, ServiceName,
    SessionId, Transport, payload_rate,
};
use quantities::path::INITIAL_WINDOW;
use rustls::client::UnbufferedClientConnection;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, timeout_at},
};

use crate::{
    Error, FirstHop, Identity, ServerTrust, Session, SessionInfo, SetupEvent, SetupObserver,
    hop_stream::HopStream,
    secured::TlsStream,
    tls::{self, ServerKey},
};

/// Minimum round trip of the first hop that makes a path long. Saving one round trip of slow start
/// is then worth some kilobytes of padding.
const MIN_LONG_PATH_RTT: Duration = Duration::from_millis(25);
/// Bytes of the acceptor's first flight that are not padding: its STATUS of at most 1024 bytes, and
/// its part of the handshake, with a margin. Anything beyond would take a further round trip.
const FIRST_FLIGHT_BYTES: u32 = 2560;

/// Bits per byte.
const BITS_PER_BYTE: u64 = 8;

/// Cache of resolved names, shared by all sessions of this process.
static RESOLVER: LazyLock<Resolver> = LazyLock::new(Resolver::new);

/// Destination, route and identity of a session to open.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Depots to pass.
    pub route: Route,
    /// Endpoint of the server.
    pub destination: Endpoint,
    /// Identity of the initiator.
    pub identity: Arc<Identity>,
    /// Check of the server's key.
    pub server: ServerTrust,
    /// Dialler of QUIC streams, if the first hop may use them.
    pub quic: Option<Arc<dyn StreamDialler>>,
    /// Transport by which the destination must be dialled; chosen by its dialler if `None`. The
    /// route's hops name their own.
    pub destination_transport: Option<Transport>,
    /// TCP congestion control of the first hop; the system's default if `None`.
    pub congestion: Option<String>,
    /// Local address from which the first hop is dialled; chosen by the system if `None`.
    pub source: Option<IpAddr>,
    /// Local ports from which the first hop is dialled; chosen by the system if `None`.
    pub source_ports: Option<RangeInclusive<u16>>,
    /// Time limit for the whole set-up of the secure session, including a fallback.
    pub setup_timeout: Duration,
    /// If true, connects directly when the route fails and nothing was forwarded (LH-FALLBACK-1).
    /// Never applies with a grant.
    pub fall_back: bool,
    /// Requested service.
    pub service: ServiceName,
    /// Purpose of the transfer, for the logs of the depots: at most 64 bytes.
    pub purpose: Option<String>,
    /// Number of bytes that will be sent, if known.
    pub size: Option<u64>,
    /// Expected rate in bit/s, if known; at least 1. Like `duration`, it is a wish that depots log.
    pub rate: Option<u64>,
    /// Expected duration in seconds, if known; at least 1.
    pub duration: Option<u64>,
    /// Ordinary TCP server at which the session ends. The destination is then an off-ramp, and the
    /// service [`ServiceName::TCP`] (LH-OPEN-14). See [`ConnectOptions::through_offramp`].
    pub onward: Option<Endpoint>,
    /// A controller's grant to use a circuit, for the depots on it (LH-GRANT-1).
    pub grant: Option<Box<CircuitGrant>>,
    /// True if the server will send the bulk of the data. Over a long path, its first flight is
    /// then requested to be full, so that its window grows before it has data to send
    /// (LH-STATUS-9).
    pub is_fetch: bool,
    /// Filter for addresses of the destination that may be dialled from here; any if `None`. It is
    /// applied to each resolved address, also when a session falls back to a direct connection.
    pub destination_filter: Option<AddressFilter>,
    /// Observer of the set-up; none if `None`.
    pub setup_observer: Option<SetupObserver>,
}

/// Predicate that returns true if an address may be dialled.
#[derive(Clone)]
pub struct AddressFilter(Arc<dyn Fn(SocketAddr) -> bool + Send + Sync>);

impl AddressFilter {
    /// Creates a filter that admits the addresses for which `admits` returns true.
    pub fn new(admits: impl Fn(SocketAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(admits))
    }
}

impl std::fmt::Debug for AddressFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AddressFilter").finish_non_exhaustive()
    }
}

impl ConnectOptions {
    /// Creates options with 20 s for the set-up and no fallback.
    #[must_use]
    pub const fn new(
        service: ServiceName,
        route: Route,
        destination: Endpoint,
        identity: Arc<Identity>,
        server: ServerTrust,
    ) -> Self {
        Self {
            service,
            route,
            destination,
            identity,
            server,
            quic: None,
            destination_transport: None,
            congestion: None,
            source: None,
            source_ports: None,
            setup_timeout: Duration::from_secs(20),
            fall_back: false,
            purpose: None,
            size: None,
            rate: None,
            duration: None,
            onward: None,
            grant: None,
            is_fetch: false,
            destination_filter: None,
            setup_observer: None,
        }
    }

    /// Creates options for the ordinary TCP `server`, through the off-ramp at `offramp`.
    #[must_use]
    pub fn through_offramp(
        server: Endpoint,
        route: Route,
        offramp: Endpoint,
        identity: Arc<Identity>,
        trust: ServerTrust,
    ) -> Self {
        Self {
            onward: Some(server),
            ..Self::new(ServiceName::TCP, route, offramp, identity, trust)
        }
    }
}

/// Opens a session.
///
/// # Errors
/// An [`Error`] that names the hop that failed and why.
pub async fn connect(options: &ConnectOptions) -> Result<Session, Error> {
    let now = Instant::now();
    let deadline = now + options.setup_timeout;
    // A direct connection would not use the circuit (LH-GRANT-4).
    if !options.fall_back || options.route.is_direct() || options.grant.is_some() {
        return connect_along(options, &options.route, deadline).await;
    }
    // A silent route must leave time for a direct connection.
    match connect_along(options, &options.route, now + options.setup_timeout / 2).await {
        Err(error) if error.nothing_forwarded() => {
            tracing::warn!(
                route = %options.route, destination = %options.destination, %error,
                "falls back to a direct connection"
            );
            // A separate session, with another id and signature (LH-FALLBACK-3).
            match connect_along(options, &Route::direct(), deadline).await {
                Ok(session) => Ok(session.with_fall_back_reason(error.to_string())),
                Err(direct) => Err(Error::FellBack {
                    route: Box::new(error),
                    direct: Box::new(direct),
                }),
            }
        }
        other => other,
    }
}

async fn connect_along(
    options: &ConnectOptions,
    route: &Route,
    deadline: Instant,
) -> Result<Session, Error> {
    let first = route
        .hops()
        .first()
        .map_or(&options.destination, |hop| &hop.endpoint);
    if let Some(name) = &options.congestion {
        check_congestion(name)?;
    }
    let filter = match (route.is_direct(), &options.onward) {
        (true, None) => options.destination_filter.as_ref(),
        _ => None,
    };
    let dialled = dial_endpoint(first, options, route, filter, deadline)
        .await
        .map_err(|source| Error::NotConnected {
            endpoint: first.clone(),
            place: match (route.is_direct(), &options.onward) {
                (false, _) => FirstHop::Depot,
                (true, Some(_)) => FirstHop::Offramp,
                (true, None) => FirstHop::Server,
            },
            source,
        })?;
    let DialledConnection { conn, address } = dialled;
    if let Some(observer) = &options.setup_observer {
        let details = &conn.details();
        observer.notify(SetupEvent::Connected { address, details });
    }
    if let Some(grant) = &options.grant {
        pace(&conn, payload_rate(options.rate.unwrap_or(grant.rate)));
    }
    initiate(conn, Some(address), options, route, deadline).await
}

/// Paces the first hop of a circuit to `rate`, in bit/s of payload, as the depots do for the later
/// hops (LH-GRANT-4).
fn pace(conn: &Conn, rate: u64) {
    let Some(tcp) = conn.tcp() else { return };
    if let Err(error) = drs::set_max_pacing_rate(tcp, Some((rate / BITS_PER_BYTE).max(1))) {
        // The depot enforces the rate as well.
        tracing::debug!(%error, "cannot pace the first hop of the circuit");
    }
}

/// Opens a session as its initiator over an established connection to the server, whichever end
/// dialled it. The route must be direct; `options` supply the rest.
///
/// # Errors
/// As [`connect`].
pub async fn connect_over(conn: Conn, options: &ConnectOptions) -> Result<Session, Error> {
    let deadline = Instant::now() + options.setup_timeout;
    let address = conn.peer_addr().ok();
    initiate(conn, address, options, &Route::direct(), deadline).await
}

async fn initiate(
    conn: Conn,
    first_hop: Option<SocketAddr>,
    options: &ConnectOptions,
    route: &Route,
    deadline: Instant,
) -> Result<Session, Error> {
    let padding = padding(&conn, options, route);
    let (tls, session_id, peer) =
        secure(conn, options, route, deadline, unix_ms(), padding).await?;
    let statuses = tls.hop().statuses().to_vec();
    let info = SessionInfo {
        session_id,
        route: route.clone(),
        peer,
        first_hop,
        statuses,
        service: options.service.clone(),
        purpose: options.purpose.clone(),
        size: options.size,
        rate: options.rate,
        duration: options.duration,
        onward: options.onward.clone(),
        fell_back: None,
    };
    Ok(Session::new(tls, info))
}

/// Returns the padding to request from the acceptor: enough to fill its initial window, assumed to
/// be as large as this end's.
///
/// Returns `None` if that exceeds the maximum, as for very large segments: part of it would not
/// help.
fn padding(conn: &Conn, options: &ConnectOptions, route: &Route) -> Option<u16> {
    if !options.is_fetch {
        return None;
    }
    let info = conn.tcp()?.info().ok()?;
    if info.rtt < MIN_LONG_PATH_RTT && route.is_direct() {
        return None;
    }
    let fills = (INITIAL_WINDOW * info.send_mss).checked_sub(FIRST_FLIGHT_BYTES)?;
    u16::try_from(fills)
        .ok()
        .filter(|fills| (1..=MAX_PADDING_BYTES).contains(fills))
}

/// Connects to the first address of `endpoint` that answers and that the filter admits.
async fn dial_endpoint(
    endpoint: &Endpoint,
    options: &ConnectOptions,
    route: &Route,
    filter: Option<&AddressFilter>,
    deadline: Instant,
) -> io::Result<DialledConnection> {
    let mut addresses = timeout_at(deadline, RESOLVER.addresses(endpoint))
        .await
        .map_err(|_| {
            io::Error::new(io::ErrorKind::TimedOut, "the name did not resolve in time")
        })??;
    if let Some(AddressFilter(admits)) = filter {
        addresses.retain(|address| admits(*address));
        if addresses.is_empty() {
            let denied = "it has no address that may be connected to";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, denied));
        }
    }
    let (transport, key) = route.hops().first().map_or(
        (options.destination_transport, options.server.pinned()),
        |hop| (hop.transport, hop.key),
    );
    if transport == Some(Transport::Quic) {
        let Some(dialler) = &options.quic else {
            let unsupported = "this program does not dial by QUIC: leave the transport out";
            return Err(io::Error::new(io::ErrorKind::Unsupported, unsupported));
        };
        return Ok(dial_stream(&addresses, dialler.as_ref(), key, deadline).await?);
    }
    let hop = HopOptions::with_congestion(options.congestion.clone())
        .with_source(options.source)
        .with_source_ports(options.source_ports.clone());
    Ok(dial(&addresses, |_| hop.clone(), deadline).await?)
}

/// Sends the OPEN with the TLS hello (LH-CHAIN-3) and completes the handshake.
pub(crate) async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    options: &ConnectOptions,
    route: &Route,
    deadline: Instant,
    now_unix_ms: u64,
    padding: Option<u16>,
) -> Result<(TlsStream<S>, SessionId, longhaul_proto::PublicKey), Error> {
    let budget = deadline
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(1));
    let session_id = SessionId::random()?;
    let mut open = Open::new(
        session_id,
        options.service.clone(),
        route.clone(),
        options.destination.clone(),
        budget,
    );
    open.destination_transport = options.destination_transport;
    open.purpose = options.purpose.clone();
    open.size = options.size;
    open.rate = options.rate;
    open.duration = options.duration;
    open.onward = options.onward.clone();
    open.grant = options.grant.clone();
    open.padding = padding;
    open.sign(options.identity.signing_key(), now_unix_ms)?;
    let mut bytes = BytesMut::new();
    let binding = open.binding();
    let chain = Chain::new(&open, options.server.pinned());
    open.for_first_hop().encode(&mut bytes)?;

    let key = ServerKey::new(options.destination.clone(), options.server.clone());
    let config = tls::client_config(&options.identity, Arc::clone(&key), &binding)
        .map_err(|error| key.handshake_error(error))?;
    let name = tls::server_name().map_err(|error| key.handshake_error(error))?;
    let observer = options.setup_observer.clone();
    let mut hop = HopStream::initiating(stream, bytes.freeze(), chain, observer);
    let mut connection = UnbufferedClientConnection::new(Arc::new(config), name)
        .map_err(|error| key.handshake_error(io::Error::other(error)))?;
    let handshake = TlsStream::handshake(&mut hop, &mut connection, |state| {
        tls::is_bound(state, &binding)
    });
    let established = match timeout_at(deadline, handshake).await {
        Ok(Ok(established)) => established,
        Ok(Err(error)) => {
            return Err(match error.downcast::<ChainFailure>() {
                Ok(failure) => Error::Hop(Box::new(failure)),
                Err(error) => key.handshake_error(error),
            });
        }
        Err(_) => {
            return Err(match hop.pending_chain() {
                Some(chain) => Error::Hop(Box::new(chain.timed_out())),
                None => key.handshake_error(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the handshake took too long",
                )),
            });
        }
    };
    let Some(peer) = key.trusted_key() else {
        // Reached only if TLS accepted a server without checking it.
        return Err(key.handshake_error(io::ErrorKind::PermissionDenied.into()));
    };
    let stream =
        TlsStream::new(hop, connection, established).map_err(|error| key.handshake_error(error))?;
    Ok((stream, session_id, peer))
}
