//! Copies that are to be over by a moment: whether best effort will do, and what to reserve where
//! it will not. Events in, actions out: no I/O, no clock and no lock, so that all of it is tested
//! in virtual time.
//!
//! | room | what it does |
//! |---|---|
//! | [`estimate`] | what best effort carries: the forecast, and what the copy has measured since |
//! | [`promise`] | what is promised: paths and their rates, for stretches of time |
//! | [`planner`] | the decisions: nothing, reserve, change, return, report |
//!
//! Moments are milliseconds since the Unix epoch, rates bit/s, volumes bytes of file content.

#![forbid(unsafe_code)]

pub mod estimate;
pub mod planner;
pub mod promise;

pub use estimate::{Measured, Rates};
pub use planner::{Account, Action, Ask, Event, Look, Mode, Outlook, Planner, Refusal, Why};
pub use promise::{PathId, Piece, Promise};

/// A moment, in milliseconds since the Unix epoch.
pub type Moment = u64;

/// Milliseconds of a second.
pub(crate) const SECOND_MS: f64 = 1000.0;
/// Bits of a byte.
pub(crate) const BYTE_BITS: f64 = 8.0;

/// Bytes that a rate carries in a time.
pub(crate) fn carried(bps: f64, ms: Moment) -> f64 {
    bps * (ms as f64 / SECOND_MS) / BYTE_BITS
}

/// How long so many bytes take at a rate, in milliseconds; none where it never ends.
pub(crate) fn time_of(bytes: f64, bps: f64) -> Option<Moment> {
    let ms = bytes * BYTE_BITS / bps * SECOND_MS;
    // Within three hundred million years, so that it can be added to a moment.
    (ms.is_finite() && ms < 1e19).then(|| ms.max(0.0) as Moment)
}
