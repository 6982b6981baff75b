//! The memory that tells a replayed OPEN from a fresh one (LH-SIGN-2, LH-SIGN-3, LH-SIGN-4).

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use crate::SessionId;

/// How far an OPEN's time of signature may lie from the receiver's clock, either way (LH-SIGN-2).
pub const SIGNING_WINDOW: Duration = Duration::from_secs(120);
/// Entries kept unless asked otherwise: some 10 MB, or 270 new sessions a second for four minutes.
const CAPACITY: usize = 65_536;

/// Session ids seen within the time window. Bounded: when it is full of ids that could still be replayed it refuses
/// new ones rather than forget old ones.
#[derive(Debug, Clone)]
pub struct ReplayCache {
    window_ms: u64,
    capacity: usize,
    seen: HashSet<SessionId>,
    by_time: BTreeSet<(u64, SessionId)>,
}

impl ReplayCache {
    /// A cache with the protocol's window of 120 s either way.
    #[must_use]
    pub fn new() -> Self {
        Self::with(SIGNING_WINDOW, CAPACITY)
    }

    /// A cache with another window, and room for `capacity` ids.
    #[must_use]
    pub fn with(window: Duration, capacity: usize) -> Self {
        let window_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
        Self {
            window_ms,
            capacity,
            seen: HashSet::new(),
            by_time: BTreeSet::new(),
        }
    }

    /// Whether a time of signature lies in the window around `now_ms`; remembers nothing. Both in ms since 1970.
    ///
    /// # Errors
    /// [`ReplayError::Expired`] or [`ReplayError::Future`].
    pub const fn check_time(&self, signed_at: u64, now_ms: u64) -> Result<(), ReplayError> {
        if signed_at < now_ms.saturating_sub(self.window_ms) {
            return Err(ReplayError::Expired {
                by_ms: now_ms - signed_at,
            });
        }
        if signed_at > now_ms.saturating_add(self.window_ms) {
            return Err(ReplayError::Future {
                by_ms: signed_at - now_ms,
            });
        }
        Ok(())
    }

    /// Checks the time, then that the id is new, and remembers it for as long as it could be replayed.
    ///
    /// # Errors
    /// A [`ReplayError`]; the id is then not remembered anew.
    pub fn check(&mut self, id: SessionId, signed_at: u64, now_ms: u64) -> Result<(), ReplayError> {
        self.check_time(signed_at, now_ms)?;
        self.forget_before(now_ms.saturating_sub(self.window_ms));
        if self.seen.contains(&id) {
            return Err(ReplayError::Replay);
        }
        if self.seen.len() >= self.capacity {
            return Err(ReplayError::Full);
        }
        self.seen.insert(id);
        self.by_time.insert((signed_at, id));
        Ok(())
    }

    /// How many ids are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// What was signed before this would be refused as expired, so it need not be remembered.
    fn forget_before(&mut self, oldest: u64) {
        while let Some(&(signed_at, id)) = self.by_time.first() {
            if signed_at >= oldest {
                break;
            }
            self.by_time.pop_first();
            self.seen.remove(&id);
        }
    }
}

impl Default for ReplayCache {
    fn default() -> Self {
        Self::new()
    }
}

/// Why an OPEN is not fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// Signed too long ago: sign again, or set the clocks.
    #[error("signed {} s ago: beyond the window, so sign again or check both clocks", by_ms / 1000)]
    Expired {
        /// How long ago, in milliseconds.
        by_ms: u64,
    },
    /// Signed in the future: set the clocks.
    #[error("signed {} s in the future: check both clocks", by_ms / 1000)]
    Future {
        /// How far ahead, in milliseconds.
        by_ms: u64,
    },
    /// Seen before: somebody sent it twice.
    #[error("this session id was seen before")]
    Replay,
    /// Too many sessions within the window: try later.
    #[error("too many new sessions within the time window: try again later")]
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    fn id(number: u8) -> SessionId {
        SessionId::from_bytes([number; 16])
    }

    /// LH-SIGN-2.
    #[test]
    fn the_window_is_120_s_either_way() {
        let mut cache = ReplayCache::new();
        assert_eq!(cache.check(id(1), NOW - 120_000, NOW), Ok(()));
        assert_eq!(cache.check(id(2), NOW + 120_000, NOW), Ok(()));
        assert_eq!(
            cache.check(id(3), NOW - 120_001, NOW),
            Err(ReplayError::Expired { by_ms: 120_001 })
        );
        assert_eq!(
            cache.check(id(4), NOW + 120_001, NOW),
            Err(ReplayError::Future { by_ms: 120_001 })
        );
        assert_eq!(cache.len(), 2);
    }

    /// LH-SIGN-3: at every moment an id is either remembered or expired.
    #[test]
    fn a_replay_never_passes() {
        for signed_at in [NOW - 120_000, NOW, NOW + 120_000] {
            let mut cache = ReplayCache::new();
            cache.check(id(1), signed_at, NOW).unwrap();
            for later in (0..400_000).step_by(1000) {
                assert!(
                    cache.check(id(1), signed_at, NOW + later).is_err(),
                    "{later} ms later"
                );
            }
        }
    }

    /// LH-SIGN-4.
    #[test]
    fn a_full_cache_fails_closed_and_recovers() {
        let mut cache = ReplayCache::with(SIGNING_WINDOW, 2);
        cache.check(id(1), NOW, NOW).unwrap();
        cache.check(id(2), NOW + 1, NOW).unwrap();
        assert_eq!(cache.check(id(3), NOW, NOW), Err(ReplayError::Full));
        assert_eq!(cache.check(id(1), NOW, NOW), Err(ReplayError::Replay));
        let later = NOW + 120_001;
        assert_eq!(cache.check(id(3), later, later), Ok(()));
        assert_eq!(cache.len(), 2, "one expired, one came");
    }
}
