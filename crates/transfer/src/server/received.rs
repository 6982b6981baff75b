//! Records when data of a copy last arrived. A client whose host or network vanished leaves
//! connections that stay open for a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::listening::ArrivalObserver;

/// Time when any stream of a copy last received data.
pub(super) struct LastReceived {
    begun: Instant,
    /// Milliseconds from the start to the last arrival.
    at: AtomicU64,
}

impl LastReceived {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            at: AtomicU64::new(0),
        }
    }

    /// Records an arrival now.
    pub(super) fn note(&self) {
        let millis = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.at.fetch_max(millis, Ordering::Relaxed);
    }

    /// Returns the time from the start to the last arrival.
    pub(super) fn until_last(&self) -> Duration {
        Duration::from_millis(self.at.load(Ordering::Relaxed))
    }

    /// Returns the time since the start.
    pub(super) fn until_now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Returns the time for which nothing has arrived.
    pub(super) fn silence(&self) -> Duration {
        self.until_now().saturating_sub(self.until_last())
    }
}

/// The copy of a stream, once it is known.
pub(super) type StreamCopy = Arc<OnceLock<Arc<LastReceived>>>;

impl ArrivalObserver for StreamCopy {
    fn note_arrival(&self) {
        if let Some(copy) = self.get() {
            copy.note();
        }
    }
}
