//! Searches for a route to one far side, as [`RouteChoice`] decides.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::Host;
use longhaul_proto::text::printable;
use longhaul_session::{
    ConnectOptions, Endpoint, Identity, Route, ServerTrust, ServiceName, Session, connect,
    connect_over,
};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{Connector, RouteInfo, SessionConnector};
use parking_lot::Mutex;

use crate::connector::{
    DataLink, FoundRoute, LoginConnector, ServeRequest, open_host, parse_paths,
};
use crate::dial::AddressFamily;
use crate::message::{Access, FarAnswer, FarQuestion};
use crate::reverse::ReverseListener;
use crate::ways::{DataRoute, RouteChoice, RouteEvent, RouteStep};
use crate::{ClientClock, Error, FailedAttempts, FarSide, dial};

/// Port that an OPEN names for a far side that does not listen.
const PLACEHOLDER_PORT: u16 = 1;
/// Time limit for trying one direction.
pub(crate) const DIRECTION_TIMEOUT: Duration = Duration::from_secs(4);
/// Time for which only the far side is tried, before it is asked to connect to this host as well.
const REVERSE_DELAY: Duration = Duration::from_millis(1500);
/// Time limit for setting up a session over a known route.
pub(crate) const SETUP_TIMEOUT: Duration = Duration::from_secs(20);

impl LoginConnector {
    /// Has `far` serve, and finds a route for the data.
    ///
    /// # Errors
    /// [`Error`] if the far side refuses or is gone. A failed direct connection is not an error:
    /// see [`FoundRoute::notice`].
    pub async fn find(mut far: FarSide, serve: &ServeRequest) -> Result<FoundRoute, Error> {
        let identity = Arc::new(Identity::generate()?);
        let clock = ClientClock::read(far.ready_ms);
        let ask = serve.ask(identity.public(), Some(clock));
        let (port, why_not, paths) = match far.ask(&ask).await? {
            FarAnswer::Serving {
                port,
                why_not,
                paths,
            } => (port, why_not, paths),
            other => return Err(far.unexpected_answer(&other)),
        };
        let paths = parse_paths(&paths)?;
        let base = ConnectOptions {
            congestion: serve.congestion.clone(),
            setup_timeout: DIRECTION_TIMEOUT,
            is_fetch: serve.access == Access::Read,
            ..ConnectOptions::new(
                ServiceName::COPY,
                Route::direct(),
                Endpoint::new(open_host(&far.host_name), port.unwrap_or(PLACEHOLDER_PORT)),
                identity,
                ServerTrust::Pinned(far.ready.key),
            )
        };
        if !serve.routes.is_empty() {
            return Self::over_routes(far, serve, base, port, paths).await;
        }
        RouteSearch {
            far,
            base,
            serve,
            port,
            why_not,
        }
        .search(paths)
        .await
    }

    async fn over_routes(
        far: FarSide,
        serve: &ServeRequest,
        base: ConnectOptions,
        port: Option<u16>,
        paths: Vec<RelPath>,
    ) -> Result<FoundRoute, Error> {
        let refused = |reason: String| Error::Refused {
            host: far.host.clone(),
            reason,
        };
        let port =
            port.ok_or_else(|| refused("it cannot listen, so no route leads to it".into()))?;
        let server = far.ready.server.filter(|address| !address.is_loopback());
        let host = server.map_or_else(|| open_host(&far.host_name), Host::Ip);
        let base = ConnectOptions {
            destination: Endpoint::new(host, port),
            setup_timeout: SETUP_TIMEOUT,
            ..base
        };
        let sessions = SessionConnector::new(base, serve.routes.clone());
        let connector = Self {
            way: DataRoute::ToHost,
            routes: sessions.routes(),
            link: DataLink::To(Box::new(sessions), tokio::sync::Mutex::new(far)),
            first: Mutex::new(None),
        };
        Ok(FoundRoute {
            connector,
            paths,
            notice: None,
        })
    }
}

/// Search for a route.
pub(crate) struct RouteSearch<'a> {
    pub far: FarSide,
    pub base: ConnectOptions,
    pub serve: &'a ServeRequest,
    /// Port that the far side listens on.
    pub port: Option<u16>,
    /// Reason why it does not listen.
    pub why_not: Option<String>,
}

impl RouteSearch<'_> {
    /// Finds a route. `paths` are the far side's.
    pub(crate) async fn search(mut self, paths: Vec<RelPath>) -> Result<FoundRoute, Error> {
        let last_time = self.serve.last_way;
        let mut ways = RouteChoice::new(last_time);
        let limit = match last_time {
            Some(DataRoute::InsideSsh) => REVERSE_DELAY,
            _ => DIRECTION_TIMEOUT,
        };
        let mut tried = AttemptResults::default();
        let to_host = connect_to_host(
            self.far.hosts(),
            self.port,
            self.base.clone(),
            self.why_not.take(),
            limit,
            self.far.family,
        );
        let head_start = tokio::time::sleep(REVERSE_DELAY);
        tokio::pin!(to_host, head_start);
        let (mut trying_to_host, mut waiting, mut asked) = (ways.tries_to_host(), true, false);
        let mut step = match ways.tries_from_host() {
            true => RouteStep::TryFromHost,
            false => RouteStep::Wait,
        };
        let way = loop {
            if step == RouteStep::TryFromHost {
                match ReverseListener::listen(self.serve.ports, self.base.clone()) {
                    Ok(reverse) => {
                        self.far
                            .channel
                            .ask(&self.dial(reverse.port, limit))
                            .await?;
                        tried.reverse = Some(reverse);
                        asked = true;
                    }
                    Err(error) => {
                        tried.from_failed = format!("this machine cannot listen: {error}");
                        step = ways.observe(RouteEvent::FromHostFailed);
                    }
                }
            }
            match step {
                RouteStep::Take(way) => break way,
                RouteStep::TryToHost => trying_to_host = true,
                RouteStep::TryFromHost | RouteStep::Wait => {}
            }
            let event = tokio::select! {
                ended = &mut to_host, if trying_to_host => {
                    trying_to_host = false;
                    tried.record_connect(ended)
                }
                () = &mut head_start, if waiting => {
                    waiting = false;
                    RouteEvent::HeadStartOver
                }
                answer = self.far.receive(true), if asked => {
                    asked = false;
                    match tried.record_dial(answer?) {
                        Ok(event) => event,
                        Err(other) => return Err(self.far.unexpected_answer(&other)),
                    }
                }
            };
            step = ways.observe(event);
        };
        if !ways.has_tried_to_host() {
            tried.to_failed = "not tried, because it failed last time".into();
        }
        self.take(way, tried, paths).await
    }

    async fn take(
        mut self,
        way: DataRoute,
        tried: AttemptResults,
        paths: Vec<RelPath>,
    ) -> Result<FoundRoute, Error> {
        let host = self.far.host.clone();
        let (mut to_failed, from_failed) = (tried.to_failed, tried.from_failed);
        if to_failed.is_empty() {
            // The other direction was established first.
            to_failed = "no answer in time".into();
        }
        match (way, tried.session, tried.reverse, tried.reached) {
            (DataRoute::ToHost, Some((session, address)), ..) => {
                let base = ConnectOptions {
                    destination: Endpoint::new(Host::Ip(address.ip()), address.port()),
                    setup_timeout: SETUP_TIMEOUT,
                    ..self.base
                };
                let far = tokio::sync::Mutex::new(self.far);
                let link = DataLink::To(Box::new(SessionConnector::new(base, vec![])), far);
                Ok(found_route(way, "direct", link, Some(session), paths, None))
            }
            (DataRoute::FromHost, _, Some(reverse), Some(reached)) => {
                let session = reverse.session().await;
                let far = tokio::sync::Mutex::new(self.far);
                let notice = format!(
                    "{host} cannot be reached from here ({to_failed}); it connects to this \
                     machine instead"
                );
                let link = DataLink::From {
                    reverse,
                    far,
                    host: reached,
                };
                Ok(found_route(
                    way,
                    "from the host",
                    link,
                    session,
                    paths,
                    Some(notice),
                ))
            }
            _ => {
                match self.far.ask(&FarQuestion::Inside).await? {
                    FarAnswer::Inside => {}
                    other => return Err(self.far.unexpected_answer(&other)),
                }
                let (channel, child) = self.far.into_channel();
                let session = connect_over(channel.into_connection()?, &self.base).await?;
                let ports = match self.serve.ports {
                    Some(ports) => format!("TCP port {ports}"),
                    None => "a port (choose some with --port-range)".into(),
                };
                let notice = format!(
                    "no direct connection with {host} (to it: {to_failed}; from it: \
                     {from_failed}): the data goes inside the ssh connection, in one stream; open \
                     {ports} in the firewall of either side to be faster"
                );
                let link = DataLink::Inside(tokio::sync::Mutex::new(Some(child)));
                let way = DataRoute::InsideSsh;
                Ok(found_route(
                    way,
                    "inside ssh",
                    link,
                    Some(session),
                    paths,
                    Some(notice),
                ))
            }
        }
    }

    fn dial(&self, port: u16, limit: Duration) -> FarQuestion {
        let own = dial::own_addresses();
        let here = self.far.ready.client.iter().chain(&own);
        let here = here.filter(|address| {
            self.far
                .family
                .is_none_or(|family| family.contains(address))
        });
        let hosts = here.map(ToString::to_string).collect();
        FarQuestion::Dial {
            hosts: dial::distinct(hosts),
            port,
            within_ms: u32::try_from(limit.as_millis()).ok(),
        }
    }
}

/// Results of the two directions so far.
#[derive(Default)]
struct AttemptResults {
    session: Option<(Session, SocketAddr)>,
    to_failed: String,
    reverse: Option<ReverseListener>,
    /// Name by which the far side reached this host.
    reached: Option<String>,
    from_failed: String,
}

impl AttemptResults {
    fn record_connect(&mut self, ended: Result<(Session, SocketAddr), String>) -> RouteEvent {
        match ended {
            Ok(session) => {
                self.session = Some(session);
                RouteEvent::ToHostStands
            }
            Err(reason) => {
                self.to_failed = reason;
                RouteEvent::ToHostFailed
            }
        }
    }

    /// Records the far side's attempt. Returns `Err` for an answer to another question.
    fn record_dial(&mut self, answer: FarAnswer) -> Result<RouteEvent, Box<FarAnswer>> {
        match answer {
            FarAnswer::Dialled { host } => {
                self.reached = Some(host);
                Ok(RouteEvent::FromHostStands)
            }
            FarAnswer::NotDialled { reason } => {
                self.from_failed = printable(reason.as_bytes());
                Ok(RouteEvent::FromHostFailed)
            }
            other => Err(Box::new(other)),
        }
    }
}

fn found_route(
    way: DataRoute,
    route: &str,
    link: DataLink,
    first: Option<Session>,
    paths: Vec<RelPath>,
    notice: Option<String>,
) -> FoundRoute {
    let connector = LoginConnector {
        way,
        routes: vec![RouteInfo::without_depots(route)],
        link,
        first: Mutex::new(first),
    };
    FoundRoute {
        connector,
        paths,
        notice,
    }
}

/// Connects to the one of `hosts` that has the key that `base` trusts.
pub(crate) async fn connect_to_host(
    hosts: Vec<String>,
    port: Option<u16>,
    base: ConnectOptions,
    why_not: Option<String>,
    limit: Duration,
    family: Option<AddressFamily>,
) -> Result<(Session, SocketAddr), String> {
    let Some(port) = port else {
        return Err(why_not.unwrap_or("it does not listen".into()));
    };
    let addresses = dial::addresses(&hosts, port, family).await;
    let attempt = |address: SocketAddr| {
        let options = ConnectOptions {
            destination: Endpoint::new(Host::Ip(address.ip()), address.port()),
            ..base.clone()
        };
        async move { connect(&options).await.map_err(|error| reason(&error)) }
    };
    let found = dial::race(addresses, limit, attempt).await;
    found.map_err(|attempts: FailedAttempts| attempts.to_string())
}

/// Returns an error's reason without the server's name.
fn reason(error: &longhaul_session::Error) -> String {
    match error {
        longhaul_session::Error::NotConnected { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}
