//! The rate of a path, derived from a train of bytes. Pure.
//!
//! While TCP opens its window, a train accelerates, which only shows that the path carries at least
//! that much. So its first half is excluded. The samples count what the kernel has delivered in any
//! order. A program would see no bytes that came after a gap, and then all of them at once.

use std::time::Duration;

/// Minimum ratio between the rates of the last two quarters at which a train counts as still
/// growing.
const GROWING_FACTOR: f64 = 1.2;
/// Minimum number of samples of the second half from which its rate can be derived.
const MIN_LOOKS: usize = 4;

/// Measurement of a train that has arrived.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Train {
    /// Total bytes.
    pub bytes: u64,
    /// Time from its first byte to its end.
    pub took: Duration,
    /// Rate of its second half in bit/s, or of the whole train if it was [`Self::still_growing`].
    pub rate: f64,
    /// True if the rate grew until the end, or the train was too short to tell. The path then
    /// carries at least [`Self::rate`].
    pub still_growing: bool,
}

/// Progress of a train at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Look {
    /// Time since its first byte.
    pub at: Duration,
    /// Amount delivered so far, in any unit.
    pub through: u64,
}

impl Train {
    /// Returns the measurement of a train of `bytes` that `took` this long, from samples taken
    /// meanwhile. Returns `None` if there were no bytes or no time passed.
    pub(super) fn of(bytes: u64, took: Duration, looks: &[Look]) -> Option<Self> {
        let seconds = took.as_secs_f64();
        if bytes == 0 || seconds <= 0.0 {
            return None;
        }
        let whole = Self {
            bytes,
            took,
            rate: bytes as f64 * 8.0 / seconds,
            still_growing: true,
        };
        Some(Self::steady(bytes, looks).map_or(whole, |rate| Self {
            rate,
            still_growing: false,
            ..whole
        }))
    }

    /// Returns the rate of the second half, if it was no longer growing.
    fn steady(bytes: u64, looks: &[Look]) -> Option<f64> {
        let all = looks
            .iter()
            .map(|look| look.through)
            .max()
            .filter(|all| *all > 0)?;
        let reached = |part: f64| {
            let through = (all as f64 * part) as u64;
            looks.iter().position(|look| look.through >= through)
        };
        let (half, three_quarters, end) = (reached(0.5)?, reached(0.75)?, reached(1.0)?);
        if end < half + MIN_LOOKS {
            return None;
        }
        let rate = |from: usize, to: usize| {
            let (from, to) = (looks.get(from)?, looks.get(to)?);
            let seconds = to.at.checked_sub(from.at)?.as_secs_f64();
            let share = to.through.checked_sub(from.through)? as f64 / all as f64;
            (seconds > 0.0).then(|| share * bytes as f64 * 8.0 / seconds)
        };
        let (before, last) = (rate(half, three_quarters)?, rate(three_quarters, end)?);
        rate(half, end).filter(|rate| *rate > 0.0 && last <= before * GROWING_FACTOR)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns samples every 10 ms, with the amounts delivered.
    fn looks(through: impl IntoIterator<Item = u64>) -> Vec<Look> {
        let times = (1..).map(|number| Duration::from_millis(10 * number));
        times
            .zip(through)
            .map(|(at, through)| Look { at, through })
            .collect()
    }

    #[test]
    fn a_train_rate_comes_from_its_steady_second_half() {
        // Slow start, then 125 kB every 10 ms: 100 Mbit/s.
        let seen = looks(
            [10, 20, 40, 80, 125]
                .into_iter()
                .chain((2..=16).map(|part| part * 125)),
        );
        let train = Train::of(2_000_000, Duration::from_millis(200), &seen).expect("a train");
        assert!((train.rate - 100e6).abs() < 1e6, "{train:?}");
        assert!(!train.still_growing);
    }

    #[test]
    fn a_train_growing_until_its_end_is_a_lower_bound() {
        let seen = looks((0..10).map(|step| 10 << step));
        let train = Train::of(1_000_000, Duration::from_millis(100), &seen).expect("a train");
        assert!(train.still_growing);
        assert!((train.rate - 80e6).abs() < 1.0, "{train:?}");
    }

    #[test]
    fn a_train_without_samples_or_time_gives_no_exact_rate() {
        let train = Train::of(1_000_000, Duration::from_millis(100), &[]).expect("a train");
        assert!(train.still_growing);
        assert_eq!(Train::of(0, Duration::from_millis(1), &[]), None);
        assert_eq!(Train::of(1, Duration::ZERO, &[]), None);
    }

    proptest! {
        #[test]
        fn any_samples_give_a_finite_rate(
            bytes: u64, took: u32, seen in prop::collection::vec(any::<u64>(), 0..50),
        ) {
            let took = Duration::from_micros(took.into());
            if let Some(train) = Train::of(bytes, took, &looks(seen)) {
                prop_assert!(train.rate > 0.0 && train.rate.is_finite());
            }
        }
    }
}
