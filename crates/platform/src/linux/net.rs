//! Sockets and pipes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

pub use rustix::net::*;

pub use crate::types::SplicePipe;

/// Flags for sending: a broken connection is an error and no signal.
pub const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL;
/// Flags for receiving descriptors: programs that this one starts do not inherit them.
pub const RECEIVE_FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;
/// True if the kernel moves bytes between sockets by itself ([`splice`]).
pub const HAS_SPLICE: bool = true;

const SOCKET_FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Creates a TCP socket that does not block.
///
/// # Errors
/// Those of socket(2).
pub fn stream_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    socket_with(family, SocketType::STREAM, SOCKET_FLAGS, None)
}

/// Accepts a connection that does not block.
///
/// # Errors
/// Those of accept4(2).
pub fn accept_stream(listener: impl AsFd) -> Result<(OwnedFd, Option<SocketAddrAny>), Errno> {
    acceptfrom_with(listener, SOCKET_FLAGS)
}

/// Returns true if a socket listens.
#[must_use]
pub fn is_listening(socket: impl AsFd) -> bool {
    sockopt::socket_acceptconn(socket).unwrap_or(false)
}

/// Sets for how many milliseconds sent bytes may stay unacknowledged (RFC 5482).
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_user_timeout(socket: impl AsFd, milliseconds: u32) -> Result<(), Errno> {
    sockopt::set_tcp_user_timeout(socket, milliseconds)
}

/// Sets the congestion control.
///
/// # Errors
/// Those of setsockopt(2). `NOENT` if the kernel does not have it.
pub fn set_congestion(socket: impl AsFd, name: &str) -> Result<(), Errno> {
    sockopt::set_tcp_congestion(socket, name)
}

/// Returns the name of the congestion control, if it is known.
#[must_use]
pub fn congestion(socket: impl AsFd) -> Option<String> {
    sockopt::tcp_congestion(socket).ok()
}

/// Returns the names of the congestion controls that the kernel has, if they are known.
#[must_use]
pub fn available_congestion() -> Option<String> {
    let file = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let names = std::fs::read_to_string(file).ok()?;
    Some(names.trim().to_owned())
}

/// Returns duplicates of `count` descriptors from `first` on, as far as they are open. The
/// duplicates are closed when this program executes another.
#[must_use]
pub fn duplicate_descriptors(first: RawFd, count: usize) -> Vec<OwnedFd> {
    let Ok(own) = pidfd_open(getpid(), PidfdFlags::empty()) else {
        return Vec::new();
    };
    (first..)
        .take(count)
        .filter_map(|number| pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).ok())
        .collect()
}

/// Creates a pipe that does not block. Returns the end to read from first.
///
/// # Errors
/// Those of pipe2(2).
pub fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)
}

/// Creates a pipe of about `size` bytes.
///
/// # Errors
/// Those of pipe2(2).
pub fn splice_pipe(size: usize) -> io::Result<SplicePipe> {
    let (read, write) = pipe()?;
    // Refused beyond /proc/sys/fs/pipe-max-size or the user's page quota. The pipe still works at
    // its initial size.
    let capacity = match fcntl_setpipe_size(&write, size) {
        Ok(got) => got,
        Err(_) => fcntl_getpipe_size(&write)?,
    };
    Ok(SplicePipe {
        read,
        write,
        capacity,
    })
}

/// Moves at most `length` bytes from a socket to a pipe, or from a pipe to a socket.
///
/// # Errors
/// Those of splice(2).
pub fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, length: usize) -> Result<usize, Errno> {
    let flags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);
    rustix::pipe::splice(from, None, to, None, length, flags)
}
