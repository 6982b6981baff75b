//! Reading and writing: the system calls, plus the error of a failed route.
//!
//! A route that has failed resets the socket's connection to the on-ramp. The first call afterwards
//! returns the error of the route instead of `ECONNRESET`.

use std::ffi::{c_int, c_void};

use libc::{iovec, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};

use crate::connect::lsl_connect;
use crate::guard::quietly;
use crate::listen;
use crate::settle::{known, look_after, take_failure};
use crate::system::{errno, set_errno};
use crate::table;

/// Direction of the bytes of a call.
enum Way {
    In,
    Out {
        /// Flags of `send`.
        flags: c_int,
    },
}

/// Makes a system call on a socket that the library may know.
#[inline]
fn on(fd: c_int, way: Way, call: impl Fn() -> ssize_t) -> ssize_t {
    if listen::is_marked(fd) {
        return at_listener(&way);
    }
    if table::has_pending() {
        quietly((), || look_after(fd));
    }
    let result = call();
    if result >= 0 || !table::is_used() {
        return result;
    }
    let error = errno();
    if matches!(error, libc::ECONNRESET | libc::EPIPE | libc::ENOTCONN) {
        set_errno(quietly(None, || take_failure(fd)).unwrap_or(error));
    }
    result
}

/// Fails a call on a listener. The on-ramp's messages must not reach the program.
fn at_listener(way: &Way) -> ssize_t {
    set_errno(match way {
        Way::In => libc::ENOTCONN,
        Way::Out { flags } => {
            if flags & libc::MSG_NOSIGNAL == 0 {
                // SAFETY: a signal to this thread, as the kernel sends it.
                unsafe { libc::raise(libc::SIGPIPE) };
            }
            libc::EPIPE
        }
    });
    -1
}

/// Refuses urgent data, which a session cannot carry.
fn refuses_urgent(fd: c_int, flags: c_int) -> bool {
    flags & libc::MSG_OOB != 0
        && quietly(None, || known(fd, |entry| Some(entry.carried))).unwrap_or(false)
}

fn not_supported() -> ssize_t {
    set_errno(libc::EOPNOTSUPP);
    -1
}

/// `read(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_read(fd: c_int, bytes: *mut c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller's promise is the system call's.
    on(fd, Way::In, || unsafe { libc::read(fd, bytes, length) })
}

/// `readv(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's promise is the system call's.
    on(fd, Way::In, || unsafe { libc::readv(fd, parts, count) })
}

/// `recv(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_recv(
    fd: c_int,
    bytes: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise is the system call's.
    on(fd, Way::In, || unsafe {
        libc::recv(fd, bytes, length, flags)
    })
}

/// `recvfrom(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_recvfrom(
    fd: c_int,
    bytes: *mut c_void,
    length: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the caller's promise is the system call's.
    on(fd, Way::In, || unsafe {
        libc::recvfrom(fd, bytes, length, flags, address, address_length)
    })
}

/// `recvmsg(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_recvmsg(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise is the system call's.
    on(fd, Way::In, || unsafe { libc::recvmsg(fd, message, flags) })
}

/// `write(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_write(
    fd: c_int,
    bytes: *const c_void,
    length: size_t,
) -> ssize_t {
    // SAFETY: the caller's promise is the system call's.
    on(fd, Way::Out { flags: 0 }, || unsafe {
        libc::write(fd, bytes, length)
    })
}

/// `writev(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_writev(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise is the system call's.
    on(fd, Way::Out { flags: 0 }, || unsafe {
        libc::writev(fd, parts, count)
    })
}

/// `send(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_send(
    fd: c_int,
    bytes: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    if refuses_urgent(fd, flags) {
        return not_supported();
    }
    // SAFETY: the caller's promise is the system call's.
    on(fd, Way::Out { flags }, || unsafe {
        libc::send(fd, bytes, length, flags)
    })
}

/// `sendto(2)`. With `MSG_FASTOPEN` it connects first and then sends: nothing may leave before the
/// route stands.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_sendto(
    fd: c_int,
    bytes: *const c_void,
    length: size_t,
    flags: c_int,
    address: *const sockaddr,
    address_length: socklen_t,
) -> ssize_t {
    if refuses_urgent(fd, flags) {
        return not_supported();
    }
    if flags & libc::MSG_FASTOPEN != 0 && !address.is_null() {
        // SAFETY: the caller's promise is the system call's.
        if unsafe { lsl_connect(fd, address, address_length) } != 0 {
            return -1;
        }
        let flags = flags & !libc::MSG_FASTOPEN;
        // SAFETY: as above.
        return on(fd, Way::Out { flags }, || unsafe {
            libc::send(fd, bytes, length, flags)
        });
    }
    // SAFETY: as above.
    on(fd, Way::Out { flags }, || unsafe {
        libc::sendto(fd, bytes, length, flags, address, address_length)
    })
}

/// `sendmsg(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    if refuses_urgent(fd, flags) {
        return not_supported();
    }
    // SAFETY: the caller's promise is the system call's.
    on(fd, Way::Out { flags }, || unsafe {
        libc::sendmsg(fd, message, flags)
    })
}

/// `sendfile(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: the caller's promise is the system call's.
    on(to, Way::Out { flags: 0 }, || unsafe {
        libc::sendfile(to, from, offset, count)
    })
}
