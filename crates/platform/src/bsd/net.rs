//! Sockets and pipes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};

pub use rustix::net::*;

pub use crate::types::SplicePipe;

/// Flags for sending. A broken connection is an error and no signal, as sockets are made so.
pub const SEND_FLAGS: SendFlags = SendFlags::empty();
/// Flags for receiving descriptors.
pub const RECEIVE_FLAGS: RecvFlags = RecvFlags::empty();
/// True if the kernel moves bytes between sockets by itself ([`splice`]).
pub const HAS_SPLICE: bool = false;

/// Number of probes after which a silent peer is given up.
const KEEPALIVE_PROBES: u32 = 8;

/// Creates a TCP socket that does not block.
///
/// # Errors
/// Those of socket(2).
pub fn stream_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    prepared(socket(family, SocketType::STREAM, None)?)
}

/// Accepts a connection that does not block.
///
/// # Errors
/// Those of accept(2).
pub fn accept_stream(listener: impl AsFd) -> Result<(OwnedFd, Option<SocketAddrAny>), Errno> {
    let (socket, peer) = acceptfrom(listener)?;
    Ok((prepared(socket)?, peer))
}

/// Sets what a socket of this program needs. A program that another thread starts at this very
/// moment may still inherit it.
fn prepared(socket: OwnedFd) -> Result<OwnedFd, Errno> {
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    ioctl_fionbio(&socket, true)?;
    // Fails if the peer has closed meanwhile, which the first use reports.
    #[cfg(target_vendor = "apple")]
    let _ = sockopt::set_socket_nosigpipe(&socket, true);
    Ok(socket)
}

/// Returns false: no socket is taken over from another process.
#[must_use]
pub fn is_listening(_: impl AsFd) -> bool {
    false
}

/// Sets the interval of keep-alive probes so that a silent peer is given up after about this time.
/// Sent bytes that stay unacknowledged are retransmitted as long as the kernel does by default.
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_user_timeout(socket: impl AsFd, milliseconds: u32) -> Result<(), Errno> {
    let interval = Duration::from_millis(milliseconds.into()) / (KEEPALIVE_PROBES + 1);
    sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_keepintvl(&socket, interval.max(Duration::from_secs(1)))
}

/// Fails with `OPNOTSUPP`: the congestion control is that of the system.
///
/// # Errors
/// `OPNOTSUPP`.
pub fn set_congestion(_: impl AsFd, _: &str) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Returns `None`: it is not known.
#[must_use]
pub fn congestion(_: impl AsFd) -> Option<String> {
    None
}

/// Returns `None`: they are not known.
#[must_use]
pub fn available_congestion() -> Option<String> {
    None
}

/// Returns none: only systemd passes descriptors.
#[must_use]
pub fn duplicate_descriptors(_: RawFd, _: usize) -> Vec<OwnedFd> {
    Vec::new()
}

/// Creates a pipe that does not block. Returns the end to read from first.
///
/// # Errors
/// Those of pipe(2).
pub fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let ends = rustix::pipe::pipe()?;
    for end in [&ends.0, &ends.1] {
        fcntl_setfd(end, FdFlags::CLOEXEC)?;
        ioctl_fionbio(end, true)?;
    }
    Ok(ends)
}

/// Fails: bytes pass through buffers of the program.
///
/// # Errors
/// Always.
pub fn splice_pipe(_: usize) -> io::Result<SplicePipe> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Fails with `NOSYS`.
///
/// # Errors
/// `NOSYS`.
pub fn splice(_: BorrowedFd<'_>, _: BorrowedFd<'_>, _: usize) -> Result<usize, Errno> {
    Err(Errno::NOSYS)
}
