//! Blocking work of a stream that no caller awaits individually.
//!
//! If a piece of work panics, its answer is missing and the peer would wait forever. The panic
//! therefore ends the stream, as any other error does.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::error::Error;

/// Starts blocking work, and detects panics in it.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    panicked: Arc<Notify>,
}

/// Reports a panic during unwinding.
struct PanicWatch(Arc<Notify>);

impl Drop for PanicWatch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.notify_one();
        }
    }
}

impl Workers {
    /// Runs `work` on a blocking thread.
    pub(crate) fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        let watch = PanicWatch(self.panicked.clone());
        tokio::task::spawn_blocking(move || {
            let _watch = watch;
            work();
        });
    }

    /// Waits until some of the work has panicked.
    pub(crate) async fn failed(&self) -> Error {
        self.panicked.notified().await;
        Error::Stream(std::io::Error::other(
            "an internal task of this stream failed; see the program's log",
        ))
    }
}

/// Runs `work` on a blocking thread, and returns its result.
///
/// # Errors
/// The work panicked, or the program is shutting down.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.map_err(|error| Error::Stream(std::io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_ends_the_stream() {
        let workers = Workers::default();
        workers.spawn(|| ());
        workers.spawn(|| panic!("as a defect does"));
        assert!(matches!(workers.failed().await, Error::Stream(_)));
    }
}
