//! Bound on the log lines that a remote party can cause.

use std::time::Duration;

/// A token bucket for log lines. It counts suppressed lines, so that the next line can report them.
///
/// Time is a duration since any fixed point and only grows.
#[derive(Debug, Clone)]
pub struct LogRate {
    burst: u32,
    per_second: u32,
    /// Lines that may be written now, in units of a billionth of a line.
    credit: u64,
    last: Duration,
    left_out: u64,
}

/// One line, in the units of [`LogRate::credit`].
const LINE: u64 = 1_000_000_000;

impl LogRate {
    /// Allows `burst` lines at once, and `per_second` more each second.
    #[must_use]
    pub const fn new(burst: u32, per_second: u32) -> Self {
        Self {
            burst,
            per_second,
            credit: burst as u64 * LINE,
            last: Duration::ZERO,
            left_out: 0,
        }
    }

    /// Returns `Some` if a line may be written `now`, with the number of lines suppressed since the
    /// last written one.
    pub fn admit(&mut self, now: Duration) -> Option<u64> {
        let passed = u64::try_from(now.saturating_sub(self.last).as_nanos()).unwrap_or(u64::MAX);
        self.last = self.last.max(now);
        self.credit = passed
            .saturating_mul(self.per_second.into())
            .saturating_add(self.credit)
            .min(u64::from(self.burst) * LINE);
        match self.credit.checked_sub(LINE) {
            Some(rest) => {
                self.credit = rest;
                Some(self.take_left_out())
            }
            None => {
                self.left_out = self.left_out.saturating_add(1);
                None
            }
        }
    }

    /// Returns the number of lines suppressed since the last written one, and resets it. Used for a
    /// final line.
    pub const fn take_left_out(&mut self) -> u64 {
        std::mem::replace(&mut self.left_out, 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn suppressed_lines_are_reported_with_the_next() {
        let mut rate = LogRate::new(2, 1);
        let at = Duration::from_millis;
        assert_eq!([rate.admit(at(0)), rate.admit(at(0))], [Some(0), Some(0)]);
        assert_eq!([rate.admit(at(1)), rate.admit(at(999))], [None, None]);
        assert_eq!(rate.admit(at(1000)), Some(2));
        assert_eq!(rate.admit(at(1001)), None);
        assert_eq!((rate.take_left_out(), rate.take_left_out()), (1, 0));
        // A long silence earns no more than the burst.
        let lines = (0..10)
            .filter(|_| rate.admit(at(1_000_000)).is_some())
            .count();
        assert_eq!(lines, 2);
    }

    proptest! {
        #[test]
        fn the_rate_holds_and_every_line_is_counted(
            burst in 0u32..20, per_second in 0u32..50,
            steps in prop::collection::vec(0u64..300, 0..300),
        ) {
            let mut rate = LogRate::new(burst, per_second);
            let (mut now, mut written, mut reported) = (0, 0u64, 0u64);
            for step in &steps {
                now += step;
                if let Some(left_out) = rate.admit(Duration::from_millis(now)) {
                    written += 1;
                    reported += left_out;
                }
                prop_assert!(written <= u64::from(burst) + now * u64::from(per_second) / 1000);
            }
            prop_assert_eq!(written + reported + rate.take_left_out(), steps.len() as u64);
        }

        #[test]
        fn any_time_is_accepted(
            times in prop::collection::vec(any::<u64>(), 0..20),
            burst in any::<u32>(), per_second in any::<u32>(),
        ) {
            let mut rate = LogRate::new(burst, per_second);
            for time in times {
                rate.admit(Duration::from_secs(time));
            }
        }
    }
}
