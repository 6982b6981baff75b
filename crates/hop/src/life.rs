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

/// Receiver of the phases. [`Life::end`] waits until all clones are dropped.
#[derive(Debug, Clone)]
pub struct Phases {
    phase: watch::Receiver<Phase>,
    _alive: mpsc::Sender<()>,
}

impl Phases {
    /// Returns the current phase.
    #[must_use]
    pub fn now(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Completes once the phase is reached, or once the [`Life`] is dropped, and so the service.
    pub async fn reached(&mut self, least: Phase) {
        let _ = self.phase.wait_for(|phase| *phase >= least).await;
    }
}

/// Life cycle of a service, which announces its phases.
#[derive(Debug)]
pub struct Life {
    phase: watch::Sender<Phase>,
    all_gone: mpsc::Receiver<()>,
}

impl Life {
    /// Creates a running service's life cycle.
    #[must_use]
    pub fn begin() -> (Self, Phases) {
        let (phase, received) = watch::channel(Phase::Running);
        let (alive, all_gone) = mpsc::channel(1);
        let phases = Phases {
            phase: received,
            _alive: alive,
        };
        (Self { phase, all_gone }, phases)
    }

    /// Announces that no new work is accepted.
    pub fn drain(&self) {
        self.phase.send_replace(Phase::Draining);
    }

    /// Waits until all receivers are dropped. After `limit`, calls `late` and tells the remaining
    /// ones to abort.
    pub async fn end(mut self, limit: Duration, late: impl FnOnce()) {
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
            let (life, phases) = Life::begin();
            let mut session = phases.clone();
            assert_eq!(session.now(), Phase::Running);
            drop(phases);
            let session = tokio::spawn(async move {
                session.reached(Phase::Draining).await;
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_secs(takes)) => false,
                    () = session.reached(Phase::Aborting) => true,
                }
            });
            life.drain();
            let mut reported = false;
            life.end(Duration::from_secs(10), || reported = true).await;
            assert_eq!((reported, session.await.unwrap()), (late, late));
        }
    }

    #[tokio::test]
    async fn a_dropped_life_reaches_every_phase() {
        let (life, mut phases) = Life::begin();
        drop(life);
        phases.reached(Phase::Aborting).await;
    }
}
