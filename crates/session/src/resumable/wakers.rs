//! One waker for everything that a resumable session waits for: it wakes its reader and its writer.

use std::sync::Arc;
use std::task::{Wake, Waker};

use parking_lot::Mutex;

/// Number of tasks that may wait at once: a reader, a writer, and a watcher.
const SLOTS: usize = 3;

/// Task that waits for a session.
#[derive(Debug, Clone, Copy)]
pub(super) enum Waiter {
    Reader,
    Writer,
    Watcher,
}

/// Wakers of the tasks that wait.
#[derive(Debug, Default)]
pub(super) struct TaskWakers(Mutex<[Option<Waker>; SLOTS]>);

impl TaskWakers {
    /// Registers a task, instead of the one before it.
    pub(super) fn register(&self, waiter: Waiter, waker: &Waker) {
        let mut slots = self.0.lock();
        let slot = match (waiter, &mut *slots) {
            (Waiter::Reader, [slot, _, _])
            | (Waiter::Writer, [_, slot, _])
            | (Waiter::Watcher, [_, _, slot]) => slot,
        };
        match slot {
            Some(known) if known.will_wake(waker) => {}
            slot => *slot = Some(waker.clone()),
        }
    }

    pub(super) fn wake_all(&self) {
        let wakers = self.0.lock().clone();
        let mut woken: Option<&Waker> = None;
        for waker in wakers.iter().flatten() {
            // Usually all of them are the same task's.
            if woken.is_none_or(|earlier| !earlier.will_wake(waker)) {
                waker.wake_by_ref();
                woken = Some(waker);
            }
        }
    }
}

impl Wake for TaskWakers {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_all();
    }
}
