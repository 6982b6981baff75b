//! Limits of the system on the process of a command, and what it does about them before all else.

use signal_hook::consts::SIGXFSZ;

/// Arenas of the C library's allocator where address space is limited. Each reserves 64 MiB of it,
/// and there are eight for each processor otherwise.
#[cfg(target_env = "gnu")]
const MAX_ARENAS: libc::c_int = 2;

/// Makes limits errors of single calls, instead of the end of the process.
pub fn outlive_limits() {
    // A write beyond the limit on file sizes (`ulimit -f`, LimitFSIZE=) returns EFBIG then. With a
    // handler, unlike where the signal is ignored, programs that are started have its default
    // again.
    let _ = signal_hook::flag::register(SIGXFSZ, std::sync::Arc::default());
    if rustix::process::getrlimit(rustix::process::Resource::As)
        .current
        .is_some()
    {
        limit_arenas();
    }
}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code)] // nothing else sets it
fn limit_arenas() {
    // SAFETY: a parameter of the allocator and a number; no other thread runs yet.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, MAX_ARENAS) };
}

#[cfg(not(target_env = "gnu"))]
fn limit_arenas() {}
