//! Accepting sessions: set-ups run beside each other, bounded in number and in time.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use longhaul_hop::{Conn, Entered, EventLog, Gate, GateLimits, ListenError, Options, Payer};
use longhaul_proto::{PublicKey, Service};
use tokio::{
    sync::{Mutex, mpsc},
    task::{AbortHandle, JoinSet},
};

use crate::{Error, Identity, Session, SessionInfo, accept::Acceptor};

/// Sessions that are set up and wait for [`Listener::accept`].
const MAX_READY_SESSIONS: usize = 64;

/// Where to listen, as whom, and for whom.
#[derive(Clone)]
pub struct ListenOptions {
    /// The address; port 0 takes a free one.
    pub addr: SocketAddr,
    /// Who this end is.
    pub identity: Arc<Identity>,
    /// Which keys may have sessions. Asked for every OPEN, so it must not wait.
    pub accept: Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>,
    /// What is offered; who asks for anything else is refused.
    pub services: Vec<Service>,
    /// TCP congestion control of accepted connections; the system's default if `None`.
    pub congestion: Option<String>,
    /// Milliseconds by which the clock of the initiators is ahead of this host's, where that was
    /// measured and authenticated beforehand; negative if it is behind, else 0 (LH-SIGN-2).
    pub clock_ahead_ms: i64,
    /// Time for the TLS handshake, from the OPEN on.
    pub handshake_timeout: Duration,
    /// How many connections may be on their way to a session, and how long their OPENs may take.
    pub gate: GateLimits,
}

impl ListenOptions {
    /// With 10 s for the OPEN (2 s under pressure), 20 s for the handshake, and room for 512
    /// newcomers and 256 handshakes at once.
    #[must_use]
    pub fn new(
        addr: SocketAddr,
        identity: Arc<Identity>,
        accept: Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>,
        services: Vec<Service>,
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

/// Accepts sessions until it is dropped; sessions it has given out live on.
pub struct Listener {
    address: SocketAddr,
    ready: Mutex<mpsc::Receiver<Session>>,
    task: AbortHandle,
}

impl Listener {
    /// Starts to listen.
    ///
    /// # Errors
    /// [`Error::Listen`] or [`Error::Congestion`].
    pub async fn bind(options: ListenOptions) -> Result<Self, Error> {
        let hop = Options::with_congestion(options.congestion.clone());
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
        let gate = Gate::new(options.gate);
        let acceptor = Arc::new(Acceptor::new(options));
        let events = Arc::new(EventLog::new());
        let task = tokio::spawn(serve(listener, gate, acceptor, events, sender)).abort_handle();
        Ok(Self {
            address,
            ready: Mutex::new(ready),
            task,
        })
    }

    /// The next session that is completely set up. Set-ups that fail are logged and never seen
    /// here.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the listener's task has ended.
    pub async fn accept(&self) -> Result<Session, Error> {
        self.ready.lock().await.recv().await.ok_or(Error::Stopped)
    }

    /// The address it listens on.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut listener: longhaul_hop::Listener,
    gate: Arc<Gate>,
    acceptor: Arc<Acceptor>,
    events: Arc<EventLog>,
    ready: mpsc::Sender<Session>,
) {
    let mut set_ups = JoinSet::new();
    loop {
        let failed = |error: &io::Error| {
            events.log(None, |left_out| {
                tracing::warn!(%error, left_out, "cannot accept connections for the moment");
            });
        };
        let (fd, peer) = listener.accept(failed).await;
        while set_ups.try_join_next().is_some() {}
        // Let in before anything is known of it; who is one too many goes (LH-ACCEPT-1).
        let entered = gate.enter(peer.ip());
        let (acceptor, events, ready) = (Arc::clone(&acceptor), Arc::clone(&events), ready.clone());
        set_ups.spawn(async move {
            let conn = match Conn::new(fd) {
                Ok(conn) => conn,
                Err(error) => return failed_set_up(&events, peer, None, &Error::Peer(error)),
            };
            let mut principal = None;
            let Entered {
                mut place,
                mut eviction,
                header,
            } = entered;
            let verified = |key| {
                let payer = *principal.insert(Payer::Key(key));
                place.verified(payer)
            };
            let set_up = set_up(&acceptor, conn, peer, header, verified);
            let done = tokio::select! {
                done = set_up => done,
                // Dropped, which resets it: a flood is not worth an answer.
                () = eviction.wait() => return,
            };
            match done {
                // Held until somebody takes it, so that sessions nobody takes hold new ones back.
                Ok(session) => drop(ready.send(session).await),
                Err(error) => failed_set_up(&events, peer, principal, &error),
            }
            drop(place);
        });
    }
}

fn failed_set_up(events: &EventLog, peer: SocketAddr, payer: Option<Payer>, error: &Error) {
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
    verified: impl FnOnce(PublicKey) -> Result<(), longhaul_hop::NoRoom>,
) -> Result<Session, Error> {
    let (tls, open) = acceptor.set_up(conn, header, verified).await?;
    Ok(Session::new(tls, SessionInfo::accepted(open, Some(peer))))
}
