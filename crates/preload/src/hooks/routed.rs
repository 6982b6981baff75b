//! Hooks for functions that would reveal a connection on a route: its addresses, its error, opening
//! it with data, and resolving names.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::{addrinfo, hostent, sockaddr, socklen_t, ssize_t};

use crate::context::set_errno;
use crate::process::{process, run_unnoticed};
use crate::real;
use crate::routes::{self, ConnectArgument, Routes};

/// Returns the state of the mode if it is on.
fn mode() -> Option<&'static Routes> {
    process()?.routes.as_ref()
}

/// `getpeername(2)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    let leads = mode().and_then(|routes| run_unnoticed(|_| routes.peer(fd)).flatten());
    match leads {
        Some(Ok(peer)) if !address.is_null() && !length.is_null() => {
            // SAFETY: the program's arguments; it makes the same promise as to the C library.
            unsafe { peer.write(address, length) };
            0
        }
        Some(Err(error)) => {
            set_errno(error.raw_os_error());
            -1
        }
        // SAFETY: the program's arguments are passed on.
        _ => unsafe { real::getpeername(fd, address, length) },
    }
}

/// `getsockname(2)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    let own = mode().and_then(|routes| run_unnoticed(|_| routes.local(fd)).flatten());
    match own {
        Some(own) if !address.is_null() && !length.is_null() => {
            // SAFETY: the program's arguments; it makes the same promise as to the C library.
            unsafe { own.write(address, length) };
            0
        }
        // SAFETY: the program's arguments are passed on.
        _ => unsafe { real::getsockname(fd, address, length) },
    }
}

/// `getsockopt(2)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    if level == libc::SOL_SOCKET
        && name == libc::SO_ERROR
        && let Some(routes) = mode().filter(|routes| routes.knows(fd))
        && let Some(error) = run_unnoticed(|_| routes.error(fd)).flatten()
        && !value.is_null()
        && !length.is_null()
    {
        let bytes = error.to_ne_bytes();
        // SAFETY: the program's arguments: `length` is a length, and `value` has that much space.
        unsafe {
            let room = usize::try_from(*length).unwrap_or(0).min(bytes.len());
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast::<u8>(), room);
            *length = socklen_t::try_from(room).unwrap_or(0);
        }
        return 0;
    }
    // SAFETY: the program's arguments are passed on.
    unsafe { real::getsockopt(fd, level, name, value, length) }
}

/// `sendto(2)`: with `MSG_FASTOPEN` it opens a connection.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn sendto(
    fd: c_int,
    data: *const c_void,
    size: usize,
    flags: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    if flags & libc::MSG_FASTOPEN != 0 && !address.is_null() {
        // SAFETY: the program's arguments are passed on.
        match unsafe { routes::connect::connect(fd, address, length) } {
            None => {}
            Some(0) => {
                let flags = flags & !libc::MSG_FASTOPEN;
                // SAFETY: the program's arguments, on a connection that stands.
                return unsafe { real::sendto(fd, data, size, flags, std::ptr::null(), 0) };
            }
            Some(_) => return -1,
        }
    }
    // SAFETY: the program's arguments are passed on.
    unsafe { real::sendto(fd, data, size, flags, address, length) }
}

/// `sendmsg(2)`: with `MSG_FASTOPEN` it opens a connection.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t {
    if flags & libc::MSG_FASTOPEN != 0 && !message.is_null() {
        // SAFETY: the program promises a valid message; the copy refers to the same memory.
        let mut copy = unsafe { std::ptr::read(message) };
        // SAFETY: the program's arguments are passed on.
        match unsafe { routes::connect::connect(fd, copy.msg_name.cast(), copy.msg_namelen) } {
            None => {}
            Some(0) => {
                (copy.msg_name, copy.msg_namelen) = (std::ptr::null_mut(), 0);
                // SAFETY: the program's message without its address, on a connection that stands.
                return unsafe { real::sendmsg(fd, &raw const copy, flags & !libc::MSG_FASTOPEN) };
            }
            Some(_) => return -1,
        }
    }
    // SAFETY: the program's arguments are passed on.
    unsafe { real::sendmsg(fd, message, flags) }
}

/// `getaddrinfo(3)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    result: *mut *mut addrinfo,
) -> c_int {
    // SAFETY: the program's arguments are passed on.
    let failed = unsafe { real::getaddrinfo(node, service, hints, result) };
    if failed == 0
        && !node.is_null()
        && let Some(routes) = mode()
    {
        run_unnoticed(|_| {
            // SAFETY: a name that the C library has just read, and the list that it returned.
            unsafe {
                let name = CStr::from_ptr(node).to_bytes();
                let mut each = *result;
                while let Some(found) = each.as_ref() {
                    if let ConnectArgument::To(address) =
                        ConnectArgument::read(found.ai_addr, found.ai_addrlen)
                    {
                        routes.remember_name(name, address.ip());
                    }
                    each = found.ai_next;
                }
            }
        });
    }
    failed
}

/// Remembers the addresses of a host.
///
/// # Safety
/// `found` is NULL, or was returned by the C library.
unsafe fn remember(name: *const c_char, found: *const hostent) {
    let Some(routes) = mode().filter(|_| !name.is_null()) else {
        return;
    };
    run_unnoticed(|_| {
        // SAFETY: a name that the C library has just read, and the host that it returned, whose
        // list ends with NULL.
        unsafe {
            let Some(host) = found.as_ref() else { return };
            let name = CStr::from_ptr(name).to_bytes();
            let mut each = host.h_addr_list;
            while !each.is_null() && !(*each).is_null() {
                let ip = match (host.h_addrtype, host.h_length) {
                    (libc::AF_INET, 4) => {
                        IpAddr::V4(Ipv4Addr::from((*each).cast::<[u8; 4]>().read_unaligned()))
                    }
                    (libc::AF_INET6, 16) => {
                        IpAddr::V6(Ipv6Addr::from((*each).cast::<[u8; 16]>().read_unaligned()))
                    }
                    _ => return,
                };
                routes.remember_name(name, ip);
                each = each.add(1);
            }
        }
    });
}

/// `gethostbyname(3)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn gethostbyname(name: *const c_char) -> *mut hostent {
    // SAFETY: the program's arguments are passed on; the result is the C library's.
    unsafe {
        let found = real::gethostbyname(name);
        remember(name, found);
        found
    }
}

/// `gethostbyname2(3)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent {
    // SAFETY: the program's arguments are passed on; the result is the C library's.
    unsafe {
        let found = real::gethostbyname2(name, family);
        remember(name, found);
        found
    }
}

/// `gethostbyname_r(3)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn gethostbyname_r(
    name: *const c_char,
    entry: *mut hostent,
    room: *mut c_char,
    size: usize,
    result: *mut *mut hostent,
    error: *mut c_int,
) -> c_int {
    // SAFETY: the program's arguments are passed on; the result is the C library's.
    unsafe {
        let failed = real::gethostbyname_r(name, entry, room, size, result, error);
        if failed == 0 {
            remember(name, *result);
        }
        failed
    }
}

/// `gethostbyname2_r(3)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn gethostbyname2_r(
    name: *const c_char,
    family: c_int,
    entry: *mut hostent,
    room: *mut c_char,
    size: usize,
    result: *mut *mut hostent,
    error: *mut c_int,
) -> c_int {
    // SAFETY: the program's arguments are passed on; the result is the C library's.
    unsafe {
        let failed = real::gethostbyname2_r(name, family, entry, room, size, result, error);
        if failed == 0 {
            remember(name, *result);
        }
        failed
    }
}
