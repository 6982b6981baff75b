//! Measurements of paths. Values and texts in and out: no I/O, no clock.
//!
//! | module | contents |
//! |---|---|
//! | [`MeasurementRecord`] (`record`) | one measurement: ends, time, method, conditions and values |
//! | `check` | validation of others' records against bounds and a clock |
//! | [`MeasurementSample`] (`sample`) | a record as single values of quantities, each exact or a lower bound |
//! | [`pscheduler`] | the JSON that pScheduler hands to its archivers, read and written |

#![forbid(unsafe_code)]
// Most of the input here comes from others.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod check;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod pscheduler;
mod record;
mod sample;
mod text_form;

pub use check::{RecordBounds, RecordFault};
pub use record::{
    Conditions, Distribution, HistogramBin, MeasurementKind, MeasurementMethod, MeasurementRecord,
    RateInterval, TraceHop, Values,
};
pub use sample::{MeasuredQuantity, MeasurementSample, ValueBound};

/// Milliseconds since the Unix epoch.
pub type EpochMs = u64;

#[cfg(test)]
mod tests;
