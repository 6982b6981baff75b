//! Guard around the body of every function that C calls.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::Code;

/// Runs `body` for a C caller. An error becomes a number, a panic becomes [`Code::Internal`], and
/// `errno` is preserved.
pub(crate) fn guarded(body: impl FnOnce() -> Result<(), Code>) -> c_int {
    // SAFETY: the C library keeps one errno for each thread, at an address that is valid as long as
    // the thread.
    let errno = unsafe { *libc::__errno_location() };
    let code = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Code::Ok,
        Ok(Err(code)) => code,
        Err(payload) => {
            // Dropping the panic's payload may panic again. In that rare case a leak is better.
            std::mem::forget(payload);
            Code::Internal
        }
    };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    code as c_int
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_number() {
        assert_eq!(
            guarded(|| panic!("thrown on purpose")),
            Code::Internal as c_int
        );
        assert_eq!(
            guarded(|| std::panic::panic_any(7)),
            Code::Internal as c_int
        );
        assert_eq!(guarded(|| Err(Code::NotTcp)), -4);
        assert_eq!(guarded(|| Ok(())), 0);
    }

    #[test]
    fn errno_stays() {
        // SAFETY: this thread's errno.
        unsafe { *libc::__errno_location() = 77 };
        let code = guarded(|| {
            // SAFETY: -1 is not a descriptor, which the kernel reports through errno.
            unsafe { libc::close(-1) };
            Ok(())
        });
        // SAFETY: this thread's errno.
        assert_eq!((code, unsafe { *libc::__errno_location() }), (0, 77));
    }
}
