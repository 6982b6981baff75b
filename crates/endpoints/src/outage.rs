//! The end of a copy whose store does not answer any more.

use std::sync::OnceLock;

use tokio::sync::Notify;

/// Notes the first failure that ends the whole copy.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    reason: OnceLock<String>,
    noted: Notify,
}

impl Outage {
    /// Notes an outage.
    pub(crate) fn note(&self, reason: String) {
        if self.reason.set(reason).is_ok() {
            self.noted.notify_waiters();
        }
    }

    /// Waits for an outage, and returns its reason.
    pub(crate) async fn occurred(&self) -> &str {
        loop {
            let noted = self.noted.notified();
            if let Some(reason) = self.reason.get() {
                return reason;
            }
            noted.await;
        }
    }

    /// Returns true if an outage was noted.
    pub(crate) fn has_occurred(&self) -> bool {
        self.reason.get().is_some()
    }
}
