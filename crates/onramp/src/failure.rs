//! Reason why a connection was not made: in words, and as an error number of `connect`.

use std::io;

use longhaul_session::{Error, errno_of};
use rustix::io::Errno;

/// A connection that was not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    /// Error number that `connect` reports.
    pub(crate) errno: Errno,
    /// Description in one line: the failure, and its location.
    pub(crate) what: String,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl Failed {
    pub(crate) fn new(errno: Errno, what: impl Into<String>) -> Self {
        Self {
            errno,
            what: what.into(),
        }
    }

    /// Returns the failure of a direct connection.
    pub(crate) fn direct(error: &io::Error) -> Self {
        Self::new(Errno::from_raw_os_error(errno_of(error)), error.to_string())
    }

    /// Returns the failure of a session.
    pub(crate) fn session(error: &Error) -> Self {
        Self::new(Errno::from_raw_os_error(error.errno()), error.to_string())
    }
}
