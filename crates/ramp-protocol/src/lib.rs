//! Protocol between a program and the on-ramp on its machine.
//!
//! A program sends requests over a Unix socket of type `SOCK_SEQPACKET`, one [`RampRequest`] per
//! packet, and reads one [`RampReply`] per packet. All numbers are big-endian. A message is its
//! version, its kind, and fields, each with a tag (1), a length (2) and a value:
//!
//! ```text
//! 0  version (1)   1  kind (1)   2  fields: tag (1), length (2), value
//! ```
//!
//! Fields with an unknown tag are skipped, so either side may be newer. Nothing here allocates,
//! locks, or does I/O: requests are written and replies are read inside `connect`, wherever a
//! program that is unaware of the on-ramp calls it.
//!
//! The sequence of messages:
//!
//! 1. [`RampRequest::Ask`] is answered with [`RampReply::Direct`], [`RampReply::Refuse`] or
//!    [`RampReply::Via`], and with [`RampReply::DirectFrom`] to programs that support it.
//! 2. After `Via`, the program connects its own socket to that listener on loopback. It sends
//!    [`RampRequest::Begin`] with the ticket and its socket's address. The answer,
//!    [`RampReply::Done`], follows once the route is established or has failed.
//! 3. If [`RampReply::Direct`] requests it, the program reports the round-trip time with
//!    [`RampRequest::Measured`] once it is connected. That is not answered.
//!
//! A program that supports it, as stated in its `RouteQuery`, may receive a `Direct` with a time
//! for which the same question has the same answer. When its rules change, the on-ramp sends
//! [`RampReply::Forget`] on the connection that carried the answer. The end of that connection
//! means the same. So a program checks that connection before it uses a remembered answer: nothing
//! to read means that the answer is still valid. [`RampRequest::Remembered`] reports how often
//! such answers were used.

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)] // the input comes from another process
#![cfg_attr(test, allow(clippy::indexing_slicing))]

mod fields;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub use fields::{Malformed, MessageBytes};
pub use reply::RampReply;
pub use request::{ConnectionWish, RampRequest, RouteQuery};

/// Protocol version that this crate implements.
pub const VERSION: u8 = 1;

/// Maximum size of a message, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 4096;

/// Maximum length of a purpose, in bytes, as in an OPEN.
pub const MAX_PURPOSE_BYTES: usize = 64;

/// Maximum length of a destination's name, in bytes (RFC 1035).
pub const MAX_NAME_BYTES: usize = 253;

/// Maximum length of a route in its text form, in bytes.
pub const MAX_ROUTE_BYTES: usize = 3072;

/// Maximum length of a reason, in bytes; longer ones are truncated.
pub const MAX_REASON_BYTES: usize = 256;

/// Maximum length of one part of a status, in bytes.
pub const MAX_STATUS_PART_BYTES: usize = 3840;

/// Maximum number of fill bytes that a program may send before its own data, to keep its socket
/// from being writable: see [`RampRequest::Begin`].
pub const MAX_FILL_BYTES: u32 = 16 * 1024 * 1024;

/// Default path of the on-ramp's socket, relative to the state directory.
pub const SOCKET_IN_STATE: &str = "onramp/socket";

/// Environment variable with the path of the on-ramp's socket.
pub const SOCKET_VARIABLE: &str = "LONGHAUL_ONRAMP";
