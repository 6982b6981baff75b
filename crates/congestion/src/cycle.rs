//! Cycle of pacing gains that probes for more bandwidth: a round trip above the bandwidth, one
//! below it, which drains what the first one queued, and six at it.

use std::time::Duration;

/// Gain of each phase.
const GAINS: [f64; 8] = [PROBE_GAIN, DRAIN_GAIN, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const PROBE_GAIN: f64 = 1.25;
const DRAIN_GAIN: f64 = 0.75;
/// Phase that sends more than the bandwidth.
const PROBE: usize = 0;
/// Phase that sends less.
const DRAIN: usize = 1;
/// First phase at the bandwidth. The last packets of a probe are acknowledged in it.
const CRUISE: usize = 2;
/// Growth of the bandwidth that makes the next probe follow at once.
const GROWTH: f64 = 1.1;

/// State of the path that decides when a phase ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathState {
    /// Estimated bandwidth, in bytes per second.
    pub bandwidth: u64,
    /// Base round trip, the length of a phase.
    pub base: Duration,
    /// Bandwidth-delay product.
    pub product_bytes: u64,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// If true, the last round showed a queue.
    pub is_queued: bool,
}

/// Position in the cycle.
#[derive(Clone, Debug)]
pub(crate) struct GainCycle {
    phase: usize,
    began_at: Duration,
    /// Bandwidth when the last probe began.
    probed_bandwidth: u64,
}

impl GainCycle {
    /// Begins in a phase that `random` chooses, so that connections of one path probe at different
    /// times. It is never the phase that drains, as nothing was probed.
    pub fn new(random: u64, bandwidth: u64, now: Duration) -> Self {
        let phases = GAINS.len() as u64;
        let skipped = random % (phases - 1);
        let phase = if skipped == 0 {
            PROBE
        } else {
            skipped as usize + 1
        };
        Self {
            phase,
            began_at: now,
            probed_bandwidth: bandwidth,
        }
    }

    /// Returns the pacing gain.
    pub fn gain(&self) -> f64 {
        GAINS.get(self.phase).copied().unwrap_or(1.0)
    }

    /// Enters the next phase if this one is over.
    pub fn advance(&mut self, path: &PathState, now: Duration) {
        let elapsed = now.saturating_sub(self.began_at);
        let is_over = match self.phase {
            PROBE => {
                let probed = path.in_flight_bytes as f64 >= PROBE_GAIN * path.product_bytes as f64;
                elapsed >= path.base && (probed || elapsed >= path.base * 2)
            }
            DRAIN => elapsed >= path.base || path.in_flight_bytes <= path.product_bytes,
            _ => elapsed >= path.base,
        };
        if !is_over {
            return;
        }
        let grew = path.bandwidth as f64 >= GROWTH * self.probed_bandwidth as f64;
        let next = match self.phase {
            DRAIN..=CRUISE if grew && !path.is_queued => PROBE,
            phase => (phase + 1) % GAINS.len(),
        };
        self.enter(next, path.bandwidth, now);
    }

    /// Ends a probe that met congestion.
    pub fn on_congestion(&mut self, bandwidth: u64, now: Duration) {
        if self.phase == PROBE {
            self.enter(DRAIN, bandwidth, now);
        }
    }

    fn enter(&mut self, phase: usize, bandwidth: u64, now: Duration) {
        self.phase = phase;
        self.began_at = now;
        if phase == PROBE {
            self.probed_bandwidth = bandwidth;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(100);

    fn path(bandwidth: u64) -> PathState {
        PathState {
            bandwidth,
            base: BASE,
            product_bytes: 1000,
            in_flight_bytes: 1300,
            is_queued: false,
        }
    }

    #[test]
    fn a_cycle_probes_drains_and_cruises() {
        let mut cycle = GainCycle::new(0, 1000, Duration::ZERO);
        let gains: Vec<f64> = (1..=9)
            .map(|phase| {
                let gain = cycle.gain();
                cycle.advance(&path(1000), BASE * phase);
                gain
            })
            .collect();
        assert_eq!(gains, [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.25]);
    }

    #[test]
    fn a_probe_that_found_bandwidth_is_repeated() {
        let mut cycle = GainCycle::new(0, 1000, Duration::ZERO);
        cycle.advance(&path(1000), BASE);
        cycle.advance(&path(1200), BASE * 2);
        assert_eq!(cycle.gain(), 1.25);
    }

    #[test]
    fn no_cycle_begins_by_draining() {
        for random in 0..100 {
            assert_ne!(GainCycle::new(random, 1000, Duration::ZERO).gain(), 0.75);
        }
    }
}
