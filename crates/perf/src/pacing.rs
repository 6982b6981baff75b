//! `SO_MAX_PACING_RATE`, which no library at hand sets.
#![allow(unsafe_code)] // one setsockopt

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// Has the kernel send at most `bytes_per_second` of payload on a TCP socket.
///
/// # Errors
/// The kernel's, when this is no socket that it paces.
pub(crate) fn set_max_pacing_rate(socket: impl AsFd, bytes_per_second: u64) -> io::Result<()> {
    // The kernel takes an `unsigned long`, or 32 bits, which end at 34 Gbit/s.
    let rate = libc::c_ulong::try_from(bytes_per_second).unwrap_or(libc::c_ulong::MAX);
    let size = size_of::<libc::c_ulong>();
    // SAFETY: `rate` is valid for reads of `size` bytes and outlives the call, which keeps no pointer to it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast::<libc::c_void>(),
            libc::socklen_t::try_from(size).unwrap_or(0),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drs::TcpInfo;

    #[test]
    fn the_kernel_holds_a_connection_to_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        set_max_pacing_rate(&stream, 5_000_000).unwrap();
        assert!(TcpInfo::read(&stream).unwrap().pacing_rate <= Some(5_000_000));
        assert!(set_max_pacing_rate(std::fs::File::open("/dev/null").unwrap(), 1).is_err());
    }
}
