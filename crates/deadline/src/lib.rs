//! Copies with a deadline: decides if best effort is enough, and what to reserve if it is not.
//! Events in, actions out, without I/O, clock or locks, so that all of it is tested in virtual
//! time.
//!
//! | module | purpose |
//! |---|---|
//! | [`estimate`] | best-effort rate: the forecast, and the copy's measurements |
//! | [`promise`] | promised paths and rates over time |
//! | [`planner`] | decisions: nothing, reserve, change, return, report |
//!
//! Times are milliseconds since the Unix epoch, rates bit/s, volumes bytes of file content.

#![forbid(unsafe_code)]

pub mod estimate;
pub mod planner;
pub mod promise;

pub use estimate::{Measured, Rates};
pub use planner::{Account, Action, Ask, Event, Look, Mode, Outlook, Planner, Refusal, Why};
pub use promise::{PathId, Piece, Promise};

/// Point in time, in milliseconds since the Unix epoch.
pub type Moment = u64;

/// Milliseconds in a second.
pub(crate) const SECOND_MS: f64 = 1000.0;
/// Bits in a byte.
pub(crate) const BYTE_BITS: f64 = 8.0;

/// Returns the bytes that a rate carries in a duration.
pub(crate) fn carried(bps: f64, ms: Moment) -> f64 {
    bps * (ms as f64 / SECOND_MS) / BYTE_BITS
}

/// Returns the duration of a transfer at a rate, in milliseconds. `None` if it never ends.
pub(crate) fn time_of(bytes: f64, bps: f64) -> Option<Moment> {
    let ms = bytes * BYTE_BITS / bps * SECOND_MS;
    // Below three hundred million years, so that it can be added to a time.
    (ms.is_finite() && ms < 1e19).then(|| ms.max(0.0) as Moment)
}
