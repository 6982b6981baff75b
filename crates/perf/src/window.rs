//! Fits a socket's send buffer to bulk data: little waits to be sent.

use std::{io, os::fd::AsFd};

use drs::{Action, Outcome, apply};

/// Lets at most `bytes` wait in `socket` that were not sent once (`TCP_NOTSENT_LOWAT`): more would
/// only delay the end of a measurement and blur its intervals.
///
/// # Errors
/// The kernel's, when this is no TCP socket.
pub(crate) fn limit_unsent(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    match apply(socket, Action::UnsentLimit(bytes)) {
        Outcome::Set(_) => Ok(()),
        Outcome::Refused(error) => Err(io::Error::from_raw_os_error(error)),
    }
}
