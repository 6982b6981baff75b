//! Measures the path's capacity by trains of acknowledgements (the packet trains of Jain and
//! Routhier, 1986).
//!
//! The bottleneck spreads a window that leaves as a burst to its own rate. Its acknowledgements
//! come back in a train whose slope is the capacity. A train counts only if it is much faster than
//! a pacing sender would have sent it, because otherwise the slope is the sender's own. Flows to
//! one destination send their bursts through one bottleneck, so their acknowledgements form one
//! train.

use std::time::Duration;

use super::{FitSample, Siblings};

/// Minimum duration of a measured train: the shorter it is, the more it is blurred by
/// acknowledgements that come in bunches.
const MIN_TRAIN_DURATION: Duration = Duration::from_millis(5);
/// Minimum number of segments that a measured train acknowledges.
const MIN_TRAIN_SEGMENTS: u64 = 16;
/// Time without an acknowledgement that ends a train, if it is also the time of a few segments.
const MAX_PAUSE_IN_TRAIN: Duration = Duration::from_micros(1500);
const MAX_PAUSE_IN_SEGMENTS: f64 = 8.0;
/// Maximum time between two samples; after a longer one the end of a train may have been missed.
const MAX_TIME_BETWEEN_SAMPLES: Duration = Duration::from_millis(4);
/// Windows per round trip at which Linux paces slow start.
const PACED_WINDOWS_PER_ROUND_TRIP: f64 = 2.0;
/// Minimum ratio of a train's slope to that paced rate for the train not to be a paced one.
const MIN_SLOPE_OVER_PACED_RATE: f64 = 1.5;

/// Progress of all flows to one destination by the time of a sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    at: Duration,
    delivered: u64,
    congestion_window: u64,
    flows: u32,
    mss: u64,
    min_rtt: Duration,
    app_limited: bool,
}

impl Progress {
    pub(super) fn of(sample: &FitSample, siblings: &Siblings) -> Self {
        Self {
            at: sample.at,
            delivered: siblings.delivered,
            congestion_window: siblings.congestion_window,
            flows: siblings.flows,
            mss: sample.mss,
            min_rtt: sample.min_rtt,
            app_limited: sample.app_limited,
        }
    }
}

/// Watches acknowledgements for trains.
#[derive(Debug, Clone, Default)]
pub(super) struct AckTrains {
    train: Option<Train>,
    /// Slope of the last train that had at least half the minimum duration, in bytes per second.
    shorter_train_slope: Option<f64>,
    last: Option<Progress>,
}

/// Acknowledgements without a pause: times, and bytes acknowledged by then.
#[derive(Debug, Clone, Copy)]
struct Train {
    first: (Duration, u64),
    /// Congestion window at the first one, in bytes: at least that with which the train was sent.
    congestion_window: u64,
    /// Second-to-last sample that saw progress. As more progress followed, the train had not ended
    /// by then.
    before: (Duration, u64),
    /// Last sample that saw progress.
    last: (Duration, u64),
}

impl AckTrains {
    /// Returns the capacity in bytes per second, once the current train shows it. If the train
    /// before was slower, its slope is returned.
    pub(super) fn observe(&mut self, now: &Progress, expected: bool) -> Option<f64> {
        let last = self.last.replace(*now)?;
        let moment = (now.at, now.delivered);
        let has_progress = now.delivered > last.delivered;
        let is_broken = now.at.saturating_sub(last.at) > MAX_TIME_BETWEEN_SAMPLES
            || now.flows != last.flows
            || now.app_limited
            || !expected;
        self.train = match self.train {
            _ if is_broken => None,
            Some(train) if has_progress => Some(Train {
                before: train.last,
                last: moment,
                ..train
            }),
            Some(train) if train.is_over(now) => {
                self.shorter_train_slope = train
                    .slope(now, MIN_TRAIN_DURATION / 2)
                    .or(self.shorter_train_slope);
                None
            }
            None if has_progress => Some(Train {
                first: moment,
                congestion_window: now.congestion_window,
                before: moment,
                last: moment,
            }),
            other => other,
        };
        let slope = self.train?.slope(now, MIN_TRAIN_DURATION)?;
        Some(
            self.shorter_train_slope
                .map_or(slope, |shorter| slope.min(shorter)),
        )
    }
}

impl Train {
    /// Returns the slope in bytes per second, once the train has lasted for `least`.
    fn slope(&self, now: &Progress, least: Duration) -> Option<f64> {
        let lasted = self.before.0.saturating_sub(self.first.0);
        let bytes = self.before.1.saturating_sub(self.first.1);
        // Acknowledgements without an end are not a train: the path is full, or the sender paces.
        if lasted < least || lasted > now.min_rtt / 2 || bytes < MIN_TRAIN_SEGMENTS * now.mss {
            return None;
        }
        let slope = bytes as f64 / lasted.as_secs_f64();
        let paced = PACED_WINDOWS_PER_ROUND_TRIP * self.congestion_window as f64
            / now.min_rtt.as_secs_f64();
        (slope > MIN_SLOPE_OVER_PACED_RATE * paced).then_some(slope)
    }

    /// Returns true if the pause was long enough to end the train.
    fn is_over(&self, now: &Progress) -> bool {
        let bytes = self.last.1.saturating_sub(self.first.1).max(1) as f64;
        let lasted = self.last.0.saturating_sub(self.first.0).as_secs_f64();
        let spacing = MAX_PAUSE_IN_SEGMENTS * now.mss as f64 * lasted / bytes;
        now.at.saturating_sub(self.last.0).as_secs_f64()
            > MAX_PAUSE_IN_TRAIN.as_secs_f64() + spacing
    }
}
