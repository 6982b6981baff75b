//! Who has something to itself: known by thread, so that it is known what a signal handler may wait
//! for and what a fork leaves behind.
//!
//! A thread that meets its own claim was interrupted while it held it, and would wait for itself.
//! After a fork the thread that forked goes on with what it held (`pthread_self` is the same in the
//! child), and all that others held is nobody's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::Timespec;

/// States below this are the owner's own words; from here on it is the thread that holds.
pub const HOLDERS: u64 = 4096;
/// Attempts with nothing but a yield between, before waiting is left to the clock.
const MAX_YIELDS: u32 = 64;
/// Between later attempts.
const CLAIM_RETRY_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000,
};
/// For how long something that another thread holds is asked for. It is held for some tens of
/// microseconds of processor time, so this is for a machine that gives the holder none.
const CLAIM_TIMEOUT: Duration = Duration::from_millis(250);

/// A word that is either one of a few states, or the thread that holds what it stands for.
pub struct Claim(AtomicU64);

impl Claim {
    /// In this state.
    pub const fn new(state: u64) -> Self {
        Self(AtomicU64::new(state))
    }

    /// What it is now.
    pub fn state(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Holds it, if it is in the state `from` now.
    pub fn take(&self, from: u64) -> bool {
        self.0
            .compare_exchange(from, this_thread(), Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Holds it, if it is in the state `from` or comes to be soon. Waits for other threads only.
    pub fn take_soon(&self, from: u64) -> bool {
        let mut pauses = 0;
        for attempt in 0_u32.. {
            if self.take(from) {
                return true;
            }
            let state = self.state();
            if state == from {
                continue;
            }
            if state < HOLDERS || state == this_thread() {
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

    /// Gives it back in this state.
    pub fn put(&self, state: u64) {
        self.0.store(state, Ordering::Release);
    }

    /// In the child of a fork: whether another thread, which the child does not have, held it.
    pub fn is_orphan(&self) -> bool {
        let state = self.state();
        state >= HOLDERS && state != this_thread()
    }
}

/// The calling thread. The same after a fork in the child.
fn this_thread() -> u64 {
    // SAFETY: has no conditions. It is the address of the thread's descriptor, far above HOLDERS.
    unsafe { libc::pthread_self() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_holds_at_a_time() {
        let claim = Claim::new(1);
        assert!(!claim.take(0) && claim.take(1));
        assert!(
            !claim.take_soon(1),
            "a handler would wait for what it interrupted"
        );
        assert!(
            !claim.is_orphan(),
            "after a fork this thread goes on with it"
        );
        std::thread::scope(|scope| {
            let other = scope.spawn(|| claim.is_orphan());
            assert!(other.join().unwrap());
            let waits = scope.spawn(|| claim.take_soon(2));
            claim.put(2);
            assert!(waits.join().unwrap());
        });
    }

    #[test]
    fn what_is_held_for_good_is_given_up() {
        let claim = Claim::new(0);
        std::thread::scope(|scope| scope.spawn(|| assert!(claim.take(0))).join().unwrap());
        assert!(!claim.take_soon(0));
    }
}
