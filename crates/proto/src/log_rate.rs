//! How many lines of a kind go to a log, and how many were left out. Pure: time is an argument.

use std::time::Duration;

/// A bound on lines: so many at once, and so many a second from then on.
#[derive(Debug, Clone)]
pub struct LogRate {
    burst: u32,
    per_second: u32,
    /// Lines that may be written, in billionths.
    tokens: u128,
    last: Duration,
    left_out: u64,
}

const WHOLE: u128 = 1_000_000_000;

impl LogRate {
    /// `burst` lines at once, `per_second` a second on average; at least one of each.
    #[must_use]
    pub fn new(burst: u32, per_second: u32) -> Self {
        let burst = burst.max(1);
        Self {
            burst,
            per_second: per_second.max(1),
            tokens: u128::from(burst) * WHOLE,
            last: Duration::ZERO,
            left_out: 0,
        }
    }

    /// Whether a line may be written at `now`, counted from any fixed moment: if so, how many were left out since the last.
    pub fn admit(&mut self, now: Duration) -> Option<u64> {
        let passed = now.saturating_sub(self.last).as_nanos();
        self.last = self.last.max(now);
        let most = u128::from(self.burst) * WHOLE;
        self.tokens = self
            .tokens
            .saturating_add(passed.saturating_mul(u128::from(self.per_second)))
            .min(most);
        if self.tokens < WHOLE {
            self.left_out += 1;
            return None;
        }
        self.tokens -= WHOLE;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_comes_to_a_few_lines_that_count_the_rest() {
        let mut rate = LogRate::new(5, 2);
        let lines: Vec<u64> = (0..100_000)
            .filter_map(|n| rate.admit(Duration::from_micros(100 * n)))
            .collect();
        assert_eq!(
            lines.len(),
            5 + 2 * 10 - 1,
            "five at once, then two a second for ten seconds"
        );
        assert_eq!(&lines[..5], [0; 5]);
        assert_eq!(lines[6], 4999);
        assert_eq!(rate.admit(Duration::from_secs(3600)), Some(4999));
        assert_eq!(
            rate.admit(Duration::ZERO),
            Some(0),
            "a clock that goes back does no harm"
        );
    }
}
