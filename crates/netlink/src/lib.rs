//! Queries to the Linux kernel over netlink: framing and attributes, and the TCP sockets of this
//! network namespace.

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)] // answers differ between kernels
#![cfg_attr(test, allow(clippy::indexing_slicing))]

mod query;
mod tcp;

pub use query::{
    GENERIC, NetlinkAnswer, NetlinkSocket, ROUTE, SOCK_DIAG, attributes, find, parse_text,
    parse_u32, put,
};
pub use tcp::{TcpSocket, TcpSocketReader};
