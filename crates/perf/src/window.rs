//! Limits unsent data in a socket's send buffer for bulk data.

use std::{io, os::fd::AsFd};

use drs::{Action, Outcome, apply};

/// Limits the data in `socket` that has never been sent to `bytes` (`TCP_NOTSENT_LOWAT`). More
/// would only delay the end of a measurement and blur its intervals.
///
/// # Errors
/// The kernel's error, if this is not a TCP socket.
pub(crate) fn limit_unsent(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    match apply(socket, Action::UnsentLimit(bytes)) {
        Outcome::Set(_) => Ok(()),
        Outcome::Refused(error) => Err(io::Error::from_raw_os_error(error)),
    }
}
