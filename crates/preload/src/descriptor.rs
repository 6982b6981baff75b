//! Descriptors of the program, and of this library, as numbers.

use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd, RawFd};

/// Borrows a descriptor while the caller examines it.
pub fn borrow<'a>(descriptor: RawFd) -> Option<BorrowedFd<'a>> {
    // SAFETY: not negative. If the program closes it meanwhile, the kernel answers EBADF.
    (descriptor >= 0).then(|| unsafe { BorrowedFd::borrow_raw(descriptor) })
}

/// Turns a socket into a descriptor that the table keeps.
pub fn keep(socket: OwnedFd) -> i32 {
    socket.into_raw_fd()
}

/// Closes a descriptor that the table kept.
///
/// # Safety
/// It is the table's, and is removed from there.
pub unsafe fn drop_kept(descriptor: i32) {
    if descriptor >= 0 {
        // SAFETY: the caller's promise. (An `OwnedFd` would be closed by the C library's function,
        // and so by the hook.)
        unsafe { rustix::io::close(descriptor) };
    }
}
