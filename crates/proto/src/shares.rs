//! A bound that many draw on, shared so that whoever fills it is who goes without.
//!
//! Each holder may have a fixed fraction of what is still free (the dynamic thresholds of Choudhury
//! and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998). One that
//! takes all it can leaves the rest to others; with nobody else there it may have half and more; a
//! newcomer gets its first unit for as long as anything is free at all.

use std::{collections::HashMap, hash::Hash};

/// So many units in all, held by whoever asked for them. The map is bounded by the units in use.
#[derive(Debug, Clone)]
pub struct Shares<K> {
    bound: u64,
    fraction: u64,
    used: u64,
    held: HashMap<K, u64>,
}

/// Which bound was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// Nothing is left for anybody.
    #[error("everything is in use")]
    All,
    /// Something is left, for others: who asks has its share.
    #[error("who asks has its whole share in use")]
    Share,
}

impl<K: Eq + Hash + Clone> Shares<K> {
    /// `bound` units, of which nobody holds more than one `fraction`-th of what is free beside it:
    /// with 1, one holder alone may come to hold a half; with 8, a ninth.
    #[must_use]
    pub fn new(bound: u64, fraction: u64) -> Self {
        Self {
            bound,
            fraction: fraction.max(1),
            used: 0,
            held: HashMap::new(),
        }
    }

    /// Takes `units` for `who`.
    ///
    /// # Errors
    /// Which bound was met; nothing is taken then.
    pub fn take(&mut self, who: &K, units: u64) -> Result<(), Full> {
        if units == 0 {
            return Ok(());
        }
        let free = self.bound.saturating_sub(self.used);
        if units > free {
            return Err(Full::All);
        }
        let own = self.held(who);
        let first = own == 0 && units <= 1;
        // What it would hold, against what would be left.
        if !first && own.saturating_add(units) > (free - units) / self.fraction {
            return Err(Full::Share);
        }
        self.used += units;
        *self.held.entry(who.clone()).or_default() += units;
        Ok(())
    }

    /// Gives back `units` that `who` holds.
    pub fn give_back(&mut self, who: &K, units: u64) {
        if let Some(own) = self.held.get_mut(who) {
            let units = units.min(*own);
            *own -= units;
            self.used -= units;
            if *own == 0 {
                self.held.remove(who);
            }
        }
    }

    /// What `who` holds.
    #[must_use]
    pub fn held(&self, who: &K) -> u64 {
        self.held.get(who).copied().unwrap_or_default()
    }

    /// What all hold together.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// What there is in all.
    #[must_use]
    pub const fn bound(&self) -> u64 {
        self.bound
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Takes single units for `who` until it is refused.
    fn fill(shares: &mut Shares<u8>, who: u8) -> u64 {
        while shares.take(&who, 1).is_ok() {}
        shares.held(&who)
    }

    #[test]
    fn one_holder_leaves_room_for_others() {
        let mut shares = Shares::new(64, 1);
        assert_eq!(fill(&mut shares, 1), 32);
        assert_eq!(shares.take(&1, 1), Err(Full::Share));
        assert_eq!(fill(&mut shares, 2), 16);
        assert_eq!(shares.take(&3, 1), Ok(()));
        let mut narrow = Shares::new(900, 8);
        assert_eq!(fill(&mut narrow, 1), 100);
        // However many come one after the other, who comes next has something.
        for who in 2..32 {
            assert!(fill(&mut narrow, who) >= 1, "{who}");
        }
    }

    #[test]
    fn what_is_too_much_for_everybody_is_distinguished_from_what_is_too_much_for_one() {
        let mut shares = Shares::new(10, 1);
        assert_eq!(shares.take(&1u8, 11), Err(Full::All));
        assert_eq!(shares.take(&1, 6), Err(Full::Share));
        assert_eq!(shares.take(&1, 5), Ok(()));
        assert_eq!(shares.take(&2, 1), Ok(()));
        shares.give_back(&1, 100);
        assert_eq!((shares.held(&1), shares.used()), (0, 1));
    }

    proptest! {
        /// Whatever is taken and given back: the sum is right, the bound holds, and a newcomer is
        /// refused only when nothing is left.
        #[test]
        fn the_account_is_kept(steps in prop::collection::vec((0u8..6, 0u64..9, any::<bool>()), 0..200), bound in 1u64..60, fraction in 1u64..9) {
            let mut shares = Shares::new(bound, fraction);
            let mut model: HashMap<u8, u64> = HashMap::new();
            for (who, units, back) in steps {
                if back {
                    let own = model.entry(who).or_default();
                    let units = units.min(*own);
                    *own -= units;
                    shares.give_back(&who, units);
                } else if shares.take(&who, units).is_ok() {
                    *model.entry(who).or_default() += units;
                }
                let used: u64 = model.values().sum();
                prop_assert_eq!(shares.used(), used);
                prop_assert!(used <= bound);
                prop_assert!(shares.held.values().all(|&own| own > 0), "nothing is kept of who holds nothing");
                prop_assert_eq!(shares.clone().take(&200, 1).is_ok(), used < bound);
            }
        }
    }
}
