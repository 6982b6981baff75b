//! `enum drs_error`, its messages, and the library's version.

use std::ffi::{CStr, c_char, c_int};

use rustix::io::Errno;

/// Result of a call, with the numbers of `enum drs_error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum ErrorCode {
    /// Success.
    Ok = 0,
    /// A required pointer is NULL.
    Null = -1,
    /// A side, mode, size or number is invalid.
    Invalid = -2,
    /// The descriptor is not open.
    BadDescriptor = -3,
    /// The descriptor is not a TCP socket.
    NotTcp = -4,
    /// The kernel refused, or is too old.
    System = -5,
    /// A defect of this library.
    Internal = -6,
}

impl ErrorCode {
    /// Returns the code for the kernel's refusal to report on a socket.
    pub(crate) fn from_refusal(error: &std::io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::BADF) => Self::BadDescriptor,
            Some(Errno::NOTSOCK | Errno::OPNOTSUPP | Errno::NOPROTOOPT) => Self::NotTcp,
            _ => Self::System,
        }
    }
}

/// `drs_strerror`: one line for an error code.
#[unsafe(no_mangle)]
pub extern "C" fn drs_strerror(error: c_int) -> *const c_char {
    sentence(error).as_ptr()
}

fn sentence(error: c_int) -> &'static CStr {
    const OK: c_int = ErrorCode::Ok as c_int;
    const NULL: c_int = ErrorCode::Null as c_int;
    const INVALID: c_int = ErrorCode::Invalid as c_int;
    const BAD_DESCRIPTOR: c_int = ErrorCode::BadDescriptor as c_int;
    const NOT_TCP: c_int = ErrorCode::NotTcp as c_int;
    const SYSTEM: c_int = ErrorCode::System as c_int;
    const INTERNAL: c_int = ErrorCode::Internal as c_int;
    match error {
        OK => c"no error",
        NULL => c"a pointer is NULL: pass the flow, budget or output that the call needs",
        INVALID => {
            c"an argument is out of range: take side and mode from drs.h and set the \
            report's size"
        }
        BAD_DESCRIPTOR => c"the descriptor is not open: free the flow before closing the socket",
        NOT_TCP => {
            c"the descriptor is not a TCP connection: only connections can be measured, not \
                listening sockets"
        }
        SYSTEM => c"the kernel does not report the socket's state: Linux 5.4 or later is needed",
        INTERNAL => {
            c"a defect in libdrs: the socket is as it was; free the flow and report what \
            was printed"
        }
        _ => c"unknown error: this libdrs is older than the program",
    }
}

/// `drs_version`: the library's version.
#[unsafe(no_mangle)]
pub extern "C" fn drs_version() -> *const c_char {
    const VERSION: &[u8] = concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes();
    CStr::from_bytes_until_nul(VERSION).unwrap_or(c"").as_ptr()
}
