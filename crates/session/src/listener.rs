//! Listener for sessions: set-ups run concurrently, bounded in number and in time.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use longhaul_hop::{
    AdmittedConnection, Conn, ConnectionGate, EventLog, GateLimits, HopOptions, ListenError, Payer,
    StreamListener,
};
use longhaul_proto::{PublicKey, ServiceName};
use tokio::{
    sync::{Mutex, mpsc},
    task::JoinSet,
};

use crate::{Error, Identity, Session, SessionInfo, accept::Acceptor};

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
    /// Offered services; requests for any other are refused.
    pub services: Vec<ServiceName>,
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
            services,
            congestion: None,
            clock_ahead_ms: 0,
            handshake_timeout: Duration::from_secs(20),
            gate: GateLimits {
                newcomers: 512,
                verified: 256,
                ..GateLimits::default()
            },
        }
    }
}

/// Accepts sessions until it is dropped; sessions already returned live on.
pub struct Listener {
    address: SocketAddr,
    ready: Mutex<mpsc::Receiver<Session>>,
    set_ups: Arc<SetUps>,
    tasks: parking_lot::Mutex<JoinSet<()>>,
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
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept_connections(listener, Arc::clone(&set_ups)));
        Ok(Self {
            address,
            ready: Mutex::new(ready),
            set_ups,
            tasks: parking_lot::Mutex::new(tasks),
        })
    }

    /// Accepts sessions over the streams of `listener` as well, under the same limits.
    pub fn serve_streams(&self, listener: impl StreamListener + 'static) {
        let set_ups = Arc::clone(&self.set_ups);
        self.tasks.lock().spawn(accept_streams(listener, set_ups));
    }

    /// Returns the next established session. Failed set-ups are logged and not returned.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the listener's task has ended.
    pub async fn accept(&self) -> Result<Session, Error> {
        self.ready.lock().await.recv().await.ok_or(Error::Stopped)
    }

    /// Returns the address it listens on.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

/// Accepts TCP connections. Dropping it ends the set-ups that it started.
async fn accept_connections(mut listener: longhaul_hop::Listener, set_ups: Arc<SetUps>) {
    let mut running = JoinSet::new();
    loop {
        let failed = |error: &io::Error| {
            set_ups.events.log(None, |left_out| {
                tracing::warn!(%error, left_out, "cannot accept connections; retrying");
            });
        };
        let (fd, peer) = listener.accept(failed).await;
        set_ups.start(&mut running, peer, move || Conn::new(fd));
    }
}

/// Accepts streams. Dropping it ends the set-ups that it started.
async fn accept_streams(mut listener: impl StreamListener, set_ups: Arc<SetUps>) {
    let mut running = JoinSet::new();
    loop {
        let (conn, peer) = listener.accept().await;
        set_ups.start(&mut running, peer, move || Ok(conn));
    }
}

/// Set-ups of sessions, which all sockets of a [`Listener`] share.
struct SetUps {
    gate: Arc<ConnectionGate>,
    acceptor: Acceptor,
    events: EventLog,
    ready: mpsc::Sender<Session>,
}

impl SetUps {
    /// Starts the set-up of a connection as one of the `running` tasks.
    fn start(
        self: &Arc<Self>,
        running: &mut JoinSet<()>,
        peer: SocketAddr,
        register: impl FnOnce() -> io::Result<Conn> + Send + 'static,
    ) {
        while running.try_join_next().is_some() {}
        // The gate admits a connection before anything is known of it, and evicts one if there are
        // too many (LH-ACCEPT-1).
        let admitted = self.gate.admit(peer.ip());
        let set_ups = Arc::clone(self);
        running.spawn(async move {
            match register() {
                Ok(conn) => set_ups.run(conn, peer, admitted).await,
                Err(error) => log_failed_set_up(&set_ups.events, peer, None, &Error::Peer(error)),
            }
        });
    }

    async fn run(&self, conn: Conn, peer: SocketAddr, admitted: AdmittedConnection) {
        let mut principal = None;
        let AdmittedConnection {
            permit: mut place,
            mut eviction,
            header,
        } = admitted;
        let verified = |key| {
            let payer = *principal.insert(Payer::Key(key));
            place.charge_to(payer)
        };
        let set_up = set_up(&self.acceptor, conn, peer, header, verified);
        let done = tokio::select! {
            done = set_up => done,
            // Dropping the connection resets it: a flood gets no answer.
            () = eviction.wait() => return,
        };
        match done {
            // The permit is held until the session is accepted, so sessions that nobody accepts
            // hold back new ones.
            Ok(session) => {
                session.mark_verified();
                drop(self.ready.send(session).await);
            }
            Err(error) => log_failed_set_up(&self.events, peer, principal, &error),
        }
        drop(place);
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
    verified: impl FnOnce(PublicKey) -> Result<(), longhaul_hop::QuotaExceeded>,
) -> Result<Session, Error> {
    let (tls, open) = acceptor.set_up(conn, header, verified).await?;
    Ok(Session::new(tls, SessionInfo::accepted(open, Some(peer))))
}
