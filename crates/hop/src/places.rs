//! Permits shared among many holders, each released when dropped.

use std::hash::Hash;
use std::sync::Arc;

use longhaul_proto::{ExhaustedBound, Shares};
use parking_lot::{Mutex, MutexGuard};

/// A fixed number of permits, shared so that a holder that takes many exhausts only its own share
/// ([`Shares`]).
#[derive(Debug)]
pub struct SharedPermits<K>(Mutex<Shares<K>>);

/// A permit, released when dropped.
#[derive(Debug)]
pub struct HeldPermit<K: Eq + Hash + Clone> {
    of: Arc<SharedPermits<K>>,
    who: K,
}

impl<K: Eq + Hash + Clone> SharedPermits<K> {
    /// Creates `places` permits. A single holder may have half of them, two a third each, and so
    /// on.
    #[must_use]
    pub fn new(places: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Shares::new(places as u64, 1))))
    }

    /// Takes a permit for `who`.
    ///
    /// # Errors
    /// The bound that was reached.
    pub fn take(self: &Arc<Self>, who: K) -> Result<HeldPermit<K>, ExhaustedBound> {
        self.shares().take(&who, 1)?;
        Ok(HeldPermit {
            of: Arc::clone(self),
            who,
        })
    }

    /// Takes a permit for `who`, one of holders of which anybody can be many, such as addresses.
    /// They leave an eighth of the permits for others.
    ///
    /// # Errors
    /// The bound that was reached.
    pub fn take_unlisted(self: &Arc<Self>, who: K) -> Result<HeldPermit<K>, ExhaustedBound> {
        self.shares().take_unlisted(&who, 1)?;
        Ok(HeldPermit {
            of: Arc::clone(self),
            who,
        })
    }

    fn shares(&self) -> MutexGuard<'_, Shares<K>> {
        self.0.lock()
    }
}

impl<K: Eq + Hash + Clone> Drop for HeldPermit<K> {
    fn drop(&mut self) {
        self.of.shares().release(&self.who, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlisted_holders_leave_permits() {
        let places = SharedPermits::new(8);
        let held: Vec<_> = (0..20)
            .filter_map(|who| places.take_unlisted(who).ok())
            .collect();
        assert_eq!(held.len(), 7);
        assert!(places.take(20).is_ok());
    }

    #[test]
    fn a_dropped_permit_is_released() {
        let places = SharedPermits::new(2);
        let held = places.take('a').unwrap();
        assert_eq!(places.take('a').unwrap_err(), ExhaustedBound::Share);
        let other = places.take('b').unwrap();
        assert_eq!(places.take('c').unwrap_err(), ExhaustedBound::All);
        drop(held);
        assert!(places.take('c').is_ok());
        drop(other);
        assert_eq!(places.shares().units_in_use(), 0);
    }
}
