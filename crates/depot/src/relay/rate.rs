//! A token bucket: at most so many bytes a second, for all sessions of one policy rule in one direction.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How much may pass at once after a pause: a tenth of a second's worth, and never less than this many bytes.
const MIN_BURST: u64 = 64 * 1024;
/// A direction that finds the bucket empty waits until at least so much is there, or ten milliseconds' worth if that is
/// less, so that it does not wake for crumbs.
const MIN_GRANT: u64 = 16 * 1024;
const YEAR_NANOS: u64 = 365 * 24 * 3600 * 1_000_000_000;

/// Tokens are bytes; they arrive at the rule's rate and are shared by all that draw from the bucket.
#[derive(Debug)]
pub(crate) struct RateLimit {
    bytes_per_second: u64,
    burst: u64,
    least_grant: u64,
    state: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    tokens: u64,
    filled: Instant,
}

/// What [`RateLimit::draw`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grant {
    /// So many bytes may pass now.
    Bytes(usize),
    /// None may; ask again after this long.
    Wait(Duration),
}

impl RateLimit {
    /// A bucket that starts full. `bits_per_second` under 8 counts as one byte a second.
    pub(crate) fn new(bits_per_second: u64) -> Self {
        let bytes_per_second = (bits_per_second / 8).max(1);
        let burst = (bytes_per_second / 10).max(MIN_BURST);
        let least_grant = (bytes_per_second / 100).clamp(1, MIN_GRANT);
        let state = Mutex::new(Bucket {
            tokens: burst,
            filled: Instant::now(),
        });
        Self {
            bytes_per_second,
            burst,
            least_grant,
            state,
        }
    }

    /// Draws up to `want` bytes' worth. What is not used goes back with [`RateLimit::refund`].
    pub(crate) fn draw(&self, want: usize) -> Grant {
        let mut bucket = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(bucket.filled);
        let arrived = (u128::from(self.bytes_per_second) * elapsed.as_nanos()) / 1_000_000_000;
        if arrived > 0 {
            // The clock moves by whole bytes only, so that the rest of a byte is not lost at each call.
            let spent = arrived * 1_000_000_000 / u128::from(self.bytes_per_second);
            bucket.filled += Duration::from_nanos(u64::try_from(spent).unwrap_or(u64::MAX).min(YEAR_NANOS));
            let arrived = u64::try_from(arrived).unwrap_or(u64::MAX);
            bucket.tokens = bucket.tokens.saturating_add(arrived).min(self.burst);
        }
        let want = want as u64;
        let least = want.min(self.least_grant);
        if bucket.tokens >= least && bucket.tokens > 0 {
            let granted = want.min(bucket.tokens);
            bucket.tokens -= granted;
            Grant::Bytes(usize::try_from(granted).unwrap_or(usize::MAX))
        } else {
            let missing = least.saturating_sub(bucket.tokens).max(1);
            let nanos = u128::from(missing) * 1_000_000_000 / u128::from(self.bytes_per_second) + 1;
            Grant::Wait(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
        }
    }

    /// Gives back what was drawn and not used.
    pub(crate) fn refund(&self, bytes: usize) {
        let mut bucket = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.tokens = bucket.tokens.saturating_add(bytes as u64).min(self.burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn over_ten_seconds_the_rate_is_kept() {
        let limit = RateLimit::new(80_000_000); // 10 MB/s, bursts of 1 MB
        let start = Instant::now();
        let mut passed = 0u64;
        while start.elapsed() < Duration::from_secs(10) {
            match limit.draw(256 * 1024) {
                Grant::Bytes(n) => passed += n as u64,
                Grant::Wait(pause) => tokio::time::sleep(pause).await,
            }
        }
        assert!(passed >= 99_000_000, "{passed} bytes in 10 s is too slow");
        assert!(
            passed <= 101_100_000 + 1_000_000,
            "{passed} bytes in 10 s is more than the rate and one burst"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_used_can_be_drawn_again() {
        let limit = RateLimit::new(8);
        let Grant::Bytes(n) = limit.draw(MIN_BURST as usize) else {
            panic!("a bucket starts full")
        };
        assert!(matches!(limit.draw(1), Grant::Wait(_)));
        limit.refund(n);
        assert_eq!(limit.draw(n), Grant::Bytes(n));
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_bucket_says_how_long_to_wait() {
        let limit = RateLimit::new(8 * 1_000_000);
        let Grant::Bytes(_) = limit.draw(usize::MAX) else {
            panic!("a bucket starts full")
        };
        let Grant::Wait(pause) = limit.draw(1_000_000) else {
            panic!("nothing is left")
        };
        tokio::time::sleep(pause).await;
        assert!(matches!(limit.draw(1_000_000), Grant::Bytes(n) if n as u64 >= limit.least_grant));
    }
}
