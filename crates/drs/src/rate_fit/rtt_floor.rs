//! Tells a standing queue from noise in the round-trip times.
//!
//! The least single round trip that the kernel knows is the wrong floor on a path whose delay
//! varies: smoothed round trips lie above it for good, by several deviations. So smoothed ones are
//! held against the least smoothed one, and by more than they scatter. Two things show by how much
//! they do, and a queue of constant length changes neither: the kernel's mean deviation, of round
//! trips that have little to do with each other, and the deviation of smoothed ones within a round,
//! where the delay varies so slowly that the smoothed ones go with it. Where they scatter by much,
//! several round trips are looked at together.

use std::time::Duration;

use super::{FitSample, round::Round};

/// Before so many segments have been acknowledged the smoothed round trip is still that of the
/// handshake.
const MIN_SEGMENTS_FOR_SMOOTHED_RTT: u64 = 64;
/// No shorter queue counts, in time and as a part of the floor.
const MIN_QUEUE: Duration = Duration::from_millis(2);
const MIN_QUEUE_PER_RTT: u32 = 64;
/// How many mean deviations above the floor the least smoothed round trip of a whole round must be
/// to show a queue ...
const DEVIATIONS_OF_ROUND: u32 = 2;
/// ... and a single smoothed round trip, of which the highest of many must not.
const DEVIATIONS_OF_SAMPLE: u32 = 4;
/// The same, in standard deviations of smoothed round trips within a round, on top of the shortest
/// queue that counts: the least one of all is that of many rounds, and lower than that of one.
const SCATTERS_OF_ROUND: f64 = 2.0;
const SCATTERS_OF_SAMPLE: f64 = 5.0;
/// The part of a round's scatter that is taken over into the one known.
const SCATTER_WEIGHT: f64 = 0.25;
/// So many round trips are looked at together at most, and one for each of these deviations.
const MAX_ROUND_TRIPS: u32 = 4;
const SCATTER_OF_ONE_ROUND_TRIP: Duration = Duration::from_micros(1500);

/// The round trip of a flow without a queue.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RttFloor {
    /// The least smoothed round trip.
    least: Option<Duration>,
    /// The standard deviation of smoothed round trips within a round, once there was one.
    scatter: Option<Duration>,
}

impl RttFloor {
    pub(super) fn observe(&mut self, sample: &FitSample) {
        if sample.delivered >= MIN_SEGMENTS_FOR_SMOOTHED_RTT * sample.mss {
            // The kernel forgets its least round trip after minutes; when that rises, the path has
            // become longer.
            let least = self.least.map_or(sample.rtt, |least| least.min(sample.rtt));
            self.least = Some(least.max(sample.min_rtt));
        }
    }

    /// Takes the scatter of a round that is over.
    pub(super) fn observe_scatter(&mut self, round: &Round) {
        let scatter = round.rtt_scatter();
        self.scatter = Some(self.scatter.map_or(scatter, |known| {
            known.mul_f64(1.0 - SCATTER_WEIGHT) + scatter.mul_f64(SCATTER_WEIGHT)
        }));
    }

    /// The standard deviation of smoothed round trips within a round; zero before it is known.
    pub(super) fn scatter(&self) -> Duration {
        self.scatter.unwrap_or_default()
    }

    /// Whether a round has shown how much round trips scatter.
    pub(super) fn knows_scatter(&self) -> bool {
        self.scatter.is_some()
    }

    /// How many round trips it takes to tell a queue from noise.
    pub(super) fn round_trips(&self) -> u32 {
        let scatter = self.scatter().as_secs_f64();
        ((scatter / SCATTER_OF_ONE_ROUND_TRIP.as_secs_f64()) as u32).clamp(1, MAX_ROUND_TRIPS)
    }

    /// Whether this smoothed round trip shows a queue.
    pub(super) fn shows_queue(&self, sample: &FitSample) -> bool {
        self.is_exceeded(
            sample.rtt,
            sample,
            (DEVIATIONS_OF_SAMPLE, SCATTERS_OF_SAMPLE),
        )
    }

    /// Whether a round whose least smoothed round trip this was had a queue all through.
    pub(super) fn shows_standing_queue(
        &self,
        least_of_round: Duration,
        sample: &FitSample,
    ) -> bool {
        self.is_exceeded(
            least_of_round,
            sample,
            (DEVIATIONS_OF_ROUND, SCATTERS_OF_ROUND),
        )
    }

    fn is_exceeded(
        &self,
        rtt: Duration,
        sample: &FitSample,
        (deviations, scatters): (u32, f64),
    ) -> bool {
        self.least.is_some_and(|least| {
            let shortest = (least / MIN_QUEUE_PER_RTT).max(MIN_QUEUE);
            let noise = (shortest + self.scatter().mul_f64(scatters))
                .max(sample.rtt_deviation.saturating_mul(deviations));
            rtt > least.saturating_add(noise)
        })
    }
}
