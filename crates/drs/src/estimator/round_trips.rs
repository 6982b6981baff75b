//! Tells a standing queue from noise in a flow's smoothed round trips.
//!
//! On a path whose delay does not vary, a queue shows at once: the round trip is above the least
//! one. On a path whose delay varies, it is so for good, queue or none, because the least of
//! thousands of round trips lies several deviations below their mean. So a queue must also lift the
//! round trip by more than noise does above the *floor*, which is the least average of round trips
//! seen, but no more above the least single one than noise explains. The second half is what finds
//! a queue that stands from the start of a flow: it raises every average, but a constant queue
//! makes no noise.
//!
//! Noise is distinguished from a queue's growing and shrinking by how fast it is: it makes
//! successive looks go up and down, while a queue goes one way for many looks. So noise is measured
//! by second differences. A queue of bursts (slow start) goes up and down too, but passes, and
//! noise stays: what counts is the least that was measured lately.

use std::time::Duration;

/// What a queue must add to the least round trip to count, noise apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct MinQueue {
    /// As a part of the least round trip.
    pub part: f64,
    pub time: Duration,
}

/// Round trips are averaged over this time, and over [`AVERAGED_ROUNDS`] of them if they take
/// longer.
const AVERAGED_TIME: Duration = Duration::from_secs(1);
const AVERAGED_ROUNDS: u32 = 3;
/// Noise is measured over this time, and over [`NOISE_ROUNDS`] round trips if they take longer, of
/// at least [`MIN_NOISE_LOOKS`] looks.
const NOISE_TIME: Duration = Duration::from_millis(500);
const NOISE_ROUNDS: u32 = 5;
const MIN_NOISE_LOOKS: u32 = 4;
/// Noise is believed after so many measurements; before, what goes up and down is slow start.
const MIN_NOISE_MEASUREMENTS: u32 = 3;
/// By this part of it the least measured noise rises in a second, so that noise that begins later
/// is found out.
const NOISE_RISE_PER_SECOND: f64 = 0.1;
/// The standard deviation of round trips, in least mean second differences. Delay that varies
/// within some 60 ms gives 2.7 mean ones when looked at each 20 ms, and the least of many
/// measurements is about 0.7 of their mean. For faster noise it is an overestimate.
const DEVIATION_PER_NOISE: f64 = 4.0;
/// By so many deviations of single round trips an average without a queue exceeds the least such
/// average at most, ...
const DEVIATIONS_OF_AVERAGE: f64 = 1.5;
/// ... and a single one does.
const DEVIATIONS_OF_LOOK: f64 = 3.5;

/// The round trips of one flow.
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
    /// In seconds, as all below.
    rtt: f64,
    min_rtt: f64,
    /// Of how many round trips that is the least; `None` when of all.
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

    /// Takes the smoothed round trip of a look, and the least one known of the path: of the first
    /// `draws` round trips, or of all.
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

    /// Whether the last look's round trip, or the average, has a queue in it.
    pub(super) fn show_queue(&self) -> bool {
        let Some(now) = self.last else { return false };
        let deviation = DEVIATION_PER_NOISE * self.noise.least;
        // The least of n draws from a normal distribution lies so many deviations below the mean.
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

/// An average of the last looks' round trips, and the least that it was.
#[derive(Debug, Clone, Copy, Default)]
struct Average {
    now: f64,
    least: Option<f64>,
    /// How long it has been taken, in times over which it goes.
    taken: f64,
}

impl Average {
    fn take(&mut self, look: &Look, passed: Duration) {
        let time = AVERAGED_TIME
            .as_secs_f64()
            .max(f64::from(AVERAGED_ROUNDS) * look.rtt);
        let passed = passed.as_secs_f64() / time;
        self.taken += passed;
        // At first it is the plain mean of all there is.
        let weight = if self.taken > 0.0 {
            passed / self.taken.min(1.0)
        } else {
            1.0
        };
        self.now += weight.min(1.0) * (look.rtt - self.now);
        if self.taken >= 1.0 {
            let least = self.least.map_or(self.now, |least| least.min(self.now));
            // The kernel forgets its least round trip after minutes; when that rises, the path has
            // become longer.
            self.least = Some(least.max(look.min_rtt));
        }
    }
}

/// How much round trips go up and down from look to look.
#[derive(Debug, Clone, Copy, Default)]
struct Noise {
    /// The least mean second difference lately; zero until it is believed.
    least: f64,
    measured: u32,
    /// The least mean so far, believed or not.
    least_measured: Option<f64>,
    /// Of the measurement under way: sum of second differences, their number, its length.
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
