//! Whose queue it is: one of a flow's own shrinks when the flow steps back.

use std::time::Duration;

/// A queue that has not shrunk in so many rounds while this flow steps back is not its own: others
/// fill it, who would take all.
pub(super) const MAX_UNDRAINED_ROUNDS: u32 = 8;
/// A round of stepping back takes more than this part of the path's round trip off a queue of this
/// flow's own.
const MIN_DRAINED_RTT_PARTS: u32 = 400;

/// How a queue shrinks while the flow steps back.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Draining {
    /// The last round's least round trip; none before the first.
    last_rtt: Option<Duration>,
    /// The longest of these since counting began: what was on its way when the flow stepped back
    /// still joins the queue.
    longest_rtt: Duration,
    rounds: u32,
}

impl Draining {
    /// A queue is seen first, with this least round trip.
    pub(super) fn begin(rtt: Duration) -> Self {
        Self {
            last_rtt: Some(rtt),
            longest_rtt: rtt,
            rounds: 0,
        }
    }

    /// Takes a round's least round trip; whether the queue shrinks.
    pub(super) fn observe(&mut self, rtt: Duration, min_rtt: Duration, counts: bool) -> bool {
        let last_rtt = self.last_rtt.replace(rtt);
        self.longest_rtt = self.longest_rtt.max(rtt);
        self.rounds += u32::from(counts);
        last_rtt.is_some_and(|last| rtt + min_rtt / MIN_DRAINED_RTT_PARTS < last)
    }

    /// Whether others fill the queue. Where they don't, counting begins anew.
    pub(super) fn is_in_vain(&mut self, rtt: Duration, min_rtt: Duration) -> bool {
        // Behind a long queue a step back shows as late as the round trip is long.
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
