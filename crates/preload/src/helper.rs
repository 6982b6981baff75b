//! The library's own thread in the process: one for all that it does there, started when it is
//! first needed, with every signal blocked, and gone when it is not needed.
//!
//! It is started only where that is safe: neither in a signal handler nor within a fork
//! ([`crate::context`], [`Helper::fork_is_over`]). Where it can't be started yet, it is with a
//! later call of the program's. The last thread of a process ends it, and the C library counts
//! them. So where the helper may be the only one that is left, it leaves, and the rest is the C
//! library's; where it was not, it is started again as before.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;
use rustix::time::Timespec;

use crate::context;
use crate::process::Process;

/// Stack of the thread, in bytes; thread-local variables of the program take from it.
const STACK: usize = 512 * 1024;

/// Wait for the helper's thread to end, at most, and between two looks.
const DISMISSAL_TIMEOUT: Duration = Duration::from_millis(500);
const DISMISSAL_POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// No helper runs.
const NONE: u32 = 0;
/// One runs, or is about to.
const RUNS: u32 = 1;
/// One was ended by a defect; there is to be no other.
const BROKEN: u32 = 2;

/// How the program's threads reach the helper.
pub struct Helper {
    state: AtomicU32,
    /// Goes up with every new connection; what an idle helper sleeps on.
    news: AtomicU32,
    /// In a child whose fork may not be over yet: what other libraries do in it is not done.
    in_fork: AtomicBool,
    /// The helper is to end, and none is to be started.
    dismissed: AtomicBool,
    /// Number of the helper's thread; 0 if there was none yet.
    thread: AtomicI32,
}

impl Helper {
    /// No helper yet.
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(NONE),
            news: AtomicU32::new(0),
            in_fork: AtomicBool::new(false),
            dismissed: AtomicBool::new(false),
            thread: AtomicI32::new(0),
        }
    }

    /// Ends the helper, and waits until its thread is gone, [`DISMISSAL_TIMEOUT`] at most.
    pub fn dismiss(&self) {
        self.dismissed.store(true, Ordering::SeqCst);
        self.notify();
        let mut waited = Duration::ZERO;
        while !self.is_gone() && waited < DISMISSAL_TIMEOUT {
            let _ = rustix::thread::nanosleep(&DISMISSAL_POLL_INTERVAL);
            waited += Duration::from_millis(1);
        }
    }

    /// A helper may be started again.
    pub fn recall(&self) {
        self.dismissed.store(false, Ordering::SeqCst);
    }

    /// Whether the helper is to end.
    pub fn is_dismissed(&self) -> bool {
        self.dismissed.load(Ordering::SeqCst)
    }

    /// Whether there is no thread of the helper's any more.
    fn is_gone(&self) -> bool {
        let thread = self.thread.load(Ordering::SeqCst);
        let is_there = |thread: i32| {
            // SAFETY: signal 0 is not delivered; it only says whether there is such a thread.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) == 0 }
        };
        self.state.load(Ordering::SeqCst) != RUNS && (thread == 0 || !is_there(thread))
    }

    /// There is something new for the helper.
    pub fn notify(&self) {
        self.news.fetch_add(1, Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) == RUNS {
            let _ = futex::wake(&self.news, futex::Flags::PRIVATE, 1);
        }
    }

    /// The number of notices so far.
    pub fn news(&self) -> u32 {
        self.news.load(Ordering::SeqCst)
    }

    /// Waits until there were more notices than `seen`, or for so long.
    pub fn wait(&self, seen: u32, longest: Duration) {
        if let Ok(timeout) = Timespec::try_from(longest) {
            let _ = futex::wait(&self.news, futex::Flags::PRIVATE, seen, Some(&timeout));
        }
    }

    /// Whether none runs.
    pub fn is_missing(&self) -> bool {
        self.state.load(Ordering::SeqCst) == NONE
    }

    /// Starts the helper where there is work, none runs, and that is safe here.
    pub fn attend(&self, process: &'static Process) {
        if !self.is_missing()
            || self.is_dismissed()
            || self.in_fork.load(Ordering::Acquire)
            || !process.has_work()
            || context::may_be_handler()
        {
            return;
        }
        let ours = self
            .state
            .compare_exchange(NONE, RUNS, Ordering::SeqCst, Ordering::SeqCst);
        if ours.is_ok() && !start(process) {
            self.state.store(NONE, Ordering::Release);
        }
    }

    /// The helper means to end. `false` when there is work again, and it has to stay.
    pub fn leave(&self, process: &Process) -> bool {
        self.state.store(NONE, Ordering::SeqCst);
        // Whoever makes work counts it first and then looks whether a helper runs, so one of both
        // sees the other.
        !process.has_work()
            || self
                .state
                .compare_exchange(NONE, RUNS, Ordering::SeqCst, Ordering::SeqCst)
                .is_err()
    }

    /// The helper ends although there may be work: another one is started with the program's next
    /// call.
    pub fn leave_for_now(&self) {
        self.state.store(NONE, Ordering::SeqCst);
    }

    /// In the child of a fork, which has the forking thread only.
    pub fn after_fork(&self) {
        self.in_fork.store(true, Ordering::Release);
        self.thread.store(0, Ordering::Release);
        self.state.store(NONE, Ordering::Release);
    }

    /// What other libraries do in a fork has been done: `fork` has returned, or something is called
    /// that nobody calls in there.
    pub fn fork_is_over(&self) {
        if self.in_fork.load(Ordering::Relaxed) {
            self.in_fork.store(false, Ordering::Release);
        }
    }
}

/// Starts the thread with every signal blocked, which it inherits: the program's signals stay with
/// the program's threads.
fn start(process: &'static Process) -> bool {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both are valid for writes; `all` is filled before it is read, and `before` is read
    // only where the call filled it.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    if !blocked {
        return false;
    }
    let started = create(process);
    // SAFETY: filled by the call above, which succeeded.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started
}

fn create(process: &'static Process) -> bool {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread: libc::pthread_t = 0;
    // SAFETY: the attributes are set up before they are used, and given back after; the function
    // lives as long as the process, and so does what it is given.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return false;
        }
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        let argument = std::ptr::from_ref(process).cast_mut().cast::<c_void>();
        let made = libc::pthread_create(&raw mut thread, attributes.as_ptr(), body, argument);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        made == 0
    }
}

extern "C" fn body(process: *mut c_void) -> *mut c_void {
    // SAFETY: what `create` gave, which lives as long as the process.
    let process: &'static Process = unsafe { &*process.cast_const().cast::<Process>() };
    // SAFETY: a name of less than 16 bytes, of this thread.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"drs".as_ptr()) };
    let number = rustix::thread::gettid().as_raw_nonzero().get();
    process.helper.thread.store(number, Ordering::SeqCst);
    let run = std::panic::AssertUnwindSafe(|| process.help());
    if let Err(payload) = std::panic::catch_unwind(run) {
        // The program goes on without.
        process.helper.state.store(BROKEN, Ordering::Release);
        std::mem::forget(payload);
    }
    std::ptr::null_mut()
}

/// Whether the helper may be the last thread: the first one has ended, and no other is known to be
/// left. `/proc` says how many there are, where there is one.
pub fn may_be_alone() -> bool {
    let mut room = [0; 1024];
    match stat(&mut room) {
        Some((state, threads)) => state == b'Z' && threads <= 2,
        None => first_has_ended(),
    }
}

/// State and number of threads of the process, from `/proc/self/stat`.
fn stat(room: &mut [u8]) -> Option<(u8, u32)> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::open(c"/proc/self/stat", flags, rustix::fs::Mode::empty()).ok()?;
    let read = rustix::io::read(&file, &mut *room).ok()?;
    // The program's name stands in brackets and may have blanks and brackets of its own
    // (proc_pid_stat(5)).
    let text = room.get(..read)?;
    let (_, fields) = text.split_at_checked(text.iter().rposition(|byte| *byte == b')')? + 1)?;
    let mut fields = std::str::from_utf8(fields).ok()?.split_ascii_whitespace();
    let state = fields.next()?.bytes().next()?;
    Some((state, fields.nth(16)?.parse().ok()?))
}

/// Whether the process's first thread has ended, which then has no memory to be read. `true` where
/// the kernel does not say.
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
    // SAFETY: both are a byte of this function's; the process is this one.
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
