//! Maximum of the values of recent rounds.

/// Rounds over which a maximum is kept.
const MAXIMUM_ROUNDS: usize = 10;
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
}
