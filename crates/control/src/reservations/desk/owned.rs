//! Numbers of reservations by owner.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::time::Moment;

/// Maximum number of an owner's finished reservations that are shown. Older ones are forgotten
/// before their week is over.
pub(super) const MAX_OVER_OF_OWNER: usize = 4_000;

/// State of a reservation, as far as its owner's quota depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// It is unfinished.
    Active {
        /// If true, it holds bandwidth that is not committed.
        is_held: bool,
    },
    /// It is finished since this time.
    Over(Moment),
}

/// Reservations of one owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OfOwner {
    active: usize,
    held: usize,
    over: BTreeSet<(Moment, ReservationId)>,
}

/// Reservations by owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Owned {
    by_owner: BTreeMap<String, OfOwner>,
    shares: BTreeMap<ReservationId, (String, Share)>,
    /// Owners with more finished reservations than are kept.
    crowded: BTreeSet<String>,
}

impl Owned {
    /// Records the state of a reservation; `None` if it is forgotten.
    pub(super) fn put(&mut self, id: ReservationId, share: Option<(&str, Share)>) {
        let before = match share {
            Some((owner, share)) => self.shares.insert(id, (owner.to_owned(), share)),
            None => self.shares.remove(&id),
        };
        if let Some((owner, share)) = before {
            self.count(&owner, |of| match share {
                Share::Active { is_held } => {
                    of.active = of.active.saturating_sub(1);
                    of.held = of.held.saturating_sub(usize::from(is_held));
                }
                Share::Over(since) => _ = of.over.remove(&(since, id)),
            });
        }
        if let Some((owner, share)) = share {
            self.count(owner, |of| match share {
                Share::Active { is_held } => {
                    of.active += 1;
                    of.held += usize::from(is_held);
                }
                Share::Over(since) => _ = of.over.insert((since, id)),
            });
        }
    }

    fn count(&mut self, owner: &str, change: impl FnOnce(&mut OfOwner)) {
        let of = self.by_owner.entry(owner.to_owned()).or_default();
        change(of);
        let (is_crowded, is_nothing) =
            (of.over.len() > MAX_OVER_OF_OWNER, *of == OfOwner::default());
        match is_crowded {
            true => _ = self.crowded.insert(owner.to_owned()),
            false => _ = self.crowded.remove(owner),
        }
        if is_nothing {
            self.by_owner.remove(owner);
        }
    }

    /// Returns the number of an owner's unfinished reservations.
    pub(super) fn active(&self, owner: &str) -> usize {
        self.by_owner.get(owner).map_or(0, |of| of.active)
    }

    /// Returns the number of those that hold uncommitted bandwidth.
    pub(super) fn held(&self, owner: &str) -> usize {
        self.by_owner.get(owner).map_or(0, |of| of.held)
    }

    /// Returns the oldest reservations of owners with more than are kept, to be forgotten.
    pub(super) fn excess(&self) -> impl Iterator<Item = ReservationId> {
        let crowded = self
            .crowded
            .iter()
            .filter_map(|owner| self.by_owner.get(owner));
        crowded.flat_map(|of| {
            let too_many = of.over.len().saturating_sub(MAX_OVER_OF_OWNER);
            of.over.iter().take(too_many).map(|(_, id)| *id)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn active(is_held: bool) -> Share {
        Share::Active { is_held }
    }

    #[test]
    fn reservations_are_counted_per_owner() {
        let mut owned = Owned::default();
        let [one, two, three] = [1, 2, 3].map(ReservationId);
        owned.put(one, Some(("ana", active(true))));
        owned.put(two, Some(("ana", active(false))));
        owned.put(three, Some(("ben", active(true))));
        assert_eq!((owned.active("ana"), owned.held("ana")), (2, 1));
        owned.put(one, Some(("ana", active(false))));
        owned.put(two, Some(("ana", Share::Over(5))));
        assert_eq!((owned.active("ana"), owned.held("ana")), (1, 0));
        assert_eq!((owned.active("ben"), owned.held("ben")), (1, 1));
        for id in [one, two, three] {
            owned.put(id, None);
        }
        assert_eq!(owned, Owned::default());
    }

    #[test]
    fn oldest_excess_reservations_are_forgotten() {
        let mut owned = Owned::default();
        let many = MAX_OVER_OF_OWNER as u64 + 2;
        for id in 0..many {
            owned.put(
                ReservationId(id),
                Some(("ana", Share::Over(Moment::try_from(id).unwrap()))),
            );
        }
        owned.put(ReservationId(many), Some(("ben", Share::Over(0))));
        let excess: Vec<ReservationId> = owned.excess().collect();
        assert_eq!(excess, [ReservationId(0), ReservationId(1)]);
        for id in excess {
            owned.put(id, None);
        }
        assert_eq!(owned.excess().count(), 0);
    }
}
