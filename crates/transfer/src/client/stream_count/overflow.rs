//! A queue that overflows and is not seen: one that was full before the copy began, and stays so,
//! is a part of the least round trip that is known. BBR keeps such a queue and takes no loss for a
//! sign of it, so that its streams send beyond what the path carries, and the queue drops the rest.

use std::time::Duration;

use super::response;
use super::window::{Seen, View};
use super::{QUEUE_STANDS, QUEUE_STANDS_RTTS};

/// The part of what is sent that is lost, from which on it is more than a path loses by itself:
/// what BBR's later versions take for too much (`BBR.LossThresh` of draft-ietf-ccwg-bbr).
const OVERFLOW_LOSS: f64 = 0.02;
/// Losses do not hold streams that carry more than so many times what Reno or CUBIC would under
/// them: right after slow start, those carry a few times as much.
const MAX_RESPONSE_FACTOR: f64 = 4.0;

/// Watches for it.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    /// For how much longer windows saw it than not.
    stood: Duration,
    /// Whether streams have gone for it.
    has_stood: bool,
}

/// What dropped what was lost in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dropped {
    /// The path itself, as far as is known.
    Path,
    /// A queue that others may have filled, or that begins to overflow: no reason for more streams.
    Queue,
    /// A queue that has overflowed for so long that streams are to go.
    StandingQueue,
}

impl Overflow {
    /// Counts a window.
    pub(super) fn judge(&mut self, seen: &Seen, view: &View) -> Dropped {
        let loss = loss(seen);
        // A queue that is seen is seen to elsewhere.
        let is_explained = view.has_queue() || is_held_by_losses(loss, seen, view);
        let overflows = !is_explained && loss >= OVERFLOW_LOSS;
        // Slow start may end with as much loss, for a window.
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

/// The part of what was sent that was lost, 0 to 1.
fn loss(seen: &Seen) -> f64 {
    let sent = seen.lost.saturating_add(seen.segments);
    seen.lost as f64 / sent.max(1) as f64
}

/// Whether the streams carry no more than a congestion control that answers losses lets them.
fn is_held_by_losses(loss: f64, seen: &Seen, view: &View) -> bool {
    let each = seen.rate / view.open.max(1) as f64;
    response::carried_by_one(loss, view).is_some_and(|held| each <= MAX_RESPONSE_FACTOR * held)
}
