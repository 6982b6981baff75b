//! What was measured of paths. Values and texts in and out: no I/O, no clock.
//!
//! | room | what it does |
//! |---|---|
//! | [`Record`] (`record`) | one measurement: between whom, when, how, under which conditions, and what came out |
//! | `check` | whether a record can be: what others send is held against bounds and a clock |
//! | [`Sample`] (`sample`) | a record as single values of quantities, each exact or a lower bound |
//! | [`pscheduler`] | the JSON that pScheduler hands to its archivers, read and written |

#![forbid(unsafe_code)]
// Much of what is read here was written by others.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod check;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod pscheduler;
mod record;
mod sample;
mod text_form;

pub use check::{Bounds, RecordFault};
pub use record::{
    Conditions, Distribution, HistogramBin, Interval, Kind, Method, Record, TraceHop, Values,
};
pub use sample::{Bound, Quantity, Sample};

/// Milliseconds since the Unix epoch.
pub type Moment = u64;

#[cfg(test)]
mod tests;
