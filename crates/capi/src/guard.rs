//! What calls from C pass through.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::system::{Errno, fail};

/// Runs `body` for a C caller: its error as -1 and `errno`, a panic as `EPROTO`.
pub fn guarded(body: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    quietly(Err(libc::EPROTO), body).unwrap_or_else(fail)
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`.
const CANCEL_DISABLE: c_int = 1;

/// Runs `body`; gives `otherwise` if it panics. A thread that is to be cancelled meanwhile is
/// cancelled later: what that unwinds must not pass through here.
pub fn quietly<R>(otherwise: R, body: impl FnOnce() -> R) -> R {
    let mut before = CANCEL_DISABLE;
    // SAFETY: a place for the state that was.
    unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
    let result = catch_unwind(AssertUnwindSafe(body));
    // SAFETY: the state that was.
    unsafe { pthread_setcancelstate(before, std::ptr::null_mut()) };
    match result {
        Ok(result) => result,
        Err(payload) => {
            // Dropping what was thrown may throw again; leaking it in that rare case is the lesser
            // evil.
            std::mem::forget(payload);
            otherwise
        }
    }
}

/// A string of C; `None` for NULL.
///
/// # Safety
/// `text` is NULL, or zero-ended and not changed while the result is used.
pub unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: not NULL; the caller says that it is zero-ended.
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
