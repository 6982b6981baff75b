//! Copies over real sessions: how the engine connects to a server, and how a server handles the
//! sessions that a listener accepts.

use std::net::IpAddr;
use std::sync::Arc;

use drs::FlowWatch;
use longhaul_proto::{CircuitGrant, PublicKey, Route, ServiceName, Transport as HopTransport};
use longhaul_session::{ConnectOptions, PlaintextRanges, Session, connect};
use parking_lot::Mutex;

use tokio::sync::watch;

use crate::client::{
    ConnectError, ConnectFailure, Connector, MAX_OTHER_TRANSPORT_STREAMS, RoutePlan, StreamOrigin,
    Transport,
};
use crate::error::Error;
use crate::route_info::{ReservationMark, ReservedRoute, RouteInfo};
use crate::server::{Server, StreamKind};
use crate::stripe::MemberId;

mod fetcher;
mod stripe;

pub use fetcher::Fetcher;
pub use stripe::StripeMembers;
use stripe::{CopyOwnership, name_owner};

impl Transport for Session {
    fn retransmits(&self) -> Option<u64> {
        self.tcp_info().ok().map(|info| u64::from(info.retransmits))
    }

    fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        let (here, there) = (self.local_address()?, self.info().first_hop?);
        Some((here.ip(), there.ip()))
    }

    fn origin(&self) -> Option<StreamOrigin> {
        let info = self.info();
        Some(StreamOrigin {
            from: info.first_hop,
            local: self.local_address(),
            is_tcp: self.tcp().is_some(),
            route: info.route.to_string(),
            purpose: info.purpose.clone(),
        })
    }

    fn watch(&mut self, side: drs::Side) -> Option<Arc<FlowWatch>> {
        Some(Session::watch(self, drs::Mode::Auto, side))
    }

    fn plaintext(&self) -> Option<Arc<PlaintextRanges>> {
        Some(Session::plaintext_ranges(self))
    }
}

/// Opens sessions to one server over several routes, from one or several addresses of this host.
pub struct SessionConnector {
    base: ConnectOptions,
    paths: Mutex<ConnectorPaths>,
    /// Routes in use, if these may change.
    plan: Option<watch::Sender<RoutePlan>>,
    /// True if the user named the route, so that no other one is added.
    is_named: bool,
    unknown: Mutex<Option<PublicKey>>,
    ownership: CopyOwnership,
}

/// All paths by their numbers, and those in use in addition to the first.
#[derive(Default)]
struct ConnectorPaths {
    all: Vec<ConnectorPath>,
    chosen: Vec<usize>,
    /// The first route by QUIC, once it is tried against random losses.
    against_loss: Option<usize>,
    reserved: Vec<usize>,
    awaited: bool,
}

impl ConnectorPaths {
    /// Returns the number of a path, and assigns one if necessary. Returns `None` beyond
    /// [`MAX_ROUTES`]. Sessions opened from now on show the grant of `path`.
    fn path_number(&mut self, path: ConnectorPath) -> Option<usize> {
        let mut known = self.all.iter_mut().enumerate();
        if let Some((number, known)) = known.find(|(_, known)| known.is_same(&path)) {
            *known = path;
            return Some(number);
        }
        (self.all.len() < MAX_ROUTES).then(|| {
            self.all.push(path);
            self.all.len() - 1
        })
    }

    /// Returns the routes in use in addition to the first.
    fn plan(&self) -> RoutePlan {
        let once = |numbers: &[usize]| {
            let mut once: Vec<usize> = Vec::new();
            for number in numbers {
                if !once.contains(number) {
                    once.push(*number);
                }
            }
            once
        };
        RoutePlan {
            beside: once(&self.chosen),
            reserved: once(&self.reserved),
            other_transport: self.against_loss,
            awaited: self.awaited,
        }
    }
}

/// Maximum number of paths of one copy. A reserved path whose rate changes is a new one; one whose
/// grant is renewed is not.
const MAX_ROUTES: usize = 256;

/// A path to the server: the depots, the source address unless the system chooses it, the transport
/// to the server unless its dialler chooses it, and the mark of a reserved path.
#[derive(Clone)]
struct ConnectorPath {
    route: Route,
    source: Option<IpAddr>,
    transport: Option<HopTransport>,
    mark: Option<ReservationMark>,
}

impl ConnectorPath {
    /// Returns the description for events and reports.
    fn info(&self) -> RouteInfo {
        let mut name = match (&self.mark, self.source) {
            (Some(mark), _) => format!("{} {mark}", self.route),
            (None, Some(source)) => format!("{} from {source}", self.route),
            (None, None) => self.route.to_string(),
        };
        if let Some(transport) = self.transport {
            name = format!("{name} by {transport}");
        }
        RouteInfo::new(name, self.route.clone(), self.mark.is_some())
    }

    /// Returns true if both are the same path, so that their streams are interchangeable.
    fn is_same(&self, other: &Self) -> bool {
        let is_one_mark = match (&self.mark, &other.mark) {
            (Some(ReservationMark::Grant(one)), Some(ReservationMark::Grant(other))) => {
                // Streams are paced from their start, so another rate needs other streams.
                (&one.circuit, one.rate, one.holder) == (&other.circuit, other.rate, other.holder)
            }
            (one, other) => one == other,
        };
        let ends = |path: &Self| (path.source, path.transport);
        is_one_mark && self.route == other.route && ends(self) == ends(other)
    }
}

impl SessionConnector {
    /// Creates a connector. `base` has all options but the route. Without routes, sessions are
    /// direct.
    pub fn new(base: ConnectOptions, routes: Vec<Route>) -> Self {
        Self::from_sources(base, routes, &[])
    }

    /// Creates a connector that uses each route from each of these source addresses. If there are
    /// none, the system chooses the address.
    pub fn from_sources(base: ConnectOptions, mut routes: Vec<Route>, sources: &[IpAddr]) -> Self {
        if routes.is_empty() {
            routes.push(Route::direct());
        }
        let over = |route: &Route| -> Vec<ConnectorPath> {
            let path = |source| ConnectorPath {
                route: route.clone(),
                source,
                transport: base.destination_transport,
                mark: None,
            };
            match sources {
                [] => vec![path(base.source)],
                sources => sources.iter().map(|source| path(Some(*source))).collect(),
            }
        };
        Self {
            paths: Mutex::new(ConnectorPaths {
                all: routes.iter().flat_map(over).collect(),
                ..ConnectorPaths::default()
            }),
            plan: None,
            is_named: true,
            base,
            unknown: Mutex::new(None),
            ownership: CopyOwnership::default(),
        }
    }

    /// Creates a connector for the direct route and those that [`Self::use_beside`] adds later.
    pub fn with_plan(base: ConnectOptions) -> Self {
        Self {
            plan: Some(watch::Sender::default()),
            is_named: false,
            ..Self::new(base, vec![Route::direct()])
        }
    }

    /// Creates a connector for one route that the user named, which leaves the transport of each
    /// hop open.
    pub fn over_route(base: ConnectOptions, route: Route) -> Self {
        Self {
            plan: Some(watch::Sender::default()),
            ..Self::new(base, vec![route])
        }
    }

    /// Uses these routes in addition to the direct one from now on, and no others. In a running
    /// copy, they join and others leave. Has no effect if the routes were fixed at the start, or on
    /// routes beyond the maximum number of paths.
    pub fn use_beside(&self, routes: &[Route]) {
        self.use_paths(|paths, source| {
            let routes = routes.iter().filter(|route| !route.is_direct());
            let numbers = routes.filter_map(|route| {
                paths.path_number(ConnectorPath {
                    route: route.clone(),
                    source,
                    transport: None,
                    mark: None,
                })
            });
            let numbers: Vec<usize> = numbers.collect();
            paths.chosen = numbers;
        });
    }

    /// Uses these reserved paths from now on, and no other reserved ones, in addition to the
    /// [chosen](Self::use_beside) routes. They join and leave a running copy likewise.
    pub fn use_reserved(&self, reserved: &[ReservedRoute]) {
        self.use_paths(|paths, source| {
            let numbers = reserved.iter().filter_map(|reserved| {
                paths.path_number(ConnectorPath {
                    route: reserved.route.clone(),
                    source,
                    transport: None,
                    mark: Some(reserved.mark.clone()),
                })
            });
            let numbers: Vec<usize> = numbers.collect();
            paths.reserved = numbers;
        });
    }

    /// Sets whether routes are still being looked for. While they are, a copy whose direct route
    /// cannot be opened waits for them.
    pub fn set_awaiting_routes(&self, awaited: bool) {
        self.use_paths(|paths, _| paths.awaited = awaited);
    }

    /// Returns true if paths can [join](Self::use_reserved) later.
    pub fn is_planned(&self) -> bool {
        self.plan.is_some() && !self.is_named
    }

    fn use_paths(&self, set: impl FnOnce(&mut ConnectorPaths, Option<IpAddr>)) {
        let Some(plan) = &self.plan else { return };
        let mut paths = self.paths.lock();
        set(&mut paths, self.base.source);
        let planned = paths.plan();
        drop(paths);
        plan.send_if_modified(|now| {
            let is_new = *now != planned;
            *now = planned;
            is_new
        });
    }

    /// Returns the key that the server showed, if it was refused as unknown.
    pub fn unknown_server(&self) -> Option<PublicKey> {
        *self.unknown.lock()
    }
}

impl Connector for SessionConnector {
    type Stream = Session;

    fn routes(&self) -> Vec<RouteInfo> {
        let paths = self.paths.lock();
        paths.all.iter().map(ConnectorPath::info).collect()
    }

    fn plan(&self) -> Option<watch::Receiver<RoutePlan>> {
        self.plan.as_ref().map(watch::Sender::subscribe)
    }

    fn has_other_transport(&self) -> bool {
        let is_open = self.base.quic.is_some() && self.base.destination_transport.is_none();
        is_open && self.plan.is_some()
    }

    fn hides_losses(&self) -> bool {
        let paths = self.paths.lock();
        paths
            .all
            .first()
            .is_some_and(|path| !path.route.is_direct())
    }

    fn on_random_loss(&self) {
        if !self.has_other_transport() {
            return;
        }
        self.use_paths(|paths, source| {
            let route = paths.all.first().map(|first| first.route.clone());
            paths.against_loss = paths.path_number(ConnectorPath {
                route: route.unwrap_or_default().over(HopTransport::Quic),
                source,
                transport: Some(HopTransport::Quic),
                mark: None,
            });
        });
    }

    fn max_streams(&self, route: usize) -> usize {
        let paths = self.paths.lock();
        match paths.all.get(route).and_then(|path| path.transport) {
            Some(HopTransport::Quic) => MAX_OTHER_TRANSPORT_STREAMS,
            _ => usize::MAX,
        }
    }

    fn on_accepted(&self, member: Option<MemberId>) {
        self.ownership.learn(member);
    }

    fn on_next_copy(&self) {
        self.ownership.forget();
    }

    async fn connect(&self, route: usize) -> Result<Session, ConnectError> {
        let mut options = self.base.clone();
        let owner = match options.service == ServiceName::COPY {
            true => self.ownership.owner(&options.destination).await,
            false => None,
        };
        if owner.is_some() {
            options.service = ServiceName::STRIPE;
            options.address_turn = self.ownership.next_turn();
        }
        let path = self.paths.lock().all.get(route).cloned();
        if let Some(path) = path {
            (options.route, options.source) = (path.route, path.source);
            options.destination_transport = path.transport;
            match path.mark {
                Some(ReservationMark::Ports(ports)) => options.source_ports = Some(ports),
                Some(ReservationMark::Grant(grant)) => {
                    options.grant = Some(Box::new(CircuitGrant::clone(&grant)))
                }
                None => {}
            }
        }
        let connected = connect(&options).await.map_err(|error| {
            // The member that has answered is not one any more.
            if owner.is_some() && error.is_missing_service() {
                self.ownership.forget();
                return lost_stream(&error);
            }
            if let longhaul_session::Error::UnknownServer { found, .. } = &error {
                *self.unknown.lock() = Some(*found);
            }
            // A depot may accept a grant later: its clock may be behind, or sessions of the circuit
            // may end.
            let may_be_granted = options.grant.is_some() && error.is_grant_error();
            let error = connect_error(&error);
            ConnectError {
                retry: error.retry || may_be_granted,
                ..error
            }
        });
        let mut session = connected?;
        if let Some(owner) = owner {
            let named = name_owner(&mut session, owner).await;
            named.map_err(|error| lost_stream(&error))?;
        }
        Ok(session)
    }
}

/// Returns the error of a stream that is worth another attempt.
fn lost_stream(why: &impl ToString) -> ConnectError {
    ConnectError {
        kind: ConnectFailure::NoRoute,
        retry: true,
        is_unknown_key: false,
        message: why.to_string(),
    }
}

fn connect_error(error: &longhaul_session::Error) -> ConnectError {
    ConnectError {
        kind: match error {
            error if error.is_identity_error() => ConnectFailure::Unauthorised,
            error if error.is_missing_service() => ConnectFailure::NotOffered,
            _ => ConnectFailure::NoRoute,
        },
        retry: is_retryable(error),
        is_unknown_key: error.is_unknown_key(),
        message: error.to_string(),
    }
}

/// Returns true if the same attempt may succeed a little later.
fn is_retryable(error: &longhaul_session::Error) -> bool {
    use longhaul_session::Error;
    let passing = matches!(
        error,
        Error::Hop(_) | Error::NotConnected { .. } | Error::FellBack { .. } | Error::Tls { .. }
    );
    passing && !error.is_identity_error() && !error.is_missing_service() && !error.is_clock_error()
}

/// Serves one accepted session of a copy, and logs its outcome.
pub async fn serve_session(server: Arc<Server>, session: Session) {
    log_outcome(server, session, "session", async |server, session, key| {
        let delegation = session.info().delegation.clone();
        let serving = server.serve_delegate(session, key, delegation.as_deref());
        serving.await
    })
    .await;
}

/// Fetches from another server what the client of one accepted session asks for, and logs the
/// outcome.
pub async fn serve_fetch(server: Arc<Server>, session: Session, fetcher: Arc<Fetcher>) {
    log_outcome(
        server,
        session,
        "session of a fetch",
        async |server, session, key| {
            let connect = |source| fetcher.connector(source);
            server
                .serve_fetch(session, key, fetcher.key(), connect)
                .await
        },
    )
    .await;
}

/// Serves one accepted session of the service `stripe`, and logs its outcome.
pub async fn serve_striped(server: Arc<Server>, session: Session, members: Arc<StripeMembers>) {
    log_outcome(
        server,
        session,
        "session of a striped copy",
        async |server, session, peer| members.serve(server, session, peer).await,
    )
    .await;
}

/// Answers the file requests of one accepted session, and logs its outcome.
pub async fn serve_files(server: Arc<Server>, session: Session) {
    log_outcome(
        server,
        session,
        "session about files",
        async |server, session, peer| server.serve_files(session, peer).await,
    )
    .await;
}

/// Serves a stream of `peer` that another process accepted, and logs its outcome.
pub async fn serve_stream(
    server: Arc<Server>,
    stream: impl Transport,
    kind: StreamKind,
    peer: PublicKey,
) {
    let outcome = match kind {
        StreamKind::Copy => server.serve(stream, peer).await,
        StreamKind::Files => server.serve_files(stream, peer).await,
    };
    match outcome {
        Ok(()) => {}
        Err(error @ Error::Stream(_)) => tracing::debug!(%peer, %error, "stream lost"),
        Err(error) => server.log(peer, || {
            tracing::info!(key = %peer, %error, "stream failed");
        }),
    }
}

async fn log_outcome(
    server: Arc<Server>,
    session: Session,
    what: &'static str,
    serve: impl AsyncFnOnce(&Arc<Server>, Session, PublicKey) -> Result<(), Error>,
) {
    let (id, peer) = (session.info().session_id, session.info().principal());
    let from = session
        .info()
        .first_hop
        .map(|addr| addr.to_string())
        .unwrap_or_default();
    tracing::debug!(session = %id, %peer, %from, "{what}");
    match serve(&server, session, peer).await {
        Ok(()) => tracing::debug!(session = %id, "{what} over"),
        // The copy goes on with other streams, or its own line tells how it ended.
        Err(error @ Error::Stream(_)) => {
            tracing::debug!(session = %id, %error, "{what} lost");
        }
        Err(error) => server.log(peer, || {
            tracing::info!(session = %id, key = %peer, %from, %error, "{what} failed");
        }),
    }
}

#[cfg(test)]
mod tests;
