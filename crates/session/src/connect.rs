//! The initiator's side of a session set-up: dials the first hop, sends OPEN and the TLS hello in
//! one flight, and waits until the chain is established.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    sync::Arc,
    time::Duration,
};

use bytes::BytesMut;
use longhaul_hop::{Conn, StreamDialler, check_congestion, unix_ms};
use longhaul_proto::{
    Chain, ChainFailure, CircuitGrant, Delegation, Endpoint, MAX_PADDING_BYTES, ResumeOffer, Route,
    ServiceName, SessionId, Transport, payload_rate,
};
use quantities::path::INITIAL_WINDOW;
use rustls::client::UnbufferedClientConnection;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, timeout_at},
};

use crate::{
    Error, Identity, ResumeOptions, ServerTrust, Session, SessionInfo, SetupEvent, SetupObserver,
    first_hop::{FirstHopConnection, MAX_SERVER_VOUCHER_BYTES, dial_first_hop, new_open},
    hop_stream::HopStream,
    registration::{Registration, after_unregistered},
    resumable::{Continuations, ResumableStream},
    secured::TlsStream,
    tls::{self, ServerKey},
    unanswered::PendingSetup,
};

/// Minimum round trip of the first hop that makes a path long. Saving one round trip of slow start
/// is then worth some kilobytes of padding.
const MIN_LONG_PATH_RTT: Duration = Duration::from_millis(25);
/// Bytes of the acceptor's first flight that are not padding: its STATUS of at most 1024 bytes, and
/// its part of the handshake, with a margin. Anything beyond would take a further round trip.
const FIRST_FLIGHT_BYTES: u32 = 2560;

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
    /// Permissions of the initiator to depots of the route, which may reserve circuits in its name
    /// (LH-DELEGATION-3).
    pub delegations: Vec<Delegation>,
    /// Permission of a principal to the initiator, in whose name the session reads
    /// (LH-DELEGATION-7).
    pub delegation: Option<Box<Delegation>>,
    /// True if the server will send the bulk of the data. Over a long path, its first flight is
    /// then requested to be full, so that its window grows before it has data to send
    /// (LH-STATUS-9).
    pub is_fetch: bool,
    /// Filter for addresses of the destination that may be dialled from here; any if `None`. It is
    /// applied to each resolved address, also when a session falls back to a direct connection.
    pub destination_filter: Option<AddressFilter>,
    /// Number of addresses of the server's name that are dialled only after the others, modulo
    /// their number. Sessions with different numbers spread over the addresses. Applies to direct
    /// connections.
    pub address_turn: usize,
    /// How the session is resumed if its connection dies; it ends then if `None`, or if the server
    /// does not offer this.
    pub resume: Option<ResumeOptions>,
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

    /// Returns true if `address` may be dialled.
    pub(crate) fn admits(&self, address: SocketAddr) -> bool {
        (self.0)(address)
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
            delegations: Vec::new(),
            delegation: None,
            is_fetch: false,
            destination_filter: None,
            address_turn: 0,
            resume: None,
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

/// Opens a session along `route`. A voucher for which the OPEN has no room is registered with each
/// receiver that refuses its key (LH-VOUCHER-8).
async fn connect_along(
    options: &ConnectOptions,
    route: &Route,
    deadline: Instant,
) -> Result<Session, Error> {
    let mut registered = Vec::new();
    loop {
        let failure = match attempt(options, route, deadline).await {
            Err(Error::Hop(failure)) => failure,
            other => return other,
        };
        let registration = Registration::after(&failure, options, route, deadline);
        let Some(registration) = registration.filter(|_| !registered.contains(&failure.hop)) else {
            return Err(Error::Hop(failure));
        };
        if let Err(why) = Box::pin(registration.send(deadline)).await {
            return Err(Error::Hop(after_unregistered(failure, why)));
        }
        registered.push(failure.hop);
    }
}

/// Opens a session along `route` by one OPEN.
async fn attempt(
    options: &ConnectOptions,
    route: &Route,
    deadline: Instant,
) -> Result<Session, Error> {
    if let Some(name) = &options.congestion {
        check_congestion(name)?;
    }
    loop {
        let dialled = dial_first_hop(options, route, deadline).await?;
        let FirstHopConnection {
            conn,
            address,
            has_alternative,
        } = dialled;
        if let Some(observer) = &options.setup_observer {
            let details = &conn.details();
            observer.notify(SetupEvent::Connected { address, details });
        }
        if let Some(grant) = &options.grant {
            // The depots do the same for the later hops (LH-GRANT-4).
            conn.pace(payload_rate(options.rate.unwrap_or(grant.rate)));
        }
        // On a route, the silence may be that of a later hop.
        if !route.is_direct() {
            return initiate(conn, Some(address), options, route, deadline).await;
        }
        let pending = PendingSetup::begin(address);
        // A server that hangs must leave time for another address.
        let until = match has_alternative {
            true => halfway_to(deadline),
            false => deadline,
        };
        let initiated = initiate(conn, Some(address), options, route, until).await;
        match initiated {
            Err(error) if Instant::now() >= until => {
                pending.unanswered();
                if until >= deadline {
                    return Err(error);
                }
                tracing::debug!(%address, %error, "another address of the server is tried");
            }
            answered => {
                pending.answered();
                return answered;
            }
        }
    }
}

/// Returns the middle of the time from now to `deadline`.
fn halfway_to(deadline: Instant) -> Instant {
    let now = Instant::now();
    now + deadline.saturating_duration_since(now) / 2
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
    // Memory is taken before the offer, so that the server's consent always holds.
    let memory = options
        .resume
        .as_ref()
        .and_then(|resume| resume.memory.reserve(resume.payer));
    let offer = options
        .resume
        .as_ref()
        .filter(|_| memory.is_some())
        .map(|resume| ResumeOffer {
            within: resume.within,
        });
    let extras = OpenExtras { padding, offer };
    let (tls, session_id, peer) = secure(conn, options, route, deadline, unix_ms(), extras).await?;
    let statuses = tls.hop().statuses().to_vec();
    let consent = statuses.last().and_then(|status| status.resume_offer);
    let (tls, resumable) = match (&options.resume, memory, consent) {
        (Some(resume), Some(memory), Some(consent)) => {
            let within = consent.within.min(resume.within);
            let tls = tls.replace_conn(|conn, ahead, secret| {
                let continuations = Continuations::new(
                    options,
                    resume.routes.clone(),
                    session_id,
                    secret,
                    peer,
                    route.clone(),
                );
                Conn::Stream(Box::new(ResumableStream::new(
                    session_id,
                    conn,
                    ahead,
                    within,
                    memory,
                    Some(continuations),
                    resume.observer.clone(),
                )))
            });
            (tls, Some(within))
        }
        _ => (tls, None),
    };
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
        resumable,
        delegation: None,
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

/// Options of an OPEN that depend on the connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OpenExtras {
    /// Padding to request (LH-STATUS-9).
    pub(crate) padding: Option<u16>,
    /// Offer to resume the session (LH-RESUME-1).
    pub(crate) offer: Option<ResumeOffer>,
}

/// Sends the OPEN with the TLS hello (LH-CHAIN-3) and completes the handshake.
pub(crate) async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    options: &ConnectOptions,
    route: &Route,
    deadline: Instant,
    now_unix_ms: u64,
    extras: OpenExtras,
) -> Result<(TlsStream<S>, SessionId, longhaul_proto::PublicKey), Error> {
    let mut open = new_open(options, route, deadline)?;
    let session_id = open.session_id;
    open.padding = extras.padding;
    open.resume_offer = extras.offer;
    if options.server.has_authorities() {
        open.request_server_voucher(MAX_SERVER_VOUCHER_BYTES);
        let most = MAX_PADDING_BYTES - MAX_SERVER_VOUCHER_BYTES;
        open.padding = open.padding.map(|padding| padding.min(most));
    }
    options.identity.sign_open(&mut open, now_unix_ms)?;
    let mut bytes = BytesMut::new();
    let binding = open.binding();
    let chain = Chain::new(&open, options.server.pinned());
    open.for_first_hop().encode(&mut bytes)?;

    let key = ServerKey::new(options.destination.clone(), options.server.clone());
    let config = tls::client_config(&options.identity, Arc::clone(&key), &binding)
        .map_err(|error| key.handshake_error(error))?;
    let name = tls::server_name().map_err(|error| key.handshake_error(error))?;
    let observer = options.setup_observer.clone();
    let shown = Some(Arc::clone(&key));
    let mut hop = HopStream::initiating(stream, bytes.freeze(), chain, observer, shown);
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
