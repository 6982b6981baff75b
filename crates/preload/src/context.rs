//! Context of a call: the program's ordinary course, a signal handler, or a stack with hardly any
//! space. What the library may do depends on it.

use std::mem::MaybeUninit;

use libc::c_int;

/// Minimum free space on an alternate signal stack, in bytes, for the library to act. The hooks
/// need a few kilobytes.
const LEAST_ROOM: usize = 24 * 1024;

/// Guard that preserves `errno` and delays cancellation of the thread until it is dropped.
pub struct Unseen {
    errno: c_int,
    cancelling: c_int,
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

impl Unseen {
    /// Begins the guarded section.
    pub fn begin() -> Self {
        let mut cancelling = 0;
        // SAFETY: a valid state, and a valid pointer for the previous one.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut cancelling) };
        Self {
            errno: errno(),
            cancelling,
        }
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        // SAFETY: the previous state; NULL for its pointer is allowed in glibc and musl.
        unsafe { pthread_setcancelstate(self.cancelling, std::ptr::null_mut()) };
        set_errno(self.errno);
    }
}

/// Returns this thread's `errno`.
pub fn errno() -> c_int {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's `errno`.
pub fn set_errno(number: c_int) {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = number };
}

/// Returns the alternate signal stack if the thread is on it.
fn alternate_stack() -> Option<libc::stack_t> {
    let mut stack = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: only reads, and `stack` is valid for writes; zeroed, it is a valid stack.
    let stack = unsafe {
        libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr());
        stack.assume_init()
    };
    (stack.ss_flags & libc::SS_ONSTACK != 0).then_some(stack)
}

/// Returns true if the thread handles a signal on a stack that may be nearly full. The library does
/// nothing then.
#[inline(never)] // so that its own room is free again for what follows
pub fn is_cramped() -> bool {
    let Some(stack) = alternate_stack() else {
        return false;
    };
    let here = (&raw const stack).addr();
    here.saturating_sub(stack.ss_sp.addr()) < LEAST_ROOM
}

/// Returns true if the thread may be in a signal handler. The handler may have interrupted it
/// anywhere, even in the C library's allocator, so nothing may be called that allocates or starts a
/// thread.
///
/// A handler runs with its signal and those of its mask blocked. So the result is true if the
/// signals of any handler are blocked in this way; its own need not be with `SA_NODEFER`. A thread
/// that blocks such signals for other reasons cannot be distinguished.
pub fn may_be_handler() -> bool {
    if alternate_stack().is_some() {
        return true;
    }
    let mut blocked = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: only reads; a zeroed set is empty.
    let blocked = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), blocked.as_mut_ptr());
        blocked.assume_init()
    };
    (1..=libc::SIGRTMAX()).any(|signal| is_as_in_handler(signal, &blocked))
}

fn is_as_in_handler(signal: c_int, blocked: &libc::sigset_t) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only reads. The C library refuses for signals that it keeps for itself.
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

    /// Runs the handler once with these flags. Returns true if it was recognized as one.
    fn reported_in_handler(flags: c_int) -> bool {
        // SAFETY: a handler that only reads and stores; the previous one is restored.
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
