//! The error with which the connections of a relay end.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The first error that ended connections, and those who wait for it.
#[derive(Default)]
pub struct PoolFailure {
    error: Mutex<Option<anyhow::Error>>,
    recorded: Notify,
}

impl PoolFailure {
    /// Records an error, unless there is one already.
    pub fn record(&self, error: anyhow::Error) {
        self.error.lock().get_or_insert(error);
        self.recorded.notify_waiters();
    }

    /// Waits for an error. Returns it once.
    pub async fn recorded(&self) -> anyhow::Error {
        loop {
            let recorded = self.recorded.notified();
            if let Some(error) = self.error.lock().take() {
                return error;
            }
            recorded.await;
        }
    }
}
