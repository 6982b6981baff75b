//! Formats quantities for findings: estimates, so to three digits.

use quantities::{ByteCount, Rate, Time};

/// Formats a rate in bit/s.
pub fn rate(bps: f64) -> String {
    format!("{:.3}", Rate::nearest(bps))
}

/// Formats a size in bytes.
pub fn bytes(bytes: f64) -> String {
    format!("{:.3}", ByteCount::nearest(bytes))
}

/// Formats a time in seconds.
pub fn seconds(seconds: f64) -> String {
    format!("{:.3}", Time::from_seconds(seconds))
}
