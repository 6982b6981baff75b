//! Measures TCP flows: what the kernel knows of a connection, read safely.
//!
//! [`TcpInfo::read`] takes one sample of `TCP_INFO` from a connected socket. Kernels differ in how much they report, so
//! what came with later versions is an `Option`.

mod tcp_info;

pub use tcp_info::{TcpInfo, TcpInfoError, TcpState};
