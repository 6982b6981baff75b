//! Streams of a copy with one far side. A route is found once, and each stream then takes it.

use longhaul_proto::{Host, PortRange, PublicKey};
use longhaul_session::{Route, Session};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{ConnectError, ConnectFailure, Connector, RouteInfo, SessionConnector};
use parking_lot::Mutex;
use tokio::process::Child;

#[cfg(doc)]
use crate::RouteMemory;
use crate::message::{Access, FarAnswer, FarQuestion, PathBytes, ServeAsk};
use crate::reverse::ReverseListener;
use crate::ways::DataRoute;
use crate::{ClientClock, Error, FarSide};

/// Paths that the far side is to serve, and how to reach it.
#[derive(Debug, Clone)]
pub struct ServeRequest {
    /// Operations permitted on the paths.
    pub access: Access,
    /// Paths as typed.
    pub paths: Vec<Vec<u8>>,
    /// If true, a source that is a symbolic link is followed.
    pub follow: bool,
    /// Ports to listen on, at either side.
    pub ports: Option<PortRange>,
    /// TCP congestion control, at either side.
    pub congestion: Option<String>,
    /// If true, the data of large files may be sent as plaintext.
    pub no_encrypt: bool,
    /// Routes over depots; empty for direct sessions. With routes, nothing else is tried.
    pub routes: Vec<Route>,
    /// The route of the data last time, if known: it is tried first ([`RouteMemory`]).
    pub last_way: Option<DataRoute>,
}

impl ServeRequest {
    /// Builds the question. `clock` is that of the host with the key `client`, if it is known.
    pub(crate) fn ask(&self, client: PublicKey, clock: Option<ClientClock>) -> FarQuestion {
        FarQuestion::Serve(ServeAsk {
            client,
            access: self.access,
            paths: self.paths.iter().cloned().map(PathBytes).collect(),
            follow: self.follow,
            ports: self.ports,
            congestion: self.congestion.clone(),
            no_encrypt: self.no_encrypt,
            clock,
        })
    }
}

/// Opener of the streams of a copy with a far side.
pub struct LoginConnector {
    pub(crate) way: DataRoute,
    pub(crate) routes: Vec<RouteInfo>,
    pub(crate) link: DataLink,
    /// The session with which the route was found; the first stream takes it.
    pub(crate) first: Mutex<Option<Session>>,
}

pub(crate) enum DataLink {
    To(Box<SessionConnector>, tokio::sync::Mutex<FarSide>),
    From {
        reverse: ReverseListener,
        far: tokio::sync::Mutex<FarSide>,
        /// Name by which the far side reaches this host.
        host: String,
    },
    Inside(tokio::sync::Mutex<Option<Child>>),
}

/// A route for the data that works.
pub struct FoundRoute {
    /// Opener of streams.
    pub connector: LoginConnector,
    /// The paths of [`ServeRequest`] beneath the far side's root.
    pub paths: Vec<RelPath>,
    /// Reason why the preferred route was not taken, if another was.
    pub notice: Option<String>,
}

impl LoginConnector {
    /// Returns the route that was found.
    #[must_use]
    pub fn way(&self) -> DataRoute {
        self.way
    }

    /// Ends the far side, and waits briefly for it.
    pub async fn end(self) {
        match self.link {
            DataLink::To(_, far) | DataLink::From { far, .. } => far.into_inner().end().await,
            DataLink::Inside(child) => drop(child),
        }
    }
}

/// Returns a host that an OPEN can name. A name in ssh's settings need not exist in the network;
/// then the OPEN is addressed by key alone.
pub(crate) fn open_host(host: &str) -> Host {
    Host::parse(host).unwrap_or(Host::Ip(std::net::Ipv4Addr::UNSPECIFIED.into()))
}

/// Parses the far side's names of the paths.
pub(crate) fn parse_paths(paths: &[PathBytes]) -> Result<Vec<RelPath>, Error> {
    let plain = paths.iter().map(|path| RelPath::from_bytes(&path.0));
    Ok(plain.collect::<Result<_, _>>()?)
}

impl Connector for LoginConnector {
    type Stream = Session;

    fn routes(&self) -> Vec<RouteInfo> {
        self.routes.clone()
    }

    async fn connect(&self, route: usize) -> Result<Session, ConnectError> {
        let first = self.first.lock().take();
        if let Some(session) = first {
            return Ok(session);
        }
        match &self.link {
            DataLink::To(sessions, far) => match sessions.connect(route).await {
                // No process is left that could listen.
                Err(error) if far.lock().await.has_ended() => Err(ConnectError {
                    retry: false,
                    ..error
                }),
                connected => connected,
            },
            DataLink::From { reverse, far, host } => {
                let mut far = far.lock().await;
                let ask = FarQuestion::Dial {
                    hosts: vec![host.clone()],
                    port: reverse.port,
                    within_ms: None,
                };
                match far.ask(&ask).await {
                    Ok(FarAnswer::Dialled { .. }) => {}
                    Ok(FarAnswer::NotDialled { reason }) => {
                        return Err(lost(
                            format!("{} cannot connect to this machine: {reason}", far.host),
                            true,
                        ));
                    }
                    Ok(other) => {
                        return Err(lost(far.unexpected_answer(&other).to_string(), false));
                    }
                    Err(error) => return Err(lost(error.to_string(), false)),
                }
                let session = reverse.session().await;
                session.ok_or_else(|| {
                    lost(
                        format!("cannot establish a session with {}", far.host),
                        true,
                    )
                })
            }
            DataLink::Inside(_) => Err(lost(
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
        is_unknown_key: false,
        retry,
    }
}
