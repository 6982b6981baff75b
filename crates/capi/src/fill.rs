//! Keeping a socket from being writable until its route stands.
//!
//! The program's socket is connected to the on-ramp long before the route stands, so `poll` would
//! say too early that it may write. Its send buffer is made small, but larger than the on-ramp's
//! receive window, and filled with bytes that the on-ramp reads and throws away when the route
//! stands.

use std::ffi::c_int;
use std::thread::sleep;
use std::time::{Duration, Instant};

use longhaul_ramp::MAX_FILL;

use crate::system::{errno, option, set_option, unacknowledged};

/// Bytes that are sent at once.
const CHUNK: usize = 16 * 1024;

/// `SO_BUF_LOCK`'s bit for the send buffer.
const LOCKED: c_int = 1;

/// The least that a send buffer is made, as it is asked for, in bytes. The kernel doubles it.
const MIN_BUFFER: c_int = 32 * 1024;

/// How many times the peer's window that buffer is at least. What the peer's kernel takes in leaves
/// the buffer when it is acknowledged, which may be later; what is left then must be more than two
/// thirds, or the socket is writable.
const WINDOWS: u32 = 3;

/// How long what was put in front is waited for at most: a receiver delays an acknowledgement for
/// 40 ms.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);
/// The pause before it is looked again.
const DRAIN_PAUSE: Duration = Duration::from_micros(50);

/// What a send buffer was before it was made small.
#[derive(Debug, Clone, Copy)]
pub struct SendBuffer {
    /// As the kernel reports it: twice what is asked for.
    pub size: c_int,
    /// Whether the program had set it, so that the kernel does not fit it to the path.
    pub locked: bool,
}

/// Fills the socket up; gives how many bytes that took, and what the buffer was.
///
/// Where the kernel can't undo a small buffer (before Linux 5.14), it is left as large as it is,
/// and more goes in.
pub fn fill(fd: c_int) -> (u32, Option<SendBuffer>) {
    let buffer = make_small(fd);
    let zeros = [0u8; CHUNK];
    let mut sent = 0u32;
    while sent < MAX_FILL - CHUNK as u32 {
        // SAFETY: the bytes are as many as said.
        let more = unsafe {
            libc::send(
                fd,
                zeros.as_ptr().cast(),
                CHUNK,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        match u32::try_from(more) {
            Ok(more) => sent += more,
            Err(_) if errno() == libc::EINTR => {}
            Err(_) => break,
        }
    }
    (sent, buffer)
}

/// Waits until less than `size` bytes are in the send buffer. A route that stands is reported
/// before the on-ramp has thrown away what was put in front, so a program that makes its send
/// buffer small at once would find no room in it.
pub fn drain_below(fd: c_int, size: c_int) {
    let end = Instant::now() + DRAIN_TIMEOUT;
    while unacknowledged(fd).is_ok_and(|bytes| bytes >= size.max(1)) && Instant::now() < end {
        sleep(DRAIN_PAUSE);
    }
}

/// The receive window that the peer offers, in bytes; `None` before Linux 5.4.
fn peer_window(fd: c_int) -> Option<u32> {
    /// Where `tcpi_snd_wnd` stands in `struct tcp_info`, in numbers of 32 bits.
    const SEND_WINDOW_INDEX: usize = 228 / 4;
    let info: [u32; SEND_WINDOW_INDEX + 1] = option(fd, libc::IPPROTO_TCP, libc::TCP_INFO).ok()?;
    info.last().copied()
}

fn make_small(fd: c_int) -> Option<SendBuffer> {
    let locks: c_int = option(fd, libc::SOL_SOCKET, libc::SO_BUF_LOCK).ok()?;
    let size = option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF).ok()?;
    let window = peer_window(fd).unwrap_or(0).saturating_mul(WINDOWS);
    let small = c_int::try_from(window)
        .unwrap_or(c_int::MAX)
        .max(MIN_BUFFER);
    set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &small).ok()?;
    Some(SendBuffer {
        size,
        locked: locks & LOCKED != 0,
    })
}

impl SendBuffer {
    /// Makes it as it was. One that the program had not set is given back to the kernel, which fits
    /// it to what is sent; setting its size as well would tell `epoll` of a second edge.
    pub fn restore(self, fd: c_int) {
        if self.locked {
            let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &(self.size / 2));
        } else if let Ok(locks) = option::<c_int>(fd, libc::SOL_SOCKET, libc::SO_BUF_LOCK) {
            let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_BUF_LOCK, &(locks & !LOCKED));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::system::wait;

    #[test]
    fn a_size_that_was_set_is_set_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = near.as_raw_fd();
        set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &10_000).unwrap();
        let (_, buffer) = fill(fd);
        if let Some(buffer) = buffer {
            assert!(buffer.locked);
            buffer.restore(fd);
        }
        assert_eq!(option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF), Ok(20_000));
    }

    #[test]
    fn a_small_buffer_has_room_when_what_filled_it_was_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let (sent, _) = fill(near.as_raw_fd());
        far.read_exact(&mut vec![0; sent as usize]).unwrap();
        drain_below(near.as_raw_fd(), 4096);
        set_option(near.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, &4096).unwrap();
        near.set_nonblocking(true).unwrap();
        assert!((&near).write(b"first").is_ok());
    }

    #[test]
    fn what_nobody_takes_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        fill(near.as_raw_fd());
        drain_below(near.as_raw_fd(), 4096);
        assert!(unacknowledged(near.as_raw_fd()).unwrap() > 4096);
    }

    #[test]
    fn a_socket_is_writable_again_when_what_fills_it_was_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_option(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            &4096,
        )
        .unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let fd = near.as_raw_fd();
        assert!(peer_window(fd).is_some_and(|window| (1..65536).contains(&window)));
        let (sent, buffer) = fill(fd);
        assert!(sent > 0);
        // Longer than a receiver delays an acknowledgement.
        assert_eq!(
            wait(fd, libc::POLLOUT, 300) & libc::POLLOUT,
            0,
            "{sent} bytes"
        );
        if let Some(buffer) = buffer {
            assert!(!buffer.locked);
        }
        far.read_exact(&mut vec![0; sent as usize]).unwrap();
        assert_ne!(wait(fd, libc::POLLOUT, -1) & libc::POLLOUT, 0);
        if let Some(buffer) = buffer {
            buffer.restore(fd);
            let locks: c_int = option(fd, libc::SOL_SOCKET, libc::SO_BUF_LOCK).unwrap();
            assert_eq!(locks & LOCKED, 0);
        }
    }
}
