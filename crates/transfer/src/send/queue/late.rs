//! Files of late size in the queue: whether the receiver takes them, and how far they can be sent.

use super::WorkQueue;
use crate::send::walk::{Growth, LateSizes};

impl WorkQueue {
    /// Notes whether the receiver takes files of late size (LH-COPY-79). The first report counts.
    pub(crate) fn settle_late_sizes(&self, takes: bool) {
        self.state.lock().takes_late_sizes.get_or_insert(takes);
        self.room.notify_all();
    }

    /// Waits until the receiver has reported whether it takes files of late size, or the queue is
    /// closed.
    pub(super) fn wait_for_late_sizes(&self) -> LateSizes {
        let mut state = self.state.lock();
        loop {
            if state.schedule.is_closed() {
                return LateSizes::Over;
            }
            match state.takes_late_sizes {
                Some(true) => return LateSizes::Taken,
                Some(false) => return LateSizes::Refused,
                None => self.room.wait(&mut state),
            }
        }
    }

    /// Notes that `available` bytes of the file of late size can be sent, or that these are all.
    pub(super) fn add_available(&self, available: u64, is_whole: bool) -> Growth {
        let mut state = self.state.lock();
        if state.schedule.is_closed() {
            return Growth::Over;
        }
        if !state.schedule.grown(available, is_whole) {
            return Growth::Settled;
        }
        let found = state.schedule.totals();
        let progress = &self.reporter.progress;
        progress.set_found(found.entries, found.bytes, false);
        self.perform(state);
        Growth::Wanted
    }

    /// Returns the number of bytes that are assumed to be found later.
    pub(crate) fn expected_bytes(&self) -> u64 {
        self.state.lock().schedule.expected_bytes()
    }
}
