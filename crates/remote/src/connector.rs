//! The streams of a copy with one far side: the way is found once, and each stream then takes it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longhaul_proto::text::printable;
use longhaul_proto::{Host, PublicKey};
use longhaul_session::{
    ConnectOptions, Endpoint, Identity, Route, ServerTrust, Service, Session, connect, connect_over,
};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{ConnectError, ConnectFailure, Connector, SessionConnector};
use tokio::process::Child;

use crate::message::{Access, Answer, Ask, PathBytes, ServeAsk};
use crate::reverse::Reverse;
use crate::ways::{Step, Told, Way, Ways};
use crate::{Attempts, Error, FarSide, PortRange, dial};

/// How long one direction is tried.
const DIRECTION_TIME_LIMIT: Duration = Duration::from_secs(4);
/// How long the far side is tried alone, before it is asked to connect to this one as well.
const HEAD_START: Duration = Duration::from_millis(1500);

/// Time for the set-up of a session on a way that is known.
const SETUP_TIMEOUT: Duration = Duration::from_secs(20);
/// Stands for the port of a far side that does not listen: an OPEN names one.
const ANY_PORT: u16 = 1;

/// What the far side is to serve, and how it is reached.
#[derive(Debug, Clone)]
pub struct Serve {
    /// What is done with the paths.
    pub access: Access,
    /// As typed.
    pub paths: Vec<Vec<u8>>,
    /// A source that is a symbolic link is followed.
    pub follow: bool,
    /// Ports to listen on, at either side.
    pub ports: Option<PortRange>,
    /// TCP congestion control, at either side.
    pub congestion: Option<String>,
    /// Routes over depots; sessions go direct if there is none. With routes, no other way is tried.
    pub routes: Vec<Route>,
}

impl Serve {
    pub(crate) fn ask(&self, client: PublicKey) -> Ask {
        Ask::Serve(ServeAsk {
            client,
            access: self.access,
            paths: self.paths.iter().cloned().map(PathBytes).collect(),
            follow: self.follow,
            ports: self.ports,
            congestion: self.congestion.clone(),
        })
    }
}

/// Opens the streams of a copy with a far side.
pub struct LoginConnector {
    way: Way,
    routes: Vec<String>,
    link: Link,
    /// The session that the way was found with; the first stream takes it.
    first: Mutex<Option<Session>>,
}

enum Link {
    To(SessionConnector, tokio::sync::Mutex<FarSide>),
    From {
        reverse: Reverse,
        far: tokio::sync::Mutex<FarSide>,
        /// Whom the far side reaches this one by.
        host: String,
    },
    Inside(tokio::sync::Mutex<Option<Child>>),
}

/// A way that was found.
pub struct Found {
    /// To open streams with.
    pub connector: LoginConnector,
    /// The paths of [`Serve`] beneath the far side's root.
    pub paths: Vec<RelPath>,
    /// Why not the way before, where it is not the first.
    pub notice: Option<String>,
}

impl LoginConnector {
    /// Has `far` serve, and finds a way for the data.
    ///
    /// # Errors
    /// [`Error`]: the far side says no or is gone. That no direct connection comes about is none: see [`Found::notice`].
    pub async fn find(mut far: FarSide, serve: &Serve) -> Result<Found, Error> {
        let identity = Arc::new(Identity::generate()?);
        let (port, why_not, paths) = match far.ask(&serve.ask(identity.public())).await? {
            Answer::Serving { port, why_not, paths } => (port, why_not, paths),
            other => return Err(far.odd(&other)),
        };
        let paths = beneath_root(&paths)?;
        let base = ConnectOptions {
            congestion: serve.congestion.clone(),
            setup_timeout: DIRECTION_TIME_LIMIT,
            ..ConnectOptions::new(
                Service::COPY,
                Route::direct(),
                Endpoint::new(named(&far.host_name), port.unwrap_or(ANY_PORT)),
                identity,
                ServerTrust::Pinned(far.ready.key),
            )
        };
        if !serve.routes.is_empty() {
            return Self::over_routes(far, serve, base, port, paths).await;
        }
        Search {
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
        serve: &Serve,
        base: ConnectOptions,
        port: Option<u16>,
        paths: Vec<RelPath>,
    ) -> Result<Found, Error> {
        let refused = |reason: String| Error::Refused {
            host: far.host.clone(),
            reason,
        };
        let port = port.ok_or_else(|| refused("it can't listen, so no route leads to it".into()))?;
        let server = far.ready.server.filter(|address| !address.is_loopback());
        let host = server.map_or_else(|| named(&far.host_name), Host::Ip);
        let base = ConnectOptions {
            destination: Endpoint::new(host, port),
            setup_timeout: SETUP_TIMEOUT,
            ..base
        };
        let sessions = SessionConnector::new(base, serve.routes.clone());
        let connector = Self {
            way: Way::ToHost,
            routes: sessions.routes(),
            link: Link::To(sessions, tokio::sync::Mutex::new(far)),
            first: Mutex::new(None),
        };
        Ok(Found {
            connector,
            paths,
            notice: None,
        })
    }

    /// The way that was found.
    #[must_use]
    pub fn way(&self) -> Way {
        self.way
    }

    /// Ends the far side, and waits for it for a moment.
    pub async fn end(self) {
        match self.link {
            Link::To(_, far) | Link::From { far, .. } => far.into_inner().end().await,
            Link::Inside(child) => drop(child),
        }
    }
}

/// A host as an OPEN may name it. What ssh calls it may be no name of the network; the OPEN is then for whoever has the key.
pub(crate) fn named(host: &str) -> Host {
    Host::parse(host).unwrap_or(Host::Ip(std::net::Ipv4Addr::UNSPECIFIED.into()))
}

/// What the far side calls the paths.
pub(crate) fn beneath_root(paths: &[PathBytes]) -> Result<Vec<RelPath>, Error> {
    let plain = paths.iter().map(|path| RelPath::from_bytes(&path.0));
    Ok(plain.collect::<Result<_, _>>()?)
}

/// Looks for a way.
struct Search<'a> {
    far: FarSide,
    base: ConnectOptions,
    serve: &'a Serve,
    /// Where the far side listens.
    port: Option<u16>,
    /// Why it does not.
    why_not: Option<String>,
}

impl Search<'_> {
    async fn search(mut self, paths: Vec<RelPath>) -> Result<Found, Error> {
        let mut ways = Ways::default();
        let mut tried = Tried::default();
        let to_host = to_host(
            self.far.hosts(),
            self.port,
            self.base.clone(),
            self.why_not.take(),
        );
        let head_start = tokio::time::sleep(HEAD_START);
        tokio::pin!(to_host, head_start);
        let (mut trying_to_host, mut waiting, mut asked) = (true, true, false);
        let way = loop {
            let told = tokio::select! {
                ended = &mut to_host, if trying_to_host => {
                    trying_to_host = false;
                    tried.connected(ended)
                }
                () = &mut head_start, if waiting => {
                    waiting = false;
                    Told::HeadStartOver
                }
                answer = self.far.hear(true), if asked => {
                    asked = false;
                    match tried.dialled(answer?) {
                        Ok(told) => told,
                        Err(other) => return Err(self.far.odd(&other)),
                    }
                }
            };
            let mut step = ways.told(told);
            if step == Step::TryFromHost {
                match Reverse::listen(self.serve.ports, self.base.clone()) {
                    Ok(reverse) => {
                        self.far.channel.ask(&self.dial(reverse.port)).await?;
                        tried.reverse = Some(reverse);
                        asked = true;
                    }
                    Err(error) => {
                        tried.from_failed = format!("this machine can't listen: {error}");
                        step = ways.told(Told::FromHostFailed);
                    }
                }
            }
            if let Step::Take(way) = step {
                break way;
            }
        };
        self.take(way, tried, paths).await
    }

    async fn take(mut self, way: Way, tried: Tried, paths: Vec<RelPath>) -> Result<Found, Error> {
        let host = self.far.host.clone();
        let (mut to_failed, from_failed) = (tried.to_failed, tried.from_failed);
        if to_failed.is_empty() {
            // The other direction stood first.
            to_failed = "no answer in time".into();
        }
        match (way, tried.session, tried.reverse, tried.reached) {
            (Way::ToHost, Some((session, address)), ..) => {
                let base = ConnectOptions {
                    destination: Endpoint::new(Host::Ip(address.ip()), address.port()),
                    setup_timeout: SETUP_TIMEOUT,
                    ..self.base
                };
                let far = tokio::sync::Mutex::new(self.far);
                let link = Link::To(SessionConnector::new(base, vec![]), far);
                Ok(found(way, "direct", link, Some(session), paths, None))
            }
            (Way::FromHost, _, Some(reverse), Some(reached)) => {
                let session = reverse.session().await;
                let far = tokio::sync::Mutex::new(self.far);
                let notice = format!(
                    "{host} can't be connected to from here ({to_failed}); it connects to this machine instead"
                );
                let link = Link::From {
                    reverse,
                    far,
                    host: reached,
                };
                Ok(found(way, "from the host", link, session, paths, Some(notice)))
            }
            _ => {
                match self.far.ask(&Ask::Inside).await? {
                    Answer::Inside => {}
                    other => return Err(self.far.odd(&other)),
                }
                let (channel, child) = self.far.into_channel();
                let session = connect_over(channel.into_conn()?, &self.base).await?;
                let ports = match self.serve.ports {
                    Some(ports) => format!("TCP port {ports}"),
                    None => "a port (choose some with --port-range)".into(),
                };
                let notice = format!(
                    "no connection with {host} but ssh's (to it: {to_failed}; from it: {from_failed}): the data goes inside that, in one \
                     stream; let {ports} through the firewall of either side to be faster"
                );
                let link = Link::Inside(tokio::sync::Mutex::new(Some(child)));
                let way = Way::InsideSsh;
                Ok(found(way, "inside ssh", link, Some(session), paths, Some(notice)))
            }
        }
    }

    fn dial(&self, port: u16) -> Ask {
        let seen = self.far.ready.client.iter().map(ToString::to_string);
        let own = dial::own_addresses();
        let hosts = seen.chain(own.iter().map(ToString::to_string)).collect();
        Ask::Dial {
            hosts: dial::distinct(hosts),
            port,
        }
    }
}

/// What has come of the two directions so far.
#[derive(Default)]
struct Tried {
    session: Option<(Session, SocketAddr)>,
    to_failed: String,
    reverse: Option<Reverse>,
    /// Whom the far side reached this one by.
    reached: Option<String>,
    from_failed: String,
}

impl Tried {
    fn connected(&mut self, ended: Result<(Session, SocketAddr), String>) -> Told {
        match ended {
            Ok(session) => {
                self.session = Some(session);
                Told::ToHostStands
            }
            Err(reason) => {
                self.to_failed = reason;
                Told::ToHostFailed
            }
        }
    }

    /// `Err` with an answer to another question.
    fn dialled(&mut self, answer: Answer) -> Result<Told, Answer> {
        match answer {
            Answer::Dialled { host } => {
                self.reached = Some(host);
                Ok(Told::FromHostStands)
            }
            Answer::NotDialled { reason } => {
                self.from_failed = printable(reason.as_bytes());
                Ok(Told::FromHostFailed)
            }
            other => Err(other),
        }
    }
}

fn found(
    way: Way,
    route: &str,
    link: Link,
    first: Option<Session>,
    paths: Vec<RelPath>,
    notice: Option<String>,
) -> Found {
    let connector = LoginConnector {
        way,
        routes: vec![route.to_owned()],
        link,
        first: Mutex::new(first),
    };
    Found {
        connector,
        paths,
        notice,
    }
}

/// A session with whoever of `hosts` has the key that `base` trusts.
pub(crate) async fn to_host(
    hosts: Vec<String>,
    port: Option<u16>,
    base: ConnectOptions,
    why_not: Option<String>,
) -> Result<(Session, SocketAddr), String> {
    let Some(port) = port else {
        return Err(why_not.unwrap_or("it does not listen".into()));
    };
    let addresses = dial::addresses(&hosts, port).await;
    let attempt = |address: SocketAddr| {
        let options = ConnectOptions {
            destination: Endpoint::new(Host::Ip(address.ip()), address.port()),
            ..base.clone()
        };
        async move { connect(&options).await.map_err(|error| reason(&error)) }
    };
    let found = dial::race(addresses, DIRECTION_TIME_LIMIT, attempt).await;
    found.map_err(|attempts: Attempts| attempts.to_string())
}

/// The reason alone of an error that names the server as well.
fn reason(error: &longhaul_session::Error) -> String {
    match error {
        longhaul_session::Error::NotConnected { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

impl Connector for LoginConnector {
    type Stream = Session;

    fn routes(&self) -> Vec<String> {
        self.routes.clone()
    }

    async fn connect(&self, route: usize) -> Result<Session, ConnectError> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(session) = first {
            return Ok(session);
        }
        match &self.link {
            Link::To(sessions, _) => sessions.connect(route).await,
            Link::From { reverse, far, host } => {
                let mut far = far.lock().await;
                let ask = Ask::Dial {
                    hosts: vec![host.clone()],
                    port: reverse.port,
                };
                match far.ask(&ask).await {
                    Ok(Answer::Dialled { .. }) => {}
                    Ok(Answer::NotDialled { reason }) => {
                        return Err(lost(
                            format!("{} can't connect to this machine: {reason}", far.host),
                            true,
                        ));
                    }
                    Ok(other) => return Err(lost(far.odd(&other).to_string(), false)),
                    Err(error) => return Err(lost(error.to_string(), false)),
                }
                let session = reverse.session().await;
                session.ok_or_else(|| lost(format!("no session with {}", far.host), true))
            }
            Link::Inside(_) => Err(lost(
                "the ssh connection that carried the copy has ended".into(),
                false,
            )),
        }
    }
}

fn lost(message: String, retry: bool) -> ConnectError {
    ConnectError {
        message,
        kind: ConnectFailure::NoRoute,
        retry,
    }
}
