//! What one of several controllers on the same store does: it leads, and forgets what is old.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::{Controller, stopped};
use crate::leader::{self, Leadership};

/// The pause between two steps of bringing old measurements together, while there is more to do.
const RETENTION_PAUSE: Duration = Duration::from_millis(200);
/// And when there was nothing to do.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);
/// The pause before the map and rights are read again by one that is to lead and could not read
/// them.
const FOLLOW_RETRY_PAUSE: Duration = Duration::from_millis(200);

impl Controller {
    /// Has it lead when it was elected, once it knows the map and the rights that the one before it
    /// knew: they decide what is granted.
    pub(super) async fn take_lead(
        self,
        mut elected: watch::Receiver<Leadership>,
        lead: watch::Sender<Leadership>,
        mut stop: watch::Receiver<bool>,
    ) {
        loop {
            let now = elected.borrow_and_update().clone();
            let known = async {
                if matches!(now, Leadership::Leading { .. }) {
                    self.follow_at_last().await;
                }
            };
            tokio::select! {
                () = known => lead.send_if_modified(|known| {
                    let is_new = *known != now;
                    known.clone_from(&now);
                    is_new
                }),
                () = leader::changed(&mut elected) => {
                    elected.mark_changed();
                    false
                }
                () = stopped(&mut stop) => return,
            };
            tokio::select! {
                () = leader::changed(&mut elected) => {}
                () = stopped(&mut stop) => return,
            }
        }
    }

    /// Knows what others have changed, however long that takes.
    async fn follow_at_last(&self) {
        loop {
            match self.0.store.unless_given_up(self.follow()).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(%error, "it does not lead yet: the map and rights could not be read");
                }
            }
            sleep(FOLLOW_RETRY_PAUSE).await;
        }
    }

    /// Counts how often it begins to lead, and ends.
    pub(super) async fn count_terms(
        self,
        mut leadership: watch::Receiver<Leadership>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut before = None;
        loop {
            let now = leadership.borrow_and_update().term();
            if now != before {
                self.0.metrics.led(before.is_some(), now.is_some());
                before = now;
            }
            tokio::select! {
                () = leader::changed(&mut leadership) => {}
                () = stopped(&mut stop) => return,
            }
        }
    }

    pub(super) async fn keep_forgetting(self, mut stop: watch::Receiver<bool>) {
        let mut leadership = self.0.leadership.clone();
        loop {
            // Of several that share a store one does it.
            tokio::select! {
                _ = leadership.wait_for(|now| now.term().is_some()) => {}
                () = stopped(&mut stop) => return,
            }
            let forgetting = self.0.store.forget(&self.0.settings.retention);
            let pause = match self.0.store.unless_given_up(forgetting).await {
                Ok(true) => RETENTION_PAUSE,
                Ok(false) => RETENTION_INTERVAL,
                Err(error) => {
                    tracing::warn!(%error, "old measurements could not be brought together");
                    RETENTION_INTERVAL
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = stopped(&mut stop) => return,
            }
        }
    }
}
