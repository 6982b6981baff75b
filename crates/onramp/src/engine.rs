//! State shared by all entries: the choice, the exits, the memory of destinations, the log.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_config::routes::{Author, RouteRule, SessionEnd};
use longhaul_hop::{Conn, Dialled, EventLog, Options, Phase, Phases, Resolver, dial};
use longhaul_policy::{OwnAddressReader, is_local};
use longhaul_proto::{Endpoint, PublicKey, Route};
use longhaul_session::{
    AddressFilter, Buffers, ConnectOptions, End, Ending, Error, Far, Identity, Join, JoinOptions,
    Joined, KnownHosts, ServerTrust, Service, Silence, Verdict, connect, errno_of,
};
use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::io::AsyncWriteExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::asker::{Asker, GuestReach};
use crate::choose::{Asked, Named, Way, choose};
use crate::config::OnrampConfig;
use crate::destination::{Destination, Wish};
use crate::destinations::Destinations;
use crate::exit::Exit;
use crate::failure::Failed;
use crate::metrics::{Metrics, Outcome};
use crate::route::NamedRoute;
use crate::table::Table;

/// Time for which a direct connection's data may stay unacknowledged, or its far end not read. It
/// is roughly Linux's own limit (`tcp_retries2`), so that programs notice no difference.
const DIRECT_UNACKNOWLEDGED: Duration = Duration::from_secs(15 * 60);

/// Maximum idle times of a connection: unlimited, as programs may be silent for as long as they
/// like. Depots and off-ramps on the route have limits of their own.
const SILENCE: Silence = Silence {
    open: UNLIMITED_TIME,
    half_closed: UNLIMITED_TIME,
};
/// Longer than any connection lasts, but short enough to be added to a time.
const UNLIMITED_TIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Minimum interval between requests for the round-trip time of one address.
const MEASURE_EVERY: Duration = Duration::from_secs(60);
/// Maximum round-trip time that is recorded; longer ones are capped.
const LONGEST_ROUND_TRIP: Duration = Duration::from_secs(60);

/// Total memory for the buffers of all connections, in bytes; enough for 1024 bulk directions.
const BUFFERS: usize = 128 << 20;

/// Request of a client to an entry.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Name of the entry.
    pub(crate) entry: &'static str,
    pub(crate) asker: Asker,
    /// If true, the command line gives the destination's address, so it is allowed for every
    /// client.
    pub(crate) is_configured: bool,
    pub(crate) destination: Destination,
    pub(crate) wish: Wish,
    /// Route named by the program; it overrides the rules.
    pub(crate) route: Option<NamedRoute>,
    /// True if the connection must fail when there is no route.
    pub(crate) closed: bool,
    /// True if the destination speaks the session protocol itself.
    pub(crate) acceptor: bool,
    /// Key that the destination must prove; if `None`, the known one.
    pub(crate) key: Option<PublicKey>,
}

impl Request {
    pub(crate) const fn new(
        entry: &'static str,
        asker: Asker,
        destination: Destination,
        wish: Wish,
    ) -> Self {
        Self {
            entry,
            asker,
            is_configured: false,
            destination,
            wish,
            route: None,
            closed: false,
            acceptor: false,
            key: None,
        }
    }
}

/// Plan for a connection, and its reason.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) exit: PlannedExit,
    pub(crate) reason: String,
}

#[derive(Debug, Clone)]
pub(crate) enum PlannedExit {
    Direct,
    Nothing,
    Route(Box<PlannedRoute>),
}

#[derive(Debug, Clone)]
pub(crate) struct PlannedRoute {
    via: Route,
    end: SessionEnd,
    /// If true, a direct connection replaces the session if that fails before anything was sent.
    fall_back: bool,
}

/// An established connection.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) exit: Exit,
}

/// State shared by all entries.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) identity: Arc<Identity>,
    table: Table,
    known_hosts: PathBuf,
    set_up: Duration,
    resolver: Resolver,
    own: OwnAddressReader,
    memory: Mutex<Destinations>,
    began: Instant,
    places: Arc<Semaphore>,
    buffers: Arc<Buffers>,
    phases: Phases,
    pub(crate) metrics: Arc<Metrics>,
    /// Bounds the log lines that each client's connections cause.
    pub(crate) events: EventLog,
}

impl Engine {
    pub(crate) fn new(
        config: &OnrampConfig,
        table: Table,
        own: OwnAddressReader,
        metrics: Arc<Metrics>,
        phases: Phases,
    ) -> Self {
        Self {
            identity: Arc::clone(&config.identity),
            table,
            known_hosts: config.known_hosts.clone(),
            set_up: config.set_up,
            resolver: Resolver::new(),
            own,
            memory: Mutex::default(),
            began: Instant::now(),
            places: Arc::new(Semaphore::new(
                config.connections.min(Semaphore::MAX_PERMITS),
            )),
            buffers: Buffers::new(BUFFERS),
            phases,
            metrics,
            events: EventLog::new(),
        }
    }

    pub(crate) const fn table(&self) -> &Table {
        &self.table
    }

    /// Decides, and logs the decision.
    pub(crate) fn plan(&self, request: &Request) -> Plan {
        let plan = self.decide(request);
        self.log_plan(request, &plan);
        plan
    }

    /// Logs the request and the plan for it.
    pub(crate) fn log_plan(&self, request: &Request, plan: &Plan) {
        self.events.log(Some(request.asker.payer()), |left_out| {
            tracing::info!(
                entry = request.entry,
                destination = %request.destination,
                way = %plan.exit,
                reason = %plan.reason,
                left_out,
                "asked for"
            );
        });
    }

    /// Decides on the plan for a request.
    pub(crate) fn decide(&self, request: &Request) -> Plan {
        let destination = &request.destination;
        let rules = self.table.current();
        let rule = rules.rule(
            destination.address(),
            destination.name(),
            destination.port(),
        );
        let asked = Asked {
            is_local: destination
                .address()
                .is_some_and(|address| is_local(address, &self.own.addresses())),
            named: request.route.as_ref().map(|route| match route.is_direct() {
                true => Named::Direct,
                false => Named::Route,
            }),
            size: request.wish.size,
            closed: request.closed,
            acceptor: request.acceptor,
            is_offramp_unknown: rules.author() == Author::Controller
                && rule.is_some_and(|rule| self.is_offramp_unknown(rule)),
        };
        let known = self.memory().known(destination, self.began.elapsed());
        let decision = choose(rule, &asked, &known);
        let exit = match decision.way {
            Way::Direct => PlannedExit::Direct,
            Way::Nothing => PlannedExit::Nothing,
            Way::Session => PlannedExit::Route(Box::new(PlannedRoute {
                via: Route::direct(),
                end: SessionEnd::Destination,
                fall_back: false,
            })),
            Way::Route => route_of(request, rule).map_or(PlannedExit::Nothing, |route| {
                PlannedExit::Route(Box::new(route))
            }),
        };
        Plan {
            exit,
            reason: decision.reason.to_string(),
        }
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
    pub(crate) async fn open(&self, request: &Request, plan: &Plan) -> Result<Opened, Failed> {
        let deadline = Instant::now() + self.set_up;
        match &plan.exit {
            PlannedExit::Nothing => Err(Failed::new(Errno::NETUNREACH, plan.reason.clone())),
            PlannedExit::Direct => self.direct(request, deadline).await,
            PlannedExit::Route(route) => self.session(request, route, deadline).await,
        }
    }

    async fn direct(&self, request: &Request, deadline: Instant) -> Result<Opened, Failed> {
        let addresses = self.addresses(request, deadline).await?;
        let options = Options {
            unacknowledged: DIRECT_UNACKNOWLEDGED,
            ..Options::default()
        };
        let dialled = dial(&addresses, |_| options.clone(), deadline).await;
        let Dialled { conn, address } = dialled.map_err(|error| Failed::direct(&error.into()))?;
        let exit = Exit::Direct(conn);
        if let Some(rtt) = exit.round_trip() {
            self.memory()
                .measured(address.ip(), rtt, self.began.elapsed());
        }
        Ok(Opened { exit })
    }

    /// Resolves the destination to the addresses that the client may connect to, at least one.
    async fn addresses(
        &self,
        request: &Request,
        deadline: Instant,
    ) -> Result<Vec<SocketAddr>, Failed> {
        let to = request.destination.endpoint();
        let resolved = timeout_at(deadline, self.resolver.addresses(&to)).await;
        let resolved = resolved
            .map_err(|_| {
                io::Error::new(io::ErrorKind::TimedOut, "the name did not resolve in time")
            })
            .and_then(|resolved| Ok(resolved?))
            .map_err(|error| Failed::direct(&error))?;
        // Evaluated after the look-up, which can take long.
        let addresses = match self.reach(request) {
            Some(reach) => reach.admitted(resolved),
            None => resolved,
        };
        match addresses.is_empty() {
            false => Ok(addresses),
            true => Err(Failed::new(
                Errno::ACCESS,
                format!(
                    "{to} is an address of the on-ramp's own machine or link, and no rule names it"
                ),
            )),
        }
    }

    /// Returns the limit on the addresses that the client may connect to; `None` means unlimited.
    fn reach(&self, request: &Request) -> Option<GuestReach> {
        let is_guest = request.asker != Asker::Machine && !request.is_configured;
        is_guest.then(|| GuestReach {
            rules: self.table.current(),
            own: self.own.addresses(),
        })
    }

    async fn session(
        &self,
        request: &Request,
        route: &PlannedRoute,
        deadline: Instant,
    ) -> Result<Opened, Failed> {
        // The dialled addresses are filtered again. This check tells a guest why none is left.
        if route.ends_without_depots_at_destination() && self.reach(request).is_some() {
            self.addresses(request, deadline).await?;
        }
        let connected = match self.options(request, route) {
            Ok(options) => connect(&options).await,
            Err(failed) => return Err(failed),
        };
        let error = match connected {
            Ok(session) => {
                if let Some(error) = &session.info().fell_back {
                    self.events.log(Some(request.asker.payer()), |left_out| {
                        tracing::warn!(
                            destination = %request.destination, error, left_out,
                            "falls back to a session without depots"
                        );
                    });
                }
                return Ok(Opened {
                    exit: Exit::Session(Box::new(session)),
                });
            }
            Err(error) => error,
        };
        if !route.falls_back_to_tcp() || !may_fall_back(&error) {
            return Err(Failed::session(&error));
        }
        self.events.log(Some(request.asker.payer()), |left_out| {
            tracing::warn!(
                destination = %request.destination, %error, left_out,
                "falls back to a direct connection"
            );
        });
        self.direct(request, deadline)
            .await
            .map_err(|direct| Failed {
                errno: direct.errno,
                what: format!(
                    "the route failed: {error}; and so did the direct connection: {direct}"
                ),
            })
    }

    fn options(&self, request: &Request, route: &PlannedRoute) -> Result<ConnectOptions, Failed> {
        let destination = request.destination.endpoint();
        let (identity, via) = (Arc::clone(&self.identity), route.via.clone());
        let options = match &route.end {
            SessionEnd::Offramp { at, key } => {
                let trust = self.trust(at, *key)?;
                ConnectOptions::to_server(destination, via, at.clone(), identity, trust)
            }
            SessionEnd::Destination => {
                let trust = self.trust(&destination, request.key)?;
                ConnectOptions::new(Service::STREAM, via, destination, identity, trust)
            }
            SessionEnd::None => return Err(Failed::new(Errno::INVAL, "the route has no end")),
        };
        // A silent route must leave time for a direct connection.
        let time = if route.falls_back_to_tcp() {
            self.set_up / 2
        } else {
            self.set_up
        };
        Ok(ConnectOptions {
            setup_timeout: time,
            fall_back: route.fall_back && route.end == SessionEnd::Destination,
            destination_filter: self
                .reach(request)
                .map(|reach| AddressFilter::new(move |address| reach.admits(address))),
            purpose: request.wish.purpose.clone(),
            size: request.wish.size,
            rate: request.wish.rate.filter(|&rate| rate > 0),
            duration: request.wish.duration.filter(|&duration| duration > 0),
            ..options
        })
    }

    /// Returns the trust in a server: its key in the rule, else the known key. Nobody is asked, and
    /// nothing is remembered.
    ///
    /// A server with this user's own key is trusted without being known. It is a program of this
    /// user that listens on another machine, or on another port each time.
    fn trust(&self, at: &Endpoint, key: Option<PublicKey>) -> Result<ServerTrust, Failed> {
        if let Some(key) = key {
            return Ok(ServerTrust::Pinned(key));
        }
        let known = KnownHosts::open(&self.known_hosts);
        let known = known.map_err(|error| Failed::new(Errno::ACCESS, error.to_string()))?;
        let own = self.identity.public();
        Ok(known.get(at).map_or_else(
            || {
                ServerTrust::Callback(Arc::new(move |_, found| match *found == own {
                    true => Verdict::Trusted,
                    false => Verdict::Unknown,
                }))
            },
            ServerTrust::Pinned,
        ))
    }

    /// Logs that a connection was turned away because the limit was reached.
    pub(crate) fn turned_away(&self, request: &Request, failed: &Failed) {
        self.metrics.count(request.entry, Outcome::Failed);
        self.events.log(Some(request.asker.payer()), |left_out| {
            tracing::warn!(
                entry = request.entry, destination = %request.destination, left_out,
                "turned away: {failed}"
            );
        });
    }

    /// Takes a permit for one more connection of a program at the Unix socket, if any is free.
    pub(crate) fn place(&self) -> Result<OwnedSemaphorePermit, Failed> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map_err(|_| {
            Failed::new(
                Errno::AGAIN,
                "the on-ramp carries as many connections as it may",
            )
        })
    }

    /// Plans and opens for an entry that always connects. Ends early, with `None`, if the program
    /// disconnects.
    pub(crate) async fn open_for(
        &self,
        request: &Request,
        program: &Conn,
    ) -> Option<Result<Opened, Failed>> {
        let plan = self.plan(request);
        self.open_planned(request, &plan, program.broken()).await
    }

    /// Opens as planned. Ends early, with `None`, once `gone` completes.
    pub(crate) async fn open_planned<T>(
        &self,
        request: &Request,
        plan: &Plan,
        gone: impl Future<Output = T>,
    ) -> Option<Result<Opened, Failed>> {
        let opened = tokio::select! {
            opened = self.open(request, plan) => opened,
            _ = gone => {
                self.events.log(Some(request.asker.payer()), |left_out| {
                    tracing::info!(
                        entry = request.entry, destination = %request.destination, left_out,
                        "the program went while it was connected"
                    );
                });
                return None;
            }
        };
        let outcome = match &opened {
            Ok(Opened {
                exit: Exit::Direct(_),
            }) => Outcome::Direct,
            Ok(_) => Outcome::Route,
            Err(_) => Outcome::Failed,
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
        request: &Request,
        program: Conn,
        opened: Opened,
        early: &[u8],
    ) {
        let began = Instant::now();
        self.metrics.carried.inc();
        self.carry_on(request, program, opened, early, began).await;
        self.metrics.carried.dec();
    }

    async fn carry_on(
        &self,
        request: &Request,
        program: Conn,
        opened: Opened,
        early: &[u8],
        began: Instant,
    ) {
        let mut exit = opened.exit;
        if !early.is_empty()
            && let Err(error) = exit.write_all(early).await
        {
            return self.ended(
                request,
                began,
                early.len() as u64,
                0,
                &Ending::Died(End::Session, error),
            );
        }
        let joined = match exit {
            Exit::Direct(conn) => self.join(conn, program).await,
            Exit::Session(session) => self.join(*session, program).await,
        };
        let sent = joined.to_session.saturating_add(early.len() as u64);
        self.ended(request, began, sent, joined.to_tcp, &joined.ending);
    }

    async fn join<F: Far>(&self, far: F, program: Conn) -> Joined {
        let options = JoinOptions {
            silence: SILENCE,
            buffers: Arc::clone(&self.buffers),
            ..JoinOptions::default()
        };
        let mut join = Join::new(far, program, options);
        let mut phases = self.phases.clone();
        tokio::select! {
            joined = &mut join => joined,
            () = phases.reached(Phase::Aborting) => join.abort(),
        }
    }

    /// Records the size of a connection, and logs its ending.
    pub(crate) fn ended(
        &self,
        request: &Request,
        began: Instant,
        sent: u64,
        received: u64,
        ending: &Ending,
    ) {
        let destination = &request.destination;
        let bytes = sent.saturating_add(received);
        self.metrics.moved(sent, received);
        self.memory()
            .carried(destination, bytes, self.began.elapsed());
        let (how, errno) = match ending {
            Ending::Finished => ("finished", None),
            Ending::Closed => (
                "finished; the program had closed before all was there",
                None,
            ),
            Ending::Died(End::Tcp, error) => ("the program's side died", Some(errno_of(error))),
            Ending::Died(End::Session, error) => ("the far side died", Some(errno_of(error))),
            Ending::Idle | Ending::HalfClosed => ("silent for too long", None),
            Ending::BeyondSize => ("reset: it carried more than it may", None),
            Ending::Aborted => ("reset: the on-ramp stops", None),
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
    pub(crate) fn would_measure(&self, destination: &Destination) -> bool {
        let now = self.now();
        destination
            .address()
            .is_some_and(|address| !self.memory().was_measured(address, MEASURE_EVERY, now))
    }

    /// Records the round-trip time of a program's direct connection to this address.
    pub(crate) fn measured(&self, address: IpAddr, rtt: Duration) {
        let now = self.now();
        self.memory()
            .measured(address, rtt.min(LONGEST_ROUND_TRIP), now);
    }

    pub(crate) fn memory(&self) -> parking_lot::MutexGuard<'_, Destinations> {
        self.memory.lock()
    }
}

impl PlannedRoute {
    /// Returns true if the session's first connection leads to the destination itself.
    fn ends_without_depots_at_destination(&self) -> bool {
        self.via.is_direct() && self.end == SessionEnd::Destination
    }

    /// Returns true if a plain TCP connection may replace the session. A destination that speaks
    /// the session protocol is never connected to without it.
    fn falls_back_to_tcp(&self) -> bool {
        self.fall_back && self.end != SessionEnd::Destination
    }
}

/// Returns the program's own route, or the rule's.
fn route_of(request: &Request, rule: Option<&RouteRule>) -> Option<PlannedRoute> {
    if let Some(route) = request.route.as_ref().filter(|route| !route.is_direct()) {
        let end = match route.offramp.clone() {
            Some((at, key)) => SessionEnd::Offramp { at, key },
            None => SessionEnd::Destination,
        };
        return Some(PlannedRoute {
            via: route.via.clone(),
            end,
            fall_back: !request.closed,
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
        end,
        fall_back: rule.fall_back && !request.closed,
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
            Self::Nothing => f.write_str("none"),
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
