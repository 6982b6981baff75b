//! Operations on the program's own socket. All are bare system calls, because they must not reach
//! the hooks again, and a thread must not be cancelled in them.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::time::Duration;

use drs::{Action, BufferLocks, TcpInfo, TcpState, apply};
use longhaul_ramp_protocol::MAX_FILL_BYTES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socket_with};

use crate::descriptor::borrow;

/// Maximum duration of a connection to the on-ramp's listener on loopback; some tens of
/// microseconds are usual.
const JOIN_TIMEOUT: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};
/// Send buffer of a socket that is kept from being writable, in bytes as the kernel accounts them.
/// It is small to fill, but large enough for loopback if it is never restored.
const FILLED_BUFFER_BYTES: u32 = 128 * 1024;
/// Filler bytes of one write.
static ZEROS: [u8; 32 * 1024] = [0; 32 * 1024];

/// Returns the socket's identity, or `None` if it is not a TCP socket.
pub fn tcp_inode(socket: BorrowedFd<'_>) -> Option<u64> {
    let protocol = sockopt::socket_protocol(socket).ok()??;
    let is_tcp = protocol == rustix::net::ipproto::TCP
        && sockopt::socket_type(socket) == Ok(SocketType::STREAM);
    is_tcp.then_some(())?;
    rustix::fs::fstat(socket).ok().map(|stat| stat.st_ino)
}

/// Returns true if a descriptor is a Unix socket. A program that closes descriptors it does not
/// know may have reused the number of a control connection.
pub fn is_unix(descriptor: RawFd) -> bool {
    borrow(descriptor)
        .is_some_and(|socket| sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX))
}

/// Returns true if the program does not wait in `connect`.
pub fn is_nonblocking(socket: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(socket).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// Returns true if it is new, or like new: neither connected nor connecting, and not listening.
pub fn is_unused(socket: BorrowedFd<'_>) -> bool {
    TcpInfo::read(socket).is_ok_and(|info| info.state == TcpState::Close)
}

/// Returns the least round-trip time seen, in microseconds, which queues do not increase. Returns
/// `None` if it is not connected.
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

/// Returns the address of its peer.
pub fn peer(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    SocketAddr::try_from(rustix::net::getpeername(socket).ok()??).ok()
}

/// Returns its local address.
pub fn local(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    SocketAddr::try_from(rustix::net::getsockname(socket).ok()?).ok()
}

/// Returns true if it has a local port already, or if that is unknown.
pub fn is_bound(socket: BorrowedFd<'_>) -> bool {
    local(socket).is_none_or(|address| address.port() != 0)
}

/// Binds it to a local address. `v6` says that it is an IPv6 socket. Returns false on failure.
pub fn bind(socket: BorrowedFd<'_>, source: SocketAddr, v6: bool) -> bool {
    let source = match (source.ip(), v6) {
        (IpAddr::V4(ip), true) => SocketAddr::new(ip.to_ipv6_mapped().into(), source.port()),
        _ => source,
    };
    rustix::net::bind(socket, &source).is_ok()
}

/// Returns the local address that the kernel would choose for a connection to `to`, or `None` if it
/// is unreachable. Nothing is sent: connecting a UDP socket only chooses the address.
pub fn source_address(to: SocketAddr) -> Option<IpAddr> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let probe = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    rustix::net::connect(&probe, &to).ok()?;
    local(probe.as_fd()).map(|address| address.ip())
}

/// Returns how long the program waits in `connect` (`SO_SNDTIMEO`).
pub fn connect_timeout(socket: BorrowedFd<'_>) -> Option<Duration> {
    sockopt::socket_timeout(socket, Timeout::Send).ok()?
}

/// Disconnects it, which resets its connection.
pub fn disconnect(socket: BorrowedFd<'_>) {
    let _ = rustix::net::connect_unspec(socket);
    // Disconnecting, or the on-ramp's reset, left an error behind that is not the program's.
    let _ = sockopt::socket_error(socket);
}

/// Tells the kernel that the program has seen its connection stand, as a second `connect` does.
pub fn settle(socket: BorrowedFd<'_>) {
    if let Some(peer) = peer(socket) {
        let _ = rustix::net::connect(socket, &peer);
    }
}

/// Connects it to the on-ramp's listener, whether it blocks or not. Returns `None` on failure.
pub fn join(socket: BorrowedFd<'_>, listener: SocketAddr) -> Option<()> {
    // With this option the connection would begin only with the first data.
    let _ = set_option(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 0);
    match rustix::net::connect(socket, &listener) {
        Ok(()) => return Some(()),
        Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(_) => return None,
    }
    loop {
        let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
        match poll(&mut polled, Some(&JOIN_TIMEOUT)) {
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
    // SAFETY: an int of this function, and its size.
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

/// Writes zeros until the socket is not writable. Returns their number.
pub fn fill(socket: BorrowedFd<'_>) -> u32 {
    let mut filled = 0_u32;
    loop {
        let left = usize::try_from(MAX_FILL_BYTES - filled)
            .unwrap_or(0)
            .min(ZEROS.len());
        let some = ZEROS.get(..left).unwrap_or_default();
        if some.is_empty() {
            return filled;
        }
        match send(socket, some, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => filled += u32::try_from(sent).unwrap_or(0),
            Err(Errno::INTR) => {}
            // The listener may have received some meanwhile.
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

/// Change of a socket's send buffer, to be undone. Sizes are in bytes as the kernel accounts them.
#[derive(Debug, Clone, Copy)]
pub struct SendBuffer {
    /// Former size; zero if it was not changed.
    before: u32,
    made: u32,
    /// If true, the program had set it.
    locked: bool,
}

impl SendBuffer {
    /// Returns the state of an unchanged buffer.
    pub const fn untouched() -> Self {
        Self {
            before: 0,
            made: 0,
            locked: false,
        }
    }

    /// Shrinks a socket's send buffer, if it is not small and the kernel can undo that.
    pub fn shrink(socket: BorrowedFd<'_>) -> Self {
        let (Some(locks), Some(before)) = (BufferLocks::read(socket), size(socket)) else {
            return Self::untouched();
        };
        if locks.send && before <= FILLED_BUFFER_BYTES {
            return Self::untouched();
        }
        // The kernel doubles the value.
        apply(socket, Action::SendBuffer(FILLED_BUFFER_BYTES / 2));
        Self {
            before,
            made: size(socket).unwrap_or(0),
            locked: locks.send,
        }
    }

    /// Restores the buffer, unless the program has set another size meanwhile.
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
