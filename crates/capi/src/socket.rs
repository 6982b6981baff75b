//! `lsl_socket`, `lsl_bind`, `lsl_shutdown`, `lsl_close`.

use std::ffi::{CStr, c_char, c_int};
use std::net::{Ipv6Addr, SocketAddr};

use libc::{sockaddr, socklen_t};

use crate::address::{AF_LSL, SockaddrLsl};
use crate::guard::{guarded, quietly};
use crate::listen;
use crate::settle::known;
use crate::system::{
    RawAddress, checked, cookie, disconnect, errno, fail, set_errno, set_option, tcp_family,
};
use crate::table::{self, State};

/// `socket(2)`. With `AF_LSL` it returns a socket for connections by routes.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain != AF_LSL {
        // SAFETY: takes no pointer.
        return unsafe { libc::socket(domain, kind, protocol) };
    }
    guarded(|| {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        if kind & !flags != libc::SOCK_STREAM || (protocol != 0 && protocol != libc::IPPROTO_TCP) {
            return Err(libc::EPROTONOSUPPORT);
        }
        // One for both families, where there are both.
        // SAFETY: takes no pointer.
        let fd = match checked(unsafe { libc::socket(libc::AF_INET6, kind, libc::IPPROTO_TCP) }) {
            // SAFETY: as above.
            Err(libc::EAFNOSUPPORT) => {
                // SAFETY: as above.
                checked(unsafe { libc::socket(libc::AF_INET, kind, libc::IPPROTO_TCP) })
            }
            other => other,
        }?;
        let _ = set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &0);
        let cookie = cookie(fd).ok_or(libc::EPROTONOSUPPORT)?;
        table::with(|table| table.entry(cookie).native = true);
        Ok(fd)
    })
}

/// `bind(2)`, for `sockaddr_lsl` too.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    if quietly(None, || listen::at(fd)).is_some() {
        return fail(libc::EINVAL);
    }
    let is_lsl = !address.is_null()
        && length as usize >= size_of::<libc::sa_family_t>()
        // SAFETY: the caller says that `address` has that many bytes.
        && c_int::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() }) == AF_LSL;
    if !is_lsl {
        // SAFETY: the caller's promise is the system call's.
        return unsafe { libc::bind(fd, address, length) };
    }
    guarded(|| {
        // SAFETY: the caller says that `address` has that many bytes.
        let to = unsafe { SockaddrLsl::read(address, length) }?.destination()?;
        let family = tcp_family(fd).ok_or(libc::EAFNOSUPPORT)?;
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, to.port));
        let any = if family == libc::AF_INET {
            SocketAddr::from(([0; 4], to.port))
        } else {
            any
        };
        let raw = RawAddress::for_family(to.address.unwrap_or(any), family);
        // SAFETY: the address has the length that is given.
        checked(unsafe { libc::bind(fd, raw.as_ptr(), raw.length()) })
    })
}

/// `shutdown(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_shutdown(fd: c_int, how: c_int) -> c_int {
    let before = errno();
    let ours = quietly(None, || {
        listen::shut_down(fd, how).or_else(|| {
            let is_connecting = |entry: &mut table::Entry| {
                matches!(entry.state(), State::Connecting(_)).then_some(())
            };
            known(fd, is_connecting)?;
            // As for a connection during its handshake: it is gone afterwards.
            disconnect(fd);
            cookie(fd).map(|cookie| {
                table::with(|table| table.set_state(cookie, State::Spent));
                0
            })
        })
    });
    match ours {
        Some(result) => {
            if result == 0 {
                set_errno(before);
            }
            result
        }
        None => {
            set_errno(before);
            // SAFETY: takes no pointer.
            unsafe { libc::shutdown(fd, how) }
        }
    }
}

/// `close(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_close(fd: c_int) -> c_int {
    // Entries of other sockets are swept later; these hold descriptors of the library.
    let holds = |entry: &mut table::Entry| {
        matches!(entry.state(), State::Connecting(_) | State::Listening(_)).then_some(())
    };
    let held = if table::is_used() {
        let before = errno();
        let held = quietly(None, || known(fd, holds).and_then(|()| cookie(fd)));
        set_errno(before);
        held
    } else {
        None
    };
    // SAFETY: takes no pointer.
    let result = unsafe { libc::close(fd) };
    if let Some(cookie) = held {
        let after = errno();
        quietly((), || {
            if !table::is_open(cookie) {
                table::with(|table| table.forget(cookie));
            }
        });
        set_errno(after);
    }
    result
}

/// `lsl_version`: the library's version.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_version() -> *const c_char {
    const VERSION: &[u8] = concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes();
    CStr::from_bytes_until_nul(VERSION).unwrap_or(c"").as_ptr()
}
