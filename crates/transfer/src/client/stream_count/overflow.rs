//! Detects a queue that overflows but does not show in round-trip times. If it was full before the
//! copy began and stays full, it is a part of the minimum round-trip time. BBR keeps such a queue
//! full and ignores its losses: its streams send more than the path carries, and the queue drops
//! the rest.

use std::time::Duration;

use super::response;
use super::window::{Seen, View};
use super::{QUEUE_STANDS, QUEUE_STANDS_RTTS};

/// Loss rate from which a queue must be dropping packets. BBR's later versions use the same
/// threshold (`BBR.LossThresh` of draft-ietf-ccwg-bbr).
const OVERFLOW_LOSS: f64 = 0.02;
/// Maximum ratio of a stream's rate to the one that Reno or CUBIC would have under its losses.
/// Above it, losses do not limit the stream. Right after slow start, the ratio is a few times one.
const MAX_RESPONSE_FACTOR: f64 = 4.0;

/// Detector of an overflowing queue.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    /// Time by which windows saw the overflow for longer than not.
    stood: Duration,
    /// True once streams have been retired because of it.
    has_stood: bool,
}

/// Cause of the losses in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dropped {
    /// The path itself, as far as is known.
    Path,
    /// A queue that other flows may have filled, or that begins to overflow. It is no reason for
    /// more streams.
    Queue,
    /// A queue that has overflowed long enough for streams to be retired.
    StandingQueue,
}

impl Overflow {
    /// Counts a window, and returns the cause of its losses.
    pub(super) fn judge(&mut self, seen: &Seen, view: &View) -> Dropped {
        let loss = loss(seen);
        // A queue that shows in round-trip times is handled elsewhere.
        let is_explained = view.has_queue() || is_held_by_losses(loss, seen, view);
        let overflows = !is_explained && loss >= OVERFLOW_LOSS;
        // The end of slow start may lose as much during one window.
        let is_again = overflows && !self.stood.is_zero();
        if overflows {
            self.stood = self.stood.saturating_add(seen.length);
            if self.stood >= QUEUE_STANDS.max(view.rtt.saturating_mul(QUEUE_STANDS_RTTS)) {
                (self.stood, self.has_stood) = (Duration::ZERO, true);
                return Dropped::StandingQueue;
            }
        } else {
            self.stood = self.stood.saturating_sub(seen.length);
        }
        match is_again || (self.has_stood && !is_explained) {
            true => Dropped::Queue,
            false => Dropped::Path,
        }
    }
}

/// Returns the part of the sent segments that was lost, from 0 to 1.
fn loss(seen: &Seen) -> f64 {
    let sent = seen.lost.saturating_add(seen.segments);
    seen.lost as f64 / sent.max(1) as f64
}

/// Returns true if the streams carry no more than a congestion control that reacts to losses.
fn is_held_by_losses(loss: f64, seen: &Seen, view: &View) -> bool {
    let each = seen.rate / view.open.max(1) as f64;
    response::carried_by_one(loss, view).is_some_and(|held| each <= MAX_RESPONSE_FACTOR * held)
}
