//! Measures TCP flows, finds what limits them, and right-sizes them if that helps.
//!
//! [`TcpInfo::read`] takes one sample of `TCP_INFO` from a connected socket. Kernels differ in what
//! they report, so fields of later versions are `Option`s. A [`Sample`] adds the socket's queues
//! and buffers. A [`Verdict`] names the limit of the flow, with its [`Evidence`] in numbers.
//! [`Sampler`] takes samples, [`Estimator`] derives verdicts from them. [`Flow`] binds both to a
//! socket, and acts on it as its [`Mode`] allows. [`FlowWatch`] does so from any thread, and keeps
//! what the samples show.
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

mod action;
mod auto;
mod budget;
mod classic;
mod estimator;
mod flow;
mod flow_watch;
mod host;
mod mode;
#[cfg(test)]
mod model;
mod options;
mod orders;
mod paper_plus;
mod rate_fit;
mod rate_fitter;
mod receiver_rate;
mod sample;
mod sampler;
mod slow_start;
mod tally;
mod tcp_info;
mod trace;
mod verdict;

pub use action::{Action, ActionOutcome, Advice, Applied, Cause};
pub use budget::{Budget, BudgetClaim, MIN_SHARE_BYTES};
pub use estimator::{Estimator, Side};
pub use flow::{Flow, FlowError, FlowStep, START_WINDOW_BYTES};
pub use flow_watch::{
    FlowObservations, FlowWatch, PacketCounts, TransportSample, WatchNews, WatchSettings,
};
pub use host::HostLimits;
pub use mode::{Mode, UnknownMode};
pub use options::{BufferLocks, apply};
pub use rate_fit::{FitSample, FitState, PacingLimit, RateFit, Siblings};
pub use rate_fitter::{FlowGuard, RateFitError, RateFitter};
pub use sample::{Bbr, CongestionName, CongestionState, Sample, SocketBuffers, SocketQueues};
pub use sampler::{
    SAMPLE_PERIOD, SampleError, Sampler, open_receive_window, set_max_pacing_rate,
    set_receive_low_water_mark,
};
pub use tally::LimitTally;
pub use tcp_info::{TcpInfo, TcpInfoError, TcpState};
pub use trace::{TraceWriter, read_trace};
pub use verdict::{Evidence, Limit, UnknownLimit, Verdict};
