//! Locks that outlive a panicking holder: state behind them is kept consistent at every step, so
//! poison says nothing.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Takes a mutex whatever became of its last holder.
pub(crate) trait Locked<T> {
    /// Waits for the lock.
    fn locked(&self) -> MutexGuard<'_, T>;
    /// Takes it only if nobody has it.
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
