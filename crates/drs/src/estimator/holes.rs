//! Distinguishes losses from reordering at the receiver, by the amount that arrives while a segment
//! is missing.
//!
//! A lost segment is retransmitted and arrives one round trip after it was missed at the earliest.
//! Everything that arrives until then is out of order: a round trip's worth of segments. An
//! overtaken segment arrives sooner, and fewer segments arrive before it. If a round trip's
//! segments come in one burst, as in slow start, they may all arrive before it, but then it comes
//! before the next sample.

use std::time::Duration;

use crate::Sample;

/// Minimum part of the segments of a round trip that is out of order if a segment was lost.
const MIN_PART_OF_ROUND: f64 = 0.75;
/// Minimum payload, in segments, that arrived between two samples out of order while a segment is
/// missing. It is not one, because the last segment of a burst may be short.
const MIN_SEGMENTS_BEHIND: u64 = 2;

/// Recently arrived segments.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Holes {
    /// Arrivals since the last round trip ended. Those of that round trip are in `before`: a hole
    /// may begin in one and be filled in the next.
    now: Arrivals,
    before: Arrivals,
}

#[derive(Debug, Clone, Copy, Default)]
struct Arrivals {
    time: Duration,
    segments: u32,
    out_of_order: u32,
    /// If true, a sample showed a missing segment.
    open: bool,
}

impl Holes {
    /// Takes the arrivals between two samples. Returns true if they show that segments were lost.
    /// `rtt` is the round-trip time.
    pub(super) fn show_loss(&mut self, before: &Sample, now: &Sample, rtt: Duration) -> bool {
        let grown = |counter: fn(&Sample) -> Option<u32>| {
            Some(counter(now)?.wrapping_sub(counter(before)?))
        };
        let Some(out_of_order) = grown(|sample| sample.info.out_of_order) else {
            return false;
        };
        let Some(segments) = grown(|sample| sample.info.data_segments_received) else {
            // A trace recorded without the number of segments cannot distinguish the two, and
            // losses are the common case.
            return out_of_order > 0;
        };
        if self.now.time >= rtt {
            self.before = std::mem::take(&mut self.now);
        }
        self.now.time = self
            .now
            .time
            .saturating_add(now.at.saturating_sub(before.at));
        self.now.segments = self.now.segments.saturating_add(segments);
        self.now.out_of_order = self.now.out_of_order.saturating_add(out_of_order);
        let bytes = |sample: &Sample| sample.info.bytes_received.unwrap_or(0);
        let in_order = bytes(now).saturating_sub(bytes(before));
        let arrived = u64::from(segments) * u64::from(now.info.send_mss);
        self.now.open |=
            arrived >= in_order.saturating_add(MIN_SEGMENTS_BEHIND * u64::from(now.info.send_mss));
        let time = self
            .now
            .time
            .saturating_add(self.before.time)
            .as_secs_f64()
            .max(1e-6);
        let recent = f64::from(self.now.segments) + f64::from(self.before.segments);
        let of_round = recent * (rtt.as_secs_f64() / time).min(1.0);
        let behind = f64::from(self.now.out_of_order) + f64::from(self.before.out_of_order);
        let open = self.now.open || self.before.open;
        open && behind > 0.0 && behind >= MIN_PART_OF_ROUND * of_round
    }
}
