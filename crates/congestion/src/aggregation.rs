//! Bursts of acknowledgements: how much more than the bandwidth they acknowledge at once. The
//! window has to be larger by that, or the sender falls silent between bursts.

use std::time::Duration;

use crate::{
    delivery::{carried_bytes, rate},
    maximum::RoundsMaximum,
};

/// Longest gap between acknowledgements that the window bridges.
const MAX_GAP: Duration = Duration::from_millis(100);

/// Estimate of the bytes that bursts acknowledge beyond the bandwidth.
#[derive(Clone, Debug, Default)]
pub(crate) struct AckAggregation {
    began_at: Duration,
    acked_bytes: u64,
    excess: RoundsMaximum,
}

impl AckAggregation {
    /// Begins a round.
    pub fn begin_round(&mut self) {
        self.excess.begin_round();
    }

    /// Adds acknowledged bytes. A burst ends when the bandwidth has caught up with it.
    pub fn on_ack(&mut self, bytes: u64, bandwidth: u64, now: Duration) {
        let elapsed = now.saturating_sub(self.began_at);
        if !elapsed.is_zero() && rate(self.acked_bytes, elapsed) <= bandwidth {
            self.began_at = now;
            self.acked_bytes = 0;
        }
        self.acked_bytes = self.acked_bytes.saturating_add(bytes);
        let expected = carried_bytes(bandwidth, now.saturating_sub(self.began_at));
        let excess = self.acked_bytes.saturating_sub(expected);
        self.excess
            .add(excess.min(carried_bytes(bandwidth, MAX_GAP)));
    }

    /// Returns the bytes that bursts of the last ten rounds acknowledged in addition.
    pub fn excess_bytes(&self) -> u64 {
        self.excess.maximum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_count_with_what_exceeds_the_bandwidth() {
        let mut aggregation = AckAggregation::default();
        let at = Duration::from_millis;
        // 1,000 bytes each millisecond, which arrive every ten milliseconds.
        for burst in 1..=20_u64 {
            aggregation.on_ack(10_000, 1_000_000, at(10 * burst));
        }
        assert_eq!(aggregation.excess_bytes(), 10_000);
    }
}
