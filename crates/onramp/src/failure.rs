//! Why a connection was not made: in words, and as `connect` reports it.

use std::io;

use longhaul_session::{Error, errno_of};
use rustix::io::Errno;

/// A connection that was not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    /// As `connect` reports it.
    pub(crate) errno: Errno,
    /// What failed, where, in one line.
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

    /// Of a direct connection.
    pub(crate) fn direct(error: &io::Error) -> Self {
        Self::new(Errno::from_raw_os_error(errno_of(error)), error.to_string())
    }

    /// Of a session.
    pub(crate) fn session(error: &Error) -> Self {
        Self::new(Errno::from_raw_os_error(error.errno()), error.to_string())
    }
}
