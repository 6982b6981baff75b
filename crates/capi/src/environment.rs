//! Environment variables.

use std::ffi::OsString;

/// Returns an environment variable. Returns `None` if it is unset or empty, or if this program has
/// more rights than its user.
pub fn variable(name: &str) -> Option<OsString> {
    // SAFETY: reads a value of this process only.
    let is_secure = unsafe { libc::getauxval(libc::AT_SECURE) } == 0;
    std::env::var_os(name).filter(|value| is_secure && !value.is_empty())
}
