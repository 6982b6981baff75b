//! Exclusive ownership by thread, so that it is known what a signal handler may wait for and what a
//! fork leaves behind.
//!
//! A thread that meets its own claim was interrupted while it held it, and would wait for itself.
//! After a fork the forking thread keeps what it held (`pthread_self` is the same in the child),
//! and the claims of all other threads are orphans.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::Timespec;

/// First value that is a holding thread; states below it belong to the user of the claim.
pub const MIN_HOLDER: u64 = 4096;
/// Attempts that only yield, before the thread sleeps between them.
const MAX_YIELDS: u32 = 64;
/// Pause between later attempts.
const CLAIM_RETRY_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000,
};
/// Maximum wait for a claim that another thread holds. A claim is held for some tens of
/// microseconds of processor time, so this is for a machine on which the holder does not run.
const CLAIM_TIMEOUT: Duration = Duration::from_millis(250);

/// A word that is either one of a few states, or the thread that holds the claim.
pub struct ThreadClaim(AtomicU64);

impl ThreadClaim {
    /// Returns a claim in this state.
    pub const fn new(state: u64) -> Self {
        Self(AtomicU64::new(state))
    }

    /// Returns the current state, or the thread that holds it.
    pub fn state(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Takes the claim if it is in the state `from`. Returns true if it did.
    pub fn take(&self, from: u64) -> bool {
        self.0
            .compare_exchange(from, this_thread(), Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the claim if it is in the state `from`, or reaches it soon. It waits only while other
    /// threads hold the claim.
    pub fn take_with_timeout(&self, from: u64) -> bool {
        let mut pauses = 0;
        for attempt in 0_u32.. {
            if self.take(from) {
                return true;
            }
            let state = self.state();
            if state == from {
                continue;
            }
            if state < MIN_HOLDER || state == this_thread() {
                return false;
            }
            if attempt < MAX_YIELDS {
                rustix::thread::sched_yield();
            } else if CLAIM_TIMEOUT.as_nanos() / 50_000 > pauses {
                pauses += 1;
                let _ = rustix::thread::nanosleep(&CLAIM_RETRY_INTERVAL);
            } else {
                return false;
            }
        }
        false
    }

    /// Releases the claim in this state.
    pub fn release(&self, state: u64) {
        self.0.store(state, Ordering::Release);
    }

    /// Returns true, in the child of a fork, if a thread held it that the child does not have.
    pub fn is_orphan(&self) -> bool {
        let state = self.state();
        state >= MIN_HOLDER && state != this_thread()
    }
}

/// Returns the calling thread, which is the same in the child of a fork.
fn this_thread() -> u64 {
    // SAFETY: has no conditions. It is the address of the thread's descriptor, far above HOLDERS.
    unsafe { libc::pthread_self() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_holds_at_a_time() {
        let claim = ThreadClaim::new(1);
        assert!(!claim.take(0) && claim.take(1));
        assert!(
            !claim.take_with_timeout(1),
            "a handler would wait for what it interrupted"
        );
        assert!(
            !claim.is_orphan(),
            "after a fork this thread goes on with it"
        );
        std::thread::scope(|scope| {
            let other = scope.spawn(|| claim.is_orphan());
            assert!(other.join().unwrap());
            // It gives up if this thread does not run for long.
            scope.spawn(|| while !claim.take_with_timeout(2) {});
            claim.release(2);
        });
    }

    #[test]
    fn permanently_held_claim_is_given_up() {
        let claim = ThreadClaim::new(0);
        std::thread::scope(|scope| scope.spawn(|| assert!(claim.take(0))).join().unwrap());
        assert!(!claim.take_with_timeout(0));
    }
}
