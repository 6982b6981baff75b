//! Computes how many streams carry a rate under a measured loss, by the response functions of Reno
//! (Mathis et al. 1997) and CUBIC (RFC 9438).

use std::time::Duration;

use drs::Limit;
use quantities::{
    Probability, Rate,
    path::{CongestionControl, Hop},
};

use super::View;
use super::window::Seen;

/// Minimum number of losses from which a loss rate is considered known.
const MIN_LOSSES: u64 = 3;

/// Segments lost at random, and those sent in the same windows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Losses {
    lost: u64,
    segments: u64,
}

impl Losses {
    /// Adds a window that losses limited. In other windows, a queue causes the losses.
    pub(super) fn add(&mut self, seen: &Seen) {
        if seen.limit == Some(Limit::Loss) {
            self.lost = self.lost.saturating_add(seen.lost);
            self.segments = self.segments.saturating_add(seen.segments);
        }
    }

    /// Returns the long-term rate of one stream in bytes per second, or `None` if too few segments
    /// were lost.
    pub(super) fn carried_by_one(&self, view: &View) -> Option<f64> {
        if self.lost < MIN_LOSSES || self.segments == 0 {
            return None;
        }
        carried_by_one(self.lost as f64 / self.segments as f64, view)
    }
}

/// Returns the long-term rate of one stream that loses the part `loss` of its segments (0 to 1), in
/// bytes per second. Returns `None` before the first segment.
pub(super) fn carried_by_one(loss: f64, view: &View) -> Option<f64> {
    let hop = Hop {
        loss: Probability::nearest(loss),
        mss: view.mss,
        control: view.congestion.unwrap_or(CongestionControl::Cubic),
        ..Hop::new(view.min_rtt.max(Duration::from_micros(1)), Rate::ZERO)
    };
    (view.mss > 0).then(|| hop.carried_under_loss() / 8.0)
}

/// Returns the number of streams of rate `each` that reach `rate`, both in the same unit.
pub(super) fn streams_for(rate: f64, each: f64) -> usize {
    if each > 0.0 {
        // The cast saturates, and turns NaN into 0.
        (rate / each).ceil().min(f64::from(u16::MAX)) as usize
    } else {
        usize::from(u16::MAX)
    }
}
