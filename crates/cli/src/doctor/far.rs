//! The remote machine: asks it for facts, and answers such questions.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use longhaul_doctor::{Clocks, Facts, FactsServer, QuicPath, ask};
use longhaul_hop::{EventLog, Payer, SharedPermits};
use longhaul_proto::Transport;
use longhaul_session::{ConnectOptions, Endpoint, PublicKey, Route, ServiceName, Session};
use longhaul_transfer::{Connector, Error, GrantsInForce, SessionConnector};

use super::Doctor;
use crate::{home, trust};

/// Maximum sessions answered with facts at once, shared among keys. Each may cost a core a tenth of
/// a second.
const MAX_ANSWERED: usize = 4;
/// Maximum sessions at once, including those that are only told to retry later. One more is
/// dropped.
const MAX_SESSIONS: usize = 64;

impl Doctor {
    /// Returns the facts of the machine there, and the comparison of its clock.
    pub(super) async fn ask(&self, server: &Endpoint) -> Result<(Facts, Clocks)> {
        let mut session = self.connect(server, None).await?;
        ask(&mut session).await.with_context(|| server.to_string())
    }

    /// Asks the same by QUIC, and returns what its connection measured meanwhile.
    pub(super) async fn measure_quic(&self, server: &Endpoint) -> Result<QuicPath> {
        let mut session = self.connect(server, Some(Transport::Quic)).await?;
        ask(&mut session).await?;
        let measured = session.stream_measurement();
        let measured = measured.context("the connection has measured no round trip")?;
        Ok(QuicPath {
            rtt: measured.round_trip,
            sent_packets: measured.sent_packets,
            lost_packets: measured.lost_packets,
        })
    }

    /// Opens a session, by TCP unless another transport is named.
    async fn connect(&self, server: &Endpoint, transport: Option<Transport>) -> Result<Session> {
        let identity = Arc::new(home::identity(self.identity.as_deref())?);
        let wanted = trust::HostKeyOptions {
            key: self.host_key,
            accept_new: self.accept_new,
            ca: None,
        };
        let mut options = ConnectOptions {
            quic: transport.map(|_| crate::quic::dialler()),
            destination_transport: transport,
            ..ConnectOptions::new(
                ServiceName::DOCTOR,
                Route::direct(),
                server.clone(),
                identity,
                trust::trust_nobody(),
            )
        };
        let first = trust::settle(&wanted, &mut options).await?;
        let connector =
            trust::RememberingConnector::new(SessionConnector::new(options, vec![]), first);
        let connected = connector.connect(0).await;
        connected.map_err(|error| match connector.unknown_server() {
            Some(found) => anyhow!(Error::Unauthorised(trust::unknown_server_advice(
                server, found
            ))),
            None => {
                let text = error.message.clone();
                anyhow!(error.into_error(text))
            }
        })
    }
}

/// The server's side: reports this machine's facts to keys with any read grant.
pub struct FactsService {
    grants: Arc<GrantsInForce>,
    server: FactsServer,
    places: Arc<SharedPermits<PublicKey>>,
    sessions: Arc<SharedPermits<PublicKey>>,
    events: Arc<EventLog>,
}

impl FactsService {
    /// Creates it for keys that `grants` let read. `events` bounds what is logged.
    pub fn new(grants: Arc<GrantsInForce>, events: Arc<EventLog>) -> Self {
        Self {
            grants,
            server: FactsServer::default(),
            places: SharedPermits::new(MAX_ANSWERED),
            sessions: SharedPermits::new(MAX_SESSIONS),
            events,
        }
    }

    /// Answers one session until it ends, or its key may not read any more. Failures are logged.
    pub async fn answer(&self, mut session: Session) {
        let (id, key) = (session.info().session_id, session.info().peer);
        let from: Option<IpAddr> = session.info().first_hop.map(|address| address.ip());
        let Ok(_session) = self.sessions.take(key) else {
            return;
        };
        let denied = format!("the server grants key {key} nothing to read; ask its operator");
        let place = self.places.take(key);
        let refusal = match (&place, self.grants.current().may_read(&key)) {
            (_, false) => Some(denied.as_str()),
            (Err(_), true) => Some("it runs as many doctor sessions as it can; try again later"),
            (Ok(_), true) => None,
        };
        let from = from.map(|address| address.to_canonical());
        let withdrawn = async {
            self.grants.withdrawn(|grants| grants.may_read(&key)).await;
            denied.clone()
        };
        let answered = self
            .server
            .answer(&mut session, from, refusal, withdrawn)
            .await;
        let closed = match answered {
            Ok(()) => session.close().await,
            Err(error) => Err(error),
        };
        self.events.log(Some(Payer::Key(key)), |left_out| {
            let error = closed.err().map(tracing::field::display);
            tracing::info!(
                session = %id, peer = %key, error, left_out,
                "a doctor's session is over"
            );
        });
    }
}
