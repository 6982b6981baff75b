//! Accept loop shared by the entries over TCP: a listener, admission of clients, and the gate.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{
    AdmittedConnection, Conn, ConnectionGate, ConnectionPermit, HopOptions, ListenError, Listener,
    PhaseReceiver,
};
use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::time::sleep;

use crate::PROGRAM_UNACKNOWLEDGED;
use crate::asker::OnrampClient;
use crate::config::GuestPolicy;
use crate::engine::Engine;
use crate::error::OnrampError;
use crate::failure::ConnectFailure;

/// Listener of one entry.
#[derive(Debug)]
pub(crate) struct AcceptLoop {
    listener: Listener,
    entry: &'static str,
    at: SocketAddr,
    engine: Arc<Engine>,
    guests: Arc<GuestPolicy>,
    gate: Arc<ConnectionGate>,
    phases: PhaseReceiver,
}

/// An accepted connection.
#[derive(Debug)]
pub(crate) struct AcceptedConnection {
    pub(crate) conn: Conn,
    /// Address of the listener that accepted it.
    pub(crate) listener: SocketAddr,
    pub(crate) asker: OnrampClient,
    pub(crate) engine: Arc<Engine>,
    pub(crate) guests: Arc<GuestPolicy>,
    pub(crate) permit: ClientPermit,
}

/// A connection's permit, and its share in the on-ramp's life cycle.
#[derive(Debug, Clone)]
pub(crate) struct ClientPermit {
    place: Arc<Mutex<ConnectionPermit>>,
    asker: OnrampClient,
    phases: PhaseReceiver,
}

impl ClientPermit {
    /// Charges the connection to its client, once it has proved its permission and stated its
    /// destination. Until then it may be evicted at any moment.
    pub(crate) fn admit(&self) -> Result<(), ConnectFailure> {
        let mut place = self.place.lock();
        place.charge_to(self.asker.payer()).map_err(|full| {
            ConnectFailure::new(Errno::AGAIN, format!("the on-ramp is overloaded: {full}"))
        })
    }

    /// Completes after `header` if the connection has not been admitted by then.
    async fn wait_overdue(&self, header: Duration) {
        sleep(header).await;
        let is_verified = {
            let place = self.place.lock();
            place.is_verified()
        };
        if is_verified {
            std::future::pending::<()>().await;
        }
    }

    /// Returns the phases of the on-ramp's life cycle.
    pub(crate) fn phases(&self) -> PhaseReceiver {
        self.phases.clone()
    }
}

impl AcceptLoop {
    /// Starts to listen. `prepare` sets the options that are needed beforehand.
    pub(crate) fn open(
        entry: &'static str,
        address: SocketAddr,
        engine: &Arc<Engine>,
        guests: &Arc<GuestPolicy>,
        gate: &Arc<ConnectionGate>,
        phases: &PhaseReceiver,
        prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> Result<Self, OnrampError> {
        let failed = |source| OnrampError::Listen {
            address,
            entry,
            source,
        };
        let mut options = HopOptions::default();
        if address.ip().is_loopback() {
            options.user_timeout = PROGRAM_UNACKNOWLEDGED;
        }
        let listener =
            Listener::bind_prepared(address, &options, prepare).map_err(|error| match error {
                ListenError::Io(source) => failed(source),
                ListenError::Congestion(error) => failed(error.source),
            })?;
        Ok(Self {
            at: listener.local_addr().map_err(failed)?,
            listener,
            entry,
            engine: Arc::clone(engine),
            guests: Arc::clone(guests),
            gate: Arc::clone(gate),
            phases: phases.clone(),
        })
    }

    /// Returns the address it listens on.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.at
    }

    /// Accepts permitted clients while it is polled, and passes them to `serve`.
    pub(crate) async fn serve<F>(mut self, serve: impl Fn(AcceptedConnection) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            let (events, entry) = (&self.engine.events, self.entry);
            let failed = |error: &io::Error| {
                events.log(None, |left_out| {
                    tracing::warn!(
                        entry, %error, left_out,
                        "cannot accept connections; retrying"
                    );
                });
            };
            let (socket, peer) = self.listener.accept(failed).await;
            let turned_away = |why: &str| {
                events.log(
                    None,
                    |left_out| tracing::warn!(entry, %peer, left_out, "connection refused: {why}"),
                );
            };
            if !self.guests.admits(peer.ip()) {
                turned_away("no --allow-from names its address");
                continue;
            }
            match Conn::new(socket) {
                Ok(conn) => {
                    let AdmittedConnection {
                        permit: place,
                        mut eviction,
                        header,
                    } = self.gate.admit(peer.ip());
                    let asker = OnrampClient::from_address(peer.ip());
                    let held = ClientPermit {
                        place: Arc::new(Mutex::new(place)),
                        asker,
                        phases: self.phases.clone(),
                    };
                    let served = serve(AcceptedConnection {
                        listener: self.at,
                        conn,
                        asker,
                        engine: Arc::clone(&self.engine),
                        guests: Arc::clone(&self.guests),
                        permit: held.clone(),
                    });
                    tokio::spawn(async move {
                        // A connection that is not served to its end is dropped, and so reset.
                        tokio::select! {
                            () = served => {}
                            () = eviction.wait() => {}
                            () = held.wait_overdue(header) => {}
                        }
                    });
                }
                Err(error) => turned_away(&error.to_string()),
            }
        }
    }
}

/// Returns the local address of the connection.
pub(crate) fn local_address(conn: &Conn) -> Option<SocketAddr> {
    let address = conn.local_addr().ok()?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}
