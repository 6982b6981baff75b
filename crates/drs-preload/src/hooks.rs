//! The functions of the C library that programs reach through here. Each calls the real one with what the program gave, and
//! returns what that gave; what is done besides never shows in the result nor in `errno`.
//!
//! They are few: those that open a connection or prepare one (`connect`, `listen`, `accept`, `accept4`), those that end or rename a
//! descriptor (`close`, `close_range`, `closefrom`, `dup`, `dup2`, `dup3`), and `_exit`, which ends a process without telling.
//! Reading and writing are not among them: the kernel keeps the accounts.
//!
//! They are `C-unwind` because `connect`, `accept` and `close` are points where a thread can be cancelled, which unwinds.

use std::ffi::{c_int, c_uint};

use libc::{sockaddr, socklen_t};

use crate::process::{self, aside};
use crate::real;

/// `connect(2)`.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    aside(|process| process.before_connection(fd));
    // SAFETY: the program's arguments are passed on.
    let result = unsafe { real::connect(fd, address, length) };
    aside(|process| process.connecting(fd, result == 0));
    result
}

/// `listen(2)`.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    aside(|process| process.before_connection(fd));
    // SAFETY: the program's arguments are passed on.
    unsafe { real::listen(fd, backlog) }
}

/// `accept(2)`.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the program's arguments are passed on.
    let accepted = unsafe { real::accept(fd, address, length) };
    aside(|process| process.opened(accepted));
    accepted
}

/// `accept4(2)`.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's arguments are passed on.
    let accepted = unsafe { real::accept4(fd, address, length, flags) };
    aside(|process| process.opened(accepted));
    accepted
}

/// `close(2)`.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if process::is_ours(fd) {
        return bad_descriptor();
    }
    aside(|process| process.closing(fd));
    // SAFETY: the program's arguments are passed on.
    unsafe { real::close(fd) }
}

/// `dup(2)`.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: the program's arguments are passed on.
    let new = unsafe { real::dup(fd) };
    aside(|process| process.duplicated(fd, new));
    new
}

/// `dup2(2)`.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    aside(|process| process.replacing(old, new));
    // SAFETY: the program's arguments are passed on.
    let result = unsafe { real::dup2(old, new) };
    aside(|process| process.duplicated(old, result));
    result
}

/// `dup3(2)`.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    aside(|process| process.replacing(old, new));
    // SAFETY: the program's arguments are passed on.
    let result = unsafe { real::dup3(old, new, flags) };
    aside(|process| process.duplicated(old, result));
    result
}

/// `close_range(2)`: leaves the log open.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOEXEC: c_int = 4;
    if flags & CLOEXEC == 0 {
        aside(|process| process.closing_range(first, last));
    }
    let ours = process::own_descriptor().filter(|own| (first..=last).contains(own));
    let Some(own) = ours else {
        // SAFETY: the program's arguments are passed on.
        return unsafe { real::close_range(first, last, flags) };
    };
    if own > first {
        // SAFETY: the program's arguments are passed on, up to the log.
        let below = unsafe { real::close_range(first, own - 1, flags) };
        if below != 0 {
            return below;
        }
    }
    if own == last {
        return 0;
    }
    // SAFETY: the program's arguments are passed on, from the log on; it is less than `last`, so one more is no overflow.
    unsafe { real::close_range(own + 1, last, flags) }
}

/// `closefrom(3)`: leaves the log open where the kernel has `close_range`.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    let lowest = c_uint::try_from(first).unwrap_or(0);
    // SAFETY: closing all descriptors from here on is what was asked for.
    if process::own_descriptor().is_some() && unsafe { close_range(lowest, c_uint::MAX, 0) } == 0 {
        return;
    }
    aside(|process| process.closing_range(lowest, c_uint::MAX));
    // SAFETY: the program's arguments are passed on.
    unsafe { real::closefrom(first) }
}

/// `_exit(2)`.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _exit(status: c_int) -> ! {
    aside(|process| process.ending());
    // SAFETY: the program's arguments are passed on.
    unsafe { real::_exit(status) };
    loop {
        // SAFETY: ends the process; nothing of it is used afterwards.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// `_Exit(3)`.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _Exit(status: c_int) -> ! {
    // SAFETY: the same function by another name.
    unsafe { _exit(status) }
}

fn bad_descriptor() -> c_int {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = libc::EBADF };
    -1
}
