//! The C library that `include/longhaul.h` declares.
//!
//! It is a thin client of the on-ramp on the same machine. The on-ramp alone knows routes, sessions
//! and keys; the library has neither TLS nor threads. The header documents the functions. A socket
//! remains an ordinary TCP socket of the program, so most functions make the system call and
//! consult what is known of the socket ([`table`]).

#![allow(unsafe_code)] // pointers and descriptors come from C; each use says why it holds

mod accept;
mod address;
mod connect;
mod data;
mod environment;
mod fill;
mod guard;
mod listen;
mod names;
mod options;
mod query;
mod ramp;
mod resolve;
mod settle;
mod socket;
mod start;
mod system;
mod table;
mod wish;

pub use accept::{lsl_accept, lsl_accept4};
pub use address::{LslHop, SockaddrLsl, lsl_set_route};
pub use connect::lsl_connect;
pub use data::{
    lsl_read, lsl_readv, lsl_recv, lsl_recvfrom, lsl_recvmsg, lsl_send, lsl_sendfile, lsl_sendmsg,
    lsl_sendto, lsl_write, lsl_writev,
};
pub use listen::lsl_listen;
pub use options::{lsl_getsockopt, lsl_setsockopt};
pub use query::{lsl_getpeername, lsl_getsockname};
pub use resolve::{lsl_freeaddrinfo, lsl_getaddrinfo, lsl_gethostbyname};
pub use socket::{lsl_bind, lsl_close, lsl_shutdown, lsl_socket, lsl_version};
