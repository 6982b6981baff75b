//! Where the program calls from: what may be done beside it differs between its ordinary course, a
//! signal handler, and a stack that has next to no room.

use std::mem::MaybeUninit;

use libc::c_int;

/// An alternate signal stack with less room than this, in bytes, is left to the program. What the
/// hooks do takes a few kilobytes.
const LEAST_ROOM: usize = 24 * 1024;

/// Keeps `errno`, and keeps the thread from being cancelled, until it is dropped.
pub struct Unseen {
    errno: c_int,
    cancelling: c_int,
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

impl Unseen {
    /// From here on.
    pub fn begin() -> Self {
        let mut cancelling = 0;
        // SAFETY: a state that there is, and a place for the one before.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut cancelling) };
        Self {
            errno: errno(),
            cancelling,
        }
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        // SAFETY: the state that it gave; NULL for a place is allowed in glibc and musl.
        unsafe { pthread_setcancelstate(self.cancelling, std::ptr::null_mut()) };
        set_errno(self.errno);
    }
}

/// This thread's error number.
pub fn errno() -> c_int {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's error number.
pub fn set_errno(number: c_int) {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = number };
}

/// The alternate signal stack, if the thread is on it.
fn alternate_stack() -> Option<libc::stack_t> {
    let mut stack = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: asks only, and `stack` is valid for writes; zeroed, it is a stack in any case.
    let stack = unsafe {
        libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr());
        stack.assume_init()
    };
    (stack.ss_flags & libc::SS_ONSTACK != 0).then_some(stack)
}

/// Whether the thread handles a signal on a stack that may be all but full: nothing is done beside
/// the program then.
#[inline(never)] // so that its own room is free again for what follows
pub fn is_cramped() -> bool {
    let Some(stack) = alternate_stack() else {
        return false;
    };
    let here = (&raw const stack).addr();
    here.saturating_sub(stack.ss_sp.addr()) < LEAST_ROOM
}

/// Whether the thread may be within a signal handler, which has interrupted it wherever it was: in
/// the C library's allocator too, so that nothing may be called that allocates or starts a thread.
///
/// A handler runs with its signal blocked, and with those of its mask. So the answer is `true`
/// where some signal that has a handler is blocked just so, or would not be (`SA_NODEFER`): a
/// thread that blocks such signals for reasons of its own can't be distinguished.
pub fn may_be_handler() -> bool {
    if alternate_stack().is_some() {
        return true;
    }
    let mut blocked = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: asks only; a zeroed set is empty.
    let blocked = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), blocked.as_mut_ptr());
        blocked.assume_init()
    };
    (1..=libc::SIGRTMAX()).any(|signal| is_as_in_handler(signal, &blocked))
}

fn is_as_in_handler(signal: c_int, blocked: &libc::sigset_t) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only. What the C library keeps for itself it refuses to show.
    let action = unsafe {
        if libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) != 0 {
            return false;
        }
        action.assume_init()
    };
    if action.sa_sigaction == libc::SIG_DFL || action.sa_sigaction == libc::SIG_IGN {
        return false;
    }
    // SAFETY: both are sets; numbers in this range are signals.
    let is_in = |set: &libc::sigset_t, signal| unsafe { libc::sigismember(set, signal) == 1 };
    let deferred = action.sa_flags & libc::SA_NODEFER == 0;
    (!deferred || is_in(blocked, signal))
        && (1..=libc::SIGRTMAX())
            .all(|other| !is_in(&action.sa_mask, other) || is_in(blocked, other))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static SEEN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn looks(_signal: c_int) {
        SEEN.store(1 + u32::from(may_be_handler()), Ordering::SeqCst);
    }

    /// Has the handler run once with these flags; whether it was taken for one.
    fn reported_in_handler(flags: c_int) -> bool {
        // SAFETY: a handler that only asks and stores; the one before is put back.
        unsafe {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            action.sa_sigaction = looks as extern "C" fn(c_int) as libc::sighandler_t;
            action.sa_flags = flags;
            let mut before = MaybeUninit::<libc::sigaction>::zeroed();
            libc::sigaction(libc::SIGUSR2, &raw const action, before.as_mut_ptr());
            assert!(flags & libc::SA_NODEFER != 0 || !may_be_handler());
            libc::raise(libc::SIGUSR2);
            libc::sigaction(libc::SIGUSR2, before.as_ptr(), std::ptr::null_mut());
        }
        SEEN.swap(0, Ordering::SeqCst) == 2
    }

    #[test]
    fn a_handler_is_reported() {
        assert!(reported_in_handler(0));
        assert!(reported_in_handler(libc::SA_NODEFER));
        assert!(!may_be_handler());
        assert!(!is_cramped());
    }

    #[test]
    fn errno_stays() {
        set_errno(33);
        let unseen = Unseen::begin();
        set_errno(34);
        drop(unseen);
        assert_eq!(errno(), 33);
    }
}
