//! Copies over real sessions: how the engine reaches a server, and how a server takes what a listener accepts.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use longhaul_proto::{PublicKey, Route};
use longhaul_session::{ConnectOptions, FlowWatch, Session, connect};

use crate::client::{ConnectError, ConnectFailure, Connector, Transport};
use crate::error::Error;
use crate::lock::Locked;
use crate::server::Server;

/// Between the depots of a route and the address that it begins at, in its name.
const FROM: &str = " from ";

/// The depots in the name of a route, as [`SessionConnector`] gives it.
#[must_use]
pub fn depots_of(route_name: &str) -> &str {
    route_name
        .split_once(FROM)
        .map_or(route_name, |(depots, _)| depots)
}

impl Transport for Session {
    fn retransmits(&self) -> Option<u64> {
        self.tcp_info().ok().map(|info| u64::from(info.retransmits))
    }

    fn watch(&mut self, side: drs::Side) -> Option<Arc<FlowWatch>> {
        Some(Session::watch(self, drs::Mode::Auto, side))
    }
}

/// Opens sessions to one server over several routes, from one or several addresses of this host.
pub struct SessionConnector {
    base: ConnectOptions,
    paths: Vec<Path>,
    unknown: Mutex<Option<PublicKey>>,
}

/// One way to the server: the depots to pass, and the address of this host to begin at, if that is not the system's choice.
struct Path {
    route: Route,
    source: Option<IpAddr>,
}

impl SessionConnector {
    /// `base` says everything but the route; without any route, sessions go direct.
    pub fn new(base: ConnectOptions, routes: Vec<Route>) -> Self {
        Self::from_sources(base, routes, &[])
    }

    /// The same, over each route from each of these addresses of this host; from whichever the system chooses if there is none.
    pub fn from_sources(base: ConnectOptions, mut routes: Vec<Route>, sources: &[IpAddr]) -> Self {
        if routes.is_empty() {
            routes.push(Route::direct());
        }
        let over = |route: &Route| -> Vec<Path> {
            let path = |source| Path {
                route: route.clone(),
                source,
            };
            match sources {
                [] => vec![path(base.source)],
                sources => sources.iter().map(|source| path(Some(*source))).collect(),
            }
        };
        Self {
            paths: routes.iter().flat_map(over).collect(),
            base,
            unknown: Mutex::new(None),
        }
    }

    /// The key the server showed, if it was refused for not being known.
    pub fn unknown_server(&self) -> Option<PublicKey> {
        *self.unknown.locked()
    }
}

impl Connector for SessionConnector {
    type Stream = Session;

    fn routes(&self) -> Vec<String> {
        let name = |path: &Path| match path.source {
            None => path.route.to_string(),
            Some(source) => format!("{}{FROM}{source}", path.route),
        };
        self.paths.iter().map(name).collect()
    }

    async fn connect(&self, route: usize) -> Result<Session, ConnectError> {
        let mut options = self.base.clone();
        if let Some(path) = self.paths.get(route) {
            (options.route, options.source) = (path.route.clone(), path.source);
        }
        connect(&options).await.map_err(|error| {
            if let longhaul_session::Error::UnknownServer { found, .. } = &error {
                *self.unknown.locked() = Some(*found);
            }
            ConnectError {
                kind: match &error {
                    error if error.is_about_who() => ConnectFailure::Unauthorised,
                    error if error.is_about_the_service() => ConnectFailure::NotOffered,
                    _ => ConnectFailure::NoRoute,
                },
                retry: is_worth_a_retry(&error),
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
    passing && !error.is_about_who() && !error.is_about_the_service()
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
    server.log(peer, || tracing::info!(session = %id, %peer, %from, "{what}"));
    match serve(&server, session, peer).await {
        Ok(()) => server.log(peer, || tracing::info!(session = %id, "{what} over")),
        Err(error) => server.log(peer, || tracing::info!(session = %id, %error, "{what} failed")),
    }
}
