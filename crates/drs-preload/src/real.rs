//! The functions that the hooks stand in front of: the next ones of their names in the order of loading.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{sockaddr, socklen_t};

/// The next function of a name, looked up once.
pub struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    /// The function after ours with this name.
    pub const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            found: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Its address; NULL when there is none.
    pub fn address(&self) -> *mut c_void {
        let known = self.found.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        // SAFETY: a zero-ended name; RTLD_NEXT is a handle that dlsym knows.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Release);
        found
    }
}

/// Declares a way to the next function of a name, with what happens when there is none.
macro_rules! next {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?, else $missing:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the function of the C library.
        pub unsafe fn $name($($argument: $type),*) $(-> $result)? {
            static NEXT: Next = Next::new(match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            });
            let address = NEXT.address();
            if address.is_null() {
                return $missing;
            }
            // SAFETY: the C library's function of this name has this type. It may unwind: a thread can be cancelled in it.
            let function: unsafe extern "C-unwind" fn($($type),*) $(-> $result)? = unsafe { std::mem::transmute(address) };
            // SAFETY: the caller's promise is the function's.
            unsafe { function($($argument),*) }
        }
    };
}

/// What a C library without the function would give: `ENOSYS`.
fn missing() -> c_int {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

next!(/// `connect(2)`.
    connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int, else missing());
next!(/// `listen(2)`.
    listen(fd: c_int, backlog: c_int) -> c_int, else missing());
next!(/// `accept(2)`.
    accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int, else missing());
next!(/// `accept4(2)`.
    accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int, else missing());
next!(/// `close(2)`.
    close(fd: c_int) -> c_int, else missing());
next!(/// `dup(2)`.
    dup(fd: c_int) -> c_int, else missing());
next!(/// `dup2(2)`.
    dup2(old: c_int, new: c_int) -> c_int, else missing());
next!(/// `dup3(2)`.
    dup3(old: c_int, new: c_int, flags: c_int) -> c_int, else missing());
next!(/// `close_range(2)`.
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, else missing());
next!(/// `closefrom(3)`.
closefrom(first: c_int), else {
    let _ = missing();
});
next!(/// `_exit(2)`: returns only where the C library has none.
_exit(status: c_int), else {
    let _ = missing();
});
