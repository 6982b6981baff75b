//! Listener for sessions: set-ups run concurrently, bounded in number and in time.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use longhaul_hop::{
    Conn, ConnectionGate, EventLog, GateLimits, HopOptions, ListenError, Payer, QuotaExceeded,
    StreamListener,
};
use longhaul_identity::Identities;
use longhaul_proto::{PublicKey, ServiceName, StatusCode};
use longhaul_service::{ConnectionHandler, Interruption, PendingConnection, Shell};
use tokio::sync::{Mutex, mpsc};

use crate::{
    Error, Identity, ResumeAcceptance, ServerVoucher, Session, SessionInfo, accept::Acceptor,
};

/// Maximum number of established sessions that wait for [`Listener::accept`].
const MAX_READY_SESSIONS: usize = 64;

/// Address, identity and admission of a listener.
#[derive(Clone)]
pub struct ListenOptions {
    /// Address to listen on; port 0 selects a free one.
    pub addr: SocketAddr,
    /// Identity of this end.
    pub identity: Arc<Identity>,
    /// Predicate that returns true if a key may have sessions. Called for every OPEN, so it must
    /// not block.
    pub accept: Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>,
    /// Names and groups of keys; they remember the vouchers of OPENs.
    pub identities: Arc<Identities>,
    /// Voucher by which this end proves its name to those who ask for it.
    pub server_voucher: Arc<ServerVoucher>,
    /// If true, the keys that `accept` knows may let other keys read for them (LH-DELEGATION-7).
    /// Their sessions have [`SessionInfo::delegation`].
    pub accepts_delegates: bool,
    /// Offered services; requests for any other are refused.
    pub services: Vec<ServiceName>,
    /// Offered services for which `accept` is not asked, as they authorise their clients
    /// themselves. The source address pays for sessions of keys that `accept` refuses.
    pub open_services: Vec<ServiceName>,
    /// TCP congestion control of accepted connections; the system's default if `None`.
    pub congestion: Option<String>,
    /// Milliseconds by which the initiators' clock is ahead of this host's; negative if it is
    /// behind.
    ///
    /// Set only if the difference was measured and authenticated beforehand, else 0 (LH-SIGN-2).
    pub clock_ahead_ms: i64,
    /// Time limit for the TLS handshake, counted from the OPEN.
    pub handshake_timeout: Duration,
    /// Limits on the number of pending connections, and on the time for their OPENs.
    pub gate: GateLimits,
    /// Limits of resumable sessions. If `None`, sessions do not resume. Applies to
    /// [`IncomingSession::accept`](crate::IncomingSession::accept) only.
    pub resume: Option<ResumeAcceptance>,
}

impl ListenOptions {
    /// Creates options with 10 s for the OPEN (2 s under pressure), 20 s for the handshake, and
    /// room for 512 pending connections and 256 concurrent handshakes.
    #[must_use]
    pub fn new(
        addr: SocketAddr,
        identity: Arc<Identity>,
        accept: Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>,
        services: Vec<ServiceName>,
    ) -> Self {
        Self {
            addr,
            identity,
            accept,
            identities: Arc::default(),
            server_voucher: Arc::default(),
            accepts_delegates: false,
            services,
            open_services: Vec::new(),
            congestion: None,
            clock_ahead_ms: 0,
            handshake_timeout: Duration::from_secs(20),
            gate: GateLimits {
                newcomers: 512,
                verified: 256,
                ..GateLimits::default()
            },
            resume: None,
        }
    }
}

/// Counts of a listener's connections, for metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListenerCounts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections that could not be accepted, for lack of descriptors or memory.
    pub accept_errors: u64,
    /// Connections without a verified OPEN now.
    pub pending: usize,
    /// Connections that were reset before their OPEN, to make room for others.
    pub evicted: u64,
    /// Connections without a session, by the word of the status, or `lost`.
    pub refused: BTreeMap<&'static str, u64>,
}

/// Accepts sessions until it is dropped; sessions already returned live on.
pub struct Listener {
    address: SocketAddr,
    ready: Mutex<mpsc::Receiver<Session>>,
    set_ups: Arc<SetUps>,
    /// Dropping it ends the set-ups.
    shell: parking_lot::Mutex<Shell>,
}

impl Listener {
    /// Binds the address and starts to accept sessions.
    ///
    /// # Errors
    /// [`Error::Listen`] or [`Error::Congestion`].
    pub async fn bind(options: ListenOptions) -> Result<Self, Error> {
        let hop = HopOptions::with_congestion(options.congestion.clone());
        let failed = |source| Error::Listen {
            address: options.addr,
            source,
        };
        let listener =
            longhaul_hop::Listener::bind(options.addr, &hop).map_err(|error| match error {
                ListenError::Congestion(error) => Error::Congestion(error),
                ListenError::Io(source) => failed(source),
            })?;
        let address = listener.local_addr().map_err(failed)?;
        let (sender, ready) = mpsc::channel(MAX_READY_SESSIONS);
        let set_ups = Arc::new(SetUps {
            gate: ConnectionGate::new(options.gate),
            acceptor: Acceptor::new(options),
            events: EventLog::new(),
            ready: sender,
            counts: parking_lot::Mutex::default(),
        });
        let mut shell = Shell::new();
        shell.accept(listener, &set_ups);
        Ok(Self {
            address,
            ready: Mutex::new(ready),
            set_ups,
            shell: parking_lot::Mutex::new(shell),
        })
    }

    /// Accepts sessions over the streams of `listener` as well, under the same limits.
    pub fn serve_streams(&self, listener: impl StreamListener + 'static) {
        self.shell.lock().accept_streams(listener, &self.set_ups);
    }

    /// Accepts no more connections. Those accepted so far still become sessions.
    pub fn stop_accepting(&self) {
        self.shell.lock().stop_accepting();
    }

    /// Returns the next established session. Failed set-ups are logged and not returned.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the listener's task has ended.
    pub async fn accept(&self) -> Result<Session, Error> {
        self.ready.lock().await.recv().await.ok_or(Error::Stopped)
    }

    /// Returns the counts of its connections.
    #[must_use]
    pub fn counts(&self) -> ListenerCounts {
        let counted = self.set_ups.counts.lock().clone();
        ListenerCounts {
            pending: self.set_ups.gate.pending_count(),
            ..counted
        }
    }

    /// Returns the address it listens on.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

/// Set-ups of sessions, which all sockets of a [`Listener`] share.
struct SetUps {
    gate: Arc<ConnectionGate>,
    acceptor: Acceptor,
    events: EventLog,
    ready: mpsc::Sender<Session>,
    counts: parking_lot::Mutex<ListenerCounts>,
}

impl ConnectionHandler for SetUps {
    fn gate(&self) -> &Arc<ConnectionGate> {
        &self.gate
    }

    fn count_accepted(&self) {
        self.counts.lock().accepted += 1;
    }

    fn count_accept_error(&self) {
        self.counts.lock().accept_errors += 1;
    }

    async fn serve(self: Arc<Self>, connection: PendingConnection) {
        let PendingConnection {
            conn,
            peer,
            permit: mut place,
            header,
            mut guard,
        } = connection;
        let mut principal = None;
        let verified = |key| {
            let payer = *principal.insert(match self.acceptor.knows(&key) {
                true => Payer::Key(key),
                // Anybody can make keys.
                false => Payer::from_address(peer.ip()),
            });
            place.charge_to(payer).map(|()| payer)
        };
        let set_up = set_up(&self.acceptor, conn, peer, header, verified);
        let done = match guard.run(set_up).await {
            Ok(done) => done,
            Err(Interruption::Evicted) => {
                self.counts.lock().evicted += 1;
                return;
            }
            Err(Interruption::Aborted) => return,
        };
        match done {
            // The permit is held until the session is accepted, so sessions that nobody accepts
            // hold back new ones.
            Ok(session) => {
                session.mark_verified();
                drop(self.ready.send(session).await);
            }
            Err(error @ Error::Registered) => tracing::debug!(%peer, %error),
            Err(error) => {
                let word = refusal_word(&error);
                *self.counts.lock().refused.entry(word).or_default() += 1;
                log_failed_set_up(&self.events, peer, principal, &error);
            }
        }
        drop(place);
    }
}

/// Returns the word of the status with which a set-up failed.
fn refusal_word(error: &Error) -> &'static str {
    match error {
        Error::Refused(refusal) => refusal.code().word(),
        Error::QuotaExceeded(_) => StatusCode::Overloaded.word(),
        Error::Declined { code, .. } => code.word(),
        _ => "lost",
    }
}

fn log_failed_set_up(events: &EventLog, peer: SocketAddr, payer: Option<Payer>, error: &Error) {
    events.log(
        payer,
        |left_out| tracing::info!(%peer, %error, left_out, "no session"),
    );
}

async fn set_up(
    acceptor: &Acceptor,
    conn: Conn,
    peer: SocketAddr,
    header: Duration,
    verified: impl FnOnce(PublicKey) -> Result<Payer, QuotaExceeded>,
) -> Result<Session, Error> {
    let (tls, open) = acceptor.set_up(conn, header, verified).await?;
    Ok(Session::new(tls, SessionInfo::accepted(open, Some(peer))))
}
