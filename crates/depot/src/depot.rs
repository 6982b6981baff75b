//! Life cycle of a depot: opens what it needs, and runs in the shell of a service.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_hop::{
    BufferPool, ConnectionGate, EventLog, Listener, PipeBounds, PipePool, check_congestion,
};
use longhaul_policy::{ActivePolicy, OwnAddressReader, ReloadResult};
use longhaul_quic::{QuicDialler, QuicListener};
use longhaul_service::{
    ConnectionHandler, Hangup, MetricsPage, OpenAdmission, PendingConnection, Readiness, Shell,
    StatusListener, open_listeners,
};

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
    page: Option<StatusListener>,
    extra_metrics: Option<MetricsPage>,
    hangup: Option<Hangup>,
    workers: Workers,
    shared: Arc<DepotState>,
    shell: Shell,
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
        config
            .next_congestion
            .iter()
            .try_for_each(|next| check_congestion(&next.value))
            .map_err(longhaul_service::Error::Congestion)?;
        let listeners = open_listeners(&config.listen, config.timeouts.unacknowledged)?;
        let streams = listen_quic(&listeners, &config)?;
        let page = config.metrics.map(StatusListener::open).transpose()?;
        let has_files = config.policy.file().is_some() || config.forwarding.file().is_some();
        let hangup = (config.reload_on_hangup && has_files).then(Hangup::take);
        let pipes = PipeBounds {
            size: config.limits.pipe_bytes,
            total: config.limits.total_pipe_bytes,
            spare: MAX_SPARE_PIPES,
        };
        let identities = Arc::clone(config.policy.identities());
        let shared = Arc::new(DepotState {
            policy: ActivePolicy::new(config.policy),
            forwarding: Forwarding::new(config.forwarding),
            admission: OpenAdmission::new(config.key.public(), identities),
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
            events: Arc::new(EventLog::new()),
            pipes: PipePool::new(pipes),
            buffers: BufferPool::new(config.limits.total_pipe_bytes),
            metrics: DepotMetrics::new(),
            observer: config.hop_observer,
            grants: Arc::default(),
            circuits: config.circuits,
            accounts: config.accounts,
            marker: config.marker,
        });
        Ok(Self {
            listeners,
            streams,
            page,
            extra_metrics: config.extra_metrics,
            hangup: hangup.transpose()?,
            workers: Workers::start(config.workers).map_err(Error::Threads)?,
            shared,
            shell: Shell::new(),
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
        self.page.as_ref().map(StatusListener::local_addr)
    }

    /// Returns its metrics, with those of [`DepotConfig::extra_metrics`], for another page.
    #[must_use]
    pub fn metrics(&self) -> MetricsPage {
        let shared = Arc::clone(&self.shared);
        let own = MetricsPage::new(move || render(&shared));
        match &self.extra_metrics {
            Some(beside) => own.joined_with(beside.clone()),
            None => own,
        }
    }

    /// Returns its readiness: it is ready until it drains.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.shell.readiness()
    }

    /// Serves until `shutdown` resolves, then drains. If this future is dropped, sessions are
    /// reset.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let metrics = self.metrics();
        let Self {
            listeners,
            streams,
            page,
            extra_metrics: _,
            hangup,
            workers,
            shared,
            mut shell,
        } = self;
        let handler = Arc::new(DepotHandler {
            shared: Arc::clone(&shared),
            workers,
        });
        for listener in listeners {
            shell.accept(listener, &handler);
        }
        for listener in streams {
            shell.accept_streams(listener, &handler);
        }
        if let Some(listener) = page {
            shell.serve_page(listener, metrics);
        }
        let identities = Arc::clone(shared.policy.policy().identities());
        if identities.file().is_some() {
            shell.run_beside(identities.maintain());
        }
        if let Some(hangup) = hangup {
            let shared = Arc::clone(&shared);
            shell.run_beside(hangup.run_each(move || reload(Arc::clone(&shared))));
        }
        shutdown.await;
        let sessions = || shared.gate.verified_count();
        shell
            .drain_sessions(shared.timeouts.drain, "", sessions)
            .await;
    }
}

/// Handler of connections, which runs them on the workers.
#[derive(Debug)]
struct DepotHandler {
    shared: Arc<DepotState>,
    workers: Workers,
}

impl ConnectionHandler for DepotHandler {
    fn gate(&self) -> &Arc<ConnectionGate> {
        &self.shared.gate
    }

    fn count_accepted(&self) {
        self.shared.metrics.accepted.inc();
    }

    fn count_accept_error(&self) {
        self.shared.metrics.accept_errors.inc();
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.workers.spawn(task);
    }

    async fn serve(self: Arc<Self>, connection: PendingConnection) {
        let shared = Arc::clone(&self.shared);
        drop(self);
        serve(shared, connection).await;
    }
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

/// Reloads the policy and the forwarding table. An invalid file changes nothing.
async fn reload(shared: Arc<DepotState>) {
    reload_policy(&shared).await;
    reload_forwarding(&shared).await;
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
        ReloadResult::PrincipalsRefused(error) => {
            tracing::error!(
                %error,
                "policy and principals not reloaded: keeping the previous ones"
            );
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
