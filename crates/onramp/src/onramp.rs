//! Life cycle of an on-ramp: open the entries, serve, reload the rules, drain.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{ConnectionGate, GateLimits, PhaseReceiver, ServiceLife};
use longhaul_metrics::MetricsPage;
use longhaul_policy::OwnAddressReader;
use tokio::task::JoinSet;

use crate::config::{GuestPolicy, OnrampConfig};
use crate::door::{AcceptLoop, AcceptedConnection};
use crate::engine::Engine;
use crate::error::OnrampError;
use crate::metrics::OnrampMetrics;
use crate::peers::AuthorisedKeys;
use crate::table::ReloadingTable;
use crate::unix::{ProgramSocket, ProgramsState};
use crate::waiting::ProgramListeners;
use crate::{forward, http, socks};

/// A running on-ramp. Dropping it ends it at once and resets its connections.
#[derive(Debug)]
pub struct Onramp {
    entries: JoinSet<()>,
    engine: Arc<Engine>,
    life: ServiceLife,
    drain: Duration,
    places: OnrampAddresses,
}

/// Addresses of a running on-ramp, with the actual ports if port 0 was requested.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OnrampAddresses {
    /// Path of the Unix socket.
    pub socket: Option<PathBuf>,
    /// Addresses of the SOCKS proxy.
    pub socks: Vec<SocketAddr>,
    /// Addresses of the HTTP proxy.
    pub http: Vec<SocketAddr>,
    /// Addresses of the forwards, in the order of the configuration.
    pub forwards: Vec<SocketAddr>,
    /// Addresses for redirected connections.
    pub redirect: Vec<SocketAddr>,
    /// Addresses for connections handed over unchanged.
    pub tproxy: Vec<SocketAddr>,
    /// Address of the metrics page.
    pub metrics: Option<SocketAddr>,
}

impl Onramp {
    /// Opens the entries and serves them, in tasks of the current tokio runtime.
    ///
    /// # Errors
    /// [`OnrampError`], which names the resource that is not available. Once it runs, a failure
    /// affects only its own connection.
    pub fn start(config: OnrampConfig) -> Result<Self, OnrampError> {
        let (life, phases) = ServiceLife::start();
        let metrics = Arc::new(OnrampMetrics::new());
        let table = ReloadingTable::open(&config.routes, config.author, Arc::clone(&metrics))?;
        let peers = Arc::new(AuthorisedKeys::new(
            config.authorized_keys.clone(),
            config.identity.public(),
        ));
        let own = OwnAddressReader::new().map_err(OnrampError::OwnAddresses)?;
        let engine = Arc::new(Engine::new(&config, table, own, metrics, phases.clone()));
        let limits = GateLimits {
            verified: config.connections,
            ..GateLimits::default()
        };
        let mut opening = EntryOpener {
            engine: Arc::clone(&engine),
            guests: Arc::new(config.guests.clone()),
            gate: ConnectionGate::new(limits),
            phases: phases.clone(),
            entries: JoinSet::new(),
        };
        let mut places = OnrampAddresses::default();
        for &address in &config.socks {
            places
                .socks
                .push(opening.open_proxy(socks::ENTRY, address, socks::serve)?);
        }
        for &address in &config.http {
            places
                .http
                .push(opening.open_proxy(http::ENTRY, address, http::serve)?);
        }
        for forward in &config.forwards {
            let to = forward.clone();
            let serve = move |guest| forward::serve(guest, to.clone());
            let at = opening.open_entry(forward::FORWARD, forward.listen, |_| Ok(()), serve)?;
            opening.warn_if_open(forward::FORWARD, at);
            places.forwards.push(at);
        }
        for &address in &config.redirect {
            let at = opening.open_entry(
                forward::REDIRECT,
                address,
                |_| Ok(()),
                forward::serve_redirected,
            )?;
            places.redirect.push(at);
        }
        for &address in &config.tproxy {
            let prepare = |listener: BorrowedFd<'_>| forward::set_transparent(listener, address);
            let at =
                opening.open_entry(forward::TPROXY, address, prepare, forward::serve_tproxy)?;
            places.tproxy.push(at);
        }
        // Opened last, so that an earlier failure does not leave a socket that answers for a
        // moment.
        if let Some(path) = &config.socket {
            let socket = ProgramSocket::open(path)?;
            let waiting = ProgramListeners::open(&mut opening.entries)?;
            let programs = Arc::new(ProgramsState::new(Arc::clone(&engine), waiting, peers));
            places.socket = Some(path.clone());
            opening.entries.spawn(socket.serve(programs, phases));
        }
        let mut entries = opening.entries;
        if entries.is_empty() {
            return Err(OnrampError::NoEntry);
        }
        if let Some(address) = config.metrics {
            let failed = |source| OnrampError::Metrics { address, source };
            let listener = longhaul_metrics::listen(address).map_err(failed)?;
            places.metrics = Some(listener.local_addr().map_err(failed)?);
            let counted = Arc::clone(&engine);
            let page = MetricsPage::new(move || {
                counted
                    .metrics
                    .page(counted.table().current().rules().len())
            });
            entries.spawn(longhaul_metrics::serve(listener, page));
        }
        Ok(Self {
            entries,
            engine,
            life,
            drain: config.drain,
            places,
        })
    }

    /// Returns the addresses it listens on.
    #[must_use]
    pub const fn addresses(&self) -> &OnrampAddresses {
        &self.places
    }

    /// Reloads the table of routes. A table with a mistake changes nothing and is logged. The table
    /// also reloads itself when its file changes.
    pub fn reload(&self) {
        self.engine.table().reload();
    }

    /// Stops accepting connections, lets current ones finish within the configured time, and resets
    /// the rest.
    pub async fn stop(self) {
        let Self {
            mut entries,
            engine,
            life,
            drain,
            places: _,
        } = self;
        drop(engine);
        life.drain();
        // Also closes their listeners and removes the socket's file.
        entries.shutdown().await;
        let late = || tracing::warn!("drain deadline passed: resetting the remaining connections");
        life.finish(drain, late).await;
    }
}

/// Entries that are being opened.
struct EntryOpener {
    engine: Arc<Engine>,
    guests: Arc<GuestPolicy>,
    /// Shared by all entries over TCP. Programs at the Unix socket have separate permits.
    gate: Arc<ConnectionGate>,
    phases: PhaseReceiver,
    entries: JoinSet<()>,
}

impl EntryOpener {
    /// Opens an entry over TCP, and returns its address.
    fn open_entry<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        entry: &'static str,
        address: SocketAddr,
        prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
        serve: impl Fn(AcceptedConnection) -> F + Send + Sync + 'static,
    ) -> Result<SocketAddr, OnrampError> {
        let door = AcceptLoop::open(
            entry,
            address,
            &self.engine,
            &self.guests,
            &self.gate,
            &self.phases,
            prepare,
        )?;
        let at = door.address();
        self.entries.spawn(door.serve(serve));
        Ok(at)
    }

    /// Opens an entry whose clients name their destination.
    fn open_proxy<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        entry: &'static str,
        address: SocketAddr,
        serve: impl Fn(AcceptedConnection) -> F + Send + Sync + 'static,
    ) -> Result<SocketAddr, OnrampError> {
        if self.guests.is_open_at(address) {
            return Err(OnrampError::Open { address, entry });
        }
        let at = self.open_entry(entry, address, |_| Ok(()), serve)?;
        if !at.ip().is_loopback() && self.guests.login.is_some() {
            tracing::warn!(entry, %at, "passwords arrive unencrypted at this address");
        }
        Ok(at)
    }

    fn warn_if_open(&self, entry: &'static str, at: SocketAddr) {
        if !at.ip().is_loopback() && self.guests.networks.is_empty() {
            tracing::warn!(
                entry, %at,
                "everyone who can reach this address may use it: restrict it with --allow-from"
            );
        }
    }
}
