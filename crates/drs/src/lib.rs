//! Measures TCP flows, says what limits them, and right-sizes them where that helps.
//!
//! [`TcpInfo::read`] takes one sample of `TCP_INFO` from a connected socket. Kernels differ in how much they report, so
//! what came with later versions is an `Option`. A [`Sample`] adds the socket's queues and buffers; a [`Verdict`] names what
//! limits the flow, with its [`Evidence`] in numbers. [`Sampler`] takes samples, [`Estimator`] makes verdicts of them.
//!
//! ```no_run
//! # fn main() -> Result<(), drs::SampleError> {
//! # let socket = std::net::TcpStream::connect("store.example:7511").unwrap();
//! use drs::{Estimator, SAMPLE_PERIOD, Sampler, Side};
//!
//! let (sampler, mut estimator) = (Sampler::new(), Estimator::new(Side::Sending));
//! let start = std::time::Instant::now();
//! loop {
//!     if let Some(verdict) = estimator.observe(&sampler.sample(&socket, start.elapsed())?) {
//!         println!("{} {:?}", verdict.limit, verdict.evidence);
//!     }
//!     std::thread::sleep(SAMPLE_PERIOD);
//! }
//! # }
//! ```

mod estimator;
mod kernel;
mod sample;
mod sampler;
mod tally;
mod tcp_info;
mod verdict;

pub use estimator::{Estimator, Side};
pub use sample::{Bbr, Buffers, Congestion, CongestionName, Queues, Sample};
pub use sampler::{SAMPLE_PERIOD, SampleError, Sampler, set_max_pacing_rate};
pub use tally::Tally;
pub use tcp_info::{TcpInfo, TcpInfoError, TcpState};
pub use verdict::{Evidence, Limit, Verdict};
