//! Copies over real sessions: how the engine reaches a server, and how a server takes what a
//! listener accepts.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use longhaul_proto::text::printable;
use longhaul_proto::{CircuitGrant, PublicKey, Route};
use longhaul_session::{Clear, ConnectOptions, FlowWatch, Session, connect};
use parking_lot::Mutex;

use tokio::sync::watch;

use crate::client::{ConnectError, ConnectFailure, Connector, RoutePlan, Transport};
use crate::error::Error;
use crate::server::Server;

/// Between the depots of a route and the address that it begins at, in its name.
const FROM: &str = " from ";
/// The same where streams leave from ports that were granted.
const FROM_PORTS: &str = " from ports ";
/// The same where a circuit was granted at the depots.
const BY_CIRCUIT: &str = " by circuit ";

/// The depots in the name of a route, as [`SessionConnector`] gives it.
#[must_use]
pub fn depots_of(route_name: &str) -> &str {
    let cut = |name: &'_ str, at: &str| name.find(at).unwrap_or(name.len());
    let end = cut(route_name, FROM).min(cut(route_name, BY_CIRCUIT));
    route_name.get(..end).unwrap_or(route_name)
}

/// Whether a route of that name is [reserved](Reserved).
#[must_use]
pub fn is_reserved(route_name: &str) -> bool {
    route_name.contains(FROM_PORTS) || route_name.contains(BY_CIRCUIT)
}

impl Transport for Session {
    fn retransmits(&self) -> Option<u64> {
        self.tcp_info().ok().map(|info| u64::from(info.retransmits))
    }

    fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        let (here, there) = (self.local_address()?, self.info().first_hop?);
        Some((here.ip(), there.ip()))
    }

    fn watch(&mut self, side: drs::Side) -> Option<Arc<FlowWatch>> {
        Some(Session::watch(self, drs::Mode::Auto, side))
    }

    fn clear(&self) -> Option<Arc<Clear>> {
        Some(Session::clear(self))
    }
}

/// Opens sessions to one server over several routes, from one or several addresses of this host.
pub struct SessionConnector {
    base: ConnectOptions,
    paths: Mutex<Paths>,
    /// Which of them are used, where that may change.
    plan: Option<watch::Sender<RoutePlan>>,
    unknown: Mutex<Option<PublicKey>>,
}

/// A way that was reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    /// The depots to pass.
    pub route: Route,
    /// What tells its streams from others.
    pub mark: Mark,
}

/// What tells the streams of a reserved way from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// The network knows them by the ports of this host that they leave from.
    Ports(RangeInclusive<u16>),
    /// The depots on the way know them by this grant, which their OPENs carry (LH-GRANT-1).
    Grant(Arc<CircuitGrant>),
}

impl Reserved {
    /// What the route is called in events and reports. A circuit keeps its name when more or less
    /// of it is granted.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.mark {
            Mark::Ports(ports) => format!(
                "{}{FROM_PORTS}{}-{}",
                self.route,
                ports.start(),
                ports.end()
            ),
            Mark::Grant(grant) => {
                format!("{}{BY_CIRCUIT}{}", self.route, printable(&grant.circuit))
            }
        }
    }
}

/// All ways by their numbers, and which of them are used beside the first.
#[derive(Default)]
struct Paths {
    all: Vec<Path>,
    chosen: Vec<usize>,
    reserved: Vec<usize>,
    awaited: bool,
}

impl Paths {
    /// The number of a way, a new one if need be; none beyond [`MAX_ROUTES`]. Sessions that are
    /// opened from now on show the grant that is given here.
    fn number(&mut self, path: Path) -> Option<usize> {
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

    /// What is used beside the first.
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
            awaited: self.awaited,
        }
    }
}

/// Most ways that one copy learns of. A reserved one whose rate changes is another one; one whose
/// grant is renewed is not.
const MAX_ROUTES: usize = 256;

/// One way to the server: the depots to pass, the address of this host to begin at, where that is
/// not the system's choice, and what marks its streams as those of a reserved way.
#[derive(Clone)]
struct Path {
    route: Route,
    source: Option<IpAddr>,
    mark: Option<Mark>,
}

impl Path {
    /// Whether both are one way, so that streams of the one are streams of the other.
    fn is_same(&self, other: &Self) -> bool {
        let is_one_mark = match (&self.mark, &other.mark) {
            (Some(Mark::Grant(one)), Some(Mark::Grant(other))) => {
                // Streams are paced from their beginning, so another rate takes other streams.
                (&one.circuit, one.rate, one.holder) == (&other.circuit, other.rate, other.holder)
            }
            (one, other) => one == other,
        };
        is_one_mark && (&self.route, self.source) == (&other.route, other.source)
    }
}

impl SessionConnector {
    /// `base` says everything but the route; without any route, sessions go direct.
    pub fn new(base: ConnectOptions, routes: Vec<Route>) -> Self {
        Self::from_sources(base, routes, &[])
    }

    /// The same, over each route from each of these addresses of this host; from whichever the
    /// system chooses if there is none.
    pub fn from_sources(base: ConnectOptions, mut routes: Vec<Route>, sources: &[IpAddr]) -> Self {
        if routes.is_empty() {
            routes.push(Route::direct());
        }
        let over = |route: &Route| -> Vec<Path> {
            let path = |source| Path {
                route: route.clone(),
                source,
                mark: None,
            };
            match sources {
                [] => vec![path(base.source)],
                sources => sources.iter().map(|source| path(Some(*source))).collect(),
            }
        };
        Self {
            paths: Mutex::new(Paths {
                all: routes.iter().flat_map(over).collect(),
                ..Paths::default()
            }),
            plan: None,
            base,
            unknown: Mutex::new(None),
        }
    }

    /// The direct route, and beside it whichever are [given](Self::use_beside), also in mid-copy.
    pub fn planned(base: ConnectOptions) -> Self {
        Self {
            plan: Some(watch::Sender::default()),
            ..Self::new(base, vec![Route::direct()])
        }
    }

    /// From now on, these routes are used beside the direct one, and no others; in a copy that is
    /// under way, they join it, and others leave. Nothing changes where the routes were given for
    /// good, and beyond a few dozen routes.
    pub fn use_beside(&self, routes: &[Route]) {
        self.use_ways(|paths, source| {
            let routes = routes.iter().filter(|route| !route.is_direct());
            let numbers = routes.filter_map(|route| {
                paths.number(Path {
                    route: route.clone(),
                    source,
                    mark: None,
                })
            });
            let numbers: Vec<usize> = numbers.collect();
            paths.chosen = numbers;
        });
    }

    /// From now on, these reserved ways are used besides whatever is [chosen](Self::use_beside),
    /// and no other reserved ones; as there, they join and leave a copy that is under way.
    pub fn use_reserved(&self, reserved: &[Reserved]) {
        self.use_ways(|paths, source| {
            let numbers = reserved.iter().filter_map(|reserved| {
                paths.number(Path {
                    route: reserved.route.clone(),
                    source,
                    mark: Some(reserved.mark.clone()),
                })
            });
            let numbers: Vec<usize> = numbers.collect();
            paths.reserved = numbers;
        });
    }

    /// Whether routes to [use](Self::use_beside) are still looked for. As long as they are, a copy
    /// whose direct route cannot be opened waits for them.
    pub fn await_routes(&self, awaited: bool) {
        self.use_ways(|paths, _| paths.awaited = awaited);
    }

    /// Whether ways can [join](Self::use_reserved) at all.
    pub fn is_planned(&self) -> bool {
        self.plan.is_some()
    }

    fn use_ways(&self, set: impl FnOnce(&mut Paths, Option<IpAddr>)) {
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

    /// The key the server showed, if it was refused for not being known.
    pub fn unknown_server(&self) -> Option<PublicKey> {
        *self.unknown.lock()
    }
}

impl Connector for SessionConnector {
    type Stream = Session;

    fn routes(&self) -> Vec<String> {
        let name = |path: &Path| match (&path.mark, path.source) {
            (Some(mark), _) => Reserved {
                route: path.route.clone(),
                mark: mark.clone(),
            }
            .name(),
            (None, None) => path.route.to_string(),
            (None, Some(source)) => format!("{}{FROM}{source}", path.route),
        };
        self.paths.lock().all.iter().map(name).collect()
    }

    fn plan(&self) -> Option<watch::Receiver<RoutePlan>> {
        self.plan.as_ref().map(watch::Sender::subscribe)
    }

    async fn connect(&self, route: usize) -> Result<Session, ConnectError> {
        let mut options = self.base.clone();
        let path = self.paths.lock().all.get(route).cloned();
        if let Some(path) = path {
            (options.route, options.source) = (path.route, path.source);
            match path.mark {
                Some(Mark::Ports(ports)) => options.source_ports = Some(ports),
                Some(Mark::Grant(grant)) => {
                    options.grant = Some(Box::new(CircuitGrant::clone(&grant)))
                }
                None => {}
            }
        }
        connect(&options).await.map_err(|error| {
            if let longhaul_session::Error::UnknownServer { found, .. } = &error {
                *self.unknown.lock() = Some(*found);
            }
            ConnectError {
                kind: match &error {
                    error if error.is_about_who() => ConnectFailure::Unauthorised,
                    error if error.is_about_the_service() => ConnectFailure::NotOffered,
                    _ => ConnectFailure::NoRoute,
                },
                // A depot may take a grant later that it does not take yet: its clock may be
                // behind, and sessions of the circuit end.
                retry: is_worth_a_retry(&error)
                    || (options.grant.is_some() && error.is_about_grant()),
                message: error.to_string(),
            }
        })
    }
}

/// Whether the same attempt may succeed a little later.
fn is_worth_a_retry(error: &longhaul_session::Error) -> bool {
    use longhaul_session::Error;
    let passing = matches!(
        error,
        Error::Hop(_) | Error::NotConnected { .. } | Error::FellBack { .. } | Error::Tls { .. }
    );
    passing && !error.is_about_who() && !error.is_about_the_service() && !error.is_about_clock()
}

/// Serves one session of a copy that a listener accepted, and logs how it went.
pub async fn serve_session(server: Arc<Server>, session: Session) {
    logged(server, session, "session", async |server, session, peer| {
        server.serve(session, peer).await
    })
    .await;
}

/// Answers the questions about files of one session that a listener accepted, and logs how it went.
pub async fn serve_files(server: Arc<Server>, session: Session) {
    logged(
        server,
        session,
        "session about files",
        async |server, session, peer| server.serve_files(session, peer).await,
    )
    .await;
}

async fn logged(
    server: Arc<Server>,
    session: Session,
    what: &'static str,
    serve: impl AsyncFnOnce(&Arc<Server>, Session, PublicKey) -> Result<(), Error>,
) {
    let (id, peer) = (session.info().session_id, session.info().peer);
    let from = session
        .info()
        .first_hop
        .map(|addr| addr.to_string())
        .unwrap_or_default();
    server.log(
        peer,
        || tracing::info!(session = %id, %peer, %from, "{what}"),
    );
    match serve(&server, session, peer).await {
        Ok(()) => server.log(peer, || tracing::info!(session = %id, "{what} over")),
        Err(error) => server.log(
            peer,
            || tracing::info!(session = %id, %error, "{what} failed"),
        ),
    }
}

#[cfg(test)]
mod tests;
