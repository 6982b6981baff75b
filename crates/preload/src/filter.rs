//! Programs that restrict their system calls (seccomp(2)).
//!
//! A strict filter kills a program for calls that it does not make itself, and this library makes
//! some. So it does nothing in a program that has a filter of its own. Filters that a program
//! inherits from its parent, as in a container, allow what is needed here. The parent counts them,
//! and names their number in the environment.

use std::ffi::{c_int, c_long, c_ulong};
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Variable with the number of filters of the parent process.
pub const FILTERS_VARIABLE: &str = "LONGHAUL_SECCOMP_FILTERS";
/// Maximum number of bytes of `/proc/self/status` that are read; the kernel writes about 1,500.
const MAX_STATUS_BYTES: usize = 8192;
/// Lowest operation of `seccomp(2)` that does not install a filter.
const MIN_HARMLESS_OPERATION: c_long = 2;

/// If true, connections are refused, because the on-ramp cannot be asked for a route.
static REFUSE_CONNECTIONS: AtomicBool = AtomicBool::new(false);

/// Returns the number of filters of this process, or `None` if the kernel does not report it.
pub fn count() -> Option<u32> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    // Uses openat(2), which the loader has used before; some processors also have an older call.
    let root = rustix::fs::CWD;
    let file =
        rustix::fs::openat(root, c"/proc/self/status", flags, rustix::fs::Mode::empty()).ok()?;
    let mut text = vec![0; MAX_STATUS_BYTES];
    let mut read = 0;
    while let Some(room) = text.get_mut(read..)
        && let Ok(more @ 1..) = rustix::io::read(&file, room)
    {
        read += more;
    }
    // Dropping it makes another system call in debug builds.
    // SAFETY: nothing else has this descriptor.
    unsafe { rustix::io::close(file.into_raw_fd()) };
    parse_count(text.get(..read)?)
}

/// Parses the number of filters in `/proc/self/status`. Kernels before 5.9 only say if there are
/// any.
fn parse_count(status: &[u8]) -> Option<u32> {
    let field = |name: &str| {
        let lines = status.split(|byte| *byte == b'\n');
        let value = lines
            .filter_map(|line| line.strip_prefix(name.as_bytes()))
            .next()?;
        std::str::from_utf8(value).ok()?.trim().parse::<u32>().ok()
    };
    field("Seccomp_filters:").or_else(|| field("Seccomp:"))
}

/// Returns true if the program, or a process between it and the starter, has installed a filter.
pub fn is_stricter(inherited: Option<u32>) -> bool {
    inherited.is_some_and(|inherited| count().is_some_and(|now| now > inherited))
}

/// Refuses connections that might have a route from now on.
pub fn refuse_connections() {
    REFUSE_CONNECTIONS.store(true, Ordering::Release);
}

/// Allows connections again.
pub fn accept_connections() {
    REFUSE_CONNECTIONS.store(false, Ordering::Release);
}

/// Returns true if connections that might have a route are refused.
pub fn refuses_connections() -> bool {
    REFUSE_CONNECTIONS.load(Ordering::Acquire)
}

/// Returns true if `prctl` with this option installs a filter.
pub fn is_install_by_prctl(option: c_int) -> bool {
    option == libc::PR_SET_SECCOMP
}

/// Returns true if the system call of this number and first argument installs a filter.
pub fn is_install_by_syscall(number: c_long, first: c_ulong) -> bool {
    let first = c_long::try_from(first).unwrap_or(c_long::MAX);
    match number {
        libc::SYS_seccomp => first < MIN_HARMLESS_OPERATION,
        libc::SYS_prctl => c_int::try_from(first).is_ok_and(is_install_by_prctl),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_counted() {
        let status =
            b"Name:\tx\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\nSpeculation:\ty\n";
        assert_eq!(parse_count(status), Some(3));
        assert_eq!(parse_count(b"Name:\tx\nSeccomp:\t2\n"), Some(2));
        assert_eq!(parse_count(b"Name:\tSeccomp:\t7\n"), None);
        assert_eq!(parse_count(b"Seccomp_filters:\tmany\n"), None);
        let now = count();
        assert!(!is_stricter(now));
        assert!(!is_stricter(None));
    }

    #[test]
    fn calls_that_install_a_filter_are_known() {
        let prctl = |option: c_int| is_install_by_syscall(libc::SYS_prctl, option as c_ulong);
        assert!(prctl(libc::PR_SET_SECCOMP));
        assert!(!prctl(libc::PR_SET_NO_NEW_PRIVS));
        assert!(is_install_by_syscall(libc::SYS_seccomp, 0));
        assert!(is_install_by_syscall(libc::SYS_seccomp, 1));
        assert!(!is_install_by_syscall(libc::SYS_seccomp, 2));
        assert!(!is_install_by_syscall(libc::SYS_seccomp, c_ulong::MAX));
        assert!(!is_install_by_syscall(libc::SYS_getpid, 1));
    }
}
