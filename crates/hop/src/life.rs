//! How far the life of a service has come, for all that lives with it: it runs, lets what is under
//! way finish, and resets what is left.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// How far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It takes what comes.
    Running,
    /// What is under way finishes; nothing new is taken.
    Draining,
    /// The time for that is over.
    Aborting,
}

/// Where the phase is received. Whoever holds a clone is waited for at the end.
#[derive(Debug, Clone)]
pub struct Phases {
    phase: watch::Receiver<Phase>,
    _alive: mpsc::Sender<()>,
}

impl Phases {
    /// How far it has come by now.
    #[must_use]
    pub fn now(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Completes once it has come so far; also when the [`Life`] is gone, and so the service.
    pub async fn reached(&mut self, least: Phase) {
        let _ = self.phase.wait_for(|phase| *phase >= least).await;
    }
}

/// The life of a service, where its phases are announced.
#[derive(Debug)]
pub struct Life {
    phase: watch::Sender<Phase>,
    all_gone: mpsc::Receiver<()>,
}

impl Life {
    /// A service that runs.
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

    /// Announces that nothing new is taken.
    pub fn drain(&self) {
        self.phase.send_replace(Phase::Draining);
    }

    /// Waits until nobody is left. Who is there after `limit` is told to abort; `late` is called
    /// before.
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
    async fn who_finishes_in_time_is_not_aborted_and_who_does_not_is() {
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
    async fn without_a_life_everything_is_reached() {
        let (life, mut phases) = Life::begin();
        drop(life);
        phases.reached(Phase::Aborting).await;
    }
}
