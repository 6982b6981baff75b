//! Life cycle of an on-ramp: open the entries, serve, reload the rules, drain.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{ConnectionGate, GateLimits};
use longhaul_policy::OwnAddressReader;
use longhaul_service::{MetricsPage, Readiness, Shell, StatusListener};

use crate::config::{GuestPolicy, OnrampConfig};
use crate::door::{AcceptedConnection, Entry, listen};
use crate::engine::Engine;
use crate::error::OnrampError;
use crate::metrics::OnrampMetrics;
use crate::peers::AuthorisedKeys;
use crate::spread::ReservedPaths;
use crate::table::ReloadingTable;
use crate::unix::{ProgramSocket, ProgramsState};
use crate::waiting::ProgramListeners;
use crate::{forward, http, socks};

/// A running on-ramp. Dropping it ends it at once and resets its connections.
#[derive(Debug)]
pub struct Onramp {
    shell: Shell,
    engine: Arc<Engine>,
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
        let shell = Shell::new();
        let metrics = Arc::new(OnrampMetrics::new());
        let table = ReloadingTable::open(&config.routes, config.author, Arc::clone(&metrics))?;
        let peers = Arc::new(AuthorisedKeys::new(
            config.authorized_keys.clone(),
            config.identity.public(),
        ));
        let own = OwnAddressReader::new().map_err(OnrampError::OwnAddresses)?;
        let engine = Arc::new(Engine::new(&config, table, own, metrics, shell.phases()));
        let limits = GateLimits {
            verified: config.connections,
            ..GateLimits::default()
        };
        let mut opening = EntryOpener {
            engine: Arc::clone(&engine),
            guests: Arc::new(config.guests.clone()),
            gate: ConnectionGate::new(limits),
            shell,
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
            let waiting = ProgramListeners::open(&mut opening.shell)?;
            let programs = Arc::new(ProgramsState::new(Arc::clone(&engine), waiting, peers));
            places.socket = Some(path.clone());
            let phases = opening.shell.phases();
            opening.shell.accept_by(socket.serve(programs, phases));
        }
        let mut shell = opening.shell;
        if places == OnrampAddresses::default() {
            return Err(OnrampError::NoEntry);
        }
        let measured = Arc::clone(&engine);
        shell.accept_by(async move { measured.spread.measure().await });
        if let Some(address) = config.metrics {
            let listener = StatusListener::open(address)?;
            places.metrics = Some(listener.local_addr());
            shell.serve_page(listener, metrics_page(&engine));
        }
        Ok(Self {
            shell,
            engine,
            drain: config.drain,
            places,
        })
    }

    /// Returns its metrics, for another page.
    #[must_use]
    pub fn metrics(&self) -> MetricsPage {
        metrics_page(&self.engine)
    }

    /// Returns its readiness: it is ready until it drains.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.shell.readiness()
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

    /// Replaces the reserved paths. New connections to their destinations are spread over them;
    /// open ones stay where they are.
    pub fn set_reserved_paths(&self, paths: Vec<ReservedPaths>) {
        self.engine.spread.set_paths(paths);
    }

    /// Stops accepting connections, lets current ones finish within the configured time, and resets
    /// the rest.
    pub async fn stop(self) {
        let Self {
            shell,
            engine,
            drain,
            places: _,
        } = self;
        // It holds a phase, as connections do.
        drop(engine);
        let late = || tracing::warn!("drain deadline passed: resetting the remaining connections");
        // Also closes the listeners and removes the socket's file.
        shell.drain(drain, late).await;
    }
}

/// Returns the page of an engine. The page holds no phase, so that it stays until the end.
fn metrics_page(engine: &Engine) -> MetricsPage {
    let metrics = Arc::clone(&engine.metrics);
    let table = engine.shared_table();
    let memory = engine
        .resumable
        .as_ref()
        .map(|resumable| Arc::clone(&resumable.memory));
    MetricsPage::new(move || {
        let promised = memory.as_ref().map_or(0, |memory| memory.bytes_in_use());
        metrics.page(table.current().rules().len(), promised)
    })
}

/// Entries that are being opened.
struct EntryOpener {
    engine: Arc<Engine>,
    guests: Arc<GuestPolicy>,
    /// Shared by all entries over TCP. Programs at the Unix socket have separate permits.
    gate: Arc<ConnectionGate>,
    shell: Shell,
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
        let (listener, at) = listen(entry, address, prepare)?;
        let entry = Entry {
            name: entry,
            at,
            engine: Arc::clone(&self.engine),
            guests: Arc::clone(&self.guests),
            gate: Arc::clone(&self.gate),
            serve,
        };
        self.shell.accept(listener, &Arc::new(entry));
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
