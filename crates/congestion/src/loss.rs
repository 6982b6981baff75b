//! Comparison of losses with and without a queue: decides if loss is congestion.
//!
//! Packets count as *loaded* if the round trip was well above its base when they were acknowledged
//! or lost, or if they were sent in a probe for more bandwidth, and as *unloaded* otherwise. Random
//! loss hits both equally. A queue that overflows is full, so the lost packets were loaded. Probes
//! count because the queues of some paths are too short to show. The counts are forgotten
//! exponentially, so that the loss of several rounds decides, and a path may change.
//!
//! Losses are counted in bursts of adjacent packets, because the test takes them as independent.

use std::time::Duration;

use crate::delivery::{PacketStamp, Pressure};

/// Part of the base round trip by which a queue has to exceed it. Queues of a tenth of the
/// bandwidth-delay product still show.
const QUEUE_SHARE: u32 = 20;
/// Time by which a queue has to exceed the base round trip in addition. It covers what hosts add on
/// short paths: delayed acknowledgements, interrupt moderation and scheduling.
const QUEUE_MARGIN: Duration = Duration::from_millis(1);
/// Parts of a round trip in which the smallest sample decides if there is a queue. They are short,
/// so that an overflow falls into other parts than the growth of the queue.
const PARTS_OF_ROUND: u32 = 8;

/// Standard deviations by which the loss of loaded packets has to exceed that of unloaded ones.
const SIGNIFICANCE: f64 = 2.5;
/// Smallest number of losses of loaded packets that can be congestion.
const MIN_LOSSES: f64 = 3.0;
/// Ratio by which the loss of loaded packets has to exceed that of unloaded ones.
const MIN_RATIO: f64 = 1.25;

/// Rounds over which loaded packets are remembered.
const LOADED_ROUNDS: f64 = 8.0;
/// Rounds over which unloaded packets and those of falling pressure are remembered. They are more,
/// because random loss is a property of the path, and congestion is an event.
const UNLOADED_ROUNDS: f64 = 32.0;

/// Packets after which the random loss is known well enough to send more by it.
const MIN_RANDOM_PACKETS: f64 = 200.0;
/// Largest random loss that sending more makes up for.
const MAX_RANDOM_LOSS: f64 = 0.25;

/// Packets, and how many of them were lost.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    packets: f64,
    lost: f64,
    bursts: f64,
    /// Packets of this round.
    recent: f64,
}

impl Tally {
    fn add_acked(&mut self, packets: f64) {
        self.packets += packets;
        self.recent += packets;
    }

    fn add_lost(&mut self, packets: f64, new_burst: bool) {
        self.packets += packets;
        self.recent += packets;
        self.lost += packets;
        if new_burst {
            self.bursts += 1.0;
        }
    }

    /// Forgets a part of the past as large as this round's share of `round` packets.
    fn end_round(&mut self, round: f64, remembered_rounds: f64) {
        let kept = 1.0 - (self.recent / round.max(1.0)).min(1.0) / remembered_rounds;
        self.packets *= kept;
        self.lost *= kept;
        self.bursts *= kept;
        self.recent = 0.0;
    }

    fn loss(&self) -> f64 {
        self.lost / self.packets.max(1.0)
    }
}

/// Losses of loaded and unloaded packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossComparison {
    part_ends_at: Duration,
    /// Smallest round trip of this part of a round.
    part_minimum: Duration,
    is_queued: bool,
    /// Smallest round trip of this round. `None` before its first sample.
    round_minimum: Option<Duration>,
    loaded: Tally,
    unloaded: Tally,
    falling: Tally,
}

impl LossComparison {
    /// Counts acknowledged packets, and the round trip of the newest.
    pub fn on_ack(
        &mut self,
        packets: f64,
        newest: &PacketStamp,
        round_trip: Duration,
        base: Duration,
        now: Duration,
    ) {
        if now >= self.part_ends_at {
            self.part_ends_at = now.saturating_add(round_trip / PARTS_OF_ROUND);
            self.part_minimum = round_trip;
        }
        self.part_minimum = self.part_minimum.min(round_trip);
        self.round_minimum = Some(self.round_minimum.unwrap_or(round_trip).min(round_trip));
        self.is_queued = shows_queue(self.part_minimum, base);
        self.class(newest).add_acked(packets);
        if newest.pressure == Pressure::Falling && !self.is_queued {
            self.falling.add_acked(packets);
        }
    }

    /// Counts lost packets. Returns true if loss is congestion.
    pub fn on_loss(&mut self, packets: f64, stamp: &PacketStamp, new_burst: bool) -> bool {
        if stamp.pressure == Pressure::Falling && !self.is_queued {
            self.falling.add_lost(packets, new_burst);
        }
        self.class(stamp).add_lost(packets, new_burst);
        self.is_loaded(stamp) && exceeds(&self.loaded, &self.unloaded)
    }

    /// Ends a round. Returns true if it showed a queue from its beginning to its end.
    pub fn end_round(&mut self, base: Duration) -> bool {
        let packets = self.loaded.recent + self.unloaded.recent;
        self.loaded.end_round(packets, LOADED_ROUNDS);
        self.unloaded.end_round(packets, UNLOADED_ROUNDS);
        self.falling.end_round(packets, UNLOADED_ROUNDS);
        self.round_minimum
            .take()
            .is_some_and(|minimum| shows_queue(minimum, base))
    }

    /// Forgets the loaded packets, because the controller has responded to their loss.
    pub fn forget_loaded(&mut self) {
        self.loaded = Tally::default();
    }

    /// Returns the part of the loaded packets that was lost beyond the random loss.
    pub fn excess_loss(&self) -> f64 {
        (self.loaded.loss() - self.unloaded.loss()).clamp(0.0, 1.0)
    }

    /// Returns the random loss: the part that was lost while this connection could not overflow a
    /// queue. What is lost at the full rate does not count: sending more by it would cause it.
    pub fn random_loss(&self) -> f64 {
        if self.falling.packets < MIN_RANDOM_PACKETS {
            return 0.0;
        }
        self.falling.loss().min(MAX_RANDOM_LOSS)
    }

    fn class(&mut self, stamp: &PacketStamp) -> &mut Tally {
        if self.is_loaded(stamp) {
            &mut self.loaded
        } else {
            &mut self.unloaded
        }
    }

    fn is_loaded(&self, stamp: &PacketStamp) -> bool {
        self.is_queued || stamp.pressure == Pressure::Rising
    }
}

fn shows_queue(round_trip: Duration, base: Duration) -> bool {
    round_trip
        > base
            .saturating_add(base / QUEUE_SHARE)
            .saturating_add(QUEUE_MARGIN)
}

/// Returns true if loaded packets are lost significantly more often than unloaded ones.
///
/// The statistic is the signed root of the likelihood ratio of two proportions, which holds for few
/// losses as well. With few unloaded packets the test would never see congestion, so their rate
/// counts as if as many had been observed.
fn exceeds(loaded: &Tally, unloaded: &Tally) -> bool {
    let trials = loaded.packets.max(loaded.bursts);
    let rate = loaded.bursts / trials.max(1.0);
    let other_rate = unloaded.bursts / unloaded.packets.max(unloaded.bursts).max(1.0);
    if loaded.bursts < MIN_LOSSES || rate <= other_rate * MIN_RATIO {
        return false;
    }
    let other_trials = unloaded.packets.max(trials);
    let pooled = (rate * trials + other_rate * other_trials) / (trials + other_trials);
    let ratio = trials * divergence(rate, pooled) + other_trials * divergence(other_rate, pooled);
    2.0 * ratio > SIGNIFICANCE * SIGNIFICANCE
}

/// Returns the Kullback-Leibler divergence of two probabilities.
fn divergence(observed: f64, expected: f64) -> f64 {
    let term = |p: f64, q: f64| {
        if p > 0.0 && q > 0.0 {
            p * (p / q).ln()
        } else {
            0.0
        }
    };
    term(observed, expected) + term(1.0 - observed, 1.0 - expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(packets: f64, bursts: f64) -> Tally {
        Tally {
            packets,
            lost: bursts,
            bursts,
            recent: 0.0,
        }
    }

    #[test]
    fn equal_losses_are_random() {
        assert!(!exceeds(&tally(10_000.0, 100.0), &tally(10_000.0, 100.0)));
        assert!(!exceeds(&tally(130.0, 2.0), &tally(4_000.0, 4.0)));
        assert!(!exceeds(&tally(1_000.0, 12.0), &tally(4_000.0, 40.0)));
    }

    #[test]
    fn more_loss_with_a_queue_is_congestion() {
        assert!(exceeds(&tally(10_000.0, 10.0), &tally(40_000.0, 0.0)));
        assert!(exceeds(&tally(10_000.0, 10.0), &tally(0.0, 0.0)));
        assert!(exceeds(&tally(1_000.0, 60.0), &tally(4_000.0, 40.0)));
        assert!(exceeds(&tally(10.0, 10.0), &tally(4_000.0, 40.0)));
    }

    #[test]
    fn a_queue_is_well_above_the_base() {
        let ms = Duration::from_millis;
        assert!(!shows_queue(ms(63), ms(60)));
        assert!(shows_queue(ms(65), ms(60)));
        assert!(!shows_queue(
            Duration::from_micros(900),
            Duration::from_micros(100)
        ));
    }

    #[test]
    fn counts_are_forgotten_over_rounds() {
        let mut tally = tally(1_000.0, 10.0);
        tally.end_round(100.0, 8.0);
        assert_eq!(tally.packets, 1_000.0);
        tally.recent = 100.0;
        tally.end_round(100.0, 8.0);
        assert_eq!((tally.packets, tally.bursts), (875.0, 8.75));
    }
}
