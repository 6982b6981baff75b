//! Detection of a running copy that should switch to the direct route.
//!
//! A route that was chosen from an old, wrong or hostile table may carry nothing. The guard
//! compares what has arrived with what the direct route would have carried by a slightly earlier
//! time. It gives up at the first check at which the copy is behind:
//!
//! - Direct carries `b` bytes in `D(b)` seconds, which grows by at least a fixed time per byte, and
//!   all `B` bytes in `D`.
//! - The copy stays as long as it has, at each check at time `t`, what direct would have at
//!   `t - slack`.
//! - If it leaves at a check at `t`, then at the previous check, at most `interval` earlier, it had
//!   what direct has at `t - interval - slack`. For the rest, direct takes at most `restart`, to
//!   start, plus `D - (t - interval - slack)`. The total is `D + interval + slack + restart`.
//! - If it never leaves, it finishes no later than `D + interval + slack`.
//!
//! So with `slack + interval + restart <= allowance * D`, no copy takes more than
//! `(1 + allowance) D`. If a restart alone costs more than that, there is no guard.

use serde::{Deserialize, Serialize};

use super::expected::ExpectedTime;

/// Maximum cost of a wrong route, relative to the direct route's time.
pub const ALLOWANCE: f64 = 0.03;

/// A client's own knowledge of the direct route, not from a table.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DirectEstimate {
    /// Time of the whole transfer, in seconds.
    pub whole: f64,
    /// Share of that before data flows at the full rate: connection setup and slow start, in
    /// seconds.
    pub restart: f64,
}

/// Guard of one copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RouteGuard {
    direct: DirectEstimate,
    slack: f64,
    bytes: f64,
}

/// Result of a check of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardVerdict {
    /// Stay on the route.
    Stay,
    /// Switch to the direct route for the rest.
    Leave,
}

impl RouteGuard {
    /// Creates a guard for a transfer that is checked at least every `interval` seconds. Returns
    /// `None` if the allowance cannot be kept.
    #[must_use]
    pub fn new(direct: &DirectEstimate, interval: f64, bytes: u64) -> Option<Self> {
        let slack = ALLOWANCE * direct.whole - direct.restart - interval;
        let sound =
            direct.whole.is_finite() && direct.restart >= 0.0 && direct.restart < direct.whole;
        (sound && slack >= 0.0).then_some(Self {
            direct: *direct,
            slack,
            bytes: bytes as f64,
        })
    }

    /// Returns the bytes that direct would have carried after `at` seconds, counting its whole slow
    /// phase as waiting.
    #[must_use]
    pub fn direct_bytes(&self, at: f64) -> f64 {
        let moving = self.direct.whole - self.direct.restart;
        self.bytes * ((at - self.direct.restart) / moving).clamp(0.0, 1.0)
    }

    /// Checks a copy of which `arrived` bytes have arrived, `at` seconds after its start.
    #[must_use]
    pub fn check(&self, at: f64, arrived: u64) -> GuardVerdict {
        if (arrived as f64) < self.direct_bytes(at - self.slack) {
            GuardVerdict::Leave
        } else {
            GuardVerdict::Stay
        }
    }
}

/// Slowdown relative to p90 from which on the route of a copy is chosen again.
pub const REROUTE_FACTOR: f64 = 2.0;
/// Share of p90 that must pass before the first check, after the round trips besides the data.
const FIRST_CHECK_SHARE: f64 = 0.1;

/// Returns the factor by which a copy is slower than its p90, if that is at least
/// [`REROUTE_FACTOR`] and enough time has passed to tell. The copy may be on any route, even
/// direct.
///
/// The caller then repeats the choice for the remaining work, with that route slowed by the factor.
/// So a wrong forecast is discovered during the copy.
#[must_use]
pub fn slowdown(expected: &ExpectedTime, bytes: u64, at: f64, arrived: u64) -> Option<f64> {
    let moving = expected.time.p90 - expected.around;
    let moved = at - expected.around;
    if moving <= 0.0 || moved < FIRST_CHECK_SHARE * moving {
        return None;
    }
    let should = bytes as f64 * (moved / moving).min(1.0);
    let late = (moved / moving).max(1.0);
    let factor = should * late / (arrived as f64).max(1.0);
    (factor >= REROUTE_FACTOR).then_some(factor)
}

#[cfg(test)]
mod tests;
