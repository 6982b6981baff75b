//! Keeping a socket from being writable until its route stands.
//!
//! The program's socket is connected to the on-ramp long before the route stands, so `poll` would
//! report it writable too early. The send buffer is therefore made small, but larger than the
//! on-ramp's receive window, and filled up. The on-ramp reads and discards these bytes when the
//! route stands.

use std::ffi::c_int;
use std::thread::sleep;
use std::time::{Duration, Instant};

use longhaul_ramp_protocol::MAX_FILL_BYTES;

use crate::system::{errno, option, set_option, unacknowledged};

/// Bytes per write.
const CHUNK_BYTES: usize = 16 * 1024;

/// Bit of `SO_BUF_LOCK` for the send buffer.
const SEND_BUFFER_LOCK: c_int = 1;

/// Minimum size of a shrunk send buffer as passed to the kernel, in bytes. The kernel doubles it.
const MIN_BUFFER_BYTES: c_int = 32 * 1024;

/// Minimum size of that buffer, in receive windows of the peer. Bytes leave the buffer when the
/// peer's kernel acknowledges them, possibly later. More than two thirds of the buffer must still
/// be full then, or the socket becomes writable.
const MIN_BUFFER_WINDOWS: u32 = 3;

/// Maximum wait for the filler to drain: a receiver delays an acknowledgement by up to 40 ms.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);
/// Pause between two checks.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_micros(50);

/// State of a send buffer before it was shrunk.
#[derive(Debug, Clone, Copy)]
pub struct SendBuffer {
    /// Size as the kernel reports it: twice what is asked for.
    pub size: c_int,
    /// If true, the program had set the size, so the kernel does not adapt it to the path.
    pub locked: bool,
}

/// Fills the socket. Returns the number of filler bytes and the previous state of the buffer.
///
/// Before Linux 5.14 the kernel cannot undo a small buffer, so its size stays and more bytes go in.
pub fn fill(fd: c_int) -> (u32, Option<SendBuffer>) {
    let buffer = shrink(fd);
    let zeros = [0u8; CHUNK_BYTES];
    let mut sent = 0u32;
    while sent < MAX_FILL_BYTES - CHUNK_BYTES as u32 {
        // SAFETY: the pointer and the length are those of the bytes.
        let more = unsafe {
            libc::send(
                fd,
                zeros.as_ptr().cast(),
                CHUNK_BYTES,
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

/// Waits until less than `size` bytes are in the send buffer. A route is reported before the
/// on-ramp has discarded the filler. A program that shrinks its send buffer at once would find no
/// space in it.
pub fn drain_below(fd: c_int, size: c_int) {
    let end = Instant::now() + DRAIN_TIMEOUT;
    while unacknowledged(fd).is_ok_and(|bytes| bytes >= size.max(1)) && Instant::now() < end {
        sleep(DRAIN_POLL_INTERVAL);
    }
}

/// Returns the receive window that the peer offers, in bytes, or `None` before Linux 5.4.
fn peer_window(fd: c_int) -> Option<u32> {
    /// Index of `tcpi_snd_wnd` in `struct tcp_info`, in 32-bit words.
    const SEND_WINDOW_INDEX: usize = 228 / 4;
    let info: [u32; SEND_WINDOW_INDEX + 1] = option(fd, libc::IPPROTO_TCP, libc::TCP_INFO).ok()?;
    info.last().copied()
}

fn shrink(fd: c_int) -> Option<SendBuffer> {
    let locks: c_int = option(fd, libc::SOL_SOCKET, libc::SO_BUF_LOCK).ok()?;
    let size = option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF).ok()?;
    let window = peer_window(fd)
        .unwrap_or(0)
        .saturating_mul(MIN_BUFFER_WINDOWS);
    let small = c_int::try_from(window)
        .unwrap_or(c_int::MAX)
        .max(MIN_BUFFER_BYTES);
    set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &small).ok()?;
    Some(SendBuffer {
        size,
        locked: locks & SEND_BUFFER_LOCK != 0,
    })
}

impl SendBuffer {
    /// Restores the buffer. If the program had not set its size, the kernel adapts it to the
    /// traffic again. Setting the size as well would cause a second edge for `epoll`.
    pub fn restore(self, fd: c_int) {
        if self.locked {
            let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &(self.size / 2));
        } else if let Ok(locks) = option::<c_int>(fd, libc::SOL_SOCKET, libc::SO_BUF_LOCK) {
            let _ = set_option(
                fd,
                libc::SOL_SOCKET,
                libc::SO_BUF_LOCK,
                &(locks & !SEND_BUFFER_LOCK),
            );
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
    fn program_set_buffer_size_is_restored() {
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
    fn small_buffer_has_space_after_filler_is_read() {
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
    fn draining_gives_up_if_the_peer_does_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        fill(near.as_raw_fd());
        drain_below(near.as_raw_fd(), 4096);
        assert!(unacknowledged(near.as_raw_fd()).unwrap() > 4096);
    }

    #[test]
    fn socket_is_writable_after_filler_is_read() {
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
            assert_eq!(locks & SEND_BUFFER_LOCK, 0);
        }
    }
}
