//! `lsl_listen`, and what else is done with listeners but accepting.
//!
//! The on-ramp takes the sessions. The descriptor that the program listens with becomes the Unix
//! socket on which it hands them over, each with the descriptor of a connected TCP socket. So
//! `poll` says when there is one, and `dup`, `fork` and `SCM_RIGHTS` do as for any other.
//!
//! The Unix socket's own name says where sessions are taken, so a process that was given the
//! descriptor can tell, too.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::socklen_t;
use longhaul_ramp::{Reply, Request};

use crate::guard::quietly;
use crate::system::{
    Errno, TCP_CLOSE, checked, cookie, errno, fail, local_address, option, set_option, tcp_family,
    tcp_state,
};
use crate::system::{canonical, mapped};
use crate::table::{self, Listening, State};
use crate::{ramp, settle};

/// A bit for each of the first descriptors that have been listeners of ours: what reads or writes
/// asks here first. A bit that is set may be out of date; of descriptors that are not here nothing
/// is said.
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

/// Whether the descriptor is a listener of ours, for those who ask often.
#[inline]
pub fn is_marked(fd: c_int) -> bool {
    let Some((word, bit)) = bit(fd) else {
        return false;
    };
    if word.load(Ordering::Relaxed) & bit == 0 {
        return false;
    }
    let is_one = quietly(None, || at(fd)).is_some();
    if !is_one {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
    is_one
}

/// What names of our Unix sockets begin with, behind the zero of an abstract name.
const NAME: &str = "longhaul-listen/";

/// Options of a listener that accepted sockets have too.
const INHERITED: [(c_int, c_int); 11] = [
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

/// Options that a listener keeps, but which go no further.
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
    match quietly(Ok(None), || listen(fd)) {
        Ok(Some(())) => {
            crate::system::set_errno(before);
            0
        }
        // SAFETY: takes no pointer.
        Ok(None) => unsafe { libc::listen(fd, backlog) },
        Err(errno) => fail(errno),
    }
}

/// Listens through the on-ramp; `None` where the system call is to do it.
fn listen(fd: c_int) -> Result<Option<()>, Errno> {
    if at(fd).is_some() {
        // How many may wait is the on-ramp's affair.
        return Ok(Some(()));
    }
    let (Some(family), Some(cookie)) = (tcp_family(fd), cookie(fd)) else {
        return Ok(None);
    };
    if tcp_state(fd) != Some(TCP_CLOSE) {
        return Ok(None);
    }
    let (native, closed, path) = table::with(|table| {
        table.get(cookie).map(|entry| {
            (
                entry.native,
                entry.wishes.closed || entry.native,
                entry.wishes.onramp.clone(),
            )
        })
    })
    .unwrap_or_default();
    let closed = closed || ramp::variable("LONGHAUL_CLOSED").is_some();
    let Some(bound) = local_address(fd) else {
        return Ok(None);
    };
    let ramp = match ramp::dial(path.as_deref(), true) {
        Ok(ramp) => ramp,
        Err(_) if closed => return Err(libc::ENETUNREACH),
        Err(_) => return Ok(None),
    };
    let options = Arc::new(options_of(fd, family)?);
    let forever = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let timeout = option(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO).unwrap_or(forever);
    // Nobody else gets the port before the on-ramp has it.
    let held = hold(fd)?;
    if let Err(errno) = become_listener(fd, &ramp) {
        become_again(fd, &held, &options);
        return Err(errno);
    }
    let answer = ramp::ask(
        ramp.as_raw_fd(),
        &Request::Listen {
            at: canonical(bound),
        },
    );
    let reply = answer
        .as_ref()
        .map_err(|errno| *errno)
        .and_then(ramp::Packet::reply);
    let at = match reply {
        Ok(Reply::Listening { at }) if family == libc::AF_INET6 => mapped(at),
        Ok(Reply::Listening { at }) => at,
        refused => {
            become_again(fd, &held, &options);
            return match refused {
                Ok(Reply::Refuse { errno, .. }) => Err(errno),
                _ if closed => Err(libc::ENETUNREACH),
                _ => Ok(None),
            };
        }
    };
    let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout);
    name(ramp.as_raw_fd(), at);
    let Some(cookie) = crate::system::cookie(fd) else {
        return Err(libc::EBADF);
    };
    table::with(|table| {
        table.set_state(cookie, State::Listening(Listening { at, options }));
        table.entry(cookie).native = native;
    });
    mark(fd);
    Ok(Some(()))
}

/// A socket that is not connected, with the options of another.
fn options_of(fd: c_int, family: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: takes no pointer.
    let low = checked(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: a descriptor that was just made.
    let low = unsafe { OwnedFd::from_raw_fd(low) };
    copy_options(
        fd,
        low.as_raw_fd(),
        INHERITED.iter().chain(&LISTENER_OPTIONS),
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

/// Gives an accepted socket what it has of its listener's.
pub fn inherit(listener: c_int, accepted: c_int) {
    if let Some(options) = options(listener) {
        copy_options(options.as_raw_fd(), accepted, INHERITED.iter());
        copy_buffers(options.as_raw_fd(), accepted);
    }
}

/// Copies the sizes of buffers that a program has set.
fn copy_buffers(from: c_int, to: c_int) {
    /// `SO_BUF_LOCK`'s bits.
    const LOCKS: [(c_int, c_int); 2] = [(1, libc::SO_SNDBUF), (2, libc::SO_RCVBUF)];
    let locks: c_int = option(from, libc::SOL_SOCKET, libc::SO_BUF_LOCK).unwrap_or(0);
    for (bit, name) in LOCKS {
        if locks & bit != 0
            && let Ok(size) = option::<c_int>(from, libc::SOL_SOCKET, name)
        {
            let _ = set_option(to, libc::SOL_SOCKET, name, &(size / 2));
        }
    }
}

/// Keeps the program's own socket, bound as it is, in such a way that the on-ramp can listen at its
/// address all the same: both have `SO_REUSEADDR`, and this one does not listen (socket(7)).
fn hold(fd: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: takes no pointer.
    let low = checked(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) })?;
    // SAFETY: a descriptor that was just made.
    let held = unsafe { OwnedFd::from_raw_fd(low) };
    set_option(held.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, &1)?;
    Ok(held)
}

/// The program's descriptor leads to the Unix socket from now on, with the flags that it had.
fn become_listener(fd: c_int, ramp: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: takes no pointer.
    let status = checked(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    stand_in(fd, ramp)?;
    // SAFETY: takes no pointer.
    checked(unsafe { libc::fcntl(fd, libc::F_SETFL, status & !libc::O_ASYNC) })?;
    Ok(())
}

/// Puts another socket in a descriptor's place; whether it is closed on exec stays.
fn stand_in(fd: c_int, socket: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: these take no pointer.
    unsafe {
        let flags = checked(libc::fcntl(fd, libc::F_GETFD))?;
        let cloexec = if flags & libc::FD_CLOEXEC == 0 {
            0
        } else {
            libc::O_CLOEXEC
        };
        checked(libc::dup3(socket.as_raw_fd(), fd, cloexec))?;
    }
    Ok(())
}

/// Undoes that: the descriptor leads to the program's own socket again, which is bound as it was.
fn become_again(fd: c_int, held: &OwnedFd, options: &OwnedFd) {
    if let Ok(reuse) = option::<c_int>(options.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR) {
        let _ = set_option(
            held.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_REUSEADDR,
            &reuse,
        );
    }
    // The flags of status are the socket's own; that of closing on exec is the descriptor's.
    let _ = stand_in(fd, held);
}

static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Gives a Unix socket a name that says where sessions are taken.
fn name(socket: c_int, at: SocketAddr) {
    // SAFETY: zeros are an address without a path.
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    address.sun_family = libc::AF_UNIX as u16;
    let (process, serial) = (std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
    let text = format!("\0{NAME}{at}/{process}-{serial}");
    for (place, byte) in address.sun_path.iter_mut().zip(text.bytes()) {
        *place = byte.cast_signed();
    }
    let length = size_of::<libc::sa_family_t>() + text.len();
    // SAFETY: so much of the address is set.
    unsafe { libc::bind(socket, (&raw const address).cast(), length as socklen_t) };
}

/// Reads such a name.
fn named(socket: c_int) -> Option<SocketAddr> {
    // SAFETY: zeros are an address without a path.
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut length = size_of::<libc::sockaddr_un>() as socklen_t;
    // SAFETY: the place has the length that is given.
    let found = unsafe { libc::getsockname(socket, (&raw mut address).cast(), &raw mut length) };
    if found != 0 || c_int::from(address.sun_family) != libc::AF_UNIX {
        return None;
    }
    let count = (length as usize).checked_sub(size_of::<libc::sa_family_t>())?;
    let path = address.sun_path.get(..count)?;
    let bytes: Vec<u8> = path.iter().map(|byte| byte.cast_unsigned()).collect();
    let text = std::str::from_utf8(bytes.strip_prefix(b"\0")?).ok()?;
    text.strip_prefix(NAME)?.split_once('/')?.0.parse().ok()
}

/// Where a listener of ours takes sessions; `None` for any other descriptor. One that came from
/// elsewhere is known from now on.
pub fn at(fd: c_int) -> Option<SocketAddr> {
    let known = settle::known(fd, |entry| match entry.state() {
        State::Listening(listening) => Some(Some(listening.at)),
        _ => Some(None),
    });
    if let Some(known) = known {
        return known;
    }
    let at = named(fd)?;
    let family = if at.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    // SAFETY: takes no pointer.
    let options =
        checked(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) }).ok()?;
    // SAFETY: a descriptor that was just made.
    let options = Arc::new(unsafe { OwnedFd::from_raw_fd(options) });
    let cookie = cookie(fd)?;
    table::with(|table| table.set_state(cookie, State::Listening(Listening { at, options })));
    mark(fd);
    Some(at)
}

/// The socket that keeps a listener's options.
pub fn options(fd: c_int) -> Option<Arc<OwnedFd>> {
    at(fd)?;
    settle::known(fd, |entry| match entry.state() {
        State::Listening(listening) => Some(Arc::clone(&listening.options)),
        _ => None,
    })
}

/// `shutdown(2)` of a listener: `None` where the descriptor is none.
pub fn shut_down(fd: c_int, how: c_int) -> Option<c_int> {
    at(fd)?;
    Some(match how {
        // As for TCP, writing is nothing that a listener does.
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

    /// A socket that is bound to a free port of loopback, or to `port`, and listens nowhere.
    fn bound(port: u16) -> Result<OwnedFd, Errno> {
        let at = RawAddress::from(SocketAddr::from(([127, 0, 0, 1], port)));
        // SAFETY: the socket was just made, and the address has the length that is given.
        unsafe {
            let low = checked(libc::socket(
                libc::AF_INET,
                libc::SOCK_STREAM | libc::SOCK_CLOEXEC,
                0,
            ))?;
            let socket = OwnedFd::from_raw_fd(low);
            checked(libc::bind(low, at.as_ptr(), at.length()))?;
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
        let held = hold(program).unwrap();
        let options = options_of(program, libc::AF_INET).unwrap();
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
        become_again(program, &held, &options);
        drop(held);
        assert_eq!(local_address(program), Some(at));
        assert_eq!(option(program, libc::SOL_SOCKET, libc::SO_REUSEADDR), Ok(0));
        assert_eq!(bound(at.port()).unwrap_err(), libc::EADDRINUSE);
    }
}
