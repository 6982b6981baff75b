//! Distinguishes a standing queue from noise in a flow's smoothed round-trip times.
//!
//! On a path with constant delay a queue shows at once: the round trip exceeds the minimum. On a
//! path with varying delay it always does, with or without a queue, because the least of thousands
//! of round trips lies several deviations below their mean. So a queue must also lift the round
//! trip above the *floor* by more than noise does. The floor is the least average of round trips
//! seen, but at most the least single one plus what noise explains. The second half finds a queue
//! that stands from the start of a flow: it raises every average, but a constant queue makes no
//! noise.
//!
//! Noise differs from a growing or shrinking queue by its speed: noise makes successive samples go
//! up and down, while a queue moves in one direction for many samples. So noise is measured by
//! second differences. A queue of bursts (slow start) goes up and down too, but passes, while noise
//! stays. So the least recent measurement counts.

use std::time::Duration;

/// Minimum increase of the least round trip by a queue, apart from noise.
#[derive(Debug, Clone, Copy)]
pub(super) struct MinQueue {
    /// Part of the least round trip.
    pub part: f64,
    pub time: Duration,
}

/// Time over which round trips are averaged, or [`AVERAGED_ROUNDS`] of them if they take longer.
const AVERAGED_TIME: Duration = Duration::from_secs(1);
const AVERAGED_ROUNDS: u32 = 3;
/// Time over which noise is measured, or [`NOISE_ROUNDS`] round trips if they take longer, with at
/// least [`MIN_NOISE_LOOKS`] samples.
const NOISE_TIME: Duration = Duration::from_millis(500);
const NOISE_ROUNDS: u32 = 5;
const MIN_NOISE_LOOKS: u32 = 4;
/// Measurements before noise is accepted; before that, ups and downs are slow start.
const MIN_NOISE_MEASUREMENTS: u32 = 3;
/// Part by which the least measured noise rises per second, so that noise that begins later is
/// found.
const NOISE_RISE_PER_SECOND: f64 = 0.1;
/// Standard deviation of round trips per least mean second difference. Delay that varies within
/// about 60 ms gives 2.7 mean differences when sampled every 20 ms, and the least of many
/// measurements is about 0.7 of their mean. For faster noise it is an overestimate.
const DEVIATION_PER_NOISE: f64 = 4.0;
/// Maximum distance of an average without a queue from the least such average, in deviations of
/// single round trips.
const DEVIATIONS_OF_AVERAGE: f64 = 1.5;
/// Maximum distance of a single round trip without a queue from the least average, in deviations.
const DEVIATIONS_OF_LOOK: f64 = 3.5;

/// Round trips of one flow.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundTrips {
    min_queue: MinQueue,
    last: Option<Look>,
    before: Option<Look>,
    looks: u64,
    average: Average,
    noise: Noise,
}

#[derive(Debug, Clone, Copy)]
struct Look {
    at: Duration,
    /// Smoothed round-trip time in seconds, like all times below.
    rtt: f64,
    min_rtt: f64,
    /// Number of round trips of which `min_rtt` is the least; `None` if of all.
    draws: Option<u64>,
}

impl RoundTrips {
    pub(super) fn new(min_queue: MinQueue) -> Self {
        Self {
            min_queue,
            last: None,
            before: None,
            looks: 0,
            average: Average::default(),
            noise: Noise::default(),
        }
    }

    /// Takes the smoothed round-trip time of a sample and the least known one of the path, which is
    /// the least of the first `draws` round trips or of all.
    pub(super) fn look(
        &mut self,
        at: Duration,
        rtt: Duration,
        min_rtt: Duration,
        draws: Option<u64>,
    ) {
        let now = Look {
            at,
            rtt: rtt.as_secs_f64(),
            min_rtt: min_rtt.as_secs_f64(),
            draws,
        };
        let earlier = std::mem::replace(&mut self.before, self.last);
        let passed = self
            .last
            .replace(now)
            .map_or(Duration::ZERO, |last| at.saturating_sub(last.at));
        self.looks += 1;
        self.average.take(&now, passed);
        if let (Some(earlier), Some(before)) = (earlier, self.before) {
            let second_difference = (now.rtt - 2.0 * before.rtt + earlier.rtt).abs();
            self.noise
                .take(second_difference, now.rtt, passed.as_secs_f64());
        }
    }

    /// Returns true if the last round trip or the average includes a queue.
    pub(super) fn show_queue(&self) -> bool {
        let Some(now) = self.last else { return false };
        let deviation = DEVIATION_PER_NOISE * self.noise.least;
        // Distance of the least of n draws from a normal distribution from the mean, in deviations.
        let draws = now.draws.unwrap_or(self.looks).max(2) as f64;
        let lifted = now.min_rtt + (2.0 * draws.ln()).sqrt() * deviation;
        let floor = self.average.least.map_or(lifted, |least| least.min(lifted));
        let queue = (self.min_queue.part * now.min_rtt).max(self.min_queue.time.as_secs_f64());
        let exceeds = |rtt: f64, deviations: f64| {
            rtt > (now.min_rtt + queue).max(floor + deviations * deviation)
        };
        exceeds(now.rtt, DEVIATIONS_OF_LOOK) || exceeds(self.average.now, DEVIATIONS_OF_AVERAGE)
    }
}

/// Moving average of the round trips, and its minimum.
#[derive(Debug, Clone, Copy, Default)]
struct Average {
    now: f64,
    least: Option<f64>,
    /// Duration of the averaging so far, in averaging times.
    taken: f64,
}

impl Average {
    fn take(&mut self, look: &Look, passed: Duration) {
        let time = AVERAGED_TIME
            .as_secs_f64()
            .max(f64::from(AVERAGED_ROUNDS) * look.rtt);
        let passed = passed.as_secs_f64() / time;
        self.taken += passed;
        // Before one averaging time has passed, it is the plain mean.
        let weight = if self.taken > 0.0 {
            passed / self.taken.min(1.0)
        } else {
            1.0
        };
        self.now += weight.min(1.0) * (look.rtt - self.now);
        if self.taken >= 1.0 {
            let least = self.least.map_or(self.now, |least| least.min(self.now));
            // The kernel forgets its least round trip after minutes. If that rises, the path has
            // become longer.
            self.least = Some(least.max(look.min_rtt));
        }
    }
}

/// Variation of round trips from sample to sample.
#[derive(Debug, Clone, Copy, Default)]
struct Noise {
    /// Least recent mean second difference; zero until it is accepted.
    least: f64,
    measured: u32,
    /// Least mean so far, accepted or not.
    least_measured: Option<f64>,
    /// Sum of second differences in the current measurement; their number and its length follow.
    sum: f64,
    looks: u32,
    time: f64,
}

impl Noise {
    fn take(&mut self, second_difference: f64, rtt: f64, passed: f64) {
        self.sum += second_difference;
        self.looks += 1;
        self.time += passed;
        let time = NOISE_TIME.as_secs_f64().max(f64::from(NOISE_ROUNDS) * rtt);
        if self.time < time || self.looks < MIN_NOISE_LOOKS {
            return;
        }
        let mean = self.sum / f64::from(self.looks);
        let risen = 1.0 + NOISE_RISE_PER_SECOND * self.time;
        let least = self
            .least_measured
            .map_or(mean, |least| mean.min(risen * least));
        self.least_measured = Some(least);
        self.measured = self.measured.saturating_add(1);
        if self.measured >= MIN_NOISE_MEASUREMENTS {
            self.least = least;
        }
        (self.sum, self.looks, self.time) = (0.0, 0, 0.0);
    }
}
