//! System limits on the process of a command, and what it does about them at its start.

use signal_hook::consts::SIGXFSZ;

/// Arenas of the C library's allocator if address space is limited. Each reserves 64 MiB of it, and
/// by default there are eight per processor.
#[cfg(target_env = "gnu")]
const MAX_ARENAS: libc::c_int = 2;

/// Turns exceeded limits into errors of single calls instead of the end of the process.
pub fn outlive_limits() {
    // A write beyond the limit on file sizes (`ulimit -f`, LimitFSIZE=) then returns EFBIG. A
    // handler, unlike an ignored signal, leaves child processes the default action.
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
