//! The JSON that pScheduler, the measurement system of perfSONAR, hands to its archivers. Its HTTP
//! archiver sends one object per run, with PUT or POST.
//!
//! | test | read as | content |
//! |---|---|---|
//! | `throughput` | [`MeasurementKind::Throughput`] | rate, intervals, retransmits; loss and jitter of UDP |
//! | `rtt` | [`MeasurementKind::Rtt`] | minimum, mean, maximum and quantiles of round trips; loss |
//! | `latency`, `latencybg` | [`MeasurementKind::Latency`] | delays of `histogram-latency`; loss |
//! | the same without a histogram | [`MeasurementKind::Loss`] | loss |
//! | `trace` | [`MeasurementKind::Trace`] | the first path |
//!
//! Records are written in the same way. Single round trips of `rtt` are not written, and `latency`
//! needs a histogram or a loss.
//!
//! `histogram-latency` has delays divided by the bucket width of the test's specification, 1 ms by
//! default. Durations are ISO 8601, without years and months. The round trips in `throughput` are
//! not read, because tools do not agree on their unit.
//!
//! Information for which pScheduler has no field (method, limit, reporter) is written to
//! `reference.longhaul`. Only the limit is read from there: the reporter is identified by the
//! sender, not by the content.

mod read;
mod time;
mod write;

pub use read::{ReadError, read};
pub use time::{read_duration, write_duration};
pub use write::{WriteError, write};

/// Default width of histogram bins in pScheduler, in seconds.
const DEFAULT_BUCKET_WIDTH: f64 = 0.001;

#[cfg(doc)]
use crate::record::MeasurementKind;
