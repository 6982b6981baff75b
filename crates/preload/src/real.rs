//! The functions behind the hooks: the next ones of their names in the order of loading. All are
//! looked up when the object is loaded. `dlsym` takes locks, for which a signal handler or the
//! child of a fork would wait in vain. Only functions that other objects call before that are
//! looked up when called.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{addrinfo, hostent, pid_t, sockaddr, socklen_t, ssize_t};

/// The next function of a name.
struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

/// Marker for a function that was looked up, but is not in the C library.
static MISSING: u8 = 0;

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            found: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    fn look_up(&self) -> *mut c_void {
        // SAFETY: a NUL-terminated name; RTLD_NEXT is a handle that dlsym knows.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        let missing = (&raw const MISSING).cast_mut().cast::<c_void>();
        let found = if found.is_null() { missing } else { found };
        self.found.store(found, Ordering::Release);
        found
    }

    /// Returns its address, or `None` if it does not exist.
    fn address(&self) -> Option<*mut c_void> {
        let mut found = self.found.load(Ordering::Acquire);
        if found.is_null() {
            found = self.look_up();
        }
        (!std::ptr::eq(found.cast_const().cast::<u8>(), &raw const MISSING)).then_some(found)
    }
}

/// Declares calls of the next functions of these names, each with its behaviour if there is none,
/// and [`look_all_up`].
macro_rules! next {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?, else $missing:expr;
    )*) => {
        #[allow(non_upper_case_globals)] // they are named as the functions are
        mod next {
            use super::*;
            $(pub static $name: Next = Next::new(match CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => c"",
            });)*
        }

        /// Looks up all of them.
        pub fn look_all_up() {
            $(next::$name.look_up();)*
        }

        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the function of the C library.
            #[allow(clippy::too_many_arguments)] // as many as it has
            pub unsafe fn $name($($argument: $type),*) $(-> $result)? {
                let Some(address) = next::$name.address() else { return $missing };
                let function: unsafe extern "C-unwind" fn($($type),*) $(-> $result)? =
                    // SAFETY: the C library's function of this name has this type. It may unwind: a
                    // thread can be cancelled in it.
                    unsafe { std::mem::transmute(address) };
                // SAFETY: the caller's promise is the function's.
                unsafe { function($($argument),*) }
            }
        )*
    };
}

/// Fails with `ENOSYS`, as if the C library lacked the function.
fn missing() -> c_int {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

next! {
    /// `connect(2)`.
    fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int, else missing();
    /// `listen(2)`.
    fn listen(fd: c_int, backlog: c_int) -> c_int, else missing();
    /// `accept(2)`.
    fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int, else missing();
    /// `accept4(2)`.
    fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int,
        else missing();
    /// `close(2)`.
    fn close(fd: c_int) -> c_int, else missing();
    /// `dup(2)`.
    fn dup(fd: c_int) -> c_int, else missing();
    /// `dup2(2)`.
    fn dup2(old: c_int, new: c_int) -> c_int, else missing();
    /// `dup3(2)`.
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int, else missing();
    /// `close_range(2)`.
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, else missing();
    /// `closefrom(3)`.
    fn closefrom(first: c_int), else { let _ = missing(); };
    /// `fork(2)`.
    fn fork() -> pid_t, else missing();
    /// `prctl(2)`. It is variadic; on Linux the arguments are passed in the same way.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int,
        else missing();
    /// `syscall(2)`. It is variadic as well.
    fn syscall(
        number: c_long, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong, e: c_ulong, f: c_ulong,
    ) -> c_long, else missing().into();
    /// `_exit(2)`: returns only if the C library has none.
    fn _exit(status: c_int), else { let _ = missing(); };
    /// `getpeername(2)`.
    fn getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int,
        else missing();
    /// `getsockname(2)`.
    fn getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int,
        else missing();
    /// `getsockopt(2)`.
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t)
        -> c_int, else missing();
    /// `sendto(2)`.
    fn sendto(
        fd: c_int, data: *const c_void, size: usize, flags: c_int, address: *const sockaddr,
        length: socklen_t,
    ) -> ssize_t, else missing() as ssize_t;
    /// `sendmsg(2)`.
    fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t,
        else missing() as ssize_t;
    /// `recv(2)`, in which a waiting thread can be cancelled.
    fn recv(fd: c_int, room: *mut c_void, size: usize, flags: c_int) -> ssize_t,
        else missing() as ssize_t;
    /// `getaddrinfo(3)`.
    fn getaddrinfo(
        node: *const c_char, service: *const c_char, hints: *const addrinfo,
        result: *mut *mut addrinfo,
    ) -> c_int, else libc::EAI_SYSTEM;
    /// `gethostbyname(3)`.
    fn gethostbyname(name: *const c_char) -> *mut hostent, else std::ptr::null_mut();
    /// `gethostbyname2(3)`.
    fn gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent,
        else std::ptr::null_mut();
    /// `gethostbyname_r(3)`.
    fn gethostbyname_r(
        name: *const c_char, entry: *mut hostent, room: *mut c_char, size: usize,
        result: *mut *mut hostent, error: *mut c_int,
    ) -> c_int, else libc::ENOSYS;
    /// `gethostbyname2_r(3)`.
    fn gethostbyname2_r(
        name: *const c_char, family: c_int, entry: *mut hostent, room: *mut c_char, size: usize,
        result: *mut *mut hostent,
        error: *mut c_int,
    ) -> c_int, else libc::ENOSYS;
}
