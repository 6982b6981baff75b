//! Permits shared among many holders, each released when dropped.

use std::hash::Hash;
use std::sync::Arc;

use longhaul_proto::{Full, Shares};
use parking_lot::{Mutex, MutexGuard};

/// A fixed number of permits, shared so that a holder that takes many exhausts only its own share
/// ([`Shares`]).
#[derive(Debug)]
pub struct SharedPlaces<K>(Mutex<Shares<K>>);

/// A permit, released when dropped.
#[derive(Debug)]
pub struct HeldPlace<K: Eq + Hash + Clone> {
    of: Arc<SharedPlaces<K>>,
    who: K,
}

impl<K: Eq + Hash + Clone> SharedPlaces<K> {
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
    pub fn take(self: &Arc<Self>, who: K) -> Result<HeldPlace<K>, Full> {
        self.shares().take(&who, 1)?;
        Ok(HeldPlace {
            of: Arc::clone(self),
            who,
        })
    }

    fn shares(&self) -> MutexGuard<'_, Shares<K>> {
        self.0.lock()
    }
}

impl<K: Eq + Hash + Clone> Drop for HeldPlace<K> {
    fn drop(&mut self) {
        self.of.shares().give_back(&self.who, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_permit_is_released() {
        let places = SharedPlaces::new(2);
        let held = places.take('a').unwrap();
        assert_eq!(places.take('a').unwrap_err(), Full::Share);
        let other = places.take('b').unwrap();
        assert_eq!(places.take('c').unwrap_err(), Full::All);
        drop(held);
        assert!(places.take('c').is_ok());
        drop(other);
        assert_eq!(places.shares().used(), 0);
    }
}
