//! Reading files again at SIGHUP.

use std::convert::Infallible;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Error;
use crate::systemd::ReloadNotice;

/// Receiver of SIGHUP. From its creation on, the signal does not end the process.
#[derive(Debug)]
pub struct Hangup(Signal);

impl Hangup {
    /// Takes the signal over from the system. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Signals`].
    pub fn take() -> Result<Self, Error> {
        signal(SignalKind::hangup())
            .map(Self)
            .map_err(Error::Signals)
    }

    /// Runs `reload` after each signal, one at a time, and tells systemd. Signals that arrive
    /// meanwhile cause one more run.
    pub async fn run_each<F: Future<Output = ()>>(
        mut self,
        mut reload: impl FnMut() -> F,
    ) -> Infallible {
        loop {
            // The signal of a process has no end.
            if self.0.recv().await.is_none() {
                std::future::pending::<()>().await;
            }
            let _notice = ReloadNotice::begin();
            reload().await;
        }
    }
}
