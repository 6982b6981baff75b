//! `lsl_accept`: takes a session that the on-ramp hands over.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use libc::{sockaddr, socklen_t};
use longhaul_ramp_protocol::{MAX_MESSAGE_BYTES, RampReply};

use crate::guard::catching_panics;
use crate::listen::{inherit, session_address};
use crate::query::encode_reported;
use crate::settle;
use crate::system::{
    cookie, errno, fail, local_address, set_errno, to_canonical_address, to_mapped, write_address,
};
use crate::table::{self, SocketState};

/// `accept(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_accept(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's promise is passed on.
    unsafe { lsl_accept4(fd, address, length, 0) }
}

/// `accept4(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let before = errno();
    let ours = catching_panics(None, || session_address(fd));
    set_errno(before);
    let Some(at) = ours else {
        // SAFETY: the caller's promise is the system call's.
        return unsafe { libc::accept4(fd, address, length, flags) };
    };
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return fail(libc::EINVAL);
    }
    // SAFETY: takes no pointer. A session is lost if no descriptor is free for it, so that is
    // checked first.
    match unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) } {
        // SAFETY: the descriptor was just made, and nothing else has it.
        free if free >= 0 => drop(unsafe { OwnedFd::from_raw_fd(free) }),
        _ => return fail(libc::EMFILE),
    }
    loop {
        let mut packet = [0u8; MAX_MESSAGE_BYTES];
        let mut part = libc::iovec {
            iov_base: packet.as_mut_ptr().cast(),
            iov_len: packet.len(),
        };
        // Space for one descriptor, aligned as its header.
        let mut room = [0u64; 4];
        // SAFETY: zeros are a message without parts.
        let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = room.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&room) as _;
        let cloexec = if flags & libc::SOCK_CLOEXEC == 0 {
            0
        } else {
            libc::MSG_CMSG_CLOEXEC
        };
        // SAFETY: the message's parts are as large as they say.
        let got = unsafe { libc::recvmsg(fd, &raw mut message, cloexec) };
        let Ok(got) = usize::try_from(got) else {
            return -1;
        };
        // SAFETY: filled in by the system call.
        let socket = unsafe { passed_descriptor(&message) };
        if got == 0 {
            // The on-ramp stopped accepting, or the program has shut the listener down.
            return fail(libc::EINVAL);
        }
        let packet = packet.get(..got).unwrap_or_default();
        let Some(socket) = socket else { continue };
        let accepted = catching_panics(None, || accepted(fd, at, packet, socket, flags));
        let Some((socket, peer)) = accepted else {
            continue;
        };
        if !address.is_null() {
            // SAFETY: the caller's promise is the system call's.
            if let Err(errno) = unsafe { write_address(&peer, address.cast::<c_void>(), length) } {
                return fail(errno);
            }
        }
        set_errno(before);
        return socket.into_raw_fd();
    }
}

/// Returns the descriptor that came with a message.
///
/// # Safety
/// The message was filled in by `recvmsg`.
unsafe fn passed_descriptor(message: &libc::msghdr) -> Option<OwnedFd> {
    // SAFETY: the caller's promise.
    let head = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    if (head.cmsg_level, head.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
        return None;
    }
    // SAFETY: a message of this type holds at least one descriptor, which this process now owns.
    unsafe {
        Some(OwnedFd::from_raw_fd(
            libc::CMSG_DATA(head).cast::<c_int>().read_unaligned(),
        ))
    }
}

/// Turns a received descriptor into a socket as `accept` returns it. Returns it with the address of
/// its peer.
fn accepted(
    listener: c_int,
    at: SocketAddr,
    packet: &[u8],
    socket: OwnedFd,
    flags: c_int,
) -> Option<(OwnedFd, Vec<u8>)> {
    let Ok(RampReply::Accepted {
        peer,
        key,
        local: came_to,
    }) = RampReply::decode(packet)
    else {
        return None;
    };
    let fd = socket.as_raw_fd();
    // The on-ramp chooses IPv4 or IPv6 for the session's socket. The reported family is the
    // listener's.
    let (peer, local) = match at {
        SocketAddr::V4(_) => (
            to_canonical_address(peer),
            SocketAddr::new(
                local_ip(at, came_to, fd, IpAddr::V4(Ipv4Addr::LOCALHOST)),
                at.port(),
            ),
        ),
        SocketAddr::V6(_) => (
            to_mapped(peer),
            to_mapped(SocketAddr::new(
                local_ip(at, came_to, fd, IpAddr::V6(Ipv6Addr::LOCALHOST)),
                at.port(),
            )),
        ),
    };
    let native = settle::with_known_entry(listener, |entry| Some(entry.native)).unwrap_or(false);
    inherit(listener, fd);
    let status = if flags & libc::SOCK_NONBLOCK == 0 {
        0
    } else {
        libc::O_NONBLOCK
    };
    // SAFETY: takes no pointer.
    unsafe { libc::fcntl(fd, libc::F_SETFL, status) };
    let cookie = cookie(fd)?;
    table::with_table(|table| {
        table.set_state(cookie, SocketState::Connected { reported: true });
        let entry = table.entry(cookie);
        (entry.native, entry.carried) = (native, true);
        (entry.peer, entry.local, entry.key) = (Some(peer), Some(local), Some(key));
    });
    Some((socket, encode_reported(peer, None, native)))
}

/// Returns the local address: the listener's unless that is unspecified, else the one that the
/// on-ramp reports for the session, else the socket's.
fn local_ip(at: SocketAddr, came_to: Option<SocketAddr>, fd: c_int, otherwise: IpAddr) -> IpAddr {
    if at.ip().is_unspecified() {
        let of = came_to
            .or_else(|| local_address(fd))
            .map(|local| local.ip().to_canonical());
        of.filter(|ip| at.is_ipv6() || ip.is_ipv4())
            .unwrap_or(otherwise)
    } else {
        at.ip()
    }
}
