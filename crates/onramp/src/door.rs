//! Entries over TCP: their listeners, and the admission of their clients.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{Conn, ConnectionGate, ConnectionPermit, HopOptions, ListenError, Listener};
use longhaul_service::{ConnectionHandler, PendingConnection, PhaseReceiver};
use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::time::sleep;

use crate::PROGRAM_UNACKNOWLEDGED;
use crate::asker::OnrampClient;
use crate::config::GuestPolicy;
use crate::engine::Engine;
use crate::error::OnrampError;
use crate::failure::ConnectFailure;

/// An entry over TCP, which serves each of its connections with `serve`.
pub(crate) struct Entry<S> {
    pub(crate) name: &'static str,
    /// Address it listens on.
    pub(crate) at: SocketAddr,
    pub(crate) engine: Arc<Engine>,
    pub(crate) guests: Arc<GuestPolicy>,
    pub(crate) gate: Arc<ConnectionGate>,
    pub(crate) serve: S,
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

impl<S, F> ConnectionHandler for Entry<S>
where
    S: Fn(AcceptedConnection) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    fn gate(&self) -> &Arc<ConnectionGate> {
        &self.gate
    }

    fn entry(&self) -> Option<&'static str> {
        Some(self.name)
    }

    fn admits(&self, peer: SocketAddr) -> bool {
        let is_admitted = self.guests.admits(peer.ip());
        if !is_admitted {
            let entry = self.name;
            self.engine.events.log(None, |left_out| {
                tracing::warn!(
                    entry, %peer, left_out,
                    "connection refused: no --allow-from names its address"
                );
            });
        }
        is_admitted
    }

    async fn serve(self: Arc<Self>, connection: PendingConnection) {
        let PendingConnection {
            conn,
            peer,
            permit,
            header,
            mut guard,
        } = connection;
        let asker = OnrampClient::from_address(peer.ip());
        let held = ClientPermit {
            place: Arc::new(Mutex::new(permit)),
            asker,
            phases: guard.phases().clone(),
        };
        let served = (self.serve)(AcceptedConnection {
            listener: self.at,
            conn,
            asker,
            engine: Arc::clone(&self.engine),
            guests: Arc::clone(&self.guests),
            permit: held.clone(),
        });
        // A connection that is not served to its end is dropped, and so reset.
        tokio::select! {
            () = served => {}
            () = guard.evicted() => {}
            () = held.wait_overdue(header) => {}
        }
    }
}

/// Starts to listen for an entry. `prepare` sets the options that are needed beforehand. Returns
/// the listener with its address.
pub(crate) fn listen(
    entry: &'static str,
    address: SocketAddr,
    prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
) -> Result<(Listener, SocketAddr), OnrampError> {
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
    let at = listener.local_addr().map_err(failed)?;
    Ok((listener, at))
}

/// Returns the local address of the connection.
pub(crate) fn local_address(conn: &Conn) -> Option<SocketAddr> {
    let address = conn.local_addr().ok()?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}
