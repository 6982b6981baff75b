//! The far machine: asking it, and being asked.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use longhaul_doctor::{Clocks, Facts, Server, ask};
use longhaul_session::{ConnectOptions, Endpoint, Route, ServerTrust, Service, Session, Verdict};
use longhaul_transfer::{Connector, Error, GrantsInForce, SessionConnector};
use tokio::sync::Semaphore;

use super::Doctor;
use crate::{home, trust};

/// Sessions answered at once: each may cost a core a tenth of a second.
const AT_ONCE: usize = 4;

impl Doctor {
    /// The facts of the machine there, and its clock.
    pub(super) async fn ask(&self, server: &Endpoint) -> Result<(Facts, Clocks)> {
        let identity = Arc::new(home::identity(self.identity.as_deref())?);
        let wanted = trust::Wanted {
            key: self.host_key,
            accept_new: self.accept_new,
        };
        let nobody = ServerTrust::Callback(Arc::new(|_, _| Verdict::Unknown));
        let mut options =
            ConnectOptions::new(Service::DOCTOR, Route::direct(), server.clone(), identity, nobody);
        let first;
        (options.server, first) = trust::of(server, &wanted, &options).await?;
        let connector = trust::Remembering::new(SessionConnector::new(options, vec![]), first);
        let connected = connector.connect(0).await;
        let mut session = connected.map_err(|error| match (connector.unknown_server(), error.unauthorised) {
            (Some(found), _) => anyhow!(Error::Unauthorised(format!(
                "the server {server} is not known and shows key {found}: if that is its key, give --host-key {found}, or \
                 --accept-new to remember it"
            ))),
            (None, true) => anyhow!(Error::Unauthorised(error.message)),
            (None, false) => anyhow!(Error::Connect(error.message)),
        })?;
        ask(&mut session).await.with_context(|| server.to_string())
    }
}

/// The server's side: tells this machine's facts to keys that may read something.
pub struct Answering {
    grants: Arc<GrantsInForce>,
    server: Server,
    places: Semaphore,
}

impl Answering {
    /// For those whom the grants let read.
    pub fn new(grants: Arc<GrantsInForce>) -> Self {
        Self {
            grants,
            server: Server::default(),
            places: Semaphore::new(AT_ONCE),
        }
    }

    /// Answers one session to its end. If it fails, that is logged.
    pub async fn answer(&self, mut session: Session) {
        let (id, key) = (session.info().session_id, session.info().peer);
        let from: Option<IpAddr> = session.info().first_hop.map(|address| address.ip());
        tracing::info!(session = %id, peer = %key, "a doctor's session");
        let denied = format!("the server lets key {key} read nothing; ask its operator");
        let place = self.places.try_acquire();
        let refusal = match (&place, self.grants.now().reads(&key)) {
            (_, false) => Some(denied.as_str()),
            (Err(_), true) => Some("it answers as many as it can; try again later"),
            (Ok(_), true) => None,
        };
        let from = from.map(|address| address.to_canonical());
        let answered = self.server.answer(&mut session, from, refusal).await;
        let closed = match answered {
            Ok(()) => session.close().await,
            Err(error) => Err(error),
        };
        match closed {
            Ok(()) => tracing::info!(session = %id, "session over"),
            Err(error) => tracing::info!(session = %id, %error, "session failed"),
        }
    }
}
