//! Socket options.
#![allow(unsafe_code)] // Options that std does not have.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

pub(super) fn set_option(
    socket: &UdpSocket,
    level: i32,
    option: i32,
    value: &[u8],
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).unwrap_or(0);
    // SAFETY: the kernel reads `length` bytes, which are those of `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            value.as_ptr().cast(),
            length,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
