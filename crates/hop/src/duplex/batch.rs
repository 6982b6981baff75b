//! Fewer, larger reads when data arrives fast: a wake-up costs the same for one segment as for a
//! hundred.
//!
//! When a direction that moves more than [`MIN_BATCHING_RATE`] finds nothing to read, its socket
//! wakes it only once [`MARK_SECONDS`] worth of data has arrived (`SO_RCVLOWAT`), or the stream
//! ends. A timer removes the mark if less arrives, so no data is held back for long. Slower
//! directions are woken by every arrival.

use std::future::Future;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Minimum rate for batching, in bytes per second: 2 Gbit/s.
const MIN_BATCHING_RATE: f64 = 250e6;
/// Time in which data up to the mark arrives.
const MARK_SECONDS: f64 = 0.0005;
/// Bounds of the mark, in bytes. A smaller mark saves nothing, and a larger one exceeds the pipe.
const MIN_MARK: u32 = 64 * 1024;
const MAX_MARK: u32 = 512 * 1024;
/// Maximum time to wait for the mark; after it, the available data is read.
const MAX_MARK_WAIT: Duration = Duration::from_millis(2);
/// Number of bytes over which the rate is measured.
const RATE_SAMPLE_BYTES: u64 = 4 * 1024 * 1024;

/// Low-water mark of one direction's reading socket.
#[derive(Debug, Default)]
pub(super) struct ReadBatching {
    /// Start of the current rate measurement: the time, and the bytes moved before.
    since: Option<(Instant, u64)>,
    /// Current setting; 0 and 1 mean no mark.
    mark: u32,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl ReadBatching {
    /// Called when nothing is left to read, with the bytes moved so far. May set a mark on the
    /// socket.
    pub(super) fn on_empty(&mut self, cx: &mut Context<'_>, from: &impl AsFd, moved: u64) {
        let (since, before) = *self.since.get_or_insert_with(|| (Instant::now(), moved));
        if moved.saturating_sub(before) >= RATE_SAMPLE_BYTES {
            let now = Instant::now();
            let rate = (moved - before) as f64 / (now - since).as_secs_f64().max(1e-6);
            self.since = Some((now, moved));
            let wanted = if rate >= MIN_BATCHING_RATE {
                ((rate * MARK_SECONDS) as u32).clamp(MIN_MARK, MAX_MARK)
            } else {
                1
            };
            // Each change is a system call: small ones are not worth it.
            if wanted > self.mark.saturating_mul(2) || wanted < self.mark / 2 {
                self.set_mark(from, wanted);
            }
        }
        if self.mark > 1 {
            let deadline = self
                .deadline
                .insert(Box::pin(tokio::time::sleep(MAX_MARK_WAIT)));
            if deadline.as_mut().poll(cx).is_ready() {
                self.remove_mark(from);
            }
        }
    }

    /// Called on every wake-up: removes the mark when its time is over.
    pub(super) fn check_deadline(&mut self, cx: &mut Context<'_>, from: &impl AsFd) {
        if let Some(deadline) = &mut self.deadline
            && let Poll::Ready(()) = deadline.as_mut().poll(cx)
        {
            self.remove_mark(from);
        }
    }

    /// Called after a read: stops the timer.
    pub(super) fn on_read(&mut self) {
        self.deadline = None;
    }

    fn remove_mark(&mut self, from: &impl AsFd) {
        self.deadline = None;
        self.since = None;
        // Once the mark is removed, the kernel reports the data that has arrived meanwhile.
        self.set_mark(from, 1);
    }

    fn set_mark(&mut self, from: &impl AsFd, mark: u32) {
        // A socket that refuses is about to fail. Without a mark, the relay works as before.
        self.mark = if drs::set_receive_low_water_mark(from, mark).is_ok() {
            mark
        } else {
            0
        };
    }
}
