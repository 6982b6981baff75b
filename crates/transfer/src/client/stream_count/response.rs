//! How many streams carry a rate under a measured loss: the response functions of Reno (Mathis et
//! al. 1997) and CUBIC (RFC 9438).

use std::time::Duration;

use drs::Limit;
use quantities::{
    Probability, Rate,
    path::{CongestionControl, Hop},
};

use super::View;
use super::window::Seen;

/// Losses from which a rate of loss is taken to be known.
const MIN_LOSSES: u64 = 3;

/// Segments lost without a queue, and those sent meanwhile.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Losses {
    lost: u64,
    segments: u64,
}

impl Losses {
    /// Counts a window in which losses were the limit: in others it is a queue that loses them.
    pub(super) fn add(&mut self, seen: &Seen) {
        if seen.limit == Some(Limit::Loss) {
            self.lost = self.lost.saturating_add(seen.lost);
            self.segments = self.segments.saturating_add(seen.segments);
        }
    }

    /// What one stream carries in the long run, in bytes a second; none where too few were lost to
    /// say.
    pub(super) fn carried_by_one(&self, view: &View) -> Option<f64> {
        if self.lost < MIN_LOSSES || self.segments == 0 {
            return None;
        }
        carried_by_one(self.lost as f64 / self.segments as f64, view)
    }
}

/// What one stream carries in the long run where this part of its segments is lost, 0 to 1, in
/// bytes a second; none before there was a segment.
pub(super) fn carried_by_one(loss: f64, view: &View) -> Option<f64> {
    let hop = Hop {
        loss: Probability::nearest(loss),
        mss: view.mss,
        control: view.congestion.unwrap_or(CongestionControl::Cubic),
        ..Hop::new(view.min_rtt.max(Duration::from_micros(1)), Rate::ZERO)
    };
    (view.mss > 0).then(|| hop.carried_under_loss() / 8.0)
}

/// How many streams that carry `each` come to `rate`, both in the same unit.
pub(super) fn streams_for(rate: f64, each: f64) -> usize {
    if each > 0.0 {
        // Saturates: what is no number becomes 0.
        (rate / each).ceil().min(f64::from(u16::MAX)) as usize
    } else {
        usize::from(u16::MAX)
    }
}
