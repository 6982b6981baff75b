//! When a copy under way leaves a route for the direct one.
//!
//! A route that was chosen from an old, wrong or hostile table may carry nothing. The guard
//! compares what has arrived with what the direct route would have brought by a little earlier, and
//! gives up at the first look at which it is behind:
//!
//! - Direct brings `b` bytes in `D(b)` seconds, which grows by at least a fixed time for each byte,
//!   and everything (`B` bytes) in `D`.
//! - The copy stays as long as it has, at each look at time `t`, what direct would have at
//!   `t - slack`.
//! - If it leaves at a look at `t`, it had at the look before, at most `interval` earlier, what
//!   direct has at `t - interval - slack`. What is left takes direct no more than `restart`, for
//!   starting, and `D - (t - interval - slack)`. In all: `D + interval + slack + restart`.
//! - If it never leaves, it is done no later than `D + interval + slack`.
//!
//! So with `slack + interval + restart <= allowance * D` no copy takes more than
//! `(1 + allowance) D`. Where a restart alone costs more than that, there is no guard.

use serde::{Deserialize, Serialize};

use super::expected::Expected;

/// The part of the direct route's time that a wrong route may cost.
pub const ALLOWANCE: f64 = 0.03;

/// What a client knows of the direct route by itself, not from a table.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DirectKnown {
    /// What the whole transfer would take, in seconds.
    pub whole: f64,
    /// Of that, what passes before data flows at its full rate: set-up and slow start, in seconds.
    pub restart: f64,
}

/// Watches one copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guard {
    direct: DirectKnown,
    slack: f64,
    bytes: f64,
}

/// What a copy is to do after a look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Stay.
    Stay,
    /// Go direct with what is left.
    Leave,
}

impl Guard {
    /// For a transfer that is looked at at least every `interval` seconds; `None` where the
    /// allowance cannot be kept that way.
    #[must_use]
    pub fn new(direct: &DirectKnown, interval: f64, bytes: u64) -> Option<Self> {
        let slack = ALLOWANCE * direct.whole - direct.restart - interval;
        let sound =
            direct.whole.is_finite() && direct.restart >= 0.0 && direct.restart < direct.whole;
        (sound && slack >= 0.0).then_some(Self {
            direct: *direct,
            slack,
            bytes: bytes as f64,
        })
    }

    /// What direct would have brought after so many seconds, taking all that it is slower at first
    /// to be waiting.
    #[must_use]
    pub fn direct_bytes(&self, at: f64) -> f64 {
        let moving = self.direct.whole - self.direct.restart;
        self.bytes * ((at - self.direct.restart) / moving).clamp(0.0, 1.0)
    }

    /// Looks at a copy that has brought so many bytes, so many seconds after its start.
    #[must_use]
    pub fn look(&self, at: f64, arrived: u64) -> Verdict {
        if (arrived as f64) < self.direct_bytes(at - self.slack) {
            Verdict::Leave
        } else {
            Verdict::Stay
        }
    }
}

/// How much slower than its p90 a copy is before its route is chosen anew.
pub const REROUTE_FACTOR: f64 = 2.0;
/// The part of its p90 that passes first, behind the round trips around the data.
const FIRST_LOOK: f64 = 0.1;

/// By what factor a copy, on whatever route, direct too, is slower than its p90, if that is much
/// and enough of it has passed to say so: then the choice is made anew for the work that is left,
/// with that route slowed by that factor. So a forecast that is wrong is found out in the middle of
/// a copy.
#[must_use]
pub fn behind(expected: &Expected, bytes: u64, at: f64, arrived: u64) -> Option<f64> {
    let moving = expected.time.p90 - expected.around;
    let moved = at - expected.around;
    if moving <= 0.0 || moved < FIRST_LOOK * moving {
        return None;
    }
    let should = bytes as f64 * (moved / moving).min(1.0);
    let late = (moved / moving).max(1.0);
    let factor = should * late / (arrived as f64).max(1.0);
    (factor >= REROUTE_FACTOR).then_some(factor)
}

#[cfg(test)]
mod tests;
