//! Fits a socket's buffers to bulk data: the receive window open at once, little waiting to be sent.
#![allow(unsafe_code)] // SO_RCVLOWAT and TCP_NOTSENT_LOWAT, which no library at hand sets

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

/// Lets `socket` offer a window of up to `bytes` from now on, without an end to the kernel's autotuning, which goes on from there.
///
/// A set-up of a few short messages leaves a window of some 64 KB, of which autotuning makes more only when more than a window
/// arrives in a round trip: with segments of 9000 bytes that can take seconds. Asking to be woken for `bytes` at once
/// (`SO_RCVLOWAT`) makes the kernel see to a buffer of that size, up to the ceiling of its autotuning (`tcp_rmem`); `SO_RCVBUF` would
/// end at `rmem_max` and switch autotuning off. The window still opens no faster than segments arrive, and a limit is no memory
/// taken.
///
/// # Errors
/// The kernel's, when this is no TCP socket.
pub(crate) fn open(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    set(socket.as_fd(), (libc::SOL_SOCKET, libc::SO_RCVLOWAT), bytes)?;
    set(socket.as_fd(), (libc::SOL_SOCKET, libc::SO_RCVLOWAT), 1)
}

/// Lets at most `bytes` wait in `socket` that were not sent once (`TCP_NOTSENT_LOWAT`): more would only delay the end of a measurement
/// and blur its intervals.
///
/// # Errors
/// The kernel's, when this is no TCP socket.
pub(crate) fn limit_unsent(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    set(
        socket.as_fd(),
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
        bytes,
    )
}

fn set(socket: BorrowedFd<'_>, (level, option): (i32, i32), bytes: u32) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    // SAFETY: `bytes` is valid for reads of its own size and outlives the call, which keeps no pointer to it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const bytes).cast::<libc::c_void>(),
            libc::socklen_t::try_from(size_of::<i32>()).unwrap_or(0),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use rustix::net::sockopt;

    use super::*;

    #[test]
    fn the_buffer_grows_and_single_bytes_still_wake_the_reader() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let before = sockopt::socket_recv_buffer_size(&receiver).unwrap();
        open(&receiver, 1 << 20).unwrap();
        assert!(sockopt::socket_recv_buffer_size(&receiver).unwrap() > before);
        sender.write_all(&[7]).unwrap();
        let mut byte = [0];
        receiver.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [7]);
        limit_unsent(&sender, 1 << 20).unwrap();
        assert!(open(std::fs::File::open("/dev/null").unwrap(), 1).is_err());
    }
}
