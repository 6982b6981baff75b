//! Time of the next attempt after a job broke off.

use super::moment::Moment;

/// Pauses that double from attempt to attempt, and the limit of attempts in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Pause before the first retry, in milliseconds.
    pub first_pause: Moment,
    /// Longest pause, in milliseconds.
    pub max_pause: Moment,
    /// Maximum number of consecutive attempts that copy nothing and are retried.
    pub max_in_vain: u32,
}

impl RetryPolicy {
    /// From five seconds to ten minutes, for about a day and a half.
    pub const DEFAULT: Self = Self {
        first_pause: 5_000,
        max_pause: 600_000,
        max_in_vain: 200,
    };

    /// Returns the pause after the last `in_vain` attempts copied nothing, or `None` if the limit
    /// is reached. `seed` varies it by up to a quarter, so that jobs ended by one fault do not all
    /// return at the same moment.
    pub fn pause(&self, in_vain: u32, seed: u64) -> Option<Moment> {
        if in_vain > self.max_in_vain {
            return None;
        }
        let doublings = in_vain.saturating_sub(1).min(30);
        let pause = self
            .first_pause
            .saturating_mul(1 << doublings)
            .clamp(1, self.max_pause.max(1));
        let vary = i64::try_from(mix(seed ^ u64::from(in_vain)) % 1000).unwrap_or(0);
        // Divided first if the product would overflow.
        let less = match pause.checked_mul(vary) {
            Some(product) => product / 4000,
            None => pause / 4000 * vary,
        };
        Some(pause - less)
    }
}

/// Returns a number that is unrelated to that of the next seed (the finaliser of SplitMix64).
fn mix(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pauses_grow_are_bounded_and_end(seed: u64) {
            let policy = RetryPolicy::DEFAULT;
            for in_vain in 0..=policy.max_in_vain {
                let pause = policy.pause(in_vain, seed).unwrap();
                prop_assert!(pause >= policy.first_pause * 3 / 4 && pause <= policy.max_pause);
            }
            prop_assert_eq!(policy.pause(policy.max_in_vain + 1, seed), None);
        }

        #[test]
        fn no_policy_overflows(
            first in any::<i64>(), most in any::<i64>(), in_vain: u32, seed: u64
        ) {
            let policy = RetryPolicy { first_pause: first, max_pause: most, max_in_vain: u32::MAX };
            prop_assert!(policy.pause(in_vain, seed).unwrap() >= 0);
        }
    }

    #[test]
    fn retries_after_one_fault_are_spread_in_time() {
        let pauses: std::collections::HashSet<_> = (0..100)
            .map(|seed| RetryPolicy::DEFAULT.pause(3, seed))
            .collect();
        assert!(pauses.len() > 80);
    }
}
