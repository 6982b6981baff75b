//! The memory that tells a replayed OPEN from a fresh one (LH-SIGN-2, LH-SIGN-3, LH-SIGN-4).

use std::{
    collections::{BTreeMap, HashSet},
    hash::Hash,
    time::Duration,
};

use crate::{SessionId, Shares};

/// How long ago an OPEN may have been signed, by the receiver's clock (LH-SIGN-2).
pub const SIGNING_WINDOW: Duration = Duration::from_secs(120);
/// How far ahead of the receiver's clock an OPEN may have been signed (LH-SIGN-2).
pub const SIGNING_AHEAD: Duration = Duration::from_secs(10);
/// Entries kept unless asked otherwise: some 15 MB, or 500 new sessions a second for as long as an
/// OPEN can be replayed.
const MAX_ENTRIES: u64 = 65_536;
/// Who pays for entries may have one in so many of those that are free: 7,281 of them, alone.
const SHARE: u64 = 8;

/// Whether a time of signature is one that a receiver accepts at `now_ms`. Both in milliseconds
/// since 1970 (LH-SIGN-2).
///
/// # Errors
/// [`ReplayError::Expired`] or [`ReplayError::Future`].
pub fn check_time(signed_at: u64, now_ms: u64) -> Result<(), ReplayError> {
    if signed_at < now_ms.saturating_sub(whole_ms(SIGNING_WINDOW)) {
        return Err(ReplayError::Expired {
            by_ms: now_ms - signed_at,
        });
    }
    if signed_at > now_ms.saturating_add(whole_ms(SIGNING_AHEAD)) {
        return Err(ReplayError::Future {
            by_ms: signed_at - now_ms,
        });
    }
    Ok(())
}

/// Session ids seen within the time window, each accounted to whoever brought it: `P` is the payer,
/// a key or a source address. Bounded in all and for each payer; it refuses new ids rather than
/// forget old ones (LH-SIGN-4).
#[derive(Debug, Clone)]
pub struct ReplayMemory<P> {
    seen: HashSet<SessionId>,
    by_time: BTreeMap<(u64, SessionId), P>,
    shares: Shares<P>,
}

impl<P: Eq + Hash + Clone> ReplayMemory<P> {
    /// Room for 65,536 ids.
    #[must_use]
    pub fn new() -> Self {
        Self::with_entries(MAX_ENTRIES)
    }

    /// Room for `entries` ids.
    #[must_use]
    pub fn with_entries(entries: u64) -> Self {
        Self {
            seen: HashSet::new(),
            by_time: BTreeMap::new(),
            shares: Shares::new(entries, SHARE),
        }
    }

    /// Checks the time, then that the id is new, and remembers it, on `payer`'s account, for as
    /// long as it could be replayed. Ask last: whatever is remembered costs room (LH-ADMIT-1).
    ///
    /// # Errors
    /// A [`ReplayError`]; the id is then not remembered anew.
    pub fn admit(
        &mut self,
        payer: &P,
        id: SessionId,
        signed_at: u64,
        now_ms: u64,
    ) -> Result<(), ReplayError> {
        check_time(signed_at, now_ms)?;
        self.forget_before(now_ms.saturating_sub(whole_ms(SIGNING_WINDOW)));
        if self.seen.contains(&id) {
            return Err(ReplayError::Replay);
        }
        self.shares.take(payer, 1).map_err(|_| ReplayError::Full)?;
        self.seen.insert(id);
        self.by_time.insert((signed_at, id), payer.clone());
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
        while let Some(entry) = self.by_time.first_entry() {
            if entry.key().0 >= oldest {
                break;
            }
            let ((_, id), payer) = entry.remove_entry();
            self.seen.remove(&id);
            self.shares.give_back(&payer, 1);
        }
    }
}

impl<P: Eq + Hash + Clone> Default for ReplayMemory<P> {
    fn default() -> Self {
        Self::new()
    }
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
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
    /// Too many sessions of this payer within the window: try later.
    #[error("too many new sessions within the time window: try again later")]
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    fn id(number: u32) -> SessionId {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        SessionId::from_bytes(bytes)
    }

    /// LH-SIGN-2.
    #[test]
    fn the_window_is_120_s_back_and_10_s_ahead() {
        let mut memory = ReplayMemory::new();
        assert_eq!(memory.admit(&'a', id(1), NOW - 120_000, NOW), Ok(()));
        assert_eq!(memory.admit(&'a', id(2), NOW + 10_000, NOW), Ok(()));
        assert_eq!(
            memory.admit(&'a', id(3), NOW - 120_001, NOW),
            Err(ReplayError::Expired { by_ms: 120_001 })
        );
        assert_eq!(
            memory.admit(&'a', id(4), NOW + 10_001, NOW),
            Err(ReplayError::Future { by_ms: 10_001 })
        );
        assert_eq!(memory.len(), 2);
    }

    /// LH-SIGN-3: at every moment an id is either remembered or expired, whoever brings it.
    #[test]
    fn a_replay_never_passes() {
        for signed_at in [NOW - 120_000, NOW, NOW + 10_000] {
            let mut memory = ReplayMemory::new();
            memory.admit(&'a', id(1), signed_at, NOW).unwrap();
            for later in (0..400_000).step_by(1000) {
                assert!(
                    memory.admit(&'b', id(1), signed_at, NOW + later).is_err(),
                    "{later} ms later"
                );
            }
        }
    }

    /// LH-SIGN-4: who fills its share is refused, and nobody else.
    #[test]
    fn one_payer_cannot_keep_the_others_out() {
        let mut memory = ReplayMemory::with_entries(900);
        let mut admitted = 0;
        while memory.admit(&'a', id(admitted), NOW, NOW).is_ok() {
            admitted += 1;
        }
        assert_eq!(admitted, 100);
        assert_eq!(
            memory.admit(&'a', id(5000), NOW, NOW),
            Err(ReplayError::Full)
        );
        assert_eq!(
            memory.admit(&'a', id(0), NOW, NOW),
            Err(ReplayError::Replay)
        );
        assert_eq!(memory.admit(&'b', id(6000), NOW, NOW), Ok(()));
        let later = NOW + 120_001;
        assert_eq!(memory.admit(&'a', id(7000), later, later), Ok(()));
        assert_eq!(memory.len(), 1, "the others have expired");
    }
}
