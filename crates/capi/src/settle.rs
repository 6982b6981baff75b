//! Settling of connections whose route is being made.

use std::ffi::c_int;
use std::os::fd::AsRawFd;

use longhaul_ramp_protocol::RampReply;

use crate::ramp;
use crate::system::{self, Errno, disconnect, option};
use crate::table::{self, SocketEntry, SocketState, SocketTable};

/// Maximum wait, in milliseconds, for the reset of a loopback connection after its failure was
/// reported.
const RESET_TIMEOUT_MS: c_int = 1_000;

/// Reads the on-ramp's result for a socket, if it has come. The result stays in the queue for other
/// processes that have the socket, too.
pub fn settle(table: &mut SocketTable, cookie: u64, fd: c_int) {
    let Some(SocketState::Connecting(pending)) = table.get(cookie).map(|entry| entry.state())
    else {
        return;
    };
    let (state, reason) = match ramp::receive(
        pending.ramp.as_raw_fd(),
        libc::MSG_PEEK | libc::MSG_DONTWAIT,
    ) {
        Err(libc::EAGAIN | libc::EINTR) => return,
        Err(_) => (
            SocketState::Failed(libc::ECONNRESET),
            "the on-ramp has ended".to_owned(),
        ),
        Ok(packet) => match packet.reply() {
            Ok(RampReply::Done { errno: 0, .. }) => {
                (SocketState::Connected { reported: false }, String::new())
            }
            Ok(RampReply::Done { errno, reason }) => {
                (SocketState::Failed(errno), reason.to_owned())
            }
            _ => (
                SocketState::Failed(libc::ECONNRESET),
                "the on-ramp sent an unexpected answer about the route".to_owned(),
            ),
        },
    };
    if let SocketState::Connecting(pending) = table.set_state(cookie, state)
        && let Some(buffer) = pending.buffer
    {
        buffer.restore(fd);
    }
    if let Some(entry) = table.get(cookie).filter(|_| !reason.is_empty()) {
        entry.reason = reason;
    }
}

/// Returns the result that `connect` reports for a connection that it began earlier. Returns `None`
/// while the route is being made, and for sockets without a route.
pub fn result(fd: c_int, cookie: u64) -> Option<Result<(), Errno>> {
    let result = table::with_table(|table| {
        settle(table, cookie, fd);
        match table.get(cookie)?.state() {
            SocketState::Connected { reported: false } => {
                table.set_state(cookie, SocketState::Connected { reported: true });
                Some(Ok(()))
            }
            SocketState::Failed(errno) => {
                let errno = *errno;
                table.set_state(cookie, SocketState::Spent);
                Some(Err(errno))
            }
            _ => None,
        }
    });
    if let Some(Err(_)) = result {
        reset_after_failure(fd);
    }
    result
}

/// Brings a socket whose route failed into the state of one whose connection was refused: closed at
/// both ends, without a pending error.
fn reset_after_failure(fd: c_int) {
    if system::wait(fd, 0, RESET_TIMEOUT_MS) == 0 {
        disconnect(fd);
    }
    let _ = option::<c_int>(fd, libc::SOL_SOCKET, libc::SO_ERROR);
}

/// Takes the failure of a socket's route that has not been reported to the program yet.
pub fn take_failure(fd: c_int) -> Option<Errno> {
    if !table::is_used() {
        return None;
    }
    let cookie = system::cookie(fd)?;
    let failed = table::with_table(|table| {
        settle(table, cookie, fd);
        match table.get(cookie)?.state() {
            SocketState::Failed(errno) => {
                let errno = *errno;
                table.set_state(cookie, SocketState::Spent);
                Some(errno)
            }
            _ => None,
        }
    });
    if failed.is_some() {
        reset_after_failure(fd);
    }
    failed
}

/// Settles a socket whose route may be being made, before the program uses it.
pub fn settle_pending(fd: c_int) {
    if table::has_pending()
        && let Some(cookie) = system::cookie(fd)
    {
        table::with_table(|table| settle(table, cookie, fd));
    }
}

/// Returns a property of a known socket, or `None` if the socket is not known.
pub fn with_known_entry<R>(
    fd: c_int,
    ask: impl FnOnce(&mut SocketEntry) -> Option<R>,
) -> Option<R> {
    if !table::is_used() {
        return None;
    }
    let cookie = system::cookie(fd)?;
    table::with_table(|table| {
        settle(table, cookie, fd);
        table.get(cookie).and_then(ask)
    })
}
