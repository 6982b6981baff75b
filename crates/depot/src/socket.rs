//! The socket options that a depot sets, on connections both accepted and dialled.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::error::Error;

/// What every hop's connection gets. `unacknowledged` bounds how long a dead peer goes unnoticed, with bytes in flight
/// (TCP_USER_TIMEOUT, RFC 5482) or without (keepalives). Closing resets unless told otherwise: see [`Conn`](crate::conn::Conn).
pub(crate) fn prepare(fd: BorrowedFd<'_>, unacknowledged: Duration) -> io::Result<()> {
    sockopt::set_socket_linger(fd, Some(Duration::ZERO))?;
    sockopt::set_tcp_nodelay(fd, true)?;
    sockopt::set_socket_keepalive(fd, true)?;
    // The kernel probes after a third of the time and then gives up when TCP_USER_TIMEOUT says so.
    let third = (unacknowledged / 3).max(Duration::from_secs(1));
    sockopt::set_tcp_keepidle(fd, third)?;
    sockopt::set_tcp_keepintvl(fd, (third / 2).max(Duration::from_secs(1)))?;
    let millis = u32::try_from(unacknowledged.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(fd, millis)?;
    Ok(())
}

/// Chooses the congestion control by its kernel name.
pub(crate) fn set_congestion(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(fd, name)?)
}

/// Finds out at start, not at the first session, that a congestion control is not to be had.
pub(crate) fn check_congestion(name: &str) -> Result<(), Error> {
    use std::os::fd::AsFd;
    let tried = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)
        .map_err(io::Error::from)
        .and_then(|fd| set_congestion(fd.as_fd(), name));
    tried.map_err(|source| Error::Congestion {
        name: name.to_owned(),
        available: std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
            .map_or_else(|_| "unknown".to_owned(), |list| list.trim().to_owned()),
        source,
    })
}
