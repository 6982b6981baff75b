//! What is done to the program's own socket. All of it by bare system calls: the hooks are not to
//! be met again, and a thread is not cancelled in them.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::time::Duration;

use drs::{Action, Locks, TcpInfo, TcpState, apply};
use longhaul_ramp::MAX_FILL;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socket_with};

use crate::process::borrow;

/// For how long a connection to the on-ramp's listener on loopback may take; some tens of
/// microseconds are usual.
const JOINED_WITHIN: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};
/// The send buffer of a socket while it is kept from being writable, in bytes as the kernel
/// accounts them: little to fill, and still more than loopback needs, should it never be set back.
const FILLED_BUFFER: u32 = 128 * 1024;
/// What is put in front, some at a time.
static ZEROS: [u8; 32 * 1024] = [0; 32 * 1024];

/// The socket's identity, if it is one of TCP.
pub fn tcp_inode(socket: BorrowedFd<'_>) -> Option<u64> {
    let protocol = sockopt::socket_protocol(socket).ok()??;
    let is_tcp = protocol == rustix::net::ipproto::TCP
        && sockopt::socket_type(socket) == Ok(SocketType::STREAM);
    is_tcp.then_some(())?;
    rustix::fs::fstat(socket).ok().map(|stat| stat.st_ino)
}

/// Whether a descriptor is a Unix socket: what closes descriptors that it does not know may have
/// taken a control's number.
pub fn is_unix(descriptor: RawFd) -> bool {
    borrow(descriptor)
        .is_some_and(|socket| sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX))
}

/// Whether its program does not wait in `connect`.
pub fn is_nonblocking(socket: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(socket).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// Whether it is new, or as new: neither connected nor being connected, and not listening.
pub fn is_unused(socket: BorrowedFd<'_>) -> bool {
    TcpInfo::read(socket).is_ok_and(|info| info.state == TcpState::Close)
}

/// How long a round trip takes, in microseconds: the least that was seen, which queues do not add
/// to. `None` where it is not connected.
pub fn round_trip(socket: BorrowedFd<'_>) -> Option<u64> {
    let info = TcpInfo::read(socket).ok()?;
    let is_connected = !matches!(
        info.state,
        TcpState::Close | TcpState::SynSent | TcpState::SynReceived | TcpState::Listen
    );
    let rtt = info.min_rtt.unwrap_or(info.rtt).as_micros();
    u64::try_from(rtt)
        .ok()
        .filter(|rtt| is_connected && *rtt > 0)
}

/// What it is connected to.
pub fn peer(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    SocketAddr::try_from(rustix::net::getpeername(socket).ok()??).ok()
}

/// Its own address.
pub fn local(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    SocketAddr::try_from(rustix::net::getsockname(socket).ok()?).ok()
}

/// The address that the kernel would choose at this end for a connection to there. Nothing is sent:
/// a socket of UDP is connected by choosing it. `None` where there is no way.
pub fn source(to: SocketAddr) -> Option<IpAddr> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let probe = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    rustix::net::connect(&probe, &to).ok()?;
    local(probe.as_fd()).map(|address| address.ip())
}

/// For how long its program waits in `connect` (`SO_SNDTIMEO`).
pub fn connect_timeout(socket: BorrowedFd<'_>) -> Option<Duration> {
    sockopt::socket_timeout(socket, Timeout::Send).ok()?
}

/// Takes it back to where it was connected to nothing. Its connection is reset.
pub fn disconnect(socket: BorrowedFd<'_>) {
    let _ = rustix::net::connect_unspec(socket);
    // That, or the on-ramp's reset, left an error behind, which is not the program's.
    let _ = sockopt::socket_error(socket);
}

/// Has the kernel know that the program has seen its connection stand, as a second `connect` does.
pub fn settle(socket: BorrowedFd<'_>) {
    if let Some(peer) = peer(socket) {
        let _ = rustix::net::connect(socket, &peer);
    }
}

/// Connects it to the on-ramp's listener, whether it waits or not. `None` when that is not to be
/// had.
pub fn join(socket: BorrowedFd<'_>, listener: SocketAddr) -> Option<()> {
    // With this the connection would begin with the first data only.
    let _ = set_option(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 0);
    match rustix::net::connect(socket, &listener) {
        Ok(()) => return Some(()),
        Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(_) => return None,
    }
    loop {
        let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
        match poll(&mut polled, Some(&JOINED_WITHIN)) {
            Err(Errno::INTR) => {}
            Ok(1..) => break,
            _ => {
                disconnect(socket);
                return None;
            }
        }
    }
    sockopt::socket_error(socket).ok()?.ok()
}

fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> bool {
    // SAFETY: an int of this function's, and its size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_setsockopt,
            std::os::fd::AsRawFd::as_raw_fd(&socket),
            level,
            name,
            &raw const value,
            size_of_val(&value),
        )
    };
    result == 0
}

/// Puts zeros in front until the socket is not writable: how many bytes.
pub fn fill(socket: BorrowedFd<'_>) -> u32 {
    let mut filled = 0_u32;
    loop {
        let left = usize::try_from(MAX_FILL - filled)
            .unwrap_or(0)
            .min(ZEROS.len());
        let some = ZEROS.get(..left).unwrap_or_default();
        if some.is_empty() {
            return filled;
        }
        match send(socket, some, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => filled += u32::try_from(sent).unwrap_or(0),
            Err(Errno::INTR) => {}
            // The listener may have taken some meanwhile.
            Err(Errno::AGAIN) => {
                let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
                let now = Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                if poll(&mut polled, Some(&now)) != Ok(1) {
                    return filled;
                }
            }
            Err(_) => return filled,
        }
    }
}

/// What was done to a socket's send buffer, to be undone. Sizes in bytes as the kernel accounts
/// them.
#[derive(Debug, Clone, Copy)]
pub struct SendBuffer {
    /// As it was; zero where nothing was done.
    before: u32,
    made: u32,
    /// Whether the program had set it.
    locked: bool,
}

impl SendBuffer {
    /// Nothing was done.
    pub const fn untouched() -> Self {
        Self {
            before: 0,
            made: 0,
            locked: false,
        }
    }

    /// Makes a socket's send buffer small, where it is not, and the kernel can undo that.
    pub fn shrink(socket: BorrowedFd<'_>) -> Self {
        let (Some(locks), Some(before)) = (Locks::read(socket), size(socket)) else {
            return Self::untouched();
        };
        if locks.send && before <= FILLED_BUFFER {
            return Self::untouched();
        }
        // The kernel doubles what it is given.
        apply(socket, Action::SendBuffer(FILLED_BUFFER / 2));
        Self {
            before,
            made: size(socket).unwrap_or(0),
            locked: locks.send,
        }
    }

    /// Undoes it, unless the program has set another size meanwhile.
    pub fn restore(&mut self, socket: BorrowedFd<'_>) {
        let done = std::mem::replace(self, Self::untouched());
        if done.before == 0 || size(socket) != Some(done.made) {
            return;
        }
        if done.locked {
            apply(socket, Action::SendBuffer(done.before / 2));
        } else {
            apply(socket, Action::UnlockSend);
        }
    }
}

fn size(socket: BorrowedFd<'_>) -> Option<u32> {
    u32::try_from(sockopt::socket_send_buffer_size(socket).ok()?).ok()
}
