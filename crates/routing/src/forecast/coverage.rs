//! Recent coverage of forecast bands.

/// Number of outcomes that are remembered.
const MAX_OUTCOMES: u64 = 1000;
const WORDS: usize = MAX_OUTCOMES.div_ceil(64) as usize;

/// Record of which of the last 1,000 values fell into the bands that were forecast for them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Coverage {
    /// One bit per outcome, in a ring.
    held: [u64; WORDS],
    count: u64,
}

impl Coverage {
    /// Records whether a value fell into its band.
    pub fn record(&mut self, held: bool) {
        let at = self.count % MAX_OUTCOMES;
        if let Some(word) = self.held.get_mut((at / 64) as usize) {
            let bit = 1 << (at % 64);
            *word = if held { *word | bit } else { *word & !bit };
        }
        self.count = self.count.saturating_add(1);
    }

    /// Returns the total number of outcomes.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the share of the last `outcomes` values, at most 1,000, that fell into their bands.
    /// Returns `None` before there were as many.
    #[must_use]
    pub fn over_last(&self, outcomes: u64) -> Option<f64> {
        if outcomes == 0 || outcomes > MAX_OUTCOMES || self.count < outcomes {
            return None;
        }
        let held = |back: u64| {
            let at = (self.count - back) % MAX_OUTCOMES;
            let word = self.held.get((at / 64) as usize)?;
            Some(word >> (at % 64) & 1)
        };
        let all: u64 = (1..=outcomes).filter_map(held).sum();
        Some(all as f64 / outcomes as f64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn coverage_is_the_share_of_the_last_outcomes(
            outcomes in prop::collection::vec(any::<bool>(), 0..2300),
        ) {
            let mut coverage = Coverage::default();
            outcomes.iter().for_each(|held| coverage.record(*held));
            for last in [1, 100, 1000] {
                let expected = outcomes.len().checked_sub(last).map(|from| {
                    outcomes[from..].iter().filter(|held| **held).count() as f64 / last as f64
                });
                prop_assert_eq!(coverage.over_last(last as u64), expected);
            }
        }
    }

    #[test]
    fn coverage_of_no_outcomes_is_unknown() {
        let mut coverage = Coverage::default();
        coverage.record(true);
        assert_eq!(coverage.over_last(0), None);
        assert_eq!(coverage.over_last(1), Some(1.0));
        assert_eq!(coverage.over_last(1001), None);
    }
}
