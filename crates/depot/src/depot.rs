//! Life cycle of a depot: open the listeners, accept, reload, drain.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_hop::{
    BufferPool, Conn, ConnectionGate, EventLog, ListenError, Listener, ListenerConfig,
    PhaseReceiver, PipeBounds, PipePool, ServiceLife, StreamListener, check_congestion,
};
use longhaul_metrics::MetricsPage;
use longhaul_policy::{ActivePolicy, OwnAddressReader, ReloadResult};
use longhaul_proto::{Admission, LogRate, ReplayMemory};
use longhaul_quic::{QuicDialler, QuicListener};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use crate::config::DepotConfig;
use crate::dial::Dialler;
use crate::error::Error;
use crate::forwarding::Forwarding;
use crate::grants_in_use::GrantsInUse;
use crate::metrics::{DepotMetrics, ReloadLabel};
use crate::serve::serve;
use crate::state::DepotState;
use crate::workers::Workers;

/// Maximum number of free pipes that are kept open.
const MAX_SPARE_PIPES: usize = 32;

/// Runs a depot until `shutdown` resolves, then drains it.
///
/// While draining, the listeners are closed and sessions get [`DepotTimeouts::drain`] to finish.
/// The remaining ones are then reset.
///
/// # Errors
/// [`Error`] when it cannot start. Once it runs, the error of a session becomes that session's
/// status or reset.
///
/// [`DepotTimeouts::drain`]: crate::DepotTimeouts::drain
pub async fn run(config: DepotConfig, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
    Depot::bind(config)?.run(shutdown).await;
    Ok(())
}

/// A depot whose listeners are open.
#[derive(Debug)]
pub struct Depot {
    listeners: Vec<Listener>,
    /// QUIC on the ports of `listeners`.
    streams: Vec<QuicListener>,
    page: Option<TcpListener>,
    extra_metrics: Option<MetricsPage>,
    hangup: Option<Signal>,
    workers: Arc<Workers>,
    shared: Arc<DepotState>,
}

/// Current load of a depot.
#[derive(Debug, Clone)]
pub struct Activity(Arc<DepotMetrics>);

impl Activity {
    /// Returns the number of sessions relayed now.
    #[must_use]
    pub fn sessions(&self) -> i64 {
        self.0.sessions_active.get()
    }
}

impl Depot {
    /// Opens the listeners; connections wait until [`Depot::run`]. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`Error`], which names the resource that is not available.
    pub fn bind(config: DepotConfig) -> Result<Self, Error> {
        if config.listen.is_empty() {
            return Err(Error::NoListener);
        }
        config
            .next_congestion
            .iter()
            .try_for_each(|next| check_congestion(&next.value))?;
        let listeners = config
            .listen
            .iter()
            .map(|at| listen(at, &config))
            .collect::<Result<Vec<_>, _>>()?;
        let streams = listen_quic(&listeners, &config)?;
        let page = match config.metrics {
            None => None,
            Some(address) => {
                let opened = longhaul_metrics::listen(address);
                Some(opened.map_err(|source| Error::Metrics { address, source })?)
            }
        };
        let has_files = config.policy.file().is_some() || config.forwarding.file().is_some();
        let hangup = if config.reload_on_hangup && has_files {
            Some(signal(SignalKind::hangup()).map_err(Error::Signals)?)
        } else {
            None
        };
        let pipes = PipeBounds {
            size: config.limits.pipe_bytes,
            total: config.limits.total_pipe_bytes,
            spare: MAX_SPARE_PIPES,
        };
        let shared = Arc::new(DepotState {
            policy: ActivePolicy::new(config.policy),
            forwarding: Forwarding::new(config.forwarding),
            admission: Admission::new(config.key.public()),
            replays: Mutex::new(ReplayMemory::new()),
            key: config.key,
            dialler: Dialler::new(
                config.limits.lookups,
                config.next_congestion,
                config.next_transport,
                config.quic.map(QuicDialler::new),
                config.timeouts.unacknowledged,
                OwnAddressReader::new().map_err(Error::OwnAddresses)?,
            ),
            gate: ConnectionGate::new(config.limits.gate(&config.timeouts)),
            timeouts: config.timeouts,
            events: EventLog::new(),
            pipes: PipePool::new(pipes),
            buffers: BufferPool::new(config.limits.total_pipe_bytes),
            metrics: DepotMetrics::new(),
            observer: config.hop_observer,
            grants: Arc::default(),
        });
        let workers = Arc::new(Workers::start(config.workers).map_err(Error::Threads)?);
        Ok(Self {
            listeners,
            streams,
            page,
            extra_metrics: config.extra_metrics,
            hangup,
            workers,
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

    /// Returns a handle to its load, readable while it runs.
    #[must_use]
    pub fn activity(&self) -> Activity {
        Activity(Arc::clone(&self.shared.metrics))
    }

    /// Returns the circuit grants in use while it runs.
    #[must_use]
    pub fn grants(&self) -> GrantsInUse {
        GrantsInUse(Arc::clone(&self.shared))
    }

    /// Returns the address of the metrics page.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.page
            .as_ref()
            .and_then(|listener| listener.local_addr().ok())
    }

    /// Serves until `shutdown` resolves, then drains. If this future is dropped, sessions are
    /// reset.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self {
            listeners,
            streams,
            page,
            extra_metrics: beside,
            hangup,
            workers,
            shared,
        } = self;
        let (life, phases) = ServiceLife::start();
        let mut tasks = JoinSet::new();
        for listener in listeners {
            let admission = StreamAdmission {
                shared: Arc::clone(&shared),
                workers: Arc::clone(&workers),
                phases: phases.clone(),
            };
            tasks.spawn(accept(listener, admission));
        }
        for listener in streams {
            let admission = StreamAdmission {
                shared: Arc::clone(&shared),
                workers: Arc::clone(&workers),
                phases: phases.clone(),
            };
            tasks.spawn(accept_streams(listener, admission));
        }
        let mut services = JoinSet::new();
        if let Some(listener) = page {
            let own = Arc::clone(&shared);
            let own = MetricsPage::new(move || render(&own));
            let page = match beside {
                Some(beside) => own.joined_with(beside),
                None => own,
            };
            services.spawn(longhaul_metrics::serve(listener, page));
        }
        if let Some(hangup) = hangup {
            services.spawn(reload(hangup, Arc::clone(&shared)));
        }
        drop(phases);
        shutdown.await;
        tracing::info!(sessions = shared.gate.verified_count(), "draining");
        life.drain();
        tasks.shutdown().await;
        let late = || {
            tracing::warn!(
                sessions = shared.gate.verified_count(),
                "drain deadline passed: resetting the remaining sessions"
            );
        };
        life.finish(shared.timeouts.drain, late).await;
        tracing::info!("drained");
    }
}

fn listen(at: &ListenerConfig, config: &DepotConfig) -> Result<Listener, Error> {
    at.open(config.timeouts.unacknowledged)
        .map_err(|error| match error {
            ListenError::Congestion(error) => error.into(),
            ListenError::Io(source) => Error::Listen {
                address: at.address,
                source,
            },
        })
}

/// Opens QUIC on the ports of the listeners, if it is enabled.
fn listen_quic(listeners: &[Listener], config: &DepotConfig) -> Result<Vec<QuicListener>, Error> {
    let Some(limits) = config.quic else {
        return Ok(Vec::new());
    };
    listeners
        .iter()
        .zip(&config.listen)
        .filter_map(|(listener, requested)| Some((listener.local_addr().ok()?, requested.address)))
        .filter_map(|(address, requested)| {
            QuicListener::bind_beside(address, requested, &config.key, limits)
                .map_err(|source| Error::ListenQuic { address, source })
                .transpose()
        })
        .collect()
}

/// Resources for the connections of a listener. Each connection's task holds a clone of `phases`.
struct StreamAdmission {
    shared: Arc<DepotState>,
    workers: Arc<Workers>,
    phases: PhaseReceiver,
}

impl StreamAdmission {
    /// Serves a connection on one of the workers, which `register` registers there.
    fn admit(
        &self,
        peer: SocketAddr,
        register: impl FnOnce() -> io::Result<Conn> + Send + 'static,
    ) {
        self.shared.metrics.accepted.inc();
        let entered = self.shared.gate.admit(peer.ip());
        let (shared, phases) = (Arc::clone(&self.shared), self.phases.clone());
        self.workers.spawn(async move {
            match register() {
                Ok(conn) => serve(shared, conn, peer, entered, phases.clone()).await,
                Err(_) => drop(shared.metrics.accept_errors.inc()),
            }
            drop(phases);
        });
    }
}

/// Accepts TCP connections until it is dropped.
async fn accept(mut listener: Listener, admission: StreamAdmission) {
    // Bounds the log for a shortage of descriptors, however long it lasts.
    let mut warnings = LogRate::new(3, 1);
    let began = tokio::time::Instant::now();
    loop {
        let failed = |error: &io::Error| {
            admission.shared.metrics.accept_errors.inc();
            if let Some(left_out) = warnings.admit(began.elapsed()) {
                tracing::warn!(%error, left_out, "cannot accept connections; retrying");
            }
        };
        let (fd, peer) = listener.accept(failed).await;
        admission.admit(peer, move || Conn::new(fd));
    }
}

/// Accepts QUIC streams until it is dropped.
async fn accept_streams(mut listener: QuicListener, admission: StreamAdmission) {
    loop {
        let (conn, peer) = listener.accept().await;
        admission.admit(peer, move || Ok(conn));
    }
}

/// Reloads the policy and the forwarding table on each SIGHUP. An invalid file changes nothing.
async fn reload(mut hangup: Signal, shared: Arc<DepotState>) {
    while hangup.recv().await.is_some() {
        reload_policy(&shared).await;
        reload_forwarding(&shared).await;
    }
}

async fn reload_forwarding(shared: &DepotState) {
    let Some(reloaded) = shared.forwarding.reload().await else {
        return;
    };
    let outcome = match reloaded {
        Ok(table) => {
            tracing::info!(patterns = table.len(), "forwarding table reloaded");
            "loaded"
        }
        Err(error) => {
            tracing::error!(%error, "forwarding table not reloaded: keeping the previous one");
            "refused"
        }
    };
    let label = ReloadLabel::new(outcome);
    let metric = &shared.metrics.forwarding_reloads;
    metric.get_or_create(&label).inc();
}

async fn reload_policy(shared: &DepotState) {
    let Some(reloaded) = shared.policy.reload().await else {
        return;
    };
    match &reloaded {
        ReloadResult::Loaded(policy) => tracing::info!(rules = policy.len(), "policy reloaded"),
        ReloadResult::Refused(error) => {
            tracing::error!(%error, "policy not reloaded: keeping the previous one");
        }
        ReloadResult::Failed => {}
    }
    shared
        .metrics
        .policy_reloads
        .get_or_create(&ReloadLabel::new(reloaded.as_str()))
        .inc();
}

/// Renders the metrics page. Gauges are read from the gate, which counts connections anyway.
fn render(shared: &DepotState) -> String {
    let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let metrics = &shared.metrics;
    metrics
        .unauthenticated
        .set(gauge(shared.gate.pending_count()));
    let setting_up =
        gauge(shared.gate.verified_count()).saturating_sub(metrics.sessions_active.get());
    metrics.sessions_setting_up.set(setting_up.max(0));
    metrics.page(shared.pipes.allocated())
}
