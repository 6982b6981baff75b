//! Which reservations have changed lately, for those who follow the book.

use std::collections::{BTreeSet, VecDeque};

use longhaul_circuits::ledger::ReservationId;

/// Changes that are remembered; whoever is further behind looks at all reservations.
const MAX_REMEMBERED: usize = 16_384;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// How many there have been.
    number: u64,
    /// The last of them, the newest last.
    last: VecDeque<ReservationId>,
}

impl Changes {
    /// One has changed.
    pub(super) fn one(&mut self, id: ReservationId) {
        self.number += 1;
        if self.last.len() == MAX_REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back(id);
    }

    /// All may have.
    pub(super) fn all(&mut self) {
        self.number += 1;
        self.last.clear();
    }

    /// How many changes there have been.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Those that have changed since there had been so many changes; none where all may have.
    pub(super) fn since(&self, number: u64) -> Option<BTreeSet<ReservationId>> {
        let new = usize::try_from(self.number.checked_sub(number)?).ok()?;
        let known = self.last.len().checked_sub(new)?;
        Some(self.last.range(known..).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_since_are_reported_as_far_as_they_are_remembered() {
        let mut changes = Changes::default();
        assert_eq!(changes.since(0), Some(BTreeSet::new()));
        for id in [3, 5, 3] {
            changes.one(ReservationId(id));
        }
        let ids = |ids: &[u64]| Some(ids.iter().copied().map(ReservationId).collect());
        assert_eq!(changes.since(0), ids(&[3, 5]));
        assert_eq!(changes.since(2), ids(&[3]));
        assert_eq!(changes.since(3), ids(&[]));
        assert_eq!(changes.since(4), None, "never heard of");
        changes.all();
        assert_eq!((changes.since(3), changes.since(4)), (None, ids(&[])));
        for id in 0..=MAX_REMEMBERED as u64 {
            changes.one(ReservationId(id));
        }
        assert_eq!(changes.since(4), None, "too long ago");
        assert_eq!(changes.since(5).map(|ids| ids.len()), Some(MAX_REMEMBERED));
    }
}
