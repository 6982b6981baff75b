//! What the entries over TCP share: a listener, who may come in, and room for them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use longhaul_hop::{Conn, EventLog, ListenError, Listener, Options, Phases};
use tokio::sync::OwnedSemaphorePermit;

use crate::PROGRAM_UNACKNOWLEDGED;
use crate::config::Guests;
use crate::engine::Engine;
use crate::error::OnrampError;

/// A listener of one entry.
#[derive(Debug)]
pub(crate) struct Door {
    listener: Listener,
    entry: &'static str,
    at: SocketAddr,
    engine: Arc<Engine>,
    guests: Arc<Guests>,
    phases: Phases,
    events: EventLog,
}

/// A connection that came in.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) conn: Conn,
    /// The listener that it came in by.
    pub(crate) listener: SocketAddr,
    pub(crate) engine: Arc<Engine>,
    pub(crate) guests: Arc<Guests>,
    pub(crate) held: Held,
}

/// A connection's place, and its part in the on-ramp's life.
#[derive(Debug)]
pub(crate) struct Held {
    _place: OwnedSemaphorePermit,
    phases: Phases,
}

impl Held {
    /// How far the on-ramp's life has come.
    pub(crate) fn phases(&self) -> Phases {
        self.phases.clone()
    }
}

impl Door {
    /// Listens; `prepare` sets what must be there before.
    pub(crate) fn open(
        entry: &'static str,
        address: SocketAddr,
        engine: &Arc<Engine>,
        guests: &Arc<Guests>,
        phases: &Phases,
        prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> Result<Self, OnrampError> {
        let failed = |source| OnrampError::Listen {
            address,
            entry,
            source,
        };
        let mut options = Options::default();
        if address.ip().is_loopback() {
            options.unacknowledged = PROGRAM_UNACKNOWLEDGED;
        }
        let listener = Listener::bind_prepared(address, &options, prepare).map_err(|error| match error {
            ListenError::Io(source) => failed(source),
            ListenError::Congestion(error) => failed(error.source),
        })?;
        Ok(Self {
            at: listener.local_addr().map_err(failed)?,
            listener,
            entry,
            engine: Arc::clone(engine),
            guests: Arc::clone(guests),
            phases: phases.clone(),
            events: EventLog::new(),
        })
    }

    /// Where it listens.
    pub(crate) const fn at(&self) -> SocketAddr {
        self.at
    }

    /// Lets in who may, for as long as it is polled; `serve` has them from there on.
    pub(crate) async fn serve<F>(mut self, serve: impl Fn(Guest) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            let (events, entry) = (&self.events, self.entry);
            let failed = |error: &io::Error| {
                events.log(None, |left_out| {
                    tracing::warn!(entry, %error, left_out, "cannot accept connections for the moment");
                });
            };
            let (socket, peer) = self.listener.accept(failed).await;
            let turned_away = |why: &str| {
                self.events.log(
                    None,
                    |left_out| tracing::warn!(entry, %peer, left_out, "turned away: {why}"),
                );
            };
            if !self.guests.may(peer.ip()) {
                turned_away("no --allow-from names its address");
                continue;
            }
            let place = match self.engine.place() {
                Ok(place) => place,
                Err(failed) => {
                    turned_away(&failed.what);
                    continue;
                }
            };
            match Conn::new(socket) {
                Ok(conn) => {
                    let held = Held {
                        _place: place,
                        phases: self.phases.clone(),
                    };
                    let guest = Guest {
                        listener: self.at,
                        conn,
                        engine: Arc::clone(&self.engine),
                        guests: Arc::clone(&self.guests),
                        held,
                    };
                    tokio::spawn(serve(guest));
                }
                Err(error) => turned_away(&error.to_string()),
            }
        }
    }
}

/// The address of this end.
pub(crate) fn local(conn: &Conn) -> Option<SocketAddr> {
    let address = rustix::net::getsockname(conn).ok()?;
    let address = SocketAddr::try_from(address).ok()?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}
