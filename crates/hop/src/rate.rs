//! A token bucket that limits the bytes per second of all users in one direction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

/// Minimum burst, in bytes. The burst is a tenth of a second's worth, but never less than this.
const MIN_BURST_BYTES: u64 = 64 * 1024;
/// Minimum grant to a direction that found the bucket empty, in bytes; or ten milliseconds' worth
/// if that is less. It prevents wake-ups for tiny amounts.
const MIN_GRANT_BYTES: u64 = 16 * 1024;
const YEAR_NANOS: u64 = 365 * 24 * 3600 * 1_000_000_000;

/// A token bucket. Tokens are bytes; they arrive at the rate and are shared by all users.
#[derive(Debug)]
pub struct RateLimit {
    /// True if there is a rate. Without one, no user takes the lock.
    capped: AtomicBool,
    bucket: Mutex<Bucket>,
}

/// Rate limits of both directions. Clones share them.
#[derive(Debug, Clone)]
pub struct RateLimits {
    /// Direction towards the acceptor, or the second side of a [`Duplex`](crate::Duplex).
    pub forward: Arc<RateLimit>,
    /// Direction towards the initiator, or the first side.
    pub backward: Arc<RateLimit>,
}

/// The bucket itself; time is an argument.
#[derive(Debug)]
struct Bucket {
    /// Rate limit; unlimited if `None`.
    rate: Option<BytesPerSecond>,
    tokens: u64,
    filled: Instant,
}

/// Bytes a second; at least 1.
#[derive(Debug, Clone, Copy)]
struct BytesPerSecond(u64);

/// Result of [`RateLimit::draw`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrawOutcome {
    /// This many bytes may pass now.
    Bytes(usize),
    /// Bytes may pass again after this time.
    Wait(Duration),
}

impl RateLimit {
    /// Creates a full bucket; unlimited if `bits_per_second` is `None`. Fewer than 8 count as one
    /// byte per second.
    #[must_use]
    pub fn new(bits_per_second: Option<u64>) -> Self {
        let rate = bits_per_second.map(BytesPerSecond::from_bits_per_second);
        Self {
            capped: AtomicBool::new(rate.is_some()),
            bucket: Mutex::new(Bucket::new(rate, Instant::now())),
        }
    }

    /// Changes the rate. Tokens already drawn stay drawn; a bucket that was unlimited starts full.
    pub fn set(&self, bits_per_second: Option<u64>) {
        let mut bucket = self.bucket();
        bucket.set(
            bits_per_second.map(BytesPerSecond::from_bits_per_second),
            Instant::now(),
        );
        self.capped.store(bucket.rate.is_some(), Ordering::Relaxed);
    }

    /// Draws up to `want` bytes. Return unused bytes with [`RateLimit::refund`].
    pub fn draw(&self, want: usize) -> DrawOutcome {
        if self.capped.load(Ordering::Relaxed) {
            self.bucket().draw(want, Instant::now())
        } else {
            DrawOutcome::Bytes(want)
        }
    }

    /// Returns bytes that were drawn and not used.
    pub fn refund(&self, bytes: usize) {
        if self.capped.load(Ordering::Relaxed) {
            self.bucket().refund(bytes);
        }
    }

    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock()
    }
}

impl RateLimits {
    /// Creates two full buckets of the same rate; see [`RateLimit::new`].
    #[must_use]
    pub fn new(bits_per_second: Option<u64>) -> Self {
        Self {
            forward: Arc::new(RateLimit::new(bits_per_second)),
            backward: Arc::new(RateLimit::new(bits_per_second)),
        }
    }

    /// Changes both rates; see [`RateLimit::set`].
    pub fn set(&self, bits_per_second: Option<u64>) {
        self.forward.set(bits_per_second);
        self.backward.set(bits_per_second);
    }
}

impl Bucket {
    fn new(rate: Option<BytesPerSecond>, now: Instant) -> Self {
        Self {
            rate,
            tokens: rate.map_or(0, BytesPerSecond::burst),
            filled: now,
        }
    }

    fn set(&mut self, rate: Option<BytesPerSecond>, now: Instant) {
        match (self.rate, rate) {
            (Some(old), Some(new)) => {
                self.fill(old, now);
                // Discards the time that has earned part of a byte: at a faster rate it would be
                // worth many bytes.
                self.filled = now;
                self.tokens = self.tokens.min(new.burst());
                self.rate = rate;
            }
            _ => *self = Self::new(rate, now),
        }
    }

    /// Adds the tokens that have arrived since the last call.
    fn fill(&mut self, rate: BytesPerSecond, now: Instant) {
        let elapsed = now.saturating_duration_since(self.filled);
        let arrived = (u128::from(rate.0) * elapsed.as_nanos()) / 1_000_000_000;
        if arrived > 0 {
            // The clock advances by whole bytes only, so that fractions are not lost at each call.
            let spent = arrived * 1_000_000_000 / u128::from(rate.0);
            self.filled +=
                Duration::from_nanos(u64::try_from(spent).unwrap_or(u64::MAX).min(YEAR_NANOS));
            let arrived = u64::try_from(arrived).unwrap_or(u64::MAX);
            self.tokens = self.tokens.saturating_add(arrived).min(rate.burst());
        }
    }

    fn draw(&mut self, want: usize, now: Instant) -> DrawOutcome {
        let Some(rate) = self.rate else {
            return DrawOutcome::Bytes(want);
        };
        self.fill(rate, now);
        let want = want as u64;
        let least = want.min(rate.min_grant());
        if self.tokens >= least && self.tokens > 0 {
            let granted = want.min(self.tokens);
            self.tokens -= granted;
            DrawOutcome::Bytes(usize::try_from(granted).unwrap_or(usize::MAX))
        } else {
            let missing = least.saturating_sub(self.tokens).max(1);
            let nanos = u128::from(missing) * 1_000_000_000 / u128::from(rate.0) + 1;
            DrawOutcome::Wait(Duration::from_nanos(
                u64::try_from(nanos).unwrap_or(u64::MAX),
            ))
        }
    }

    fn refund(&mut self, bytes: usize) {
        if let Some(rate) = self.rate {
            self.tokens = self.tokens.saturating_add(bytes as u64).min(rate.burst());
        }
    }
}

impl BytesPerSecond {
    fn from_bits_per_second(bits_per_second: u64) -> Self {
        Self((bits_per_second / 8).max(1))
    }

    fn burst(self) -> u64 {
        (self.0 / 10).max(MIN_BURST_BYTES)
    }

    fn min_grant(self) -> u64 {
        (self.0 / 100).clamp(1, MIN_GRANT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A draw of this many bytes; a wait of this many milliseconds; a new rate in bit/s.
    #[derive(Debug, Clone)]
    enum Step {
        Draw(usize),
        Wait(u64),
        Rate(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..2_000_000usize).prop_map(Step::Draw),
            2 => (0..2_000u64).prop_map(Step::Wait),
            1 => (0..1_000_000_000u64).prop_map(Step::Rate),
        ]
    }

    proptest! {
        /// However often the rate changes, no more passes than the first burst and the bytes earned
        /// at the rates in force.
        #[test]
        fn rate_changes_never_exceed_the_earned_bytes(
            first in 0..1_000_000_000u64, steps in vec(step(), 0..40),
        ) {
            let mut now = Instant::now();
            let mut rate = BytesPerSecond::from_bits_per_second(first);
            let mut bucket = Bucket::new(Some(rate), now);
            let mut most = rate.burst() as f64;
            let mut passed = 0.0;
            for step in steps {
                match step {
                    Step::Draw(want) => {
                        if let DrawOutcome::Bytes(n) = bucket.draw(want, now) {
                            prop_assert!(n <= want);
                            passed += n as f64;
                        }
                    }
                    Step::Wait(ms) => {
                        now += Duration::from_millis(ms);
                        most += rate.0 as f64 * ms as f64 / 1e3;
                    }
                    Step::Rate(bits) => {
                        rate = BytesPerSecond::from_bits_per_second(bits);
                        bucket.set(Some(rate), now);
                    }
                }
                prop_assert!(passed <= most + 1.0, "{} bytes passed, {} may", passed, most);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn over_ten_seconds_the_rate_is_kept() {
        let limit = RateLimit::new(Some(80_000_000)); // 10 MB/s, bursts of 1 MB
        let start = Instant::now();
        let mut passed = 0u64;
        while start.elapsed() < Duration::from_secs(10) {
            match limit.draw(256 * 1024) {
                DrawOutcome::Bytes(n) => passed += n as u64,
                DrawOutcome::Wait(pause) => tokio::time::sleep(pause).await,
            }
        }
        assert!(passed >= 99_000_000, "{passed} bytes in 10 s is too slow");
        assert!(
            passed <= 101_100_000 + 1_000_000,
            "{passed} bytes in 10 s is more than the rate and one burst"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn refunded_bytes_can_be_drawn_again() {
        let limit = RateLimit::new(Some(8));
        let DrawOutcome::Bytes(n) = limit.draw(MIN_BURST_BYTES as usize) else {
            panic!("a bucket starts full")
        };
        assert!(matches!(limit.draw(1), DrawOutcome::Wait(_)));
        limit.refund(n);
        assert_eq!(limit.draw(n), DrawOutcome::Bytes(n));
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_bucket_returns_the_wait() {
        let limit = RateLimit::new(Some(8 * 1_000_000));
        let DrawOutcome::Bytes(_) = limit.draw(usize::MAX) else {
            panic!("a bucket starts full")
        };
        let DrawOutcome::Wait(pause) = limit.draw(1_000_000) else {
            panic!("nothing is left")
        };
        tokio::time::sleep(pause).await;
        let least = BytesPerSecond(1_000_000).min_grant();
        assert!(matches!(limit.draw(1_000_000), DrawOutcome::Bytes(n) if n as u64 >= least));
    }
}
