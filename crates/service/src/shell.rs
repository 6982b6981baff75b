//! Tasks of a running service: those that accept, and those that stay until it has drained.

use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{Listener, StreamListener};
use tokio::task::JoinSet;

use crate::accept::{ConnectionHandler, accept, accept_streams};
use crate::drain::{Phase, PhaseReceiver, ServiceLife};
use crate::page::{MetricsPage, Readiness, StatusListener, StatusPage};

/// Tasks of a running service. Dropping it aborts them and announces the phase
/// [`Phase::Aborting`] to its connections.
#[derive(Debug)]
pub struct Shell {
    life: ServiceLife,
    phases: PhaseReceiver,
    accepting: JoinSet<()>,
    background: JoinSet<()>,
}

impl Default for Shell {
    fn default() -> Self {
        let (life, phases) = ServiceLife::start();
        Self {
            life,
            phases,
            accepting: JoinSet::new(),
            background: JoinSet::new(),
        }
    }
}

impl Shell {
    /// Creates a running service without tasks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the phases. The service has drained once all are dropped.
    #[must_use]
    pub fn phases(&self) -> PhaseReceiver {
        self.phases.clone()
    }

    /// Accepts the connections of `listener` until it drains.
    pub fn accept<H: ConnectionHandler>(&mut self, listener: Listener, handler: &Arc<H>) {
        let phases = self.phases();
        self.accept_by(accept(listener, Arc::clone(handler), phases));
    }

    /// Accepts the streams of `listener` until it drains.
    pub fn accept_streams<H: ConnectionHandler>(
        &mut self,
        listener: impl StreamListener + 'static,
        handler: &Arc<H>,
    ) {
        let phases = self.phases();
        self.accept_by(accept_streams(listener, Arc::clone(handler), phases));
    }

    /// Runs a task that accepts work, until it drains.
    pub fn accept_by(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.accepting.spawn(task);
    }

    /// Stops accepting work, before it drains.
    pub fn stop_accepting(&mut self) {
        self.accepting.abort_all();
    }

    /// Runs a task until it has drained.
    pub fn run_beside(&mut self, task: impl Future + Send + 'static) {
        self.background.spawn(async move {
            let _ = task.await;
        });
    }

    /// Serves its status page until it has drained.
    pub fn serve_page(&mut self, listener: StatusListener, metrics: MetricsPage) {
        let page = StatusPage::new(metrics, self.readiness());
        self.run_beside(listener.serve(page));
    }

    /// Returns its readiness: it is ready until it drains.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let phase = self.life.watch();
        Readiness::new(move || match *phase.borrow() {
            Phase::Running => Ok(()),
            Phase::Draining | Phase::Aborting => Err("draining".to_owned()),
        })
    }

    /// Stops accepting, and waits until all connections have ended. After `limit`, tells the
    /// remaining ones to abort. `late` reports that.
    pub async fn drain(self, limit: Duration, late: impl FnOnce()) {
        let Self {
            life,
            phases,
            mut accepting,
            mut background,
        } = self;
        drop(phases);
        life.drain();
        accepting.shutdown().await;
        life.finish(limit, late).await;
        background.shutdown().await;
    }

    /// Drains a service of sessions, and logs that. `sessions` counts the remaining ones, and
    /// `name` precedes its lines.
    pub async fn drain_sessions(self, limit: Duration, name: &str, sessions: impl Fn() -> usize) {
        tracing::info!(sessions = sessions(), "{name}draining");
        let late = || {
            tracing::warn!(
                sessions = sessions(),
                "drain deadline passed: resetting the remaining sessions"
            );
        };
        self.drain(limit, late).await;
        tracing::info!("{name}drained");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_drain_ends_what_accepts_first_and_what_runs_beside_last() {
        let mut shell = Shell::new();
        let mut connection = shell.phases();
        let readiness = shell.readiness();
        let (accepting, mut ended) = tokio::sync::oneshot::channel::<()>();
        shell.accept_by(async move {
            std::future::pending::<()>().await;
            drop(accepting);
        });
        let (beside, mut stopped) = tokio::sync::oneshot::channel::<()>();
        shell.run_beside(async move {
            std::future::pending::<()>().await;
            drop(beside);
        });
        assert!(readiness.check().is_ok());
        let connection = tokio::spawn(async move {
            connection.wait_until(Phase::Draining).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            let accepts = ended.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Empty);
            let runs = stopped.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Empty);
            (accepts, runs, readiness.check().is_ok())
        });
        shell
            .drain(Duration::from_secs(10), || panic!("it ended in time"))
            .await;
        assert_eq!(connection.await.unwrap(), (false, true, false));
    }
}
