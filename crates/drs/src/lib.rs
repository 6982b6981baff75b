//! Measures TCP flows, says what limits them, and right-sizes them where that helps.
//!
//! [`TcpInfo::read`] takes one sample of `TCP_INFO` from a connected socket. Kernels differ in how much they report, so
//! what came with later versions is an `Option`. A [`Sample`] adds the socket's queues and buffers; a [`Verdict`] names what
//! limits the flow, with its [`Evidence`] in numbers.

mod sample;
mod tally;
mod tcp_info;
mod verdict;

pub use sample::{Bbr, Buffers, Congestion, CongestionName, Queues, Sample};
pub use tally::Tally;
pub use tcp_info::{TcpInfo, TcpInfoError, TcpState};
pub use verdict::{Evidence, Limit, Verdict};
