//! Copies over real sessions: how the engine reaches a server, and how a server takes what a listener accepts.

use std::sync::{Arc, Mutex};

use longhaul_proto::{PublicKey, Route};
use longhaul_session::{ConnectOptions, FlowWatch, Session, connect};

use crate::client::{ConnectError, ConnectFailure, Connector, Transport};
use crate::error::Error;
use crate::lock::Locked;
use crate::server::Server;

impl Transport for Session {
    fn retransmits(&self) -> Option<u64> {
        self.tcp_info().ok().map(|info| u64::from(info.retransmits))
    }

    fn watch(&mut self, side: drs::Side) -> Option<Arc<FlowWatch>> {
        Some(Session::watch(self, drs::Mode::Auto, side))
    }
}

/// Opens sessions to one server over several routes.
pub struct SessionConnector {
    base: ConnectOptions,
    routes: Vec<Route>,
    unknown: Mutex<Option<PublicKey>>,
}

impl SessionConnector {
    /// `base` says everything but the route; without any route, sessions go direct.
    pub fn new(base: ConnectOptions, routes: Vec<Route>) -> Self {
        let routes = if routes.is_empty() {
            vec![Route::direct()]
        } else {
            routes
        };
        Self {
            base,
            routes,
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
        self.routes.iter().map(Route::to_string).collect()
    }

    async fn connect(&self, route: usize) -> Result<Session, ConnectError> {
        let route = self.routes.get(route).cloned().unwrap_or_default();
        let options = ConnectOptions {
            route,
            ..self.base.clone()
        };
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
