//! The preload object: the C library's functions through which programs reach
//! [`longhaul_preload::hooks`], under their own names. The hooks are documented there.
//!
//! They are `C-unwind` because `connect`, `accept` and `close` are cancellation points, and
//! cancelling a thread unwinds.

#![cfg(not(test))] // the tests' own process keeps the C library's functions
#![allow(unsafe_code)] // it stands in for functions of the C library

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

use libc::{addrinfo, hostent, msghdr, pid_t, sockaddr, socklen_t, ssize_t};
use longhaul_preload::{hooks, process};

/// Exports hooks under the names of the C library.
macro_rules! named {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;
    )*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the function of the C library.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)] // as many as it has
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) $(-> $result)? {
            // SAFETY: the caller's promise is the hook's.
            unsafe { hooks::$name($($argument),*) }
        }
    )*};
}

named! {
    /// `connect(2)`.
    fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    /// `listen(2)`.
    fn listen(fd: c_int, backlog: c_int) -> c_int;
    /// `accept(2)`.
    fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    /// `accept4(2)`.
    fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    /// `close(2)`.
    fn close(fd: c_int) -> c_int;
    /// `dup(2)`.
    fn dup(fd: c_int) -> c_int;
    /// `dup2(2)`.
    fn dup2(old: c_int, new: c_int) -> c_int;
    /// `dup3(2)`.
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int;
    /// `close_range(2)`: keeps the log open.
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    /// `closefrom(3)`: keeps the log open if the kernel has `close_range`.
    fn closefrom(first: c_int);
    /// `fork(2)`.
    fn fork() -> pid_t;
    /// `getpeername(2)`.
    fn getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    /// `getsockname(2)`.
    fn getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    /// `getsockopt(2)`.
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t)
        -> c_int;
    /// `sendto(2)`.
    fn sendto(
        fd: c_int, data: *const c_void, size: usize, flags: c_int, address: *const sockaddr,
        length: socklen_t,
    ) -> ssize_t;
    /// `sendmsg(2)`.
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    /// `getaddrinfo(3)`.
    fn getaddrinfo(
        node: *const c_char, service: *const c_char, hints: *const addrinfo,
        result: *mut *mut addrinfo,
    ) -> c_int;
    /// `gethostbyname(3)`.
    fn gethostbyname(name: *const c_char) -> *mut hostent;
    /// `gethostbyname2(3)`.
    fn gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent;
    /// `gethostbyname_r(3)`.
    fn gethostbyname_r(
        name: *const c_char, entry: *mut hostent, room: *mut c_char, size: usize,
        result: *mut *mut hostent, error: *mut c_int,
    ) -> c_int;
    /// `gethostbyname2_r(3)`.
    fn gethostbyname2_r(
        name: *const c_char, family: c_int, entry: *mut hostent, room: *mut c_char, size: usize,
        result: *mut *mut hostent,
        error: *mut c_int,
    ) -> c_int;
    /// `prctl(2)`: may install a filter of system calls.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int;
    /// `syscall(2)`: may install a filter of system calls.
    fn syscall(
        number: c_long, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong, e: c_ulong, f: c_ulong,
    ) -> c_long;
    /// `_exit(2)`.
    fn _exit(status: c_int) -> !;
    /// `_Exit(3)`.
    fn _Exit(status: c_int) -> !;
}

/// Called by the loader after everything this object depends on has been initialized.
#[used]
#[unsafe(link_section = ".init_array")]
static SET_UP: extern "C" fn() = {
    extern "C" fn set_up() {
        let _ = std::panic::catch_unwind(process::set_up);
    }
    set_up
};

/// Called at `exit`, after the program's own exit functions.
#[used]
#[unsafe(link_section = ".fini_array")]
static ENDING: extern "C" fn() = {
    extern "C" fn ending() {
        process::ending();
    }
    ending
};
