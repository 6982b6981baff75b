//! The JSON that pScheduler hands to its archivers: perfSONAR's way of reporting measurements. Its
//! HTTP archiver sends one object for each run, with PUT or POST.
//!
//! | test | read as | written from |
//! |---|---|---|
//! | `throughput` | [`Kind::Throughput`]: the summary's rate, its intervals, retransmits; loss and jitter of UDP | the same |
//! | `rtt` | [`Kind::Rtt`]: the least, mean, greatest and quantiles of round trips; loss | the same, without single round trips |
//! | `latency`, `latencybg` | [`Kind::Latency`]: delays of `histogram-latency`; loss. Without a histogram, [`Kind::Loss`] | a record with a histogram, or with loss alone |
//! | `trace` | [`Kind::Trace`]: the first path | the same |
//!
//! `histogram-latency` has delays divided by the bucket width of the test's specification, 1 ms
//! unless it says otherwise. Durations are ISO 8601, without years and months. The round trips that
//! `throughput` reports have no unit that all tools keep to: they are not read.
//!
//! What a record says and pScheduler has no place for (method, limit, reporter) stands in
//! `reference.longhaul` of what is written. Of that only the limit is read again: who reports is
//! known by who sends, not by what is sent.

mod read;
mod time;
mod write;

pub use read::{ReadError, read};
pub use time::{read_duration, write_duration};
pub use write::{WriteError, write};

/// Seconds: pScheduler's width of a histogram's bins where a specification names none.
const DEFAULT_BUCKET_WIDTH: f64 = 0.001;

#[cfg(doc)]
use crate::record::Kind;
