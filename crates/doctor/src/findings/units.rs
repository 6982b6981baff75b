//! Quantities as findings show them: estimates, so to three digits.

use quantities::{ByteCount, Rate, Time};

/// A rate in bit/s.
pub fn rate(bps: f64) -> String {
    format!("{:.3}", Rate::nearest(bps))
}

/// A size in bytes.
pub fn bytes(bytes: f64) -> String {
    format!("{:.3}", ByteCount::nearest(bytes))
}

/// A span of time in seconds.
pub fn seconds(seconds: f64) -> String {
    format!("{:.3}", Time::from_seconds(seconds))
}
