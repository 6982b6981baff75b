//! Locks that ignore poisoning. State behind them is kept consistent at every step, so a holder
//! that panicked leaves it valid.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Methods that lock a mutex even if a holder panicked.
pub(crate) trait Locked<T> {
    /// Waits for the lock.
    fn locked(&self) -> MutexGuard<'_, T>;
    /// Takes the lock only if it is free.
    fn locked_if_free(&self) -> Option<MutexGuard<'_, T>>;
}

impl<T> Locked<T> for Mutex<T> {
    fn locked(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn locked_if_free(&self) -> Option<MutexGuard<'_, T>> {
        match self.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
