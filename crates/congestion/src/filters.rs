//! Estimates over a window: the maximum of recent rounds, and the smallest round trip.

use std::time::Duration;

/// Rounds over which a maximum is kept.
const MAXIMUM_ROUNDS: usize = 10;
/// Time after which the base round trip has to be measured again.
const BASE_LIFETIME: Duration = Duration::from_secs(10);
/// Samples that exceed the base round trip by less than this part of it confirm it.
const BASE_TOLERANCE: u32 = 64;

/// Maximum of the values of the last ten rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoundsMaximum {
    /// Maximum of each round, the newest first.
    rounds: [u64; MAXIMUM_ROUNDS],
}

impl RoundsMaximum {
    /// Begins a round, and forgets the oldest one.
    pub fn begin_round(&mut self) {
        self.rounds.rotate_right(1);
        if let Some(newest) = self.rounds.first_mut() {
            *newest = 0;
        }
    }

    /// Adds a value to the current round.
    pub fn add(&mut self, value: u64) {
        if let Some(newest) = self.rounds.first_mut() {
            *newest = value.max(*newest);
        }
    }

    /// Returns the maximum, 0 without values.
    pub fn maximum(&self) -> u64 {
        self.rounds.iter().copied().max().unwrap_or(0)
    }

    /// Returns the maximum of the current and the previous round.
    pub fn latest(&self) -> u64 {
        self.rounds.iter().take(2).copied().max().unwrap_or(0)
    }

    /// Lowers all values that exceed a bound to it.
    pub fn limit(&mut self, bound: u64) {
        for round in &mut self.rounds {
            *round = bound.min(*round);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.rounds = [0; MAXIMUM_ROUNDS];
    }
}

/// Smallest round trip of the last ten seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct BaseRoundTrip {
    minimum: Option<Duration>,
    confirmed_at: Duration,
}

impl BaseRoundTrip {
    /// Returns the estimate. `None` before the first sample.
    pub fn get(&self) -> Option<Duration> {
        self.minimum
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: Duration, now: Duration) {
        match self.minimum {
            Some(minimum) if sample > minimum.saturating_add(minimum / BASE_TOLERANCE) => {}
            Some(minimum) if sample >= minimum => self.confirmed_at = now,
            _ => self.replace(sample, now),
        }
    }

    /// Replaces the estimate by a measurement without a queue of this connection.
    pub fn replace(&mut self, measured: Duration, now: Duration) {
        self.minimum = Some(measured.max(Duration::from_nanos(1)));
        self.confirmed_at = now;
    }

    /// Returns true if the estimate was not confirmed for ten seconds.
    pub fn is_expired(&self, now: Duration) -> bool {
        self.minimum.is_some() && now.saturating_sub(self.confirmed_at) > BASE_LIFETIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maximum_is_forgotten_after_ten_rounds() {
        let mut maximum = RoundsMaximum::default();
        maximum.add(7);
        for _ in 0..9 {
            maximum.begin_round();
            maximum.add(5);
        }
        assert_eq!((maximum.maximum(), maximum.latest()), (7, 5));
        maximum.begin_round();
        assert_eq!(maximum.maximum(), 5);
    }

    #[test]
    fn a_base_round_trip_expires_unless_it_is_confirmed() {
        let at = Duration::from_secs;
        let mut base = BaseRoundTrip::default();
        base.add(Duration::from_millis(100), at(0));
        base.add(Duration::from_millis(101), at(8));
        base.add(Duration::from_millis(110), at(9));
        assert_eq!(base.get(), Some(Duration::from_millis(100)));
        assert!(!base.is_expired(at(18)));
        assert!(base.is_expired(at(19)));
    }
}
