//! Limit of the amount in flight after congestion. It grows back along the curve of CUBIC
//! (RFC 9438, section 4.2), so that flows of both kinds share a path.

use std::time::Duration;

/// Part of the amount in flight that remains, at most.
const KEPT: f64 = 0.7;
/// Part that remains, at least. A path whose rate falls to a tenth is followed within a few rounds.
const MIN_KEPT: f64 = 0.1;
/// Constant of the curve, in packets per cubic second. It is ten times that of CUBIC, so that two
/// connections of this kind converge within tens of seconds. Beside one CUBIC flow on a path of
/// 500 Mbit/s and 40 ms, the share is still below a half.
const CURVE: f64 = 4.0;
/// Growth in a round, in packets, that Reno would have with the same reduction (section 4.3).
const RENO_GROWTH: f64 = 3.0 * (1.0 - KEPT) / (1.0 + KEPT);
/// Rounds without a queue after which the limit grows fast: what filled the queue has left.
const RECOVERY_ROUNDS: u32 = 8;
/// Factor of a round of fast growth.
const FAST_GROWTH: f64 = 1.25;

/// Limit of the amount in flight, in packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlightLimit {
    packets: f64,
    /// Level at which the curve is flat: what was in flight at the congestion.
    plateau: f64,
    began_at: Duration,
    /// Rounds since the congestion or the last queue.
    quiet_rounds: u32,
}

/// Packets in flight when congestion occurred.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    /// Packets in flight when a lost packet was sent.
    pub in_flight: f64,
    /// Packets in flight that would deliver as much, without a queue.
    pub sufficient: f64,
}

impl InFlightLimit {
    /// Begins after congestion. `excess_loss` is the part of the packets that did not fit. The
    /// limit is not below what is sufficient, so that short queues do not cost bandwidth.
    pub fn new(level: Level, excess_loss: f64, previous: Option<Self>, now: Duration) -> Self {
        let kept = (1.0 - excess_loss).clamp(MIN_KEPT, KEPT);
        let packets = level.in_flight * kept;
        let shrinks = previous.is_some_and(|previous| level.in_flight < previous.plateau);
        let plateau = level.in_flight * if shrinks { (1.0 + KEPT) / 2.0 } else { 1.0 };
        Self {
            packets: packets.max(level.sufficient.min(level.in_flight)),
            plateau,
            began_at: now,
            quiet_rounds: 0,
        }
    }

    /// Returns the limit, in packets.
    pub fn packets(&self) -> f64 {
        self.packets
    }

    /// Grows at the end of a round.
    pub fn end_round(&mut self, is_queued: bool, now: Duration) {
        self.quiet_rounds = if is_queued {
            0
        } else {
            self.quiet_rounds.saturating_add(1)
        };
        let seconds = now.saturating_sub(self.began_at).as_secs_f64();
        let to_plateau = (self.plateau * (1.0 - KEPT) / CURVE).cbrt();
        let curve = self.plateau + CURVE * (seconds - to_plateau).powi(3);
        self.packets = (self.packets + RENO_GROWTH).max(curve);
        if self.quiet_rounds > RECOVERY_ROUNDS {
            self.packets *= FAST_GROWTH;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(in_flight: f64, sufficient: f64, excess_loss: f64) -> InFlightLimit {
        InFlightLimit::new(
            Level {
                in_flight,
                sufficient,
            },
            excess_loss,
            None,
            Duration::ZERO,
        )
    }

    /// Grows a limit in rounds of 100 ms.
    fn grow(limit: &mut InFlightLimit, rounds: u32, is_queued: bool) {
        for round in 1..=rounds {
            limit.end_round(is_queued, Duration::from_millis(100) * round);
        }
    }

    #[test]
    fn more_loss_lowers_a_limit_more() {
        assert_eq!(limit(1000.0, 0.0, 0.02).packets(), 700.0);
        assert_eq!(limit(1000.0, 0.0, 0.5).packets(), 500.0);
        assert_eq!(limit(1000.0, 0.0, 1.0).packets(), 100.0);
    }

    #[test]
    fn a_limit_keeps_what_is_sufficient() {
        assert_eq!(limit(1100.0, 1000.0, 0.1).packets(), 1000.0);
        assert_eq!(limit(900.0, 1000.0, 0.1).packets(), 900.0);
    }

    #[test]
    fn a_limit_returns_to_its_level_and_then_exceeds_it() {
        let mut limit = limit(1000.0, 0.0, 0.0);
        grow(&mut limit, 20, true);
        assert!((850.0..1000.0).contains(&limit.packets()), "{limit:?}");
        grow(&mut limit, 80, true);
        assert!((1000.0..1500.0).contains(&limit.packets()), "{limit:?}");
    }

    #[test]
    fn a_limit_grows_fast_once_the_queue_is_gone() {
        let mut limit = limit(1000.0, 0.0, 0.0);
        grow(&mut limit, 20, false);
        assert!(limit.packets() > 10_000.0, "{limit:?}");
    }
}
