//! Replay memory: tells a replayed OPEN from a fresh one (LH-SIGN-2, LH-SIGN-3, LH-SIGN-4).

use std::{
    collections::{BTreeMap, HashSet},
    hash::Hash,
    time::Duration,
};

use crate::{ExhaustedBound, SessionId, Shares};

/// Maximum age of an OPEN's signature, by the receiver's clock (LH-SIGN-2).
pub const MAX_SIGNATURE_AGE: Duration = Duration::from_secs(120);
/// Maximum time by which an OPEN's signature may be ahead of the receiver's clock (LH-SIGN-2).
pub const MAX_SIGNATURE_AHEAD: Duration = Duration::from_secs(10);
/// Default maximum number of entries: some 15 MB, or 500 new sessions a second for as long as an
/// OPEN can be replayed.
const MAX_ENTRIES: u64 = 65_536;
/// Divisor of the free entries that gives one payer's limit: one payer alone may use 7,281 entries.
const PAYER_FRACTION: u64 = 8;

/// Checks that a receiver accepts a signing time at `now_ms`. Both are in milliseconds since 1970
/// (LH-SIGN-2).
///
/// # Errors
/// [`ReplayError::Expired`] or [`ReplayError::Future`].
pub fn check_time(signed_at: u64, now_ms: u64) -> Result<(), ReplayError> {
    if signed_at < now_ms.saturating_sub(whole_ms(MAX_SIGNATURE_AGE)) {
        return Err(ReplayError::Expired {
            by_ms: now_ms - signed_at,
        });
    }
    if signed_at > now_ms.saturating_add(whole_ms(MAX_SIGNATURE_AHEAD)) {
        return Err(ReplayError::Future {
            by_ms: signed_at - now_ms,
        });
    }
    Ok(())
}

/// Session ids seen within the time window, each charged to a payer `P`: a key or a source address.
///
/// The number is bounded in total and per payer. When full, it refuses new ids instead of
/// forgetting old ones (LH-SIGN-4).
#[derive(Debug, Clone)]
pub struct ReplayMemory<P> {
    seen: HashSet<SessionId>,
    by_time: BTreeMap<(u64, SessionId), P>,
    shares: Shares<P>,
}

impl<P: Eq + Hash + Clone> ReplayMemory<P> {
    /// Creates a memory for 65,536 ids.
    #[must_use]
    pub fn new() -> Self {
        Self::with_entries(MAX_ENTRIES)
    }

    /// Creates a memory for `entries` ids.
    #[must_use]
    pub fn with_entries(entries: u64) -> Self {
        Self {
            seen: HashSet::new(),
            by_time: BTreeMap::new(),
            shares: Shares::new(entries, PAYER_FRACTION),
        }
    }

    /// Checks the time, then that the id is new, and remembers it for as long as it could be
    /// replayed. The entry is charged to `payer`. Call this check last, as each entry takes space
    /// (LH-ADMIT-1).
    ///
    /// # Errors
    /// A [`ReplayError`]; the id is then not added.
    pub fn admit(
        &mut self,
        payer: &P,
        id: SessionId,
        signed_at: u64,
        now_ms: u64,
    ) -> Result<(), ReplayError> {
        self.admit_charged(id, signed_at, now_ms, payer, Shares::take)
    }

    /// Does the same for a payer that is not listed, such as a source address. All of these
    /// together leave an eighth of the entries for listed payers (LH-SIGN-4).
    ///
    /// # Errors
    /// As [`ReplayMemory::admit`].
    pub fn admit_unlisted(
        &mut self,
        payer: &P,
        id: SessionId,
        signed_at: u64,
        now_ms: u64,
    ) -> Result<(), ReplayError> {
        self.admit_charged(id, signed_at, now_ms, payer, Shares::take_unlisted)
    }

    fn admit_charged(
        &mut self,
        id: SessionId,
        signed_at: u64,
        now_ms: u64,
        payer: &P,
        take: impl FnOnce(&mut Shares<P>, &P, u64) -> Result<(), ExhaustedBound>,
    ) -> Result<(), ReplayError> {
        check_time(signed_at, now_ms)?;
        self.forget_before(now_ms.saturating_sub(whole_ms(MAX_SIGNATURE_AGE)));
        if self.seen.contains(&id) {
            return Err(ReplayError::Replay);
        }
        take(&mut self.shares, payer, 1).map_err(|_| ReplayError::Full)?;
        self.seen.insert(id);
        self.by_time.insert((signed_at, id), payer.clone());
        Ok(())
    }

    /// Returns the number of ids remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Returns true if no id is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Forgets ids signed before `oldest`: they would be refused as expired.
    fn forget_before(&mut self, oldest: u64) {
        while let Some(entry) = self.by_time.first_entry() {
            if entry.key().0 >= oldest {
                break;
            }
            let ((_, id), payer) = entry.remove_entry();
            self.seen.remove(&id);
            self.shares.release(&payer, 1);
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

/// Reason why an OPEN is not fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The OPEN was signed too long ago: sign again, or set the clocks. At most 120 s are allowed.
    #[error("signed {} s ago, which is too long: retry, or check both clocks", by_ms / 1000)]
    Expired {
        /// Age of the signature, in milliseconds.
        by_ms: u64,
    },
    /// The OPEN was signed in the future: set the clocks. At most 10 s are allowed.
    #[error("signed {} s in the future: check both clocks", by_ms / 1000)]
    Future {
        /// Time by which the signature is ahead, in milliseconds.
        by_ms: u64,
    },
    /// The session id was seen before: the OPEN was sent twice.
    #[error("a request with this session id was already received")]
    Replay,
    /// This payer opened too many sessions within the window: try later. Copy a directory in one
    /// command instead of one file in each.
    #[error("too many new sessions within two minutes: retry later")]
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

    /// LH-SIGN-3: at every moment an id is either remembered or expired, for any payer.
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

    /// LH-SIGN-4: a payer that has filled its share is refused; others are not.
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

    /// LH-SIGN-4: any number of addresses leave room for listed keys.
    #[test]
    fn many_sources_cannot_keep_a_listed_key_out() {
        let mut memory = ReplayMemory::with_entries(800);
        let sources = 0..2000;
        let admitted = sources.filter(|&source| {
            let admitted = memory.admit_unlisted(&source, id(source), NOW, NOW);
            admitted.is_ok()
        });
        assert_eq!(admitted.count(), 700);
        for session in 0..10 {
            assert_eq!(memory.admit(&5000, id(10_000 + session), NOW, NOW), Ok(()));
        }
    }
}
