//! Life cycle of an off-ramp: open the listeners, accept, reload, drain.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use longhaul_hop::{
    BufferPool, Conn, ConnectionGate, EventLog, ListenError, Listener, ListenerConfig,
    PhaseReceiver, ServiceLife,
};
use longhaul_metrics::MetricsPage;
use longhaul_policy::{ActivePolicy, Finder, OwnAddressReader, ReloadResult, Role};
use longhaul_proto::{LogRate, ServiceName};
use longhaul_session::{Acceptor, ListenOptions};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use crate::config::{OfframpConfig, OfframpTimeouts};
use crate::error::Error;
use crate::metrics::OfframpMetrics;
use crate::serve::serve;
use crate::state::OfframpState;

/// An off-ramp whose listeners are open.
pub struct Offramp {
    listeners: Vec<Listener>,
    page: Option<TcpListener>,
    hangup: Option<Signal>,
    shared: Arc<OfframpState>,
}

impl Offramp {
    /// Opens the listeners; connections wait until [`Offramp::run`]. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`Error`], which names the resource that is not available.
    pub fn bind(config: OfframpConfig) -> Result<Self, Error> {
        if config.listen.is_empty() {
            return Err(Error::NoListener);
        }
        if config.policy.count_rules(Role::Offramp) == 0 {
            return Err(Error::NoServers);
        }
        let listeners = config
            .listen
            .iter()
            .map(|at| listen(at, &config.timeouts))
            .collect::<Result<Vec<_>, _>>()?;
        let page = match config.metrics {
            None => None,
            Some(address) => {
                let opened = longhaul_metrics::listen(address);
                Some(opened.map_err(|source| Error::Metrics { address, source })?)
            }
        };
        let hangup = if config.reload_on_hangup && config.policy.file().is_some() {
            Some(signal(SignalKind::hangup()).map_err(Error::Signals)?)
        } else {
            None
        };
        let own = OwnAddressReader::new().map_err(Error::OwnAddresses)?;
        let policy = Arc::new(ActivePolicy::new(config.policy));
        let known = Arc::clone(&policy);
        // The address is unused: this crate has its own listeners.
        let mut options = ListenOptions::new(
            SocketAddr::from(([0, 0, 0, 0], 0)),
            config.identity,
            Arc::new(move |key| known.policy().has_rules_for(key, Role::Offramp)),
            vec![ServiceName::TCP],
        );
        options.handshake_timeout = config.timeouts.handshake;
        let shared = Arc::new(OfframpState {
            acceptor: Acceptor::new(options),
            policy,
            finder: Finder::new(config.limits.lookups, own),
            gate: ConnectionGate::new(config.limits.gate(&config.timeouts)),
            timeouts: config.timeouts,
            sizing: config.sizing,
            buffers: BufferPool::new(config.limits.buffers),
            metrics: OfframpMetrics::new(),
            events: EventLog::new(),
        });
        Ok(Self {
            listeners,
            page,
            hangup,
            shared,
        })
    }

    /// Returns the addresses of the listeners, in the order of the configuration, with the actual
    /// ports if port 0 was requested.
    #[must_use]
    pub fn local_addresses(&self) -> Vec<SocketAddr> {
        self.listeners
            .iter()
            .filter_map(|listener| listener.local_addr().ok())
            .collect()
    }

    /// Returns the address of the metrics page, if the off-ramp serves one itself.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.page
            .as_ref()
            .and_then(|listener| listener.local_addr().ok())
    }

    /// Returns its metrics, for another page.
    #[must_use]
    pub fn metrics(&self) -> MetricsPage {
        let shared = Arc::clone(&self.shared);
        MetricsPage::new(move || {
            let (newcomers, verified) = (shared.gate.pending_count(), shared.gate.verified_count());
            shared
                .metrics
                .page(newcomers, verified, shared.buffers.allocated())
        })
    }

    /// Serves until `shutdown` resolves, then drains. If this future is dropped, sessions are
    /// reset.
    ///
    /// While draining, the listeners are closed and sessions get [`OfframpTimeouts::drain`] to
    /// finish. The remaining ones are then reset.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let metrics = self.metrics();
        let Self {
            listeners,
            page,
            hangup,
            shared,
        } = self;
        let (life, phases) = ServiceLife::start();
        let mut tasks = JoinSet::new();
        for listener in listeners {
            tasks.spawn(accept(listener, Arc::clone(&shared), phases.clone()));
        }
        let mut services = JoinSet::new();
        if let Some(listener) = page {
            services.spawn(longhaul_metrics::serve(listener, metrics));
        }
        if let Some(hangup) = hangup {
            services.spawn(reload(hangup, Arc::clone(&shared)));
        }
        drop(phases);
        shutdown.await;
        tracing::info!(sessions = shared.gate.verified_count(), "off-ramp draining");
        life.drain();
        tasks.shutdown().await;
        let late = || {
            tracing::warn!(
                sessions = shared.gate.verified_count(),
                "drain deadline passed: resetting the remaining sessions"
            );
        };
        life.finish(shared.timeouts.drain, late).await;
        tracing::info!("off-ramp drained");
    }
}

fn listen(at: &ListenerConfig, timeouts: &OfframpTimeouts) -> Result<Listener, Error> {
    at.open(timeouts.unacknowledged)
        .map_err(|error| match error {
            ListenError::Congestion(error) => error.into(),
            ListenError::Io(source) => Error::Listen {
                address: at.address,
                source,
            },
        })
}

/// Accepts connections until it is dropped. Each connection's task holds a clone of `phases`.
async fn accept(mut listener: Listener, shared: Arc<OfframpState>, phases: PhaseReceiver) {
    // Bounds the log for a shortage of descriptors, however long it lasts.
    let mut warnings = LogRate::new(3, 1);
    let began = tokio::time::Instant::now();
    loop {
        let failed = |error: &io::Error| {
            shared.metrics.accept_errors.inc();
            if let Some(left_out) = warnings.admit(began.elapsed()) {
                tracing::warn!(%error, left_out, "cannot accept connections; retrying");
            }
        };
        let (fd, peer) = listener.accept(failed).await;
        shared.metrics.accepted.inc();
        admit(&shared, fd, peer, &phases);
    }
}

fn admit(shared: &Arc<OfframpState>, fd: OwnedFd, peer: SocketAddr, phases: &PhaseReceiver) {
    let entered = shared.gate.admit(peer.ip());
    let (shared, phases) = (Arc::clone(shared), phases.clone());
    tokio::spawn(async move {
        match Conn::new(fd) {
            Ok(conn) => serve(shared, conn, peer, entered, phases.clone()).await,
            Err(_) => drop(shared.metrics.accept_errors.inc()),
        }
        drop(phases);
    });
}

/// Reloads the policy on each SIGHUP. An invalid policy changes nothing.
async fn reload(mut hangup: Signal, shared: Arc<OfframpState>) {
    while hangup.recv().await.is_some() {
        let Some(reloaded) = shared.policy.reload().await else {
            return;
        };
        match &reloaded {
            ReloadResult::Loaded(policy) => {
                tracing::info!(
                    rules = policy.count_rules(Role::Offramp),
                    "off-ramp's policy reloaded"
                )
            }
            ReloadResult::Refused(error) => {
                tracing::error!(%error, "off-ramp's policy not reloaded: keeping the previous one");
            }
            ReloadResult::Failed => {}
        }
        shared.metrics.count_reload(reloaded.as_str());
    }
}
