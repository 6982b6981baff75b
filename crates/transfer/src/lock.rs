//! Locks that outlive a panicking holder: state behind them is kept consistent at every step, so poison tells nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a mutex whatever became of its last holder.
pub(crate) trait Locked<T> {
    /// Waits for the lock.
    fn locked(&self) -> MutexGuard<'_, T>;
}

impl<T> Locked<T> for Mutex<T> {
    fn locked(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
