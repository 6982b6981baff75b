//! Fewer, larger reads where data comes fast: a wake-up costs the same for one segment as for a
//! hundred.
//!
//! When a direction that moves more than [`MIN_BATCHING_RATE`] finds nothing to read, its socket
//! wakes it only once [`MARK_SECONDS`] worth of data has come (`SO_RCVLOWAT`), or the stream ends.
//! A timer takes the mark away again when less comes, so that nothing ever waits for what may not
//! come. Slower directions are woken by every arrival, as always.

use std::future::Future;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Bytes a second from which on batches form: 2 Gbit/s.
const MIN_BATCHING_RATE: f64 = 250e6;
/// The mark is what arrives in this time.
const MARK_SECONDS: f64 = 0.0005;
/// Bounds of the mark, in bytes: under the first it saves nothing, and over the second the pipe is
/// full.
const MIN_MARK: u32 = 64 * 1024;
const MAX_MARK: u32 = 512 * 1024;
/// After so long without the mark being reached, whatever has come is read.
const MAX_MARK_WAIT: Duration = Duration::from_millis(2);
/// The rate is measured over this much.
const RATE_SAMPLE_BYTES: u64 = 4 * 1024 * 1024;

/// The mark of one direction's reading socket.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Where the present measurement of the rate began.
    since: Option<(Instant, u64)>,
    /// As it is set; 0 and 1 are none.
    mark: u32,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Batch {
    /// Nothing is there to be read, and `moved` bytes have gone so far. The socket may be told to
    /// wait for more than one.
    pub(super) fn nothing_to_read(&mut self, cx: &mut Context<'_>, from: &impl AsFd, moved: u64) {
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
                self.set(from, wanted);
            }
        }
        if self.mark > 1 {
            let deadline = self
                .deadline
                .insert(Box::pin(tokio::time::sleep(MAX_MARK_WAIT)));
            if deadline.as_mut().poll(cx).is_ready() {
                self.give_up(from);
            }
        }
    }

    /// Called on every wake-up: takes the mark away when its time is over.
    pub(super) fn check(&mut self, cx: &mut Context<'_>, from: &impl AsFd) {
        if let Some(deadline) = &mut self.deadline
            && let Poll::Ready(()) = deadline.as_mut().poll(cx)
        {
            self.give_up(from);
        }
    }

    /// Something was read: the timer is off.
    pub(super) fn read(&mut self) {
        self.deadline = None;
    }

    fn give_up(&mut self, from: &impl AsFd) {
        self.deadline = None;
        self.since = None;
        // The kernel reports what has come meanwhile as soon as the mark is gone.
        self.set(from, 1);
    }

    fn set(&mut self, from: &impl AsFd, mark: u32) {
        // A socket that refuses is about to fail; without a mark all goes on as before.
        self.mark = if drs::set_receive_low_water_mark(from, mark).is_ok() {
            mark
        } else {
            0
        };
    }
}
