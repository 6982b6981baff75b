//! System calls that no safe library provides: reading a socket's options as bytes, and the lengths
//! of its queues.
// neither std, rustix nor socket2 reads TCP_INFO, TCP_CC_INFO, SO_MEMINFO or SIOCOUTQNSD
#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// Number of a request to a device or socket (ioctl(2)).
#[cfg(target_os = "linux")]
pub type Ioctl = libc::Ioctl;
/// Number of a request to a device or socket (ioctl(2)).
#[cfg(not(target_os = "linux"))]
pub type Ioctl = libc::c_ulong;

/// Calls `getsockopt`. Returns the number of bytes of `room` that the kernel filled.
pub fn option(socket: BorrowedFd<'_>, level: i32, name: i32, room: &mut [u8]) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(room.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: `room` is valid for writes of at least `length` bytes and outlives the call. The
    // kernel writes at most `length` bytes and sets `length` to their number. Any bytes are a valid
    // `[u8]`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            room.as_mut_ptr().cast::<libc::c_void>(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(length).unwrap_or(0).min(room.len()))
}

/// Calls `setsockopt` with a value of any kind, as bytes.
pub fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `value` is valid for reads of `length` bytes and outlives the call, which only reads
    // it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast::<libc::c_void>(),
            length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns the length of one of a socket's queues, in bytes. `request` is one
/// of the three in the module `tcp`.
pub fn queue_bytes(socket: BorrowedFd<'_>, request: Ioctl) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: each of the three requests writes one `int` to its argument, which points to `bytes`
    // and outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut bytes) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u32::try_from(bytes).unwrap_or(0))
}
