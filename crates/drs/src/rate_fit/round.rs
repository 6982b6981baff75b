//! Events since a round began. A round is a little more than a round trip of the path without a
//! queue; one that a growing queue stretches might never end.

use std::time::Duration;

use super::{FitSample, rtt_floor::RttFloor};

/// Growth per round below which the delivered amount shows a full path (as in BBR).
const FULL_PATH_GROWTH: f64 = 1.25;
/// Consecutive samples that show a queue before it counts in a step's first rounds.
const MIN_QUEUED_SAMPLES: u32 = 3;
/// Minimum part of a round for which something other than the path limits a flow that counts as
/// held.
const HELD_SHARE: f64 = 0.25;
/// Maximum tick of the kernel's counts of stalled and busy time.
const MAX_CLOCK_TICK: Duration = Duration::from_millis(10);

/// One round.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Round {
    began: Option<FitSample>,
    /// Least smoothed round trip in the round.
    least_rtt: Option<Duration>,
    samples: u32,
    rtts: RttSums,
    /// Samples in which the program had nothing to send.
    starved_samples: u32,
    /// Consecutive samples up to the last that show a queue.
    queued_samples: u32,
}

impl Round {
    pub(super) fn begin(sample: &FitSample) -> Self {
        Self {
            began: Some(*sample),
            ..Self::default()
        }
    }

    pub(super) fn observe(&mut self, sample: &FitSample, floor: &RttFloor) {
        self.began.get_or_insert(*sample);
        self.least_rtt = Some(
            self.least_rtt
                .map_or(sample.rtt, |least| least.min(sample.rtt)),
        );
        self.samples += 1;
        let since = self.lasted(sample).as_secs_f64();
        self.rtts.add(since, sample.rtt.as_secs_f64());
        self.starved_samples += u32::from(sample.app_limited || sample.is_starved());
        self.queued_samples = if floor.shows_queue(sample) {
            self.queued_samples + 1
        } else {
            0
        };
    }

    fn lasted(&self, now: &FitSample) -> Duration {
        self.began
            .map_or(Duration::ZERO, |began| now.at.saturating_sub(began.at))
    }

    /// Returns true if the round has lasted for `round_trips` and a quarter more.
    pub(super) fn is_full(&self, now: &FitSample, round_trips: u32) -> bool {
        self.began.is_some() && self.lasted(now) >= (now.min_rtt + now.min_rtt / 4) * round_trips
    }

    /// Returns the standard deviation of the smoothed round trips from a straight line in time: a
    /// queue that grows or drains is not noise.
    pub(super) fn rtt_scatter(&self) -> Duration {
        Duration::try_from_secs_f64(self.rtts.deviation_from_line()).unwrap_or_default()
    }

    /// Returns the least smoothed round trip.
    pub(super) fn least_rtt(&self, now: &FitSample) -> Duration {
        self.least_rtt.unwrap_or(now.rtt)
    }

    /// Returns true if the last samples all show a queue.
    pub(super) fn has_queue_now(&self) -> bool {
        self.queued_samples >= MIN_QUEUED_SAMPLES
    }

    /// Returns true if there was a queue throughout the round.
    pub(super) fn has_standing_queue(&self, floor: &RttFloor, now: &FitSample) -> bool {
        floor.shows_standing_queue(self.least_rtt(now), now)
    }

    /// Returns true if the delivery rate grew so much that the path was not full.
    pub(super) fn is_delivering_more(&self, now: &FitSample) -> bool {
        self.began.is_none_or(|began| {
            now.delivery_rate as f64 > began.delivery_rate as f64 * FULL_PATH_GROWTH
        })
    }

    /// Returns the acknowledged bytes per second.
    pub(super) fn delivered_rate(&self, now: &FitSample) -> f64 {
        let began = self.began.unwrap_or(*now);
        let seconds = self.lasted(now).as_secs_f64();
        if seconds > 0.0 {
            now.delivered.saturating_sub(began.delivered) as f64 / seconds
        } else {
            0.0
        }
    }

    /// Returns true if segments were retransmitted.
    pub(super) fn has_losses(&self, now: &FitSample) -> bool {
        self.began
            .is_some_and(|began| now.retransmits > began.retransmits)
    }

    /// Returns true if the program, the send buffer or the peer's window limited the flow, so that
    /// what it delivered says nothing about the path.
    pub(super) fn is_held(&self, now: &FitSample) -> bool {
        let Some(began) = self.began else { return true };
        let lasted = self.lasted(now);
        let grown = |counter: fn(&FitSample) -> Option<Duration>| {
            Some(counter(now)?.saturating_sub(counter(&began)?))
        };
        let is_much = |time: Duration| time > lasted.mul_f64(HELD_SHARE) + MAX_CLOCK_TICK;
        let idle = grown(|sample| sample.busy).map(|busy| lasted.saturating_sub(busy));
        let on_window = grown(|sample| sample.receive_window_limited);
        let on_buffer = grown(|sample| sample.send_buffer_limited);
        f64::from(self.starved_samples) >= HELD_SHARE * f64::from(self.samples.max(1))
            || [idle, on_window, on_buffer]
                .into_iter()
                .flatten()
                .any(is_much)
    }
}

/// Sums for a least-squares line through smoothed round trips over time, all in seconds.
#[derive(Debug, Clone, Copy, Default)]
struct RttSums {
    count: f64,
    time: f64,
    time_squared: f64,
    rtt: f64,
    rtt_squared: f64,
    product: f64,
}

impl RttSums {
    fn add(&mut self, time: f64, rtt: f64) {
        self.count += 1.0;
        self.time += time;
        self.time_squared += time * time;
        self.rtt += rtt;
        self.rtt_squared += rtt * rtt;
        self.product += time * rtt;
    }

    fn deviation_from_line(&self) -> f64 {
        let count = self.count.max(1.0);
        let variance = |squares: f64, sum: f64| (squares / count - (sum / count).powi(2)).max(0.0);
        let of_time = variance(self.time_squared, self.time);
        let covariance = self.product / count - self.time / count * (self.rtt / count);
        let explained = if of_time > 0.0 {
            covariance * covariance / of_time
        } else {
            0.0
        };
        (variance(self.rtt_squared, self.rtt) - explained)
            .max(0.0)
            .sqrt()
    }
}
