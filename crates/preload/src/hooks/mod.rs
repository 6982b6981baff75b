//! Hooks for functions of the C library. Each calls the real function with the program's arguments,
//! and returns its result. Anything else that a hook does shows neither in the result nor in
//! `errno`.
//!
//! There are few hooks. `connect`, `listen`, `accept` and `accept4` open or prepare a connection.
//! `close`, `close_range`, `closefrom`, `dup`, `dup2` and `dup3` end or rename a descriptor.
//! `_exit` ends a process without notice. By `prctl` and `syscall`, a program restricts its system
//! calls ([`filter`]). There is also `fork`. Reading and writing have no hooks: the kernel keeps
//! the accounts.
//!
//! All of them may be called in a signal handler (POSIX, 2.4.3). So nothing is allocated, looked up
//! or waited for without a bound, and on an alternate stack with little space nothing is done at
//! all. `connect`, `accept` and `close` are cancellation points, and cancelling unwinds. This
//! happens in the real function, with nothing of this library on the stack that needs cleanup.
//!
//! These are ordinary functions; the preload object exports them under their names. A Rust program
//! linked with such names would replace the functions of libc.

mod routed;

pub use routed::{
    getaddrinfo, gethostbyname, gethostbyname_r, gethostbyname2, gethostbyname2_r, getpeername,
    getsockname, getsockopt, sendmsg, sendto,
};

use std::ffi::{c_int, c_long, c_uint, c_ulong};

use libc::{sockaddr, socklen_t};

use crate::context;
use crate::filter;
use crate::process::{self, run_unnoticed};
use crate::real;
use crate::routes;

/// `connect(2)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the program's arguments are passed on.
    if let Some(result) = unsafe { routes::connect::connect(fd, address, length) } {
        return result;
    }
    run_unnoticed(|process| process.before_connection(fd));
    // SAFETY: the program's arguments are passed on.
    let result = unsafe { real::connect(fd, address, length) };
    if result == 0 || matches!(context::errno(), libc::EINPROGRESS | libc::EINTR) {
        run_unnoticed(|process| process.note_opened(fd));
    }
    if result == 0 {
        routes::connect::connected(fd);
    }
    result
}

/// `listen(2)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn listen(fd: c_int, backlog: c_int) -> c_int {
    run_unnoticed(|process| process.before_connection(fd));
    // SAFETY: the program's arguments are passed on.
    unsafe { real::listen(fd, backlog) }
}

/// `accept(2)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the program's arguments are passed on.
    let accepted = unsafe { real::accept(fd, address, length) };
    if accepted >= 0 {
        run_unnoticed(|process| process.note_opened(accepted));
    }
    accepted
}

/// `accept4(2)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's arguments are passed on.
    let accepted = unsafe { real::accept4(fd, address, length, flags) };
    if accepted >= 0 {
        run_unnoticed(|process| process.note_opened(accepted));
    }
    accepted
}

/// `close(2)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn close(fd: c_int) -> c_int {
    if process::is_ours(fd) {
        return bad_descriptor();
    }
    if process::process().is_some_and(|process| process.knows(fd) || process.needs_helper()) {
        run_unnoticed(|process| {
            process.note_closing(fd);
            process.helper.start_if_needed(process);
        });
    }
    // SAFETY: the program's arguments are passed on.
    unsafe { real::close(fd) }
}

/// `dup(2)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn dup(fd: c_int) -> c_int {
    // SAFETY: the program's arguments are passed on.
    let new = unsafe { real::dup(fd) };
    run_unnoticed(|process| process.note_duplicated(fd, new));
    new
}

/// `dup2(2)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn dup2(old: c_int, new: c_int) -> c_int {
    run_unnoticed(|process| process.note_replacing(old, new));
    // SAFETY: the program's arguments are passed on.
    let result = unsafe { real::dup2(old, new) };
    run_unnoticed(|process| process.note_duplicated(old, result));
    result
}

/// `dup3(2)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    run_unnoticed(|process| process.note_replacing(old, new));
    // SAFETY: the program's arguments are passed on.
    let result = unsafe { real::dup3(old, new, flags) };
    run_unnoticed(|process| process.note_duplicated(old, result));
    result
}

/// `close_range(2)`: keeps the log open.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOEXEC: c_int = 4;
    if flags & CLOEXEC == 0 {
        run_unnoticed(|process| process.note_closing_range(first, last));
    }
    let mut from = first;
    while let Some(own) = process::lowest_own_descriptor(from, last) {
        if own > from {
            // SAFETY: the program's arguments are passed on, up to the library's own descriptor.
            let below = unsafe { real::close_range(from, own - 1, flags) };
            if below != 0 {
                return below;
            }
        }
        if own == last {
            return 0;
        }
        from = own + 1;
    }
    // SAFETY: the program's arguments are passed on, from after the library's own descriptor.
    unsafe { real::close_range(from, last, flags) }
}

/// `closefrom(3)`: keeps the log open if the kernel has `close_range`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn closefrom(first: c_int) {
    let lowest = c_uint::try_from(first).unwrap_or(0);
    if process::lowest_own_descriptor(lowest, c_uint::MAX).is_some() {
        // SAFETY: the program asked to close all descriptors from here on.
        if unsafe { close_range(lowest, c_uint::MAX, 0) } == 0 {
            return;
        }
    }
    run_unnoticed(|process| process.note_closing_range(lowest, c_uint::MAX));
    // SAFETY: the program's arguments are passed on.
    unsafe { real::closefrom(first) }
}

/// `fork(2)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn fork() -> libc::pid_t {
    // SAFETY: the program asked for it.
    let child = unsafe { real::fork() };
    if child == 0 {
        run_unnoticed(|process| process.helper.fork_is_over());
    }
    child
}

/// `prctl(2)`: may install a filter of system calls.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    // SAFETY: the program's arguments are passed on.
    let call = || unsafe { real::prctl(option, a, b, c, d) };
    match filter::is_install_by_prctl(option) {
        true => process::install_filter(call),
        false => call(),
    }
}

/// `syscall(2)`: may install a filter of system calls.
///
/// # Safety
/// As the function of the C library.
#[allow(clippy::too_many_arguments)] // as many as it has
pub unsafe fn syscall(
    number: c_long,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
    e: c_ulong,
    f: c_ulong,
) -> c_long {
    // SAFETY: the program's arguments are passed on.
    let call = || unsafe { real::syscall(number, a, b, c, d, e, f) };
    match filter::is_install_by_syscall(number, a) {
        true => process::install_filter(call),
        false => call(),
    }
}

/// `_exit(2)`.
///
/// # Safety
/// As the function of the C library.
pub unsafe fn _exit(status: c_int) -> ! {
    process::on_exit();
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
#[allow(non_snake_case)] // its name
pub unsafe fn _Exit(status: c_int) -> ! {
    // SAFETY: the same function by another name.
    unsafe { _exit(status) }
}

fn bad_descriptor() -> c_int {
    context::set_errno(libc::EBADF);
    -1
}
