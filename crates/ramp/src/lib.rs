//! What a program and the on-ramp on its machine say to each other.
//!
//! A program asks over a Unix socket of type `SOCK_SEQPACKET`, one [`Request`] in each packet, and
//! reads one [`Reply`] from each. All numbers are big-endian. A message is its version, its kind,
//! and fields, each a tag (1), a length (2) and a value:
//!
//! ```text
//! 0  version (1)   1  kind (1)   2  fields: tag (1), length (2), value
//! ```
//!
//! Fields whose tag is not known are passed over, so either side may be newer. Nothing here
//! allocates, locks, or does I/O: requests are written and replies are read in the `connect` of
//! programs that know nothing of it, wherever they call it.
//!
//! The order: [`Request::Ask`] is answered with [`Reply::Direct`], [`Reply::Refuse`] or
//! [`Reply::Via`]. After `Via` the program connects its own socket to that listener on loopback,
//! and sends [`Request::Begin`] with the ticket and its socket's address; the answer,
//! [`Reply::Done`], comes when the route stands or has failed. Where [`Reply::Direct`] says so, the
//! program reports with [`Request::Measured`] how long a round trip took once it is connected,
//! which is not answered.
//!
//! A program that says so in its `Ask` may be told with `Direct` for how long the same question has
//! the same answer. The on-ramp says [`Reply::Forget`] on the connection that such an answer went
//! over when its rules change, and the end of that connection says it as well. So before a
//! remembered answer is used, that connection is looked at: nothing to read means that it holds.
//! [`Request::Remembered`] reports how often that was so.

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)] // what is read here comes from another process
#![cfg_attr(test, allow(clippy::indexing_slicing))]

mod fields;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub use fields::{Malformed, MessageBytes};
pub use reply::Reply;
pub use request::{Ask, Request, Wish};

/// The version that this crate speaks.
pub const VERSION: u8 = 1;

/// Longest message, in bytes.
pub const MAX_MESSAGE: usize = 4096;

/// Longest purpose, in bytes, as in an OPEN.
pub const MAX_PURPOSE: usize = 64;

/// Longest name of a destination, in bytes (RFC 1035).
pub const MAX_NAME: usize = 253;

/// Longest route in its text form, in bytes.
pub const MAX_ROUTE: usize = 3072;

/// Longest reason, in bytes; what is longer is cut.
pub const MAX_REASON: usize = 256;

/// Longest part of a status, in bytes.
pub const MAX_STATUS_PART: usize = 3840;

/// Most bytes that a program may put in front of its own, to keep its socket from being writable:
/// [`Request::Begin`].
pub const MAX_FILL: u32 = 16 * 1024 * 1024;

/// Where the on-ramp's socket is below the state directory, if nobody says.
pub const SOCKET_IN_STATE: &str = "onramp/socket";

/// Environment variable with the path of the on-ramp's socket.
pub const SOCKET_VARIABLE: &str = "LONGHAUL_ONRAMP";
