//! The library's own thread in the process. There is one for all its work. It is started when first
//! needed, with every signal blocked, and ends when it is not needed.
//!
//! It is started only where that is safe: neither in a signal handler nor within a fork
//! ([`crate::context`], [`Helper::fork_is_over`]). Otherwise a later call of the program starts it.
//! The last thread of a process ends it, and the C library counts the threads. So if the helper may
//! be the only thread left, it ends and leaves the rest to the C library. If that was wrong, it is
//! started again as before.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;
use rustix::time::Timespec;

use crate::context;

/// Stack size of the thread, in bytes; it includes thread-local variables of the program.
const STACK_BYTES: usize = 512 * 1024;

/// Maximum wait for the helper's thread to end; the pause between two checks follows.
const DISMISSAL_TIMEOUT: Duration = Duration::from_millis(500);
const DISMISSAL_POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// State without a helper.
const NONE: u32 = 0;
/// State in which a helper runs, or is about to.
const RUNS: u32 = 1;
/// State after a panic ended the helper; no other is started.
const BROKEN: u32 = 2;

/// The helper, and what it works on.
pub trait HelperWork: Sync + 'static {
    /// Returns the helper.
    fn helper(&self) -> &Helper;

    /// Returns true if there is work.
    fn has_work(&self) -> bool;

    /// Works until there is nothing left.
    fn run(&'static self);
}

/// Access of the program's threads to the helper.
pub struct Helper {
    state: AtomicU32,
    /// Number of notices, which an idle helper waits on; it rises with every new connection.
    news: AtomicU32,
    /// If true, this is a child whose fork may not be over: other libraries still have work to do
    /// in it.
    in_fork: AtomicBool,
    /// If true, the helper has to end, and none may be started.
    dismissed: AtomicBool,
    /// Thread number of the helper; 0 if there was none yet.
    thread: AtomicI32,
}

impl Helper {
    /// Returns a state without helper.
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(NONE),
            news: AtomicU32::new(0),
            in_fork: AtomicBool::new(false),
            dismissed: AtomicBool::new(false),
            thread: AtomicI32::new(0),
        }
    }

    /// Ends the helper, and waits at most [`DISMISSAL_TIMEOUT`] until its thread is gone.
    pub fn dismiss(&self) {
        self.dismissed.store(true, Ordering::SeqCst);
        self.notify();
        let mut waited = Duration::ZERO;
        while !self.is_gone() && waited < DISMISSAL_TIMEOUT {
            let _ = rustix::thread::nanosleep(&DISMISSAL_POLL_INTERVAL);
            waited += Duration::from_millis(1);
        }
    }

    /// Allows a helper to be started again.
    pub fn allow(&self) {
        self.dismissed.store(false, Ordering::SeqCst);
    }

    /// Returns true if the helper has to end.
    pub fn is_dismissed(&self) -> bool {
        self.dismissed.load(Ordering::SeqCst)
    }

    /// Returns true if the helper's thread is gone.
    fn is_gone(&self) -> bool {
        let thread = self.thread.load(Ordering::SeqCst);
        let is_there = |thread: i32| {
            // SAFETY: signal 0 is not delivered; it only checks that the thread exists.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) == 0 }
        };
        self.state.load(Ordering::SeqCst) != RUNS && (thread == 0 || !is_there(thread))
    }

    /// Wakes the helper, because there is something new.
    pub fn notify(&self) {
        self.news.fetch_add(1, Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) == RUNS {
            let _ = futex::wake(&self.news, futex::Flags::PRIVATE, 1);
        }
    }

    /// Returns the number of notices so far.
    pub fn news(&self) -> u32 {
        self.news.load(Ordering::SeqCst)
    }

    /// Waits until there were more notices than `seen`, for at most `longest`.
    pub fn wait(&self, seen: u32, longest: Duration) {
        if let Ok(timeout) = Timespec::try_from(longest) {
            let _ = futex::wait(&self.news, futex::Flags::PRIVATE, seen, Some(&timeout));
        }
    }

    /// Returns true if no helper runs.
    pub fn is_missing(&self) -> bool {
        self.state.load(Ordering::SeqCst) == NONE
    }

    /// Starts the helper if there is work, none runs, and it is safe to do so.
    pub fn start_if_needed(&self, work: &'static impl HelperWork) {
        if !self.is_missing()
            || self.is_dismissed()
            || self.in_fork.load(Ordering::Acquire)
            || !work.has_work()
            || context::may_be_handler()
        {
            return;
        }
        let ours = self
            .state
            .compare_exchange(NONE, RUNS, Ordering::SeqCst, Ordering::SeqCst);
        if ours.is_ok() && !start(work) {
            self.state.store(NONE, Ordering::Release);
        }
    }

    /// Ends the helper. Returns false if there is work again, and it has to stay.
    pub fn try_leave(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.state.store(NONE, Ordering::SeqCst);
        // A thread with new work counts it first and then checks for a helper, so one of the two
        // notices the other.
        !has_work()
            || self
                .state
                .compare_exchange(NONE, RUNS, Ordering::SeqCst, Ordering::SeqCst)
                .is_err()
    }

    /// Ends the helper although there may be work: the program's next call starts another one.
    pub fn leave_for_now(&self) {
        self.state.store(NONE, Ordering::SeqCst);
    }

    /// Resets the state in the child of a fork, which has only the forking thread.
    pub fn after_fork(&self) {
        self.in_fork.store(true, Ordering::Release);
        self.thread.store(0, Ordering::Release);
        self.state.store(NONE, Ordering::Release);
    }

    /// Notes that other libraries have done their work in a fork: `fork` has returned, or a
    /// function was called that is never called within it.
    pub fn fork_is_over(&self) {
        if self.in_fork.load(Ordering::Relaxed) {
            self.in_fork.store(false, Ordering::Release);
        }
    }
}

/// Starts the thread with every signal blocked, so that the program's threads handle its signals.
fn start(work: &'static impl HelperWork) -> bool {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both are valid for writes; `all` is filled before it is read, and `before` is read
    // only if the call filled it.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    if !blocked {
        return false;
    }
    let started = create(work);
    // SAFETY: filled by the call above, which succeeded.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started
}

fn create<W: HelperWork>(work: &'static W) -> bool {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: the attributes are initialized before use and destroyed after; the function and its
    // argument live as long as the process.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return false;
        }
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK_BYTES);
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        let argument = std::ptr::from_ref(work).cast_mut().cast::<c_void>();
        let made = libc::pthread_create(
            thread.as_mut_ptr(),
            attributes.as_ptr(),
            body::<W>,
            argument,
        );
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        made == 0
    }
}

extern "C" fn body<W: HelperWork>(work: *mut c_void) -> *mut c_void {
    // SAFETY: the argument of `create`, which lives as long as the process.
    let work: &'static W = unsafe { &*work.cast_const().cast::<W>() };
    // SAFETY: a name of less than 16 bytes for this thread.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"drs".as_ptr()) };
    let number = rustix::thread::gettid().as_raw_nonzero().get();
    work.helper().thread.store(number, Ordering::SeqCst);
    let run = std::panic::AssertUnwindSafe(|| work.run());
    if let Err(payload) = std::panic::catch_unwind(run) {
        // The program continues without the helper.
        work.helper().state.store(BROKEN, Ordering::Release);
        std::mem::forget(payload);
    }
    std::ptr::null_mut()
}

/// Returns true if the helper may be the last thread: the first one has ended, and no other is
/// known to be left. `/proc`, if mounted, has their number.
pub fn may_be_alone() -> bool {
    let mut room = [0; 1024];
    match stat(&mut room) {
        Some((state, threads)) => state == b'Z' && threads <= 2,
        None => first_has_ended(),
    }
}

/// Returns state and number of threads of the process, from `/proc/self/stat`.
fn stat(room: &mut [u8]) -> Option<(u8, u32)> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::open(c"/proc/self/stat", flags, rustix::fs::Mode::empty()).ok()?;
    let read = rustix::io::read(&file, &mut *room).ok()?;
    // The program's name is in parentheses, and may itself contain blanks and parentheses
    // (proc_pid_stat(5)).
    let text = room.get(..read)?;
    let (_, fields) = text.split_at_checked(text.iter().rposition(|byte| *byte == b')')? + 1)?;
    let mut fields = std::str::from_utf8(fields).ok()?.split_ascii_whitespace();
    let state = fields.next()?.bytes().next()?;
    Some((state, fields.nth(16)?.parse().ok()?))
}

/// Returns true if the process's first thread has ended, and its memory cannot be read any more.
/// Also returns true if the kernel does not say.
fn first_has_ended() -> bool {
    let (from, mut to) = (0_u8, 0_u8);
    let local = libc::iovec {
        iov_base: (&raw mut to).cast(),
        iov_len: 1,
    };
    let remote = libc::iovec {
        iov_base: (&raw const from).cast_mut().cast(),
        iov_len: 1,
    };
    // SAFETY: both are a byte of this function; the process is this one.
    let read = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    read != 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_its_first_thread_is_not_alone() {
        assert!(!may_be_alone());
        assert!(!first_has_ended());
        let (state, threads) = stat(&mut [0; 1024]).unwrap();
        assert!(state.is_ascii_alphabetic() && threads >= 1);
    }
}
