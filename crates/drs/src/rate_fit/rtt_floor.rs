//! Distinguishes a standing queue from noise in the round-trip times.
//!
//! On a path with varying delay, the least single round trip of the kernel is the wrong floor:
//! smoothed round trips lie above it permanently, by several deviations. So smoothed round trips
//! are compared with the least smoothed one, with a margin above their scatter. The scatter is
//! derived from two measures, neither of which a queue of constant length changes. The kernel's
//! mean deviation covers round trips that vary independently. The deviation of smoothed round trips
//! within a round covers delay that varies so slowly that the smoothed ones follow it. With much
//! scatter, several round trips are evaluated together.

use std::time::Duration;

use super::FitSample;

/// Number of acknowledged segments before which the smoothed round trip is still that of the
/// handshake.
const MIN_SEGMENTS_FOR_SMOOTHED_RTT: u64 = 64;
/// Shortest queue that counts, as a time and as a divisor of the floor.
const MIN_QUEUE: Duration = Duration::from_millis(2);
const MIN_QUEUE_PER_RTT: u32 = 64;
/// Minimum distance of a whole round's least smoothed round trip from the floor, in mean
/// deviations, to show a queue.
const DEVIATIONS_OF_ROUND: u32 = 2;
/// The same for a single smoothed round trip; more, because the highest of many must stay below it.
const DEVIATIONS_OF_SAMPLE: u32 = 4;
/// The same for a round, in standard deviations of smoothed round trips, on top of the shortest
/// queue that counts. The floor is the least of many rounds, and so lower than that of one.
const SCATTERS_OF_ROUND: f64 = 2.0;
const SCATTERS_OF_SAMPLE: f64 = 5.0;
/// Weight of a round's scatter in the average scatter.
const SCATTER_WEIGHT: f64 = 0.25;
/// Maximum number of round trips that are evaluated together: one for each
/// [`SCATTER_OF_ONE_ROUND_TRIP`].
const MAX_ROUND_TRIPS: u32 = 4;
const SCATTER_OF_ONE_ROUND_TRIP: Duration = Duration::from_micros(1500);

/// Round-trip time of a flow without a queue.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RttFloor {
    /// Least smoothed round trip.
    least: Option<Duration>,
    /// Standard deviation of smoothed round trips within a round, once there was one.
    scatter: Option<Duration>,
}

impl RttFloor {
    pub(super) fn observe(&mut self, sample: &FitSample) {
        if sample.delivered >= MIN_SEGMENTS_FOR_SMOOTHED_RTT * sample.mss {
            // The kernel forgets its least round trip after minutes. If that rises, the path has
            // become longer.
            let least = self.least.map_or(sample.rtt, |least| least.min(sample.rtt));
            self.least = Some(least.max(sample.min_rtt));
        }
    }

    /// Takes the scatter of a completed round.
    pub(super) fn observe_scatter(&mut self, scatter: Duration) {
        self.scatter = Some(self.scatter.map_or(scatter, |known| {
            known.mul_f64(1.0 - SCATTER_WEIGHT) + scatter.mul_f64(SCATTER_WEIGHT)
        }));
    }

    /// Returns the standard deviation of smoothed round trips within a round; zero if it is not
    /// known yet.
    pub(super) fn scatter(&self) -> Duration {
        self.scatter.unwrap_or_default()
    }

    /// Returns true if a round has shown the scatter of round trips.
    pub(super) fn knows_scatter(&self) -> bool {
        self.scatter.is_some()
    }

    /// Returns the number of round trips needed to tell a queue from noise.
    pub(super) fn round_trips(&self) -> u32 {
        let scatter = self.scatter().as_secs_f64();
        ((scatter / SCATTER_OF_ONE_ROUND_TRIP.as_secs_f64()) as u32).clamp(1, MAX_ROUND_TRIPS)
    }

    /// Returns true if this smoothed round trip shows a queue.
    pub(super) fn shows_queue(&self, sample: &FitSample) -> bool {
        self.is_exceeded(
            sample.rtt,
            sample,
            (DEVIATIONS_OF_SAMPLE, SCATTERS_OF_SAMPLE),
        )
    }

    /// Returns true if a round with this least smoothed round trip had a queue throughout.
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
