//! Guards around the body of every function that C calls.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::system::{Errno, fail};

/// Runs `body` for a C caller. An error becomes -1 and `errno`, a panic becomes `EPROTO`.
pub fn guarded(body: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    quietly(Err(libc::EPROTO), body).unwrap_or_else(fail)
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`.
const CANCEL_DISABLE: c_int = 1;

/// Runs `body`, and returns `otherwise` if it panics. Cancellation of the thread is delayed
/// meanwhile, because its unwinding must not pass through here.
pub fn quietly<R>(otherwise: R, body: impl FnOnce() -> R) -> R {
    let mut before = CANCEL_DISABLE;
    // SAFETY: the pointer is valid for the previous state.
    unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
    let result = catch_unwind(AssertUnwindSafe(body));
    // SAFETY: restores the previous state.
    unsafe { pthread_setcancelstate(before, std::ptr::null_mut()) };
    match result {
        Ok(result) => result,
        Err(payload) => {
            // Dropping the panic's payload may panic again. In that rare case a leak is better.
            std::mem::forget(payload);
            otherwise
        }
    }
}

/// Returns a C string, or `None` for NULL.
///
/// # Safety
/// `text` is NULL, or NUL-terminated and not changed while the result is used.
pub unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: not NULL; the caller says that it is NUL-terminated.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::errno;

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(guarded(|| panic!("thrown on purpose")), -1);
        assert_eq!(errno(), libc::EPROTO);
        assert_eq!(guarded(|| Err(libc::EBADF)), -1);
        assert_eq!(errno(), libc::EBADF);
        assert_eq!(guarded(|| Ok(3)), 3);
    }
}
