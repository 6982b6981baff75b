//! When something of a copy last arrived: a client whose host or network went away without a word
//! leaves connections that stand for a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::listening::NoteArrival;

/// When any stream of a copy last brought anything.
pub(super) struct LastReceived {
    begun: Instant,
    /// Milliseconds since then.
    at: AtomicU64,
}

impl LastReceived {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            at: AtomicU64::new(0),
        }
    }

    /// Something arrived just now.
    pub(super) fn note(&self) {
        let millis = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.at.fetch_max(millis, Ordering::Relaxed);
    }

    /// How long nothing has arrived.
    pub(super) fn silence(&self) -> Duration {
        let at = Duration::from_millis(self.at.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(at)
    }
}

/// The copy of a stream, once that is known.
pub(super) type StreamCopy = Arc<OnceLock<Arc<LastReceived>>>;

impl NoteArrival for StreamCopy {
    fn note_arrival(&self) {
        if let Some(copy) = self.get() {
            copy.note();
        }
    }
}
