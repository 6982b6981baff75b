//! Options of TCP sockets by which flows are measured and sized.

pub use libc::{
    SO_BUF_LOCK, SO_MAX_PACING_RATE, SO_MEMINFO, TCP_CC_INFO, TCP_CONGESTION, TCP_NOTSENT_LOWAT,
    TCP_WINDOW_CLAMP,
};
use std::io;
use std::os::fd::BorrowedFd;

use crate::sockets::{Ioctl, option};

/// `SIOCINQ`, also called `FIONREAD` (Linux `include/uapi/linux/sockios.h`).
pub const SIOCINQ: Ioctl = libc::FIONREAD;
/// `SIOCOUTQ`, also called `TIOCOUTQ`.
pub const SIOCOUTQ: Ioctl = libc::TIOCOUTQ;
/// Request for the unsent bytes; libc has no name for it.
pub const SIOCOUTQNSD: Ioctl = 0x894B;

/// Reads `TCP_INFO`. Returns the number of bytes of `room` that the kernel filled.
///
/// # Errors
/// Those of getsockopt(2).
pub fn info(socket: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<usize> {
    option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, room)
}
