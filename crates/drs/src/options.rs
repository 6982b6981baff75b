//! The socket options that right-sizing sets.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use longhaul_platform::{net, sockets as kernel, tcp};

use crate::{Action, ActionOutcome, SocketBuffers, set_max_pacing_rate};

/// Buffers that the program set itself, so that the kernel does not autotune them (`SO_BUF_LOCK`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferLocks {
    /// If true, the send buffer is locked.
    pub send: bool,
    /// If true, the receive buffer is locked.
    pub receive: bool,
}

const SEND_LOCK: u32 = 1; // SOCK_SNDBUF_LOCK
const RECEIVE_LOCK: u32 = 2; // SOCK_RCVBUF_LOCK

impl BufferLocks {
    /// Reads the locks of any socket, even before it is connected. Returns `None` if the kernel has
    /// no `SO_BUF_LOCK` (before 5.15).
    pub fn read(socket: impl AsFd) -> Option<Self> {
        let bits = get(socket.as_fd(), libc::SOL_SOCKET, tcp::SO_BUF_LOCK).ok()?;
        Some(Self {
            send: bits & SEND_LOCK != 0,
            receive: bits & RECEIVE_LOCK != 0,
        })
    }

    /// Returns the locks in a sample, or `None` if the kernel did not report them.
    pub(crate) fn from_buffers(buffers: &SocketBuffers) -> Option<Self> {
        Some(Self {
            send: buffers.send_locked?,
            receive: buffers.receive_locked?,
        })
    }

    fn write(self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let bits = u32::from(self.send) * SEND_LOCK + u32::from(self.receive) * RECEIVE_LOCK;
        set(socket, libc::SOL_SOCKET, tcp::SO_BUF_LOCK, bits)
    }
}

/// Applies an action to a socket, and returns the kernel's reaction. [`Flow`](crate::Flow) does
/// this by itself. It is also for programs that size their own buffers.
pub fn apply(socket: impl AsFd, action: Action) -> ActionOutcome {
    let socket = socket.as_fd();
    let made = match action {
        Action::UnlockReceive => unlock(socket, |locks| locks.receive = false),
        Action::UnlockSend => unlock(socket, |locks| locks.send = false),
        Action::ReceiveBuffer(bytes) => {
            set_and_get(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)
        }
        Action::SendBuffer(bytes) => set_and_get(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes),
        Action::WindowClamp(bytes) => {
            set_and_get(socket, libc::IPPROTO_TCP, tcp::TCP_WINDOW_CLAMP, bytes)
        }
        Action::UnsentLimit(bytes) => {
            set_and_get(socket, libc::IPPROTO_TCP, tcp::TCP_NOTSENT_LOWAT, bytes)
        }
        Action::PacingRate(rate) => set_max_pacing_rate(socket, Some(rate))
            .map(|()| u32::try_from(rate).unwrap_or(u32::MAX)),
        Action::CongestionControl(name) => net::set_congestion(socket, name.as_str())
            .map(|()| 0)
            .map_err(Into::into),
    };
    made.map_or_else(
        |error| ActionOutcome::Refused(error.raw_os_error().unwrap_or(0)),
        ActionOutcome::Set,
    )
}

fn unlock(socket: BorrowedFd<'_>, change: impl FnOnce(&mut BufferLocks)) -> io::Result<u32> {
    let mut locks =
        BufferLocks::read(socket).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOPROTOOPT))?;
    change(&mut locks);
    locks.write(socket).map(|()| 0)
}

fn set_and_get(socket: BorrowedFd<'_>, level: i32, name: i32, value: u32) -> io::Result<u32> {
    // The kernel takes a signed int, and would read a larger value as negative.
    set(socket, level, name, value.min(i32::MAX.unsigned_abs()))?;
    get(socket, level, name)
}

/// Reads an int with `getsockopt`.
fn get(socket: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<u32> {
    let mut value = [0; 4];
    kernel::option(socket, level, name, &mut value)?;
    Ok(u32::from_ne_bytes(value))
}

fn set(socket: BorrowedFd<'_>, level: i32, name: i32, value: u32) -> io::Result<()> {
    kernel::set_option(socket, level, name, &value.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;
    use crate::CongestionName;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (sender, listener.accept().unwrap().0)
    }

    #[test]
    fn buffers_are_set_and_doubled_by_the_kernel() {
        let (sender, receiver) = pair();
        assert_eq!(
            apply(&receiver, Action::ReceiveBuffer(40_000)),
            ActionOutcome::Set(80_000)
        );
        assert_eq!(
            apply(&sender, Action::SendBuffer(40_000)),
            ActionOutcome::Set(80_000)
        );
        assert_eq!(
            apply(&receiver, Action::WindowClamp(30_000)),
            ActionOutcome::Set(30_000)
        );
        assert_eq!(
            apply(&sender, Action::UnsentLimit(70_000)),
            ActionOutcome::Set(70_000)
        );
        assert_eq!(
            apply(&sender, Action::PacingRate(1_000_000)),
            ActionOutcome::Set(1_000_000)
        );
        let reno = CongestionName::from_kernel(b"reno");
        assert_eq!(
            apply(&sender, Action::CongestionControl(reno)),
            ActionOutcome::Set(0)
        );
    }

    #[test]
    fn what_the_kernel_refuses_is_reported() {
        let (sender, _receiver) = pair();
        let unknown = CongestionName::from_kernel(b"no-such");
        assert_eq!(
            apply(&sender, Action::CongestionControl(unknown)),
            ActionOutcome::Refused(libc::ENOENT)
        );
    }

    #[test]
    fn an_unlocked_buffer_grows_again() {
        let (mut sender, mut receiver) = pair();
        apply(&receiver, Action::ReceiveBuffer(16 << 10));
        let Some(locks) = BufferLocks::read(receiver.as_fd()) else {
            eprintln!("left out: this kernel has no SO_BUF_LOCK");
            return;
        };
        assert!(locks.receive && !locks.send);
        let writer = std::thread::spawn(move || {
            let block = vec![0; 64 << 10];
            while sender.write_all(&block).is_ok() {}
        });
        // At most a gigabyte; a few hundred kilobytes suffice.
        let mut read_until = |enough: &mut dyn FnMut(&TcpStream) -> bool| {
            let mut room = vec![0; 1 << 20];
            let mut left = 1u64 << 30;
            while left > 0 {
                left = left.saturating_sub(receiver.read(&mut room).unwrap() as u64);
                if enough(&receiver) {
                    return true;
                }
            }
            false
        };
        let buffer =
            |socket: &TcpStream| get(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap();
        let mut looks = 0;
        // After a thousand reads it is still as it was set.
        assert!(read_until(&mut |socket| {
            assert_eq!(buffer(socket), 32 << 10);
            looks += 1;
            looks == 1000
        }));
        assert!(read_until(&mut |socket| {
            apply(socket, Action::ReceiveBuffer(256 << 10));
            apply(socket, Action::UnlockReceive);
            true
        }));
        assert!(read_until(&mut |socket| {
            assert!(!BufferLocks::read(socket.as_fd()).unwrap().receive);
            buffer(socket) > 512 << 10
        }));
        drop(receiver);
        writer.join().unwrap();
    }
}
