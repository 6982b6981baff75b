//! Tells a standing queue from noise in the round-trip times.
//!
//! The least single round trip that the kernel knows is the wrong floor on a path whose delay varies: smoothed round trips lie above
//! it for good, by several deviations. So smoothed ones are held against the least smoothed one, and by more than they
//! scatter: the kernel's mean deviation says by how much single round trips do, which a queue of constant length does not change.

use std::time::Duration;

use super::FitSample;

/// Before so many segments have been acknowledged the smoothed round trip is still that of the handshake.
const MIN_SEGMENTS_FOR_SMOOTHED_RTT: u64 = 64;
/// No shorter queue counts, in time and as a part of the floor.
const MIN_QUEUE: Duration = Duration::from_millis(2);
const MIN_QUEUE_PER_RTT: u32 = 64;
/// How many mean deviations above the floor the least smoothed round trip of a whole round must be to show a queue ...
const DEVIATIONS_OF_ROUND: u32 = 2;
/// ... and a single smoothed round trip, of which the highest of many must not.
const DEVIATIONS_OF_SAMPLE: u32 = 4;

/// The round trip of a flow without a queue.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RttFloor {
    /// The least smoothed round trip.
    least: Option<Duration>,
}

impl RttFloor {
    pub(super) fn observe(&mut self, sample: &FitSample) {
        if sample.bytes_acked >= MIN_SEGMENTS_FOR_SMOOTHED_RTT * sample.mss {
            // The kernel forgets its least round trip after minutes; when that rises, the path has become longer.
            let least = self.least.map_or(sample.rtt, |least| least.min(sample.rtt));
            self.least = Some(least.max(sample.min_rtt));
        }
    }

    /// Whether this smoothed round trip shows a queue.
    pub(super) fn shows_queue(&self, sample: &FitSample) -> bool {
        self.is_exceeded(sample.rtt, sample, DEVIATIONS_OF_SAMPLE)
    }

    /// Whether a round whose least smoothed round trip this was had a queue all through.
    pub(super) fn shows_standing_queue(&self, least_of_round: Duration, sample: &FitSample) -> bool {
        self.is_exceeded(least_of_round, sample, DEVIATIONS_OF_ROUND)
    }

    fn is_exceeded(&self, rtt: Duration, sample: &FitSample, deviations: u32) -> bool {
        self.least.is_some_and(|least| {
            let noise = (least / MIN_QUEUE_PER_RTT)
                .max(MIN_QUEUE)
                .max(sample.rtt_deviation.saturating_mul(deviations));
            rtt > least.saturating_add(noise)
        })
    }
}
