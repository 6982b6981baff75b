//! Limit of the amount in flight after congestion. It grows back along the curve of CUBIC
//! (RFC 9438, section 4.2), so that flows of both kinds share a path.

use std::time::Duration;

/// Part of the amount in flight that remains, at most.
const KEPT: f64 = 0.85;
/// Part that remains, at least.
const MIN_KEPT: f64 = 0.1;
/// Constant of the curve, in packets per cubic second.
const CURVE: f64 = 0.4;
/// Growth in a round, in packets, that Reno would have with the same reduction (section 4.3).
const RENO_GROWTH: f64 = 3.0 * (1.0 - KEPT) / (1.0 + KEPT);
/// Rounds without congestion after which the limit grows fast while there is no queue: what filled
/// the queue has left.
const RECOVERY_ROUNDS: u32 = 16;
/// Factor of a round of fast growth.
const FAST_GROWTH: f64 = 1.25;

/// Limit of the amount in flight, in packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlightLimit {
    packets: f64,
    /// Level at which the curve is flat: what was in flight at the congestion.
    plateau: f64,
    began_at: Duration,
    /// Rounds since the congestion.
    rounds: u32,
}

impl InFlightLimit {
    /// Begins after congestion of packets that were sent with `in_flight` packets in flight.
    /// `excess_loss` is the part of them that did not fit.
    pub fn new(in_flight: f64, excess_loss: f64, now: Duration) -> Self {
        let kept = (1.0 - excess_loss).clamp(MIN_KEPT, KEPT);
        Self {
            packets: in_flight * kept,
            plateau: in_flight,
            began_at: now,
            rounds: 0,
        }
    }

    /// Returns the limit, in packets.
    pub fn packets(&self) -> f64 {
        self.packets
    }

    /// Grows at the end of a round.
    pub fn end_round(&mut self, is_queued: bool, now: Duration) {
        self.rounds = self.rounds.saturating_add(1);
        let seconds = now.saturating_sub(self.began_at).as_secs_f64();
        let to_plateau = (self.plateau * (1.0 - KEPT) / CURVE).cbrt();
        let curve = self.plateau + CURVE * (seconds - to_plateau).powi(3);
        self.packets = (self.packets + RENO_GROWTH).max(curve);
        if self.rounds > RECOVERY_ROUNDS && !is_queued {
            self.packets *= FAST_GROWTH;
        }
    }
}
