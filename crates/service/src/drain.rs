//! Life cycle of a service, announced to all its tasks: it runs, drains, and finally aborts what is
//! left.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// Phase of a service's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// New work is accepted.
    Running,
    /// Current work finishes; new work is refused.
    Draining,
    /// The time for draining is over.
    Aborting,
}

/// Receiver of the phases. [`ServiceLife::finish`] waits until all clones are dropped.
#[derive(Debug, Clone)]
pub struct PhaseReceiver {
    phase: watch::Receiver<Phase>,
    _alive: mpsc::Sender<()>,
}

impl PhaseReceiver {
    /// Returns the current phase.
    #[must_use]
    pub fn current(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Completes once the phase is reached, or once the [`ServiceLife`] is dropped, and so the
    /// service.
    pub async fn wait_until(&mut self, least: Phase) {
        let _ = self.phase.wait_for(|phase| *phase >= least).await;
    }
}

/// Life cycle of a service, which announces its phases.
#[derive(Debug)]
pub struct ServiceLife {
    phase: watch::Sender<Phase>,
    all_gone: mpsc::Receiver<()>,
}

impl ServiceLife {
    /// Creates a running service's life cycle.
    #[must_use]
    pub fn start() -> (Self, PhaseReceiver) {
        let (phase, received) = watch::channel(Phase::Running);
        let (alive, all_gone) = mpsc::channel(1);
        let phases = PhaseReceiver {
            phase: received,
            _alive: alive,
        };
        (Self { phase, all_gone }, phases)
    }

    /// Returns the phase, without a part in the life cycle.
    pub(crate) fn watch(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Announces that no new work is accepted.
    pub fn drain(&self) {
        self.phase.send_replace(Phase::Draining);
    }

    /// Waits until all receivers are dropped. After `limit`, calls `late` and tells the remaining
    /// ones to abort.
    pub async fn finish(mut self, limit: Duration, late: impl FnOnce()) {
        if timeout(limit, self.all_gone.recv()).await.is_err() {
            late();
            self.phase.send_replace(Phase::Aborting);
            self.all_gone.recv().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_tasks_that_miss_the_limit_are_aborted() {
        for (takes, late) in [(5, false), (50, true)] {
            let (life, phases) = ServiceLife::start();
            let mut session = phases.clone();
            assert_eq!(session.current(), Phase::Running);
            drop(phases);
            let session = tokio::spawn(async move {
                session.wait_until(Phase::Draining).await;
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_secs(takes)) => false,
                    () = session.wait_until(Phase::Aborting) => true,
                }
            });
            life.drain();
            let mut reported = false;
            life.finish(Duration::from_secs(10), || reported = true)
                .await;
            assert_eq!((reported, session.await.unwrap()), (late, late));
        }
    }

    #[tokio::test]
    async fn a_dropped_life_reaches_every_phase() {
        let (life, mut phases) = ServiceLife::start();
        drop(life);
        phases.wait_until(Phase::Aborting).await;
    }
}
