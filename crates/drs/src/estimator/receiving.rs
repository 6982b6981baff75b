//! The receiving side: it sees its own program, the window that it offers, how much of it a round trip fills, segments out of
//! order, and the round trip grow with a queue. It does not see the sender's buffer, windows, pacing or program: those it
//! can't tell apart.

use std::time::Duration;

use super::interval::{Interval, receiving_rtt};
use crate::{Limit, Sample};

/// Unread data takes up this part of what window and unread data make together: the program reads too slowly.
const UNREAD: f64 = 0.3;
/// A round trip's data fills this part of the window that is offered: the window limits.
const FILLED: f64 = 0.7;
/// A round trip above the least one by this part of it, and by [`QUEUE_LEAST`], is a standing queue. The receiving side counts its round trips
/// in milliseconds of the timestamp clock (RFC 7323), so the margin is wider than the sender's.
const QUEUE: f64 = 0.25;
const QUEUE_LEAST: Duration = Duration::from_millis(3);
/// A loss within so many round trips after a standing queue was seen was that queue overflowing.
const EXPLAINS: u32 = 3;
/// Losses are what limits a flow for so long after one was seen, unless something else shows. A sender whose window takes longer to grow back
/// looks like any other that sends no faster.
const REMEMBERS: Duration = Duration::from_secs(3);

/// What is remembered of a flow from interval to interval.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    before: Option<Sample>,
    queue_seen: Option<Duration>,
    loss: Option<Loss>,
}

#[derive(Debug, Clone, Copy)]
struct Loss {
    at: Duration,
    by_queue: bool,
}

impl Memory {
    pub fn look(&mut self, sample: &Sample) {
        let before = self
            .before
            .replace(*sample)
            .filter(|before| before.at <= sample.at);
        if before.is_some_and(|before| before.info.out_of_order != sample.info.out_of_order) {
            let round = receiving_rtt(sample).max(Duration::from_millis(100));
            let recent = round.saturating_mul(EXPLAINS);
            let by_queue = self
                .queue_seen
                .is_some_and(|seen| sample.at.saturating_sub(seen) <= recent);
            self.loss = Some(Loss {
                at: sample.at,
                by_queue,
            });
        }
        if has_queue(sample) {
            self.queue_seen = Some(sample.at);
        }
    }

    pub fn judge(&self, interval: &Interval) -> Limit {
        let sample = interval.last();
        let (unread, offered) = (interval.mean_unread(), interval.mean_offered());
        let round_trip = interval.received_rate() * receiving_rtt(sample).as_secs_f64();
        let queue = has_queue(sample);
        let loss = self
            .loss
            .filter(|loss| sample.at.saturating_sub(loss.at) <= REMEMBERS);
        if unread > UNREAD * (unread + offered) {
            Limit::ReceivingApplication
        } else if queue {
            Limit::Path
        } else if round_trip >= FILLED * offered && offered > 0.0 {
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

fn has_queue(sample: &Sample) -> bool {
    sample.info.min_rtt.is_some_and(|least| {
        receiving_rtt(sample) > least.saturating_add(least.mul_f64(QUEUE).max(QUEUE_LEAST))
    })
}
