//! Tasks of the leader among controllers that share a store: taking the lead, and removing old
//! data.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::{Controller, wait_for_stop};
use crate::leader::{self, Leadership};

/// Pause between two steps of summarizing old measurements, while there is more to do.
const RETENTION_PAUSE: Duration = Duration::from_millis(200);
/// Pause when there was nothing to do.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);
/// Pause before a new leader retries to read the map and rights.
const FOLLOW_RETRY_PAUSE: Duration = Duration::from_millis(200);

impl Controller {
    /// Takes the lead after an election, once it has loaded the map and the rights of its
    /// predecessor, which decide what is granted.
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
                    self.follow_until_read().await;
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
                () = wait_for_stop(&mut stop) => return,
            };
            tokio::select! {
                () = leader::changed(&mut elected) => {}
                () = wait_for_stop(&mut stop) => return,
            }
        }
    }

    /// Loads the changes of other controllers, retrying until it succeeds.
    async fn follow_until_read(&self) {
        loop {
            match self.0.store.unless_given_up(self.follow()).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "not leading yet: cannot read the map and the rights"
                    );
                }
            }
            sleep(FOLLOW_RETRY_PAUSE).await;
        }
    }

    /// Counts beginnings and ends of leading.
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
                () = wait_for_stop(&mut stop) => return,
            }
        }
    }

    pub(super) async fn prune_old_data(self, mut stop: watch::Receiver<bool>) {
        let mut leadership = self.0.leadership.clone();
        loop {
            // Of several controllers that share a store, only the leader does it.
            tokio::select! {
                _ = leadership.wait_for(|now| now.term().is_some()) => {}
                () = wait_for_stop(&mut stop) => return,
            }
            let forgetting = self.0.store.forget(&self.0.settings.retention);
            let pause = match self.0.store.unless_given_up(forgetting).await {
                Ok(true) => RETENTION_PAUSE,
                Ok(false) => RETENTION_INTERVAL,
                Err(error) => {
                    tracing::warn!(%error, "cannot summarize old measurements");
                    RETENTION_INTERVAL
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = wait_for_stop(&mut stop) => return,
            }
        }
    }
}
