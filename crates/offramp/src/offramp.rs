//! Life cycle of an off-ramp: opens what it needs, and runs in the shell of a service.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_hop::{BufferPool, ConnectionGate, EventLog, Listener};
use longhaul_policy::{ActivePolicy, Finder, OwnAddressReader, ReloadResult, Role};
use longhaul_proto::ServiceName;
use longhaul_service::{
    ConnectionHandler, Hangup, MetricsPage, PendingConnection, Readiness, Shell, StatusListener,
    open_listeners,
};
use longhaul_session::{Acceptor, ListenOptions};

use crate::config::OfframpConfig;
use crate::error::Error;
use crate::metrics::OfframpMetrics;
use crate::resuming::acceptance;
use crate::serve::serve;
use crate::state::OfframpState;

/// An off-ramp whose listeners are open.
pub struct Offramp {
    listeners: Vec<Listener>,
    page: Option<StatusListener>,
    hangup: Option<Hangup>,
    shared: Arc<OfframpState>,
    shell: Shell,
}

impl Offramp {
    /// Opens the listeners; connections wait until [`Offramp::run`]. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`Error`], which names the resource that is not available.
    pub fn bind(config: OfframpConfig) -> Result<Self, Error> {
        if config.policy.count_rules(Role::Offramp) == 0 {
            return Err(Error::NoServers);
        }
        let listeners = open_listeners(&config.listen, config.timeouts.unacknowledged)?;
        let page = config.metrics.map(StatusListener::open).transpose()?;
        let has_file = config.policy.file().is_some();
        let hangup = (config.reload_on_hangup && has_file).then(Hangup::take);
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
        options.identities = Arc::clone(policy.policy().identities());
        options.handshake_timeout = config.timeouts.handshake;
        let metrics = OfframpMetrics::new();
        let events = Arc::new(EventLog::new());
        options.resume = config.resume.as_ref().map(|limits| {
            let sessions = config.limits.sessions;
            acceptance(limits, sessions, Arc::clone(&metrics), Arc::clone(&events))
        });
        let resume_memory = options
            .resume
            .as_ref()
            .map(|resume| Arc::clone(&resume.memory));
        let shared = Arc::new(OfframpState {
            acceptor: Acceptor::new(options),
            policy,
            finder: Finder::new(config.limits.lookups, own),
            gate: ConnectionGate::new(config.limits.gate(&config.timeouts)),
            timeouts: config.timeouts,
            sizing: config.sizing,
            buffers: BufferPool::new(config.limits.buffers),
            metrics,
            events,
            resume_memory,
            accounts: config.accounts,
        });
        Ok(Self {
            listeners,
            page,
            hangup: hangup.transpose()?,
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

    /// Returns the address of the metrics page, if the off-ramp serves one itself.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.page.as_ref().map(StatusListener::local_addr)
    }

    /// Returns its metrics and those of its accounts, for another page.
    #[must_use]
    pub fn metrics(&self) -> MetricsPage {
        let shared = Arc::clone(&self.shared);
        let page = MetricsPage::new(move || {
            let (newcomers, verified) = (shared.gate.pending_count(), shared.gate.verified_count());
            let resume = shared.resume_memory.as_ref();
            let promised = resume.map_or(0, |memory| memory.bytes_in_use());
            let buffers = shared.buffers.allocated();
            shared.metrics.page(newcomers, verified, buffers, promised)
        });
        match self.shared.accounts.clone() {
            Some(accounts) => page.joined_with(MetricsPage::new(move || accounts.metrics_page())),
            None => page,
        }
    }

    /// Returns its readiness: it is ready until it drains.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.shell.readiness()
    }

    /// Serves until `shutdown` resolves, then drains. If this future is dropped, sessions are
    /// reset.
    ///
    /// While draining, the listeners are closed and sessions get [`OfframpTimeouts::drain`] to
    /// finish. The remaining ones are then reset.
    ///
    /// [`OfframpTimeouts::drain`]: crate::OfframpTimeouts::drain
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let metrics = self.metrics();
        let Self {
            listeners,
            page,
            hangup,
            shared,
            mut shell,
        } = self;
        for listener in listeners {
            shell.accept(listener, &shared);
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
            .drain_sessions(shared.timeouts.drain, "off-ramp ", sessions)
            .await;
    }
}

impl ConnectionHandler for OfframpState {
    fn gate(&self) -> &Arc<ConnectionGate> {
        &self.gate
    }

    fn count_accepted(&self) {
        self.metrics.accepted.inc();
    }

    fn count_accept_error(&self) {
        self.metrics.accept_errors.inc();
    }

    async fn serve(self: Arc<Self>, connection: PendingConnection) {
        serve(self, connection).await;
    }
}

/// Reloads the policy. An invalid one changes nothing.
async fn reload(shared: Arc<OfframpState>) {
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
        ReloadResult::PrincipalsRefused(error) => {
            tracing::error!(
                %error,
                "off-ramp's policy and principals not reloaded: keeping the previous ones"
            );
        }
        ReloadResult::Failed => {}
    }
    shared.metrics.count_reload(reloaded.as_str());
}
