//! The path's capacity from trains of acknowledgements (the packet trains of Jain and Routhier,
//! 1986).
//!
//! A window that leaves as a burst is spread by the bottleneck to its own rate, and so are the
//! acknowledgements: the slope of a train of them is the capacity. It counts only when it is much
//! faster than a sender that paces would have sent it, for there the slope is the sender's own.
//! Flows to one destination send their bursts through one bottleneck, so their acknowledgements are
//! one train.

use std::time::Duration;

use super::{FitSample, Siblings};

/// A train is measured once it has lasted this long: the shorter it is, the more do
/// acknowledgements that come in bunches blur it ...
const MIN_TRAIN_DURATION: Duration = Duration::from_millis(5);
/// ... and acknowledged as many segments.
const MIN_TRAIN_SEGMENTS: u64 = 16;
/// Without an acknowledgement for this long, and for as long as so many segments take, a train is
/// over.
const MAX_PAUSE_IN_TRAIN: Duration = Duration::from_micros(1500);
const MAX_PAUSE_IN_SEGMENTS: f64 = 8.0;
/// A sample that comes so long after the one before may have missed the end of a train.
const MAX_TIME_BETWEEN_SAMPLES: Duration = Duration::from_millis(4);
/// Linux paces slow start, where it paces, at so many windows a round trip ...
const PACED_WINDOWS_PER_ROUND_TRIP: f64 = 2.0;
/// ... and a train must be so many times faster to be no paced one.
const MIN_SLOPE_OVER_PACED_RATE: f64 = 1.5;

/// What all flows to one destination have got through by the time of a sample.
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
    /// The slope of the last train that was at least half as long as it should be, in bytes a
    /// second.
    shorter_train_slope: Option<f64>,
    last: Option<Progress>,
}

/// Acknowledgements that come without a pause: times, and bytes acknowledged by then.
#[derive(Debug, Clone, Copy)]
struct Train {
    first: (Duration, u64),
    /// The congestion window at the first, in bytes: at least that with which the train was sent.
    congestion_window: u64,
    /// The last sample but one that saw progress: that there was more after it shows that the train
    /// had not ended by then.
    before: (Duration, u64),
    /// The last sample that saw progress.
    last: (Duration, u64),
}

impl AckTrains {
    /// The capacity in bytes a second, once the train under way says it; that of the train before
    /// where it was slower.
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
    /// Bytes a second, once it has lasted for `least`.
    fn slope(&self, now: &Progress, least: Duration) -> Option<f64> {
        let lasted = self.before.0.saturating_sub(self.first.0);
        let bytes = self.before.1.saturating_sub(self.first.1);
        // Without an end in sight it is no train: the path is full, or the sender paces.
        if lasted < least || lasted > now.min_rtt / 2 || bytes < MIN_TRAIN_SEGMENTS * now.mss {
            return None;
        }
        let slope = bytes as f64 / lasted.as_secs_f64();
        let paced = PACED_WINDOWS_PER_ROUND_TRIP * self.congestion_window as f64
            / now.min_rtt.as_secs_f64();
        (slope > MIN_SLOPE_OVER_PACED_RATE * paced).then_some(slope)
    }

    /// Whether nothing came for so long that it is over.
    fn is_over(&self, now: &Progress) -> bool {
        let bytes = self.last.1.saturating_sub(self.first.1).max(1) as f64;
        let lasted = self.last.0.saturating_sub(self.first.0).as_secs_f64();
        let spacing = MAX_PAUSE_IN_SEGMENTS * now.mss as f64 * lasted / bytes;
        now.at.saturating_sub(self.last.0).as_secs_f64()
            > MAX_PAUSE_IN_TRAIN.as_secs_f64() + spacing
    }
}
