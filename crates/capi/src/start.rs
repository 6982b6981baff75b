//! Starting an on-ramp if none is running.
//!
//! It must not become a child that the program can notice: no signal reports its end, and no `wait`
//! of the program finds it. So a child that sends no signal starts it, and exits at once.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::{io, ptr};

use crate::environment::variable;
use crate::system::{Errno, errno};

/// Maximum time until the on-ramp listens, in milliseconds.
const START_TIMEOUT_MS: i64 = 5_000;

/// Time after a failure before the next attempt, in milliseconds.
const RETRY_DELAY_MS: i64 = 60_000;

/// Time of the last failure, in milliseconds of the monotonic clock; 0 for never.
static FAILED_AT: AtomicI64 = AtomicI64::new(0);

/// Starts the on-ramp, and calls `dial` until it answers.
pub fn start(dial: impl Fn() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    let failed = FAILED_AT.load(Ordering::Relaxed);
    if failed != 0 && now() - failed < RETRY_DELAY_MS {
        return Err(libc::ECONNREFUSED);
    }
    let begun = now();
    let answered = program().ok_or(libc::ENOENT).and_then(|program| {
        let ended = spawn(&program)?;
        // The pipe is closed when the on-ramp ends.
        loop {
            match dial() {
                Err(libc::ENOENT | libc::ECONNREFUSED) if now() - begun < START_TIMEOUT_MS => {}
                other => return other,
            }
            if crate::system::wait(ended.as_raw_fd(), libc::POLLIN, 10) != 0 {
                // Another process may have started one at the same time.
                return dial();
            }
        }
    });
    FAILED_AT.store(
        if answered.is_err() { now().max(1) } else { 0 },
        Ordering::Relaxed,
    );
    answered
}

/// Returns the monotonic clock, in milliseconds.
fn now() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is valid for a time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

/// Returns the program: `$LONGHAUL_PROGRAM`, `longhaul` next to this library or in the `bin` next
/// to its directory, or in `$PATH`.
fn program() -> Option<PathBuf> {
    if let Some(program) = variable("LONGHAUL_PROGRAM") {
        return Some(program.into());
    }
    let beside = library().into_iter().flat_map(|library| {
        let folder = library.parent().unwrap_or(Path::new("/")).to_owned();
        [folder.join("longhaul"), folder.join("../bin/longhaul")]
    });
    let path = variable("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("longhaul"));
    beside
        .chain(in_path)
        .find(|file| file.is_absolute() && is_program(file))
}

fn is_program(file: &Path) -> bool {
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: a NUL-terminated path.
    file.is_file() && unsafe { libc::access(path.as_ptr(), libc::X_OK) } == 0
}

/// Returns the file that contains this code: the library, or the program if it is linked
/// statically.
fn library() -> Option<PathBuf> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    let here = ptr::from_ref(&FAILED_AT).cast::<c_void>();
    // SAFETY: an address, and a valid pointer for the result.
    if unsafe { libc::dladdr(here, found.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: filled in, as the call has said.
    let name = unsafe { found.assume_init() }.dli_fname;
    if name.is_null() {
        return None;
    }
    // SAFETY: a NUL-terminated string that lives as long as the object is loaded.
    let name = unsafe { CStr::from_ptr(name) };
    std::fs::canonicalize(Path::new(OsStr::from_bytes(name.to_bytes()))).ok()
}

/// Starts `longhaul onramp`. Returns the reading end of a pipe that is closed when it ends.
fn spawn(program: &Path) -> Result<io::PipeReader, Errno> {
    let path = CString::new(program.as_os_str().as_bytes()).map_err(|_| libc::ENOENT)?;
    let arguments: [*const c_char; 3] = [c"longhaul".as_ptr(), c"onramp".as_ptr(), ptr::null()];
    let (ended, held) = io::pipe().map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
    // Without a signal among its flags, a child reports its end to nobody.
    // SAFETY: a fork; the child calls nothing but system calls.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    match child {
        0 => {
            // SAFETY: this is the child: its memory is its own, and it ends with exec or exit.
            unsafe { become_onramp(&path, &arguments, held.as_raw_fd()) }
        }
        -1 => Err(errno()),
        child => {
            let mut status = 0;
            // SAFETY: a child of this process that ends at once; `__WCLONE` because it sends no
            // signal.
            while unsafe { libc::waitpid(child as libc::pid_t, &raw mut status, libc::__WCLONE) }
                < 0
                && errno() == libc::EINTR
            {}
            Ok(ended)
        }
    }
}

/// Starts a grandchild in a session of its own, which becomes the on-ramp. Runs in the child.
///
/// # Safety
/// To be called in a child that does nothing else. `arguments` ends with NULL.
unsafe fn become_onramp(program: &CStr, arguments: &[*const c_char; 3], held: c_int) -> ! {
    /// First descriptor after the standard three.
    const FIRST: c_int = 3;
    // SAFETY: system calls, and functions that are safe after a fork. The arguments are zero-ended.
    unsafe {
        if libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) == 0 {
            libc::setsid();
            // Signals that the program ignores or blocks are not inherited.
            let mut none = MaybeUninit::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            // Above the standard three, and kept open by exec.
            let held = libc::fcntl(held, libc::F_DUPFD, FIRST);
            let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            for standard in 0..FIRST {
                libc::dup2(nothing, standard);
            }
            // Closes all but the pipe, which gets a fixed number.
            libc::dup2(held, FIRST);
            libc::syscall(libc::SYS_close_range, FIRST + 1, u32::MAX, 0);
            libc::execv(program.as_ptr(), arguments.as_ptr());
        }
        libc::_exit(0)
    }
}
