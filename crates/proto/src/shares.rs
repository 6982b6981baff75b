//! Fair sharing of a bounded resource: a holder that fills it exhausts only its own share.
//!
//! Each holder may have a fixed fraction of the free units (the dynamic thresholds of Choudhury and
//! Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998). A holder that
//! takes all it can leaves the rest to others. A single holder may have half or more. A new holder
//! gets its first unit as long as any unit is free.

use std::{collections::HashMap, hash::Hash};

/// Divisor of all units that gives those which only listed holders may take.
const RESERVED_DIVISOR: u64 = 8;

/// A fixed number of units and their holders. The size of the map is bounded by the units in use.
#[derive(Debug, Clone)]
pub struct Shares<K> {
    bound: u64,
    fraction: u64,
    used: u64,
    held: HashMap<K, u64>,
}

/// The bound that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExhaustedBound {
    /// All units are in use.
    #[error("all are in use")]
    All,
    /// Units are free, but this holder already has its full share.
    #[error("this key already uses its full share")]
    Share,
}

impl<K: Eq + Hash + Clone> Shares<K> {
    /// Creates `bound` units. No holder may have more than one `fraction`-th of the units that
    /// remain free: with 1, a single holder may take half; with 8, a ninth.
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
    /// The bound that was reached; nothing is taken then.
    pub fn take(&mut self, who: &K, units: u64) -> Result<(), ExhaustedBound> {
        self.take_from(self.bound, who, units)
    }

    /// Takes `units` for `who`, one of holders of which anybody can be many, such as addresses. All
    /// of these together leave an eighth of the units for holders that are listed.
    ///
    /// # Errors
    /// The bound that was reached; nothing is taken then.
    pub fn take_unlisted(&mut self, who: &K, units: u64) -> Result<(), ExhaustedBound> {
        self.take_from(self.bound - self.bound / RESERVED_DIVISOR, who, units)
    }

    fn take_from(&mut self, bound: u64, who: &K, units: u64) -> Result<(), ExhaustedBound> {
        if units == 0 {
            return Ok(());
        }
        let free = bound.saturating_sub(self.used);
        if units > free {
            return Err(ExhaustedBound::All);
        }
        let own = self.units_of(who);
        let first = own == 0 && units <= 1;
        // Compares the holder's units with the units that would remain free.
        if !first && own.saturating_add(units) > (free - units) / self.fraction {
            return Err(ExhaustedBound::Share);
        }
        self.used += units;
        *self.held.entry(who.clone()).or_default() += units;
        Ok(())
    }

    /// Returns `units` of `who` to the free ones.
    pub fn release(&mut self, who: &K, units: u64) {
        if let Some(own) = self.held.get_mut(who) {
            let units = units.min(*own);
            *own -= units;
            self.used -= units;
            if *own == 0 {
                self.held.remove(who);
            }
        }
    }

    /// Returns the number of units that `who` holds.
    #[must_use]
    pub fn units_of(&self, who: &K) -> u64 {
        self.held.get(who).copied().unwrap_or_default()
    }

    /// Returns the number of units in use.
    #[must_use]
    pub const fn units_in_use(&self) -> u64 {
        self.used
    }

    /// Returns the total number of units.
    #[must_use]
    pub const fn total_units(&self) -> u64 {
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
        shares.units_of(&who)
    }

    #[test]
    fn one_holder_leaves_room_for_others() {
        let mut shares = Shares::new(64, 1);
        assert_eq!(fill(&mut shares, 1), 32);
        assert_eq!(shares.take(&1, 1), Err(ExhaustedBound::Share));
        assert_eq!(fill(&mut shares, 2), 16);
        assert_eq!(shares.take(&3, 1), Ok(()));
        let mut narrow = Shares::new(900, 8);
        assert_eq!(fill(&mut narrow, 1), 100);
        // However many holders came before, the next one still gets a unit.
        for who in 2..32 {
            assert!(fill(&mut narrow, who) >= 1, "{who}");
        }
    }

    #[test]
    fn a_full_bound_differs_from_a_full_share() {
        let mut shares = Shares::new(10, 1);
        assert_eq!(shares.take(&1u8, 11), Err(ExhaustedBound::All));
        assert_eq!(shares.take(&1, 6), Err(ExhaustedBound::Share));
        assert_eq!(shares.take(&1, 5), Ok(()));
        assert_eq!(shares.take(&2, 1), Ok(()));
        shares.release(&1, 100);
        assert_eq!((shares.units_of(&1), shares.units_in_use()), (0, 1));
    }

    #[test]
    fn reserved_units_are_left_by_any_number_of_holders() {
        let mut shares = Shares::new(64, 1);
        let taken = (0..200).filter(|who| shares.take_unlisted(who, 1).is_ok());
        assert_eq!(taken.count(), 56);
        assert_eq!(shares.take_unlisted(&200, 1), Err(ExhaustedBound::All));
        assert_eq!(fill(&mut shares, 201), 4);
        assert_eq!(fill(&mut shares, 202), 2);
    }

    proptest! {
        /// For any sequence of takes and returns: the sum is right, the bound holds, and a new
        /// holder is refused only if nothing is left.
        #[test]
        fn shares_match_a_model(
            steps in prop::collection::vec((0u8..6, 0u64..9, any::<bool>()), 0..200),
            bound in 1u64..60, fraction in 1u64..9,
        ) {
            let mut shares = Shares::new(bound, fraction);
            let mut model: HashMap<u8, u64> = HashMap::new();
            for (who, units, back) in steps {
                if back {
                    let own = model.entry(who).or_default();
                    let units = units.min(*own);
                    *own -= units;
                    shares.release(&who, units);
                } else if shares.take(&who, units).is_ok() {
                    *model.entry(who).or_default() += units;
                }
                let used: u64 = model.values().sum();
                prop_assert_eq!(shares.units_in_use(), used);
                prop_assert!(used <= bound);
                prop_assert!(
                    shares.held.values().all(|&own| own > 0),
                    "nothing is kept of who holds nothing"
                );
                prop_assert_eq!(shares.clone().take(&200, 1).is_ok(), used < bound);
            }
        }
    }
}
