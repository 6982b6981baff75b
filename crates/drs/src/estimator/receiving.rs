//! Verdicts of the receiver. It sees its own program, the window that it offers and how much of it
//! a round trip fills, segments out of order, and a round trip that grows with a queue. It cannot
//! distinguish the sender's buffer, windows, pacing and program.

use std::time::Duration;

use super::holes::Holes;
use super::interval::{Interval, receiving_rtt};
use super::round_trips::{MinQueue, RoundTrips};
use crate::{Limit, Sample};

/// Minimum part of unread data in the sum of window and unread data if the program reads too
/// slowly.
const MIN_UNREAD_PART: f64 = 0.3;
/// Minimum part of the offered window that a round trip's data fills if the window is the limit.
const MIN_FILLED_WINDOW_PART: f64 = 0.7;
/// Minimum standing queue. The receiver measures round trips in milliseconds of the timestamp clock
/// (RFC 7323), so this is more than the sender's minimum.
const MIN_QUEUE: MinQueue = MinQueue {
    part: 0.25,
    time: Duration::from_millis(3),
};
/// Number of round trips of which the receiver knows the least: the handshake's, and a few after
/// it.
const MIN_RTT_DRAWS: u64 = 4;
/// Round trips after a standing queue within which a loss counts as an overflow of that queue.
const ROUNDS_OF_LOSS: u32 = 3;
/// Time after a loss during which losses are the limit, unless something else shows. A window that
/// takes longer to grow back cannot be distinguished from a sender that simply sends no faster.
const LOSS_MEMORY: Duration = Duration::from_secs(3);

/// Memory of a flow from interval to interval.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    before: Option<Sample>,
    round_trips: RoundTrips,
    holes: Holes,
    queue_seen: Option<Duration>,
    loss: Option<Loss>,
}

#[derive(Debug, Clone, Copy)]
struct Loss {
    at: Duration,
    by_queue: bool,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            before: None,
            round_trips: RoundTrips::new(MIN_QUEUE),
            holes: Holes::default(),
            queue_seen: None,
            loss: None,
        }
    }
}

impl Memory {
    pub fn look(&mut self, sample: &Sample) {
        let before = self
            .before
            .replace(*sample)
            .filter(|before| before.at <= sample.at);
        let rtt = receiving_rtt(sample);
        if before.is_some_and(|before| self.holes.show_loss(&before, sample, rtt)) {
            let round = rtt.max(Duration::from_millis(100));
            let recent = round.saturating_mul(ROUNDS_OF_LOSS);
            let by_queue = self
                .queue_seen
                .is_some_and(|seen| sample.at.saturating_sub(seen) <= recent);
            // Losses within a few round trips are one event.
            let same = self
                .loss
                .filter(|loss| sample.at.saturating_sub(loss.at) <= recent);
            let by_queue = by_queue || same.is_some_and(|loss| loss.by_queue);
            self.loss = Some(Loss {
                at: sample.at,
                by_queue,
            });
        }
        let min_rtt = sample.info.min_rtt.unwrap_or(rtt);
        self.round_trips
            .look(sample.at, rtt, min_rtt, Some(MIN_RTT_DRAWS));
        if self.round_trips.show_queue() {
            self.queue_seen = Some(sample.at);
        }
    }

    pub fn judge(&self, interval: &Interval) -> Limit {
        let sample = interval.last();
        let (unread, offered) = (interval.mean_unread(), interval.mean_offered());
        let round_trip = interval.received_rate() * receiving_rtt(sample).as_secs_f64();
        let queue = self.round_trips.show_queue();
        let loss = self
            .loss
            .filter(|loss| sample.at.saturating_sub(loss.at) <= LOSS_MEMORY);
        if unread > MIN_UNREAD_PART * (unread + offered) {
            Limit::ReceivingApplication
        } else if queue {
            Limit::Path
        } else if round_trip >= MIN_FILLED_WINDOW_PART * offered && offered > 0.0 {
            Limit::ReceiveWindow
        } else {
            match loss {
                Some(loss) if loss.by_queue => Limit::Path,
                Some(_) => Limit::Loss,
                None => Limit::Sender,
            }
        }
    }
}
