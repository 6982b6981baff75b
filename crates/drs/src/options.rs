//! The socket options that right-sizing sets.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use crate::{Action, Outcome, kernel, set_max_pacing_rate};

/// Which buffers the program set itself, so that the kernel does not autotune them (`SO_BUF_LOCK`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Locks {
    pub send: bool,
    pub receive: bool,
}

const SEND_LOCK: u32 = 1; // SOCK_SNDBUF_LOCK
const RECEIVE_LOCK: u32 = 2; // SOCK_RCVBUF_LOCK

impl Locks {
    /// `None` where the kernel has no `SO_BUF_LOCK` (before 5.15).
    pub(crate) fn read(socket: BorrowedFd<'_>) -> Option<Self> {
        let bits = get(socket, libc::SOL_SOCKET, libc::SO_BUF_LOCK).ok()?;
        Some(Self {
            send: bits & SEND_LOCK != 0,
            receive: bits & RECEIVE_LOCK != 0,
        })
    }

    fn write(self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let bits = u32::from(self.send) * SEND_LOCK + u32::from(self.receive) * RECEIVE_LOCK;
        set(socket, libc::SOL_SOCKET, libc::SO_BUF_LOCK, bits)
    }
}

/// Sets what the action says, and gives what the kernel made of it. [`Flow`](crate::Flow) does this by itself; a program that sizes
/// its own buffers may want to as well.
pub fn apply(socket: impl AsFd, action: Action) -> Outcome {
    let socket = socket.as_fd();
    let made = match action {
        Action::UnlockReceive => unlock(socket, |locks| locks.receive = false),
        Action::UnlockSend => unlock(socket, |locks| locks.send = false),
        Action::ReceiveBuffer(bytes) => set_and_get(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes),
        Action::SendBuffer(bytes) => set_and_get(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes),
        Action::WindowClamp(bytes) => set_and_get(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, bytes),
        Action::UnsentLimit(bytes) => set_and_get(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes),
        Action::PacingRate(rate) => {
            set_max_pacing_rate(socket, Some(rate)).map(|()| u32::try_from(rate).unwrap_or(u32::MAX))
        }
        Action::CongestionControl(name) => rustix::net::sockopt::set_tcp_congestion(socket, name.as_str())
            .map(|()| 0)
            .map_err(Into::into),
    };
    made.map_or_else(
        |error| Outcome::Refused(error.raw_os_error().unwrap_or(0)),
        Outcome::Set,
    )
}

fn unlock(socket: BorrowedFd<'_>, change: impl FnOnce(&mut Locks)) -> io::Result<u32> {
    let mut locks = Locks::read(socket).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOPROTOOPT))?;
    change(&mut locks);
    locks.write(socket).map(|()| 0)
}

fn set_and_get(socket: BorrowedFd<'_>, level: i32, name: i32, value: u32) -> io::Result<u32> {
    // The kernel takes a signed int and would read a larger one as negative.
    set(socket, level, name, value.min(i32::MAX.unsigned_abs()))?;
    get(socket, level, name)
}

/// `getsockopt` of one int.
fn get(socket: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<u32> {
    let mut value = [0; 4];
    kernel::option(socket, level, name, &mut value)?;
    Ok(u32::from_ne_bytes(value))
}

fn set(socket: BorrowedFd<'_>, level: i32, name: i32, value: u32) -> io::Result<()> {
    kernel::set_option(socket, level, name, &value.to_ne_bytes())
}
