//! State shared by all entries: the choice, the exits, the memory of destinations, the log.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_config::routes::{Author, RouteRule, SessionEnd};
use longhaul_hop::{
    BufferPool, Conn, DialledConnection, Duplex, DuplexEnding, DuplexObserver, DuplexOptions,
    DuplexSide, EventLog, HopOptions, IdleLimits, Resolver, dial,
};
use longhaul_policy::{OwnAddressReader, is_local};
use longhaul_proto::{Endpoint, PublicKey, Route};
use longhaul_service::{Phase, PhaseReceiver};
use longhaul_session::{
    AddressFilter, ConnectOptions, Error, Identity, JoinObserver, KeyVerdict, KnownHosts,
    ResumeOptions, ServerTrust, ServiceName, Session, connect, errno_of,
};
use longhaul_wishes::{CircuitBroker, ReserveTerms};
use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::io::AsyncWriteExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::asker::{GuestReach, OnrampClient};
use crate::choose::{ConnectionAction, ConnectionFacts, ProgramChoice, choose};
use crate::circuit::{
    CircuitFlow, CircuitObserver, FarHop, changed_limits, delegations, drive_circuit, reserve_terms,
};
use crate::config::OnrampConfig;
use crate::destination::{OnrampDestination, SessionWish};
use crate::destinations::DestinationMemory;
use crate::exit::Exit;
use crate::failure::ConnectFailure;
use crate::metrics::{ConnectionOutcome, OnrampMetrics};
use crate::resuming::{ResumableSessions, SessionRoutes};
use crate::route::NamedRoute;
use crate::spread::{PathAssignment, PathSpread};
use crate::table::ReloadingTable;

/// Time for which a direct connection's data may stay unacknowledged, or its far end not read. It
/// is roughly Linux's own limit (`tcp_retries2`), so that programs notice no difference.
const DIRECT_UNACKNOWLEDGED: Duration = Duration::from_secs(15 * 60);

/// Maximum idle times of a connection: unlimited, as programs may be silent for as long as they
/// like. Depots and off-ramps on the route have limits of their own.
const IDLE_LIMITS: IdleLimits = IdleLimits {
    open: UNLIMITED_TIME,
    half_closed: UNLIMITED_TIME,
};
/// Longer than any connection lasts, but short enough to be added to a time.
const UNLIMITED_TIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Minimum interval between requests for the round-trip time of one address.
const MIN_MEASURE_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum round-trip time that is recorded; longer ones are capped.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(60);

/// Maximum number of source ports that are tried for one connection.
const MAX_SOURCE_PORTS_TRIED: u32 = 3;

/// Total memory for the buffers of all connections, in bytes; enough for 1024 bulk directions.
const BUFFER_POOL_BYTES: usize = 128 << 20;

/// Request of a client to an entry.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionRequest {
    /// Name of the entry.
    pub(crate) entry: &'static str,
    pub(crate) asker: OnrampClient,
    /// If true, the command line gives the destination's address, so it is allowed for every
    /// client.
    pub(crate) is_configured: bool,
    pub(crate) destination: OnrampDestination,
    pub(crate) wish: SessionWish,
    /// Route named by the program; it overrides the rules.
    pub(crate) route: Option<NamedRoute>,
    /// True if the connection must fail when there is no route.
    pub(crate) route_required: bool,
    /// True if the destination speaks the session protocol itself.
    pub(crate) acceptor: bool,
    /// Key that the destination must prove; if `None`, the known one.
    pub(crate) key: Option<PublicKey>,
    /// True if a direct connection can leave from the source port of a reserved path.
    pub(crate) can_bind: bool,
}

impl ConnectionRequest {
    pub(crate) const fn new(
        entry: &'static str,
        asker: OnrampClient,
        destination: OnrampDestination,
        wish: SessionWish,
    ) -> Self {
        Self {
            entry,
            asker,
            is_configured: false,
            destination,
            wish,
            route: None,
            route_required: false,
            acceptor: false,
            key: None,
            can_bind: true,
        }
    }
}

/// Plan for a connection, and its reason.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionPlan {
    pub(crate) exit: PlannedExit,
    pub(crate) reason: String,
    /// Circuits that the connection may reserve. The on-ramp then also carries a direct connection.
    pub(crate) reserve: Option<ReserveTerms>,
    /// Reserved path of a direct connection.
    pub(crate) path: Option<PathAssignment>,
}

#[derive(Debug, Clone)]
pub(crate) enum PlannedExit {
    Direct,
    Refuse,
    Route(Box<PlannedRoute>),
}

#[derive(Debug, Clone)]
pub(crate) struct PlannedRoute {
    via: Route,
    /// Routes on which a session with an off-ramp may continue.
    alternatives: Vec<Route>,
    end: SessionEnd,
    /// If true, a direct connection replaces the session if that fails before anything was sent.
    fall_back: bool,
    /// Circuits that its depots may reserve in this user's name.
    delegated: Option<ReserveTerms>,
}

/// An established connection.
#[derive(Debug)]
pub(crate) struct OpenedConnection {
    pub(crate) exit: Exit,
    /// Circuits that it may reserve.
    pub(crate) reserve: Option<ReserveTerms>,
}

/// State shared by all entries.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) identity: Arc<Identity>,
    table: Arc<ReloadingTable>,
    /// Reserved paths of direct connections.
    pub(crate) spread: PathSpread,
    known_hosts: PathBuf,
    set_up: Duration,
    resolver: Resolver,
    own: OwnAddressReader,
    memory: Mutex<DestinationMemory>,
    began: Instant,
    places: Arc<Semaphore>,
    buffers: Arc<BufferPool>,
    phases: PhaseReceiver,
    pub(crate) metrics: Arc<OnrampMetrics>,
    /// Bounds the log lines that each client's connections cause.
    pub(crate) events: Arc<EventLog>,
    /// `None` if sessions end with their connection.
    pub(crate) resumable: Option<ResumableSessions>,
    circuits: Option<Arc<dyn CircuitBroker>>,
    /// Key of the only controller at which delegations are valid.
    controller: Option<PublicKey>,
}

impl Engine {
    pub(crate) fn new(
        config: &OnrampConfig,
        table: ReloadingTable,
        own: OwnAddressReader,
        metrics: Arc<OnrampMetrics>,
        phases: PhaseReceiver,
    ) -> Self {
        let events = Arc::new(EventLog::new());
        let resumable = config.resume.as_ref().map(|limits| {
            ResumableSessions::new(limits, Arc::clone(&metrics), Arc::clone(&events))
        });
        Self {
            identity: Arc::clone(&config.identity),
            table: Arc::new(table),
            spread: PathSpread::new(config.shares.clone()),
            known_hosts: config.known_hosts.clone(),
            set_up: config.set_up,
            resolver: Resolver::new(),
            own,
            memory: Mutex::default(),
            began: Instant::now(),
            places: Arc::new(Semaphore::new(
                config.connections.min(Semaphore::MAX_PERMITS),
            )),
            buffers: BufferPool::new(BUFFER_POOL_BYTES),
            phases,
            metrics,
            events,
            resumable,
            circuits: config.circuits.clone(),
            controller: config.controller,
        }
    }

    pub(crate) fn table(&self) -> &ReloadingTable {
        &self.table
    }

    pub(crate) fn shared_table(&self) -> Arc<ReloadingTable> {
        Arc::clone(&self.table)
    }

    /// Decides, and logs the decision.
    pub(crate) fn plan(&self, request: &ConnectionRequest) -> ConnectionPlan {
        let plan = self.decide(request);
        self.log_plan(request, &plan);
        plan
    }

    /// Logs the request and the plan for it.
    pub(crate) fn log_plan(&self, request: &ConnectionRequest, plan: &ConnectionPlan) {
        self.events.log(Some(request.asker.payer()), |left_out| {
            tracing::info!(
                entry = request.entry,
                destination = %request.destination,
                way = %plan.exit,
                reason = %plan.reason,
                left_out,
                "connection requested"
            );
        });
    }

    /// Decides on the plan for a request.
    pub(crate) fn decide(&self, request: &ConnectionRequest) -> ConnectionPlan {
        if let Some(path) = self.reserved_path(request, request.destination.address()) {
            return ConnectionPlan {
                exit: PlannedExit::Direct,
                reason: path.to_string(),
                path: Some(path),
                reserve: None,
            };
        }
        let destination = &request.destination;
        let rules = self.table.current();
        let rule = rules.rule(
            destination.address(),
            destination.name(),
            destination.port(),
        );
        let asked = ConnectionFacts {
            is_local: destination
                .address()
                .is_some_and(|address| is_local(address, &self.own.addresses())),
            program_choice: request.route.as_ref().map(|route| match route.is_direct() {
                true => ProgramChoice::Direct,
                false => ProgramChoice::Route,
            }),
            size: request.wish.size,
            route_required: request.route_required,
            acceptor: request.acceptor,
            is_offramp_unknown: rules.author() == Author::Controller
                && rule.is_some_and(|rule| self.is_offramp_unknown(rule)),
        };
        let known = self.memory().known(destination, self.began.elapsed());
        let decision = choose(rule, &asked, &known);
        let exit = match decision.action {
            ConnectionAction::Direct => PlannedExit::Direct,
            ConnectionAction::Refuse => PlannedExit::Refuse,
            ConnectionAction::Session => PlannedExit::Route(Box::new(PlannedRoute {
                via: Route::direct(),
                alternatives: Vec::new(),
                end: SessionEnd::Destination,
                fall_back: false,
                delegated: None,
            })),
            ConnectionAction::Route => select_route(request, rule)
                .map_or(PlannedExit::Refuse, |route| {
                    PlannedExit::Route(Box::new(route))
                }),
        };
        let reserve = match &exit {
            PlannedExit::Refuse => None,
            _ if asked.is_local || self.circuits.is_none() => None,
            _ => reserve_terms(request.asker, &request.wish, rule),
        };
        ConnectionPlan {
            exit,
            reason: decision.reason.to_string(),
            reserve,
            path: None,
        }
    }

    /// Returns the reserved path of a connection, if its destination has any. A route that the
    /// program names takes precedence, and so does the session protocol.
    fn reserved_path(
        &self,
        request: &ConnectionRequest,
        address: Option<IpAddr>,
    ) -> Option<PathAssignment> {
        if request.route.is_some() || request.acceptor || !request.can_bind {
            return None;
        }
        let assigned = self.spread.assign(address?)?;
        if let Err(error) = &assigned {
            self.events.log(Some(request.asker.payer()), |left_out| {
                tracing::warn!(
                    destination = %request.destination, %error, left_out,
                    "the connection takes no reserved path"
                );
            });
        }
        assigned.ok()
    }

    /// Returns true if a rule leads to an off-ramp that is not among the known servers.
    fn is_offramp_unknown(&self, rule: &RouteRule) -> bool {
        let SessionEnd::Offramp { at, .. } = &rule.end else {
            return false;
        };
        let known = KnownHosts::open(&self.known_hosts);
        known.map_or(true, |known| known.get(at).is_none())
    }

    /// Connects as planned.
    pub(crate) async fn open(
        &self,
        request: &ConnectionRequest,
        plan: &ConnectionPlan,
    ) -> Result<OpenedConnection, ConnectFailure> {
        let deadline = Instant::now() + self.set_up;
        let exit = match &plan.exit {
            PlannedExit::Refuse => Err(ConnectFailure::new(Errno::NETUNREACH, plan.reason.clone())),
            PlannedExit::Direct => self.open_direct(request, plan.path, deadline).await,
            PlannedExit::Route(route) => self.open_session(request, route, deadline).await,
        };
        let reserve = plan.reserve;
        exit.map(|exit| OpenedConnection { exit, reserve })
    }

    async fn open_direct(
        &self,
        request: &ConnectionRequest,
        path: Option<PathAssignment>,
        deadline: Instant,
    ) -> Result<Exit, ConnectFailure> {
        let addresses = self.addresses(request, deadline).await?;
        // The paths of a name are known once it is resolved.
        let is_unresolved = request.destination.address().is_none();
        let mut path = path.or_else(|| {
            let first = addresses.first().filter(|_| is_unresolved)?;
            self.reserved_path(request, Some(first.ip()))
        });
        let mut attempts = 1;
        let dialled = loop {
            let options = direct_options(path);
            match dial(&addresses, |_| options.clone(), deadline).await {
                // Another program took the port meanwhile.
                Err(error) if path.is_some() && attempts < MAX_SOURCE_PORTS_TRIED => {
                    let error = io::Error::from(error);
                    if error.kind() != io::ErrorKind::AddrInUse {
                        break Err(error);
                    }
                    attempts += 1;
                    path = self.reserved_path(request, addresses.first().map(SocketAddr::ip));
                }
                dialled => break dialled.map_err(io::Error::from),
            }
        };
        let DialledConnection { conn, address } =
            dialled.map_err(|error| ConnectFailure::from_io(&error))?;
        let exit = Exit::Direct(conn);
        if let Some(rtt) = exit.round_trip() {
            self.memory()
                .record_round_trip(address.ip(), rtt, self.began.elapsed());
        }
        Ok(exit)
    }

    /// Resolves the destination to the addresses that the client may connect to, at least one.
    async fn addresses(
        &self,
        request: &ConnectionRequest,
        deadline: Instant,
    ) -> Result<Vec<SocketAddr>, ConnectFailure> {
        let to = request.destination.endpoint();
        let resolved = timeout_at(deadline, self.resolver.addresses(&to)).await;
        let resolved = resolved
            .map_err(|_| {
                io::Error::new(io::ErrorKind::TimedOut, "the name did not resolve in time")
            })
            .and_then(|resolved| Ok(resolved?))
            .map_err(|error| ConnectFailure::from_io(&error))?;
        // Evaluated after the look-up, which can take long.
        let addresses = match self.guest_reach(request) {
            Some(reach) => reach.retain_admitted(resolved),
            None => resolved,
        };
        match addresses.is_empty() {
            false => Ok(addresses),
            true => Err(ConnectFailure::new(
                Errno::ACCESS,
                format!(
                    "{to} is an address of the on-ramp's own machine or link, and no rule names it"
                ),
            )),
        }
    }

    /// Returns the limit on the addresses that the client may connect to; `None` means unlimited.
    fn guest_reach(&self, request: &ConnectionRequest) -> Option<GuestReach> {
        let is_guest = request.asker != OnrampClient::Machine && !request.is_configured;
        is_guest.then(|| GuestReach {
            rules: self.table.current(),
            own: self.own.addresses(),
        })
    }

    async fn open_session(
        &self,
        request: &ConnectionRequest,
        route: &PlannedRoute,
        deadline: Instant,
    ) -> Result<Exit, ConnectFailure> {
        // The dialled addresses are filtered again. This check tells a guest why none is left.
        if route.is_session_without_depots() && self.guest_reach(request).is_some() {
            self.addresses(request, deadline).await?;
        }
        let error = match self.connect_session(request, route).await? {
            Ok(session) => {
                if let Some(error) = &session.info().fell_back {
                    self.events.log(Some(request.asker.payer()), |left_out| {
                        tracing::warn!(
                            destination = %request.destination, error, left_out,
                            "falls back to a session without depots"
                        );
                    });
                }
                return Ok(Exit::Session(Box::new(session)));
            }
            Err(error) => error,
        };
        if !route.falls_back_to_tcp() || !may_fall_back(&error) {
            return Err(ConnectFailure::from_session(&error));
        }
        self.events.log(Some(request.asker.payer()), |left_out| {
            tracing::warn!(
                destination = %request.destination, %error, left_out,
                "falls back to a direct connection"
            );
        });
        self.open_direct(request, None, deadline)
            .await
            .map_err(|direct| ConnectFailure {
                errno: direct.errno,
                description: format!(
                    "the route failed: {error}; the direct connection failed as well: {direct}"
                ),
            })
    }

    /// Opens a session along the route, or along the first alternative that works if nothing has
    /// gone beyond the one before (LH-FALLBACK-1).
    async fn connect_session(
        &self,
        request: &ConnectionRequest,
        route: &PlannedRoute,
    ) -> Result<Result<Session, Error>, ConnectFailure> {
        let mut connected = connect(&self.options(request, route, &route.via)?).await;
        for via in &route.alternatives {
            match &connected {
                Err(error) if may_fall_back(error) => {
                    self.events.log(Some(request.asker.payer()), |left_out| {
                        tracing::warn!(
                            destination = %request.destination, %error, route = %via, left_out,
                            "trying another route"
                        );
                    });
                }
                _ => break,
            }
            connected = connect(&self.options(request, route, via)?).await;
        }
        Ok(connected)
    }

    fn options(
        &self,
        request: &ConnectionRequest,
        route: &PlannedRoute,
        via: &Route,
    ) -> Result<ConnectOptions, ConnectFailure> {
        let destination = request.destination.endpoint();
        let (identity, via) = (Arc::clone(&self.identity), via.clone());
        let options = match &route.end {
            SessionEnd::Offramp { at, key } => {
                let trust = self.server_trust(at, *key)?;
                ConnectOptions::through_offramp(destination, via, at.clone(), identity, trust)
            }
            SessionEnd::Destination => {
                let trust = self.server_trust(&destination, request.key)?;
                ConnectOptions::new(ServiceName::STREAM, via, destination, identity, trust)
            }
            SessionEnd::None => {
                return Err(ConnectFailure::new(
                    Errno::INVAL,
                    "the route names no destination",
                ));
            }
        };
        // A silent route must leave time for a direct connection.
        let time = if route.falls_back_to_tcp() {
            self.set_up / 2
        } else {
            self.set_up
        };
        let delegations = route.delegated.as_ref().map(|terms| {
            let end = &options.destination;
            delegations(&self.identity, self.controller, terms, &route.via, end)
        });
        // So must it for the alternatives.
        let routes = u32::try_from(route.alternatives.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        Ok(ConnectOptions {
            delegations: delegations.unwrap_or_default(),
            setup_timeout: time / routes,
            fall_back: route.fall_back && route.end == SessionEnd::Destination,
            destination_filter: self
                .guest_reach(request)
                .map(|reach| AddressFilter::new(move |address| reach.admits(address))),
            purpose: request.wish.purpose.clone(),
            size: request.wish.size,
            rate: (route.delegated.map(|terms| terms.reserve.rate))
                .or(request.wish.rate)
                .filter(|&rate| rate > 0),
            duration: request.wish.duration.filter(|&duration| duration > 0),
            resume: self.resume_options(request, route),
            ..options
        })
    }

    /// Returns how a session with an off-ramp is resumed. Without depots it continues only where a
    /// direct connection is allowed as well.
    fn resume_options(
        &self,
        request: &ConnectionRequest,
        route: &PlannedRoute,
    ) -> Option<ResumeOptions> {
        let SessionEnd::Offramp { .. } = &route.end else {
            return None;
        };
        let mut known = vec![route.via.clone()];
        known.extend(route.alternatives.iter().cloned());
        if route.fall_back {
            known.push(Route::direct());
        }
        let routes = SessionRoutes {
            destination: request.destination.clone(),
            end: route.end.clone(),
            known,
        };
        let resumable = self.resumable.as_ref()?;
        Some(resumable.options(request.asker.payer(), routes, &self.table))
    }

    /// Returns the trust in a server: its key in the rule, else the known key. Nobody is asked, and
    /// nothing is remembered.
    ///
    /// A server with this user's own key is trusted without being known. It is a program of this
    /// user that listens on another machine, or on another port each time.
    fn server_trust(
        &self,
        at: &Endpoint,
        key: Option<PublicKey>,
    ) -> Result<ServerTrust, ConnectFailure> {
        if let Some(key) = key {
            return Ok(ServerTrust::Pinned(key));
        }
        let known = KnownHosts::open(&self.known_hosts);
        let known = known.map_err(|error| ConnectFailure::new(Errno::ACCESS, error.to_string()))?;
        let own = self.identity.public();
        Ok(known.get(at).map_or_else(
            || {
                ServerTrust::Callback(Arc::new(move |_, found| match *found == own {
                    true => KeyVerdict::Trusted,
                    false => KeyVerdict::Unknown,
                }))
            },
            ServerTrust::Pinned,
        ))
    }

    /// Logs that a connection was turned away because the limit was reached.
    pub(crate) fn log_turned_away(&self, request: &ConnectionRequest, failed: &ConnectFailure) {
        self.metrics.count(request.entry, ConnectionOutcome::Failed);
        self.events.log(Some(request.asker.payer()), |left_out| {
            tracing::warn!(
                entry = request.entry, destination = %request.destination, left_out,
                "connection refused: {failed}"
            );
        });
    }

    /// Takes a permit for one more connection of a program at the Unix socket, if any is free.
    pub(crate) fn take_permit(&self) -> Result<OwnedSemaphorePermit, ConnectFailure> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map_err(|_| {
            ConnectFailure::new(
                Errno::AGAIN,
                "the on-ramp already carries its maximum number of connections",
            )
        })
    }

    /// Plans and opens for an entry that always connects. Ends early, with `None`, if the program
    /// disconnects.
    pub(crate) async fn open_for(
        &self,
        request: &ConnectionRequest,
        program: &Conn,
    ) -> Option<Result<OpenedConnection, ConnectFailure>> {
        let plan = self.plan(request);
        self.open_planned(request, &plan, program.broken()).await
    }

    /// Opens as planned. Ends early, with `None`, once `gone` completes.
    pub(crate) async fn open_planned<T>(
        &self,
        request: &ConnectionRequest,
        plan: &ConnectionPlan,
        gone: impl Future<Output = T>,
    ) -> Option<Result<OpenedConnection, ConnectFailure>> {
        let opened = tokio::select! {
            opened = self.open(request, plan) => opened,
            _ = gone => {
                self.events.log(Some(request.asker.payer()), |left_out| {
                    tracing::info!(
                        entry = request.entry, destination = %request.destination, left_out,
                        "the program closed its socket while it was being connected"
                    );
                });
                return None;
            }
        };
        let outcome = match &opened {
            Ok(OpenedConnection {
                exit: Exit::Direct(_),
                ..
            }) => ConnectionOutcome::Direct,
            Ok(_) => ConnectionOutcome::Route,
            Err(_) => ConnectionOutcome::Failed,
        };
        self.metrics.count(request.entry, outcome);
        if let Err(failed) = &opened {
            let errno = failed.errno.raw_os_error();
            self.events.log(Some(request.asker.payer()), |left_out| {
                tracing::info!(
                    entry = request.entry, destination = %request.destination, errno,
                    error = %failed, left_out,
                    "not connected"
                );
            });
        }
        Some(opened)
    }

    /// Carries the connection to its end, and logs the outcome. `early` is data already read from
    /// the program.
    pub(crate) async fn carry(
        &self,
        request: &ConnectionRequest,
        program: Conn,
        opened: OpenedConnection,
        early: &[u8],
    ) {
        let began = Instant::now();
        self.metrics.carried.inc();
        self.carry_opened(request, program, opened, early, began)
            .await;
        self.metrics.carried.dec();
    }

    async fn carry_opened(
        &self,
        request: &ConnectionRequest,
        program: Conn,
        opened: OpenedConnection,
        early: &[u8],
        began: Instant,
    ) {
        let OpenedConnection { mut exit, reserve } = opened;
        if !early.is_empty()
            && let Err(error) = exit.write_all(early).await
        {
            return self.record_ending(
                request,
                began,
                early.len() as u64,
                0,
                &DuplexEnding::FirstDied(error),
            );
        }
        let (sent, received, ending) = match exit {
            // The kernel sizes a plain connection, as it would a program's own.
            Exit::Direct(conn) => self.join(request, conn, program, (), reserve).await,
            Exit::Session(session) => {
                let observer = JoinObserver::default();
                self.join(request, *session, program, observer, reserve)
                    .await
            }
        };
        let sent = sent.saturating_add(early.len() as u64);
        self.record_ending(request, began, sent, received, &ending);
    }

    /// Moves the bytes of a connection. Returns the bytes sent and received, and how it ended.
    async fn join<F: FarHop + DuplexSide, O: DuplexObserver<F, Conn>>(
        &self,
        request: &ConnectionRequest,
        far: F,
        program: Conn,
        observer: O,
        reserve: Option<ReserveTerms>,
    ) -> (u64, u64, DuplexEnding) {
        let flow = CircuitFlow {
            entry: request.entry,
            asker: request.asker,
            destination: &request.destination,
            purpose: request.wish.purpose.as_deref(),
        };
        let broker = self.circuits.as_ref().zip(reserve);
        let mut circuit = broker
            .and_then(|(broker, terms)| drive_circuit(broker, &self.events, flow, terms, &far));
        let observer = CircuitObserver::new(observer, circuit.as_ref());
        let options = DuplexOptions {
            idle_limits: IDLE_LIMITS,
            buffers: Arc::clone(&self.buffers),
            ..DuplexOptions::default()
        };
        let mut join = Duplex::new(far, program, options, observer);
        let mut phases = self.phases.clone();
        let joined = loop {
            tokio::select! {
                joined = &mut join => break joined,
                () = phases.wait_until(Phase::Aborting) => break join.abort(),
                limits = changed_limits(&mut circuit) => join.set_limits(limits),
            }
        };
        if let Some(circuit) = circuit {
            circuit.end().await;
        }
        (joined.backward, joined.forward, joined.ending)
    }

    /// Records the size of a connection, and logs its ending.
    pub(crate) fn record_ending(
        &self,
        request: &ConnectionRequest,
        began: Instant,
        sent: u64,
        received: u64,
        ending: &DuplexEnding,
    ) {
        let destination = &request.destination;
        let bytes = sent.saturating_add(received);
        self.metrics.moved(sent, received);
        self.memory()
            .record_size(destination, bytes, self.began.elapsed());
        let (how, errno) = match ending {
            DuplexEnding::Finished => ("finished", None),
            DuplexEnding::Closed => (
                "finished; the program had closed before it received everything",
                None,
            ),
            DuplexEnding::SecondDied(error) => {
                ("the program's connection broke off", Some(errno_of(error)))
            }
            DuplexEnding::FirstDied(error) => ("the session broke off", Some(errno_of(error))),
            // Final ends do not report it.
            DuplexEnding::FirstClosed => ("the session broke off", None),
            DuplexEnding::Idle | DuplexEnding::HalfClosed => ("idle for too long", None),
            DuplexEnding::BeyondSize => ("reset: it carried more bytes than stated", None),
            DuplexEnding::Aborted => ("reset: the on-ramp is stopping", None),
        };
        let seconds = began.elapsed().as_secs_f64();
        self.events.log(Some(request.asker.payer()), |left_out| {
            tracing::info!(
                entry = request.entry, %destination, sent, received, seconds, errno, left_out,
                "{how}"
            );
        });
    }

    /// Returns the time on the memory's clock.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns true if the round-trip time of a destination that a program connects to directly is
    /// needed.
    pub(crate) fn needs_round_trip(&self, destination: &OnrampDestination) -> bool {
        let now = self.now();
        destination.address().is_some_and(|address| {
            !self
                .memory()
                .was_measured(address, MIN_MEASURE_INTERVAL, now)
        })
    }

    /// Records the round-trip time of a program's direct connection to this address.
    pub(crate) fn record_round_trip(&self, address: IpAddr, rtt: Duration) {
        let now = self.now();
        self.memory()
            .record_round_trip(address, rtt.min(MAX_ROUND_TRIP), now);
    }

    pub(crate) fn memory(&self) -> parking_lot::MutexGuard<'_, DestinationMemory> {
        self.memory.lock()
    }
}

impl PlannedRoute {
    /// Returns true if the session's first connection leads to the destination itself.
    fn is_session_without_depots(&self) -> bool {
        self.via.is_direct() && self.end == SessionEnd::Destination
    }

    /// Returns true if a plain TCP connection may replace the session. A destination that speaks
    /// the session protocol is never connected to without it.
    fn falls_back_to_tcp(&self) -> bool {
        self.fall_back && self.end != SessionEnd::Destination
    }
}

/// Returns the options of a direct connection, which leaves from the port of its path.
fn direct_options(path: Option<PathAssignment>) -> HopOptions {
    let options = HopOptions {
        user_timeout: DIRECT_UNACKNOWLEDGED,
        ..HopOptions::default()
    };
    let Some(PathAssignment { source, .. }) = path else {
        return options;
    };
    let address = Some(source.ip()).filter(|address| !address.is_unspecified());
    options
        .with_source(address)
        .with_source_ports(Some(source.port()..=source.port()))
}

/// Returns the program's own route, or the rule's.
fn select_route(request: &ConnectionRequest, rule: Option<&RouteRule>) -> Option<PlannedRoute> {
    if let Some(route) = request.route.as_ref().filter(|route| !route.is_direct()) {
        let end = match route.offramp.clone() {
            Some((at, key)) => SessionEnd::Offramp { at, key },
            None => SessionEnd::Destination,
        };
        return Some(PlannedRoute {
            via: route.via.clone(),
            alternatives: Vec::new(),
            end,
            fall_back: !request.route_required,
            delegated: None,
        });
    }
    let rule = rule?;
    let end = if request.acceptor {
        SessionEnd::Destination
    } else {
        rule.end.clone()
    };
    Some(PlannedRoute {
        via: rule.via.clone(),
        alternatives: rule.alternatives.clone(),
        end,
        fall_back: rule.fall_back && !request.route_required,
        delegated: reserve_terms(request.asker, &request.wish, Some(rule))
            .filter(|_| rule.delegate),
    })
}

/// Returns true if nothing can have reached the far side and it has not refused (LH-FALLBACK-1,
/// LH-FALLBACK-2).
fn may_fall_back(error: &Error) -> bool {
    error.nothing_forwarded()
}

impl std::fmt::Display for PlannedExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Direct => f.write_str("direct"),
            Self::Refuse => f.write_str("none"),
            Self::Route(route) => match &route.end {
                SessionEnd::Offramp { at, .. } if route.via.is_direct() => {
                    write!(f, "off-ramp {at}")
                }
                SessionEnd::Offramp { at, .. } => write!(f, "route {} off-ramp {at}", route.via),
                _ => write!(f, "route {}", route.via),
            },
        }
    }
}
