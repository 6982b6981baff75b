//! `lsl_listen`, and all calls on listeners except accepting.
//!
//! The on-ramp takes the sessions. The program's descriptor becomes the Unix socket on which the
//! on-ramp hands them over, each as the descriptor of a connected TCP socket. So `poll` reports a
//! waiting session, and `dup`, `fork` and `SCM_RIGHTS` work as for any descriptor.
//!
//! The name of the Unix socket says where sessions are taken, so a process that was given the
//! descriptor can tell, too.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::socklen_t;
use longhaul_ramp_protocol::{RampReply, RampRequest};

use crate::guard::catching_panics;
use crate::system::{
    Errno, TCP_CLOSE, check_result, cookie, errno, fail, local_address, option, set_option,
    tcp_family, tcp_state,
};
use crate::system::{to_canonical_address, to_mapped};
use crate::table::{self, ListenerState, SocketState};
use crate::{environment, ramp, settle};

/// One bit for each of the first 65,536 descriptors that has been a listener of the library. Calls
/// that read or write check it first. A set bit may be out of date; descriptors beyond have no bit.
static LISTENERS: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

fn bit(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(fd).ok()?;
    Some((LISTENERS.get(number / 64)?, 1 << (number % 64)))
}

fn mark(fd: c_int) {
    if let Some((word, bit)) = bit(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Returns true if the descriptor is a listener of the library; fast enough for every read and
/// write.
#[inline]
pub fn is_marked(fd: c_int) -> bool {
    let Some((word, bit)) = bit(fd) else {
        return false;
    };
    if word.load(Ordering::Relaxed) & bit == 0 {
        return false;
    }
    let is_one = catching_panics(None, || session_address(fd)).is_some();
    if !is_one {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
    is_one
}

/// Prefix of the names of these Unix sockets, after the zero byte of an abstract name.
const SOCKET_NAME_PREFIX: &str = "longhaul-listen/";

/// Options that accepted sockets inherit from their listener.
const INHERITED_OPTIONS: [(c_int, c_int); 11] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
];

/// Options of a listener that accepted sockets do not inherit.
const LISTENER_OPTIONS: [(c_int, c_int); 3] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
];

/// `listen(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_listen(fd: c_int, backlog: c_int) -> c_int {
    let before = errno();
    match catching_panics(Ok(None), || listen(fd)) {
        Ok(Some(())) => {
            crate::system::set_errno(before);
            0
        }
        // SAFETY: takes no pointer.
        Ok(None) => unsafe { libc::listen(fd, backlog) },
        Err(errno) => fail(errno),
    }
}

/// Listens through the on-ramp. Returns `None` if the system call has to be made instead.
fn listen(fd: c_int) -> Result<Option<()>, Errno> {
    if session_address(fd).is_some() {
        // The on-ramp limits the number of waiting sessions itself.
        return Ok(Some(()));
    }
    let (Some(family), Some(cookie)) = (tcp_family(fd), cookie(fd)) else {
        return Ok(None);
    };
    if tcp_state(fd) != Some(TCP_CLOSE) {
        return Ok(None);
    }
    let (native, closed, path) = table::with_table(|table| {
        table.get(cookie).map(|entry| {
            (
                entry.native,
                entry.wishes.closed || entry.native,
                entry.wishes.onramp.clone(),
            )
        })
    })
    .unwrap_or_default();
    let closed = closed || environment::variable("LONGHAUL_CLOSED").is_some();
    let Some(bound) = local_address(fd) else {
        return Ok(None);
    };
    let ramp = match ramp::dial(path.as_deref(), true) {
        Ok(ramp) => ramp,
        Err(_) if closed => return Err(libc::ENETUNREACH),
        Err(_) => return Ok(None),
    };
    let options = Arc::new(socket_with_options_of(fd, family)?);
    let forever = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let timeout = option(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO).unwrap_or(forever);
    // Keeps the port until the on-ramp has it.
    let held = keep_bound_socket(fd)?;
    if let Err(errno) = become_listener(fd, &ramp) {
        restore_socket(fd, &held, &options);
        return Err(errno);
    }
    let answer = ramp::ask(
        ramp.as_raw_fd(),
        &RampRequest::Listen {
            at: to_canonical_address(bound),
        },
    );
    let reply = answer
        .as_ref()
        .map_err(|errno| *errno)
        .and_then(ramp::Packet::reply);
    let at = match reply {
        Ok(RampReply::Listening { at }) if family == libc::AF_INET6 => to_mapped(at),
        Ok(RampReply::Listening { at }) => at,
        refused => {
            restore_socket(fd, &held, &options);
            return match refused {
                Ok(RampReply::Refuse { errno, .. }) => Err(errno),
                _ if closed => Err(libc::ENETUNREACH),
                _ => Ok(None),
            };
        }
    };
    let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout);
    set_socket_name(ramp.as_raw_fd(), at);
    let Some(cookie) = crate::system::cookie(fd) else {
        return Err(libc::EBADF);
    };
    table::with_table(|table| {
        table.set_state(
            cookie,
            SocketState::Listening(ListenerState { at, options }),
        );
        table.entry(cookie).native = native;
    });
    mark(fd);
    Ok(Some(()))
}

/// Returns an unconnected socket with the options of `fd`.
fn socket_with_options_of(fd: c_int, family: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: takes no pointer.
    let low =
        check_result(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: a descriptor that was just made.
    let low = unsafe { OwnedFd::from_raw_fd(low) };
    copy_options(
        fd,
        low.as_raw_fd(),
        INHERITED_OPTIONS.iter().chain(&LISTENER_OPTIONS),
    );
    copy_buffers(fd, low.as_raw_fd());
    Ok(low)
}

fn copy_options<'a>(from: c_int, to: c_int, which: impl Iterator<Item = &'a (c_int, c_int)>) {
    for (level, name) in which {
        if let Ok(value) = option::<c_int>(from, *level, *name)
            && option(to, *level, *name) != Ok(value)
        {
            let _ = set_option(to, *level, *name, &value);
        }
    }
    if let Ok(linger) = option::<libc::linger>(from, libc::SOL_SOCKET, libc::SO_LINGER)
        && linger.l_onoff != 0
    {
        let _ = set_option(to, libc::SOL_SOCKET, libc::SO_LINGER, &linger);
    }
}

/// Copies the inherited options of a listener to an accepted socket.
pub fn inherit(listener: c_int, accepted: c_int) {
    if let Some(options) = options_socket(listener) {
        copy_options(options.as_raw_fd(), accepted, INHERITED_OPTIONS.iter());
        copy_buffers(options.as_raw_fd(), accepted);
    }
}

/// Copies the buffer sizes that a program has set.
fn copy_buffers(from: c_int, to: c_int) {
    /// Bits of `SO_BUF_LOCK`, and their options.
    const BUFFER_LOCKS: [(c_int, c_int); 2] = [(1, libc::SO_SNDBUF), (2, libc::SO_RCVBUF)];
    let locks: c_int = option(from, libc::SOL_SOCKET, libc::SO_BUF_LOCK).unwrap_or(0);
    for (bit, name) in BUFFER_LOCKS {
        if locks & bit != 0
            && let Ok(size) = option::<c_int>(from, libc::SOL_SOCKET, name)
        {
            let _ = set_option(to, libc::SOL_SOCKET, name, &(size / 2));
        }
    }
}

/// Keeps the program's own bound socket in such a way that the on-ramp can still listen at its
/// address: both have `SO_REUSEADDR`, and this one does not listen (socket(7)).
fn keep_bound_socket(fd: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: takes no pointer.
    let low = check_result(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) })?;
    // SAFETY: a descriptor that was just made.
    let held = unsafe { OwnedFd::from_raw_fd(low) };
    set_option(held.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, &1)?;
    Ok(held)
}

/// Points the program's descriptor to the Unix socket, with the flags that it had.
fn become_listener(fd: c_int, ramp: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: takes no pointer.
    let status = check_result(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    replace_socket(fd, ramp)?;
    // SAFETY: takes no pointer.
    check_result(unsafe { libc::fcntl(fd, libc::F_SETFL, status & !libc::O_ASYNC) })?;
    Ok(())
}

/// Replaces the socket behind a descriptor, which keeps its close-on-exec flag.
fn replace_socket(fd: c_int, socket: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: these take no pointer.
    unsafe {
        let flags = check_result(libc::fcntl(fd, libc::F_GETFD))?;
        let cloexec = if flags & libc::FD_CLOEXEC == 0 {
            0
        } else {
            libc::O_CLOEXEC
        };
        check_result(libc::dup3(socket.as_raw_fd(), fd, cloexec))?;
    }
    Ok(())
}

/// Undoes [`become_listener`]: the descriptor leads to the program's own bound socket again.
fn restore_socket(fd: c_int, held: &OwnedFd, options: &OwnedFd) {
    if let Ok(reuse) = option::<c_int>(options.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR) {
        let _ = set_option(
            held.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_REUSEADDR,
            &reuse,
        );
    }
    // Status flags belong to the socket, close-on-exec to the descriptor.
    let _ = replace_socket(fd, held);
}

static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Gives a Unix socket a name that says where sessions are taken.
fn set_socket_name(socket: c_int, at: SocketAddr) {
    // SAFETY: zeros are an address without a path.
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    address.sun_family = libc::AF_UNIX as u16;
    let (process, serial) = (std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
    let text = format!("\0{SOCKET_NAME_PREFIX}{at}/{process}-{serial}");
    for (place, byte) in address.sun_path.iter_mut().zip(text.bytes()) {
        *place = byte.cast_signed();
    }
    let length = size_of::<libc::sa_family_t>() + text.len();
    // SAFETY: that much of the address is set.
    unsafe { libc::bind(socket, (&raw const address).cast(), length as socklen_t) };
}

/// Reads such a name.
fn read_socket_name(socket: c_int) -> Option<SocketAddr> {
    // SAFETY: zeros are an address without a path.
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut length = size_of::<libc::sockaddr_un>() as socklen_t;
    // SAFETY: the buffer has the given length.
    let found = unsafe { libc::getsockname(socket, (&raw mut address).cast(), &raw mut length) };
    if found != 0 || c_int::from(address.sun_family) != libc::AF_UNIX {
        return None;
    }
    let count = (length as usize).checked_sub(size_of::<libc::sa_family_t>())?;
    let path = address.sun_path.get(..count)?;
    let bytes: Vec<u8> = path.iter().map(|byte| byte.cast_unsigned()).collect();
    let text = std::str::from_utf8(bytes.strip_prefix(b"\0")?).ok()?;
    text.strip_prefix(SOCKET_NAME_PREFIX)?
        .split_once('/')?
        .0
        .parse()
        .ok()
}

/// Returns the address where a listener of the library takes sessions, or `None` for any other
/// descriptor. A listener that came from another process is recorded.
pub fn session_address(fd: c_int) -> Option<SocketAddr> {
    let known = settle::with_known_entry(fd, |entry| match entry.state() {
        SocketState::Listening(listening) => Some(Some(listening.at)),
        _ => Some(None),
    });
    if let Some(known) = known {
        return known;
    }
    let at = read_socket_name(fd)?;
    let family = if at.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    // SAFETY: takes no pointer.
    let options =
        check_result(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })
            .ok()?;
    // SAFETY: a descriptor that was just made.
    let options = Arc::new(unsafe { OwnedFd::from_raw_fd(options) });
    let cookie = cookie(fd)?;
    table::with_table(|table| {
        table.set_state(
            cookie,
            SocketState::Listening(ListenerState { at, options }),
        )
    });
    mark(fd);
    Some(at)
}

/// Returns the socket that keeps a listener's options.
pub fn options_socket(fd: c_int) -> Option<Arc<OwnedFd>> {
    session_address(fd)?;
    settle::with_known_entry(fd, |entry| match entry.state() {
        SocketState::Listening(listening) => Some(Arc::clone(&listening.options)),
        _ => None,
    })
}

/// `shutdown(2)` of a listener. Returns `None` if the descriptor is not a listener.
pub fn shut_down(fd: c_int, how: c_int) -> Option<c_int> {
    session_address(fd)?;
    Some(match how {
        // As for TCP, shutting down writing of a listener has no effect.
        libc::SHUT_WR => 0,
        libc::SHUT_RD | libc::SHUT_RDWR => {
            // SAFETY: takes no pointer.
            unsafe { libc::shutdown(fd, libc::SHUT_RDWR) }
        }
        _ => fail(libc::EINVAL),
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::system::RawAddress;

    /// Returns a socket that is bound to `port` of loopback (any free one if 0) and does not
    /// listen.
    fn bound(port: u16) -> Result<OwnedFd, Errno> {
        let at = RawAddress::from(SocketAddr::from(([127, 0, 0, 1], port)));
        // SAFETY: the socket was just made, and the address has the length that is given.
        unsafe {
            let low = check_result(libc::socket(
                libc::AF_INET,
                libc::SOCK_STREAM | libc::SOCK_CLOEXEC,
                0,
            ))?;
            let socket = OwnedFd::from_raw_fd(low);
            check_result(libc::bind(low, at.as_ptr(), at.length()))?;
            Ok(socket)
        }
    }

    #[test]
    fn a_port_is_kept_for_the_onramp() {
        let socket = bound(0).unwrap();
        let (program, at) = (
            socket.as_raw_fd(),
            local_address(socket.as_raw_fd()).unwrap(),
        );
        let held = keep_bound_socket(program).unwrap();
        let options = socket_with_options_of(program, libc::AF_INET).unwrap();
        set_option(
            options.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_REUSEADDR,
            &0,
        )
        .unwrap();
        become_listener(program, &options).unwrap();
        assert_eq!(bound(at.port()).unwrap_err(), libc::EADDRINUSE);
        // Sets SO_REUSEADDR, as the on-ramp does.
        drop(TcpListener::bind(at).unwrap());
        restore_socket(program, &held, &options);
        drop(held);
        assert_eq!(local_address(program), Some(at));
        assert_eq!(option(program, libc::SOL_SOCKET, libc::SO_REUSEADDR), Ok(0));
        assert_eq!(bound(at.port()).unwrap_err(), libc::EADDRINUSE);
    }
}
