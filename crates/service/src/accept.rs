//! Accepting connections: each passes the gate, and is then served in a task of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{
    AdmittedConnection, Conn, ConnectionGate, ConnectionPermit, Eviction, Listener, StreamListener,
};
use longhaul_proto::LogRate;
use tokio::time::Instant;

use crate::drain::{Phase, PhaseReceiver};

/// Log lines in a burst and per second for a shortage of descriptors, however long it lasts.
const WARNING_BURST: u32 = 3;
const WARNINGS_PER_SECOND: u32 = 1;

/// Handler of the connections of a service.
pub trait ConnectionHandler: Send + Sync + 'static {
    /// Returns the gate that all its connections pass.
    fn gate(&self) -> &Arc<ConnectionGate>;

    /// Returns the name of its listener for the log, if the service has several kinds.
    fn entry(&self) -> Option<&'static str> {
        None
    }

    /// Returns true if connections from this peer are accepted. Called before the gate, for TCP.
    fn admits(&self, _peer: SocketAddr) -> bool {
        true
    }

    /// Counts an accepted connection.
    fn count_accepted(&self) {}

    /// Counts a connection that could not be accepted, for lack of descriptors or memory.
    fn count_accept_error(&self) {}

    /// Runs the task of a connection.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(task));
    }

    /// Serves a connection to its end, or until it is interrupted.
    fn serve(self: Arc<Self>, connection: PendingConnection) -> impl Future<Output = ()> + Send;
}

/// A connection that was accepted, and has not proved anything yet.
#[derive(Debug)]
pub struct PendingConnection {
    /// The connection.
    pub conn: Conn,
    /// Address of its peer.
    pub peer: SocketAddr,
    /// Permit of the gate. It may be evicted until it is charged to a payer.
    pub permit: ConnectionPermit,
    /// Time limit for its request.
    pub header: Duration,
    /// Interruptions of its set-up.
    pub guard: SetupGuard,
}

/// Interruptions of a connection's set-up.
#[derive(Debug)]
pub struct SetupGuard {
    eviction: Eviction,
    phases: PhaseReceiver,
}

/// Reason why the set-up of a connection is interrupted. Dropping the connection resets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interruption {
    /// The gate needs room for others. A flood gets no answer.
    Evicted,
    /// The time for draining is over.
    Aborted,
}

impl SetupGuard {
    /// Does work that may be interrupted.
    ///
    /// # Errors
    /// [`Interruption`], when it comes before the end of the work.
    pub async fn run<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Interruption> {
        tokio::select! {
            done = work => Ok(done),
            () = self.eviction.wait() => Err(Interruption::Evicted),
            () = self.phases.wait_until(Phase::Aborting) => Err(Interruption::Aborted),
        }
    }

    /// Completes when the connection is evicted. It never does once its permit is charged.
    pub async fn evicted(&mut self) {
        self.eviction.wait().await;
    }

    /// Returns the phases of the service.
    #[must_use]
    pub const fn phases(&self) -> &PhaseReceiver {
        &self.phases
    }
}

/// Accepts TCP connections until it is dropped.
pub(crate) async fn accept<H: ConnectionHandler>(
    mut listener: Listener,
    handler: Arc<H>,
    phases: PhaseReceiver,
) {
    let mut warnings = LogRate::new(WARNING_BURST, WARNINGS_PER_SECOND);
    let began = Instant::now();
    loop {
        let failed = |error: &io::Error| {
            handler.count_accept_error();
            if let Some(left_out) = warnings.admit(began.elapsed()) {
                let entry = handler.entry();
                tracing::warn!(entry, %error, left_out, "cannot accept connections; retrying");
            }
        };
        let (fd, peer) = listener.accept(failed).await;
        if handler.admits(peer) {
            start(&handler, peer, &phases, move || Conn::new(fd));
        }
    }
}

/// Accepts streams of another transport until it is dropped.
pub(crate) async fn accept_streams<H: ConnectionHandler>(
    mut listener: impl StreamListener,
    handler: Arc<H>,
    phases: PhaseReceiver,
) {
    loop {
        let (conn, peer) = listener.accept().await;
        start(&handler, peer, &phases, move || Ok(conn));
    }
}

/// Starts the task of a connection, on whose thread `register` registers it.
fn start<H: ConnectionHandler>(
    handler: &Arc<H>,
    peer: SocketAddr,
    phases: &PhaseReceiver,
    register: impl FnOnce() -> io::Result<Conn> + Send + 'static,
) {
    handler.count_accepted();
    // The gate admits a connection before anything is known of it, and evicts one if there are too
    // many (LH-ACCEPT-1).
    let gate = handler.gate();
    let AdmittedConnection {
        permit,
        eviction,
        header,
    } = gate.admit(peer.ip());
    let guard = SetupGuard {
        eviction,
        phases: phases.clone(),
    };
    let (served, phases) = (Arc::clone(handler), phases.clone());
    handler.spawn(async move {
        match register() {
            Ok(conn) => {
                let connection = PendingConnection {
                    conn,
                    peer,
                    permit,
                    header,
                    guard,
                };
                served.serve(connection).await;
            }
            Err(_) => served.count_accept_error(),
        }
        // The service has drained when all connections have been counted.
        drop(phases);
    });
}
