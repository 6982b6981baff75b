//! Decides when the keys of an issuer are fetched, and for how long they are used.

use std::time::Duration;

use tokio::time::Instant;

use crate::keys::KeySet;

/// Interval at which keys are fetched again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(600);
/// Interval at which an issuer that did not answer is asked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Time for which keys are used if the issuer does not answer.
pub(crate) const KEYS_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Fetches for keys that tokens name and that are not known: at once, and the time after which one
/// more is allowed. Anybody can make such a token.
const REFETCH_BURST: u32 = 4;
const REFETCH_INTERVAL: Duration = Duration::from_secs(30);

/// Keys of one issuer.
pub(crate) struct KeyCache {
    keys: Option<CachedKeys>,
    /// End of the last attempt to fetch them, and whether it succeeded.
    last: Option<(Instant, bool)>,
    /// Fetches that are left, and the time up to which they have been added.
    refetches: (u32, Instant),
}

struct CachedKeys {
    keys: KeySet,
    fetched: Instant,
}

impl KeyCache {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            keys: None,
            last: None,
            refetches: (REFETCH_BURST, now),
        }
    }

    /// Returns the keys, or `None` if there are none that may still be used.
    pub(crate) fn keys(&self, now: Instant) -> Option<&KeySet> {
        let cached = self.keys.as_ref()?;
        (now.saturating_duration_since(cached.fetched) < KEYS_KEPT).then_some(&cached.keys)
    }

    /// Returns the time at which the keys are next fetched in the background.
    pub(crate) fn due(&self, now: Instant) -> Instant {
        match self.last {
            None => now,
            Some((last, true)) => last + REFRESH_INTERVAL,
            Some((last, false)) => last + RETRY_INTERVAL,
        }
    }

    /// Returns the time from which on the keys are not used any more, unless they are fetched
    /// again.
    pub(crate) fn stale_at(&self) -> Option<Instant> {
        Some(self.keys.as_ref()?.fetched + KEYS_KEPT)
    }

    /// Returns true if keys may be fetched because of a token, and counts that.
    pub(crate) fn take_refetch(&mut self, now: Instant) -> bool {
        let (mut left, mut counted) = self.refetches;
        while left < REFETCH_BURST && now.saturating_duration_since(counted) >= REFETCH_INTERVAL {
            left += 1;
            counted += REFETCH_INTERVAL;
        }
        if left == REFETCH_BURST {
            counted = now;
        }
        let is_allowed = left > 0;
        self.refetches = (left.saturating_sub(1), counted);
        is_allowed
    }

    /// Records the end of an attempt to fetch keys. Returns true if tokens may be judged otherwise
    /// from now on.
    pub(crate) fn record(&mut self, fetched: Option<KeySet>, now: Instant) -> bool {
        self.last = Some((now, fetched.is_some()));
        let Some(keys) = fetched else {
            return false;
        };
        let is_new = self.keys(now) != Some(&keys);
        self.keys = Some(CachedKeys { keys, fetched: now });
        is_new
    }

    /// Returns the end of the last attempt to fetch keys.
    pub(crate) fn last_attempt(&self) -> Option<Instant> {
        self.last.map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_keys::TestKey;

    fn keys(id: &str) -> KeySet {
        let list = serde_json::json!({ "keys": [TestKey::ed(id).jwk] });
        KeySet::parse(&serde_json::to_vec(&list).unwrap()).unwrap()
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn keys_outlive_their_issuer_for_a_day() {
        let start = Instant::now();
        let mut cache = KeyCache::new(start);
        assert!(cache.keys(start).is_none());
        assert_eq!(cache.due(start), start);
        assert!(!cache.record(None, start));
        assert_eq!(cache.due(start), start + RETRY_INTERVAL);
        let first = keys("one");
        assert!(cache.record(Some(first.clone()), start));
        assert_eq!(cache.due(start), start + REFRESH_INTERVAL);
        assert!(!cache.record(Some(first.clone()), start + seconds(1)));
        // The issuer is down from now on.
        let down = start + seconds(2);
        assert!(!cache.record(None, down));
        assert_eq!(cache.due(down), down + RETRY_INTERVAL);
        assert!(cache.keys(down).is_some());
        let stale = start + seconds(1) + KEYS_KEPT;
        assert_eq!(cache.stale_at(), Some(stale));
        assert!(cache.keys(stale - seconds(1)).is_some());
        assert!(cache.keys(stale).is_none());
        // It is back.
        assert!(cache.record(Some(first), stale));
        assert!(cache.keys(stale).is_some());
    }

    #[test]
    fn rotated_keys_are_a_change() {
        let start = Instant::now();
        let mut cache = KeyCache::new(start);
        assert!(cache.record(Some(keys("one")), start));
        assert!(cache.record(Some(keys("two")), start));
    }

    #[test]
    fn tokens_cannot_make_a_server_flood_the_issuer() {
        let start = Instant::now();
        let mut cache = KeyCache::new(start);
        let later = start + seconds(5);
        let burst = (0..100).filter(|_| cache.take_refetch(later)).count();
        assert_eq!(burst, REFETCH_BURST as usize);
        let next = later + REFETCH_INTERVAL;
        assert!(!cache.take_refetch(next - seconds(1)));
        assert!(cache.take_refetch(next));
        assert!(!cache.take_refetch(next));
        let much_later = next + 100 * REFETCH_INTERVAL;
        let burst = (0..100).filter(|_| cache.take_refetch(much_later)).count();
        assert_eq!(burst, REFETCH_BURST as usize);
    }
}
