//! Detection of whose queue it is: a flow's own queue shrinks when the flow steps back.

use std::time::Duration;

/// Rounds of stepping back after which a queue that has not shrunk belongs to others, who would
/// take everything.
pub(super) const MAX_UNDRAINED_ROUNDS: u32 = 8;
/// Minimum amount that a round of stepping back takes off a flow's own queue: one part in so many
/// of the path's round trip.
const MIN_DRAINED_RTT_PARTS: u32 = 400;

/// Draining of a queue while the flow steps back.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Draining {
    /// Least round trip of the last round; `None` before the first.
    last_rtt: Option<Duration>,
    /// Longest of these since counting began: data in flight when the flow stepped back still joins
    /// the queue.
    longest_rtt: Duration,
    rounds: u32,
}

impl Draining {
    /// Begins when a queue is first seen, with the round's least round trip.
    pub(super) fn begin(rtt: Duration) -> Self {
        Self {
            last_rtt: Some(rtt),
            longest_rtt: rtt,
            rounds: 0,
        }
    }

    /// Takes a round's least round trip. Returns true if the queue shrinks.
    pub(super) fn observe(&mut self, rtt: Duration, min_rtt: Duration, counts: bool) -> bool {
        let last_rtt = self.last_rtt.replace(rtt);
        self.longest_rtt = self.longest_rtt.max(rtt);
        self.rounds += u32::from(counts);
        last_rtt.is_some_and(|last| rtt + min_rtt / MIN_DRAINED_RTT_PARTS < last)
    }

    /// Returns true if others fill the queue. If they do not, counting starts again.
    pub(super) fn is_in_vain(&mut self, rtt: Duration, min_rtt: Duration) -> bool {
        // Behind a long queue, a step back shows only after the longer round trip.
        let round_trips = rtt
            .as_nanos()
            .checked_div(min_rtt.as_nanos())
            .unwrap_or(1)
            .max(1);
        if u128::from(self.rounds) < u128::from(MAX_UNDRAINED_ROUNDS) * round_trips {
            return false;
        }
        let shrunk = self.longest_rtt.saturating_sub(rtt);
        (self.longest_rtt, self.rounds) = (rtt, 0);
        shrunk < MAX_UNDRAINED_ROUNDS * (min_rtt / MIN_DRAINED_RTT_PARTS)
    }
}
