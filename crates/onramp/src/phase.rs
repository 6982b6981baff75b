//! How far the on-ramp's life has come, for all that lives with it.

use tokio::sync::{mpsc, watch};

/// How far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Running,
    /// Connections finish; there are no new ones.
    Draining,
    /// The time for that is over.
    Aborting,
}

/// Where it is heard. Whoever holds a clone is waited for.
#[derive(Debug, Clone)]
pub(crate) struct Phases {
    phase: watch::Receiver<Phase>,
    _alive: mpsc::Sender<()>,
}

/// Where it is said.
#[derive(Debug)]
pub(crate) struct Said {
    phase: watch::Sender<Phase>,
    all_gone: mpsc::Receiver<()>,
}

pub(crate) fn phases() -> (Said, Phases) {
    let (phase, heard) = watch::channel(Phase::Running);
    let (alive, all_gone) = mpsc::channel(1);
    (
        Said { phase, all_gone },
        Phases {
            phase: heard,
            _alive: alive,
        },
    )
}

impl Phases {
    /// Completes once it has come so far; also when nobody is there to say so.
    pub(crate) async fn reached(&mut self, least: Phase) {
        let _ = self.phase.wait_for(|phase| *phase >= least).await;
    }
}

impl Said {
    pub(crate) fn say(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Completes when nobody is left.
    pub(crate) async fn all_gone(&mut self) {
        let _ = self.all_gone.recv().await;
    }
}
