//! Accepting sessions: set-ups run beside each other, bounded in number and in time.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use longhaul_proto::{Admission, PublicKey, ReplayMemory, Service};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Mutex, Semaphore, mpsc},
    task::{AbortHandle, JoinSet},
};

use crate::{
    Error, Identity, Session, SessionInfo,
    accept::{Acceptor, Predicate},
    socket,
};

/// Sessions that are set up and wait for [`Listener::accept`].
const READY: usize = 64;
/// Pause when the system has no file descriptor left.
const EXHAUSTED: Duration = Duration::from_millis(100);

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
    /// Time for the OPEN to arrive, from the connection on.
    pub header_timeout: Duration,
    /// Time for the TLS handshake, from the OPEN on.
    pub handshake_timeout: Duration,
    /// Most set-ups under way at once; further connections wait in the kernel's queue.
    pub max_handshakes: usize,
}

impl ListenOptions {
    /// With 10 s for the OPEN, 20 s for the handshake, and 256 set-ups at once.
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
            header_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(20),
            max_handshakes: 256,
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
        let socket = socket::listen(options.addr, options.congestion.as_deref())?;
        let address = socket.local_addr().map_err(|source| Error::Listen {
            address: options.addr,
            source,
        })?;
        let (sender, ready) = mpsc::channel(READY);
        let slots = Arc::new(Semaphore::new(
            options.max_handshakes.clamp(1, Semaphore::MAX_PERMITS),
        ));
        let acceptor = Arc::new(Acceptor {
            admission: Admission::new(options.identity.public()),
            replays: std::sync::Mutex::new(ReplayMemory::new()),
            services: options.services,
            identity: options.identity,
            accept: options.accept as Predicate,
            header_timeout: options.header_timeout,
            handshake_timeout: options.handshake_timeout,
        });
        let task = tokio::spawn(serve(socket, acceptor, slots, sender)).abort_handle();
        Ok(Self {
            address,
            ready: Mutex::new(ready),
            task,
        })
    }

    /// The next session that is completely set up. Set-ups that fail are logged and never seen here.
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
    socket: TcpListener,
    acceptor: Arc<Acceptor>,
    slots: Arc<Semaphore>,
    ready: mpsc::Sender<Session>,
) {
    let mut set_ups = JoinSet::new();
    // The semaphore is never closed.
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        while set_ups.try_join_next().is_some() {}
        let (stream, peer) = match socket.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if !is_about_the_peer(&error) {
                    tracing::warn!(%error, "cannot accept connections for the moment");
                    tokio::time::sleep(EXHAUSTED).await;
                }
                continue;
            }
        };
        let (acceptor, ready) = (Arc::clone(&acceptor), ready.clone());
        set_ups.spawn(async move {
            match set_up(&acceptor, stream, peer).await {
                // Held until somebody takes it, so that sessions nobody takes hold new ones back.
                Ok(session) => drop(ready.send(session).await),
                Err(error) => tracing::info!(%peer, %error, "no session"),
            }
            drop(slot);
        });
    }
}

async fn set_up(acceptor: &Acceptor, stream: TcpStream, peer: SocketAddr) -> Result<Session, Error> {
    socket::configure(&stream).map_err(Error::Peer)?;
    let (tls, open) = acceptor.set_up(stream).await?;
    let info = SessionInfo {
        session_id: open.session_id,
        route: open.route,
        peer: open.principal,
        first_hop: Some(peer),
        statuses: Vec::new(),
        service: open.service,
        purpose: open.purpose,
        fell_back: None,
    };
    Ok(Session::new(tls.into(), info))
}

/// Errors of a connection that ended in the queue; there is no reason to pause.
fn is_about_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}
