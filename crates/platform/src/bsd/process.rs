//! Threads, programs and signals.
// rustix has neither getrusage nor sigaction
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, getppid, kill_process};

/// Time between two looks at the parent.
const PARENT_PERIOD: Duration = Duration::from_secs(1);

/// Does nothing: only Linux has a niceness for each thread.
pub fn set_thread_niceness(_: i32) {}

/// Returns a path that leads to the file of the running program.
#[must_use]
pub fn own_program() -> PathBuf {
    own_program_path()
}

/// Returns the path from which the running program was started; empty if it is not known.
#[must_use]
pub fn own_program_path() -> PathBuf {
    std::env::current_exe().unwrap_or_default()
}

/// Terminates this process in good order when its parent, the process with this number, ends for
/// any reason. It is noticed within a second. Returns false if it has ended already.
///
/// # Errors
/// No thread can be started.
pub fn end_with_parent(parent: i32) -> io::Result<bool> {
    let has_ended = move || getppid().map(Pid::as_raw_pid) != Some(parent);
    if has_ended() {
        return Ok(false);
    }
    let watch = move || {
        while !has_ended() {
            std::thread::sleep(PARENT_PERIOD);
        }
        let _ = kill_process(getpid(), Signal::TERM);
    };
    std::thread::Builder::new()
        .name("parent".into())
        .spawn(watch)?;
    Ok(true)
}

/// Returns true if this process ignores a signal, as those of nohup(1) do.
#[must_use]
pub fn ignores_signal(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no new action is set, and the present one is written to `action`, which outlives the
    // call.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the call has filled it.
    result == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Returns the processor time of this process in user and kernel mode, in clock ticks.
#[must_use]
pub fn processor_ticks() -> Option<(u64, u64)> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the call writes one `rusage` to `usage`, which outlives it.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call has filled it.
    let usage = unsafe { usage.assume_init() };
    let per_second = rustix::param::clock_ticks_per_second();
    let ticks = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let microseconds = u64::try_from(time.tv_usec).unwrap_or(0);
        seconds
            .saturating_mul(per_second)
            .saturating_add(microseconds.saturating_mul(per_second) / 1_000_000)
    };
    Some((ticks(usage.ru_utime), ticks(usage.ru_stime)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_knows_itself() {
        assert!(own_program_path().is_file());
        assert!(processor_ticks().is_some());
        // Rust's programs ignore SIGPIPE.
        assert!(ignores_signal(libc::SIGPIPE) && !ignores_signal(libc::SIGTERM));
        assert!(!end_with_parent(i32::MAX).unwrap());
    }
}
