//! Recently changed reservations, for tasks that follow the book.

use std::collections::{BTreeSet, VecDeque};

use longhaul_circuits::ledger::ReservationId;

/// Maximum number of changes that are remembered. A task that is further behind looks at all
/// reservations.
const MAX_REMEMBERED: usize = 16_384;

/// Bounded list of changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Number of changes so far.
    number: u64,
    /// Last changes, the newest last.
    last: VecDeque<ReservationId>,
}

impl Changes {
    /// Records a change of one reservation.
    pub(super) fn one(&mut self, id: ReservationId) {
        self.number += 1;
        if self.last.len() == MAX_REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back(id);
    }

    /// Records that all reservations may have changed.
    pub(super) fn all(&mut self) {
        self.number += 1;
        self.last.clear();
    }

    /// Returns the number of changes so far.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the reservations that have changed since this number of changes. `None` if any may
    /// have changed.
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
    fn changes_are_reported_while_remembered() {
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
