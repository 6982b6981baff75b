//! Measures a copy over a few round trips: its rate and its limit.

use std::time::Duration;

use drs::{Limit, LimitTally};
use quantities::path::CongestionControl;

use super::{PathConditions, QueueDelay};

/// Length of a window, in time and in round trips.
const WINDOW: Duration = Duration::from_millis(300);
const WINDOW_RTTS: u32 = 4;
/// Length of a window in which a step up must show that it pays. With losses, the rate of a flow
/// varies by half.
const TRIAL_WINDOW: Duration = Duration::from_millis(500);
const TRIAL_WINDOW_RTTS: u32 = 8;
/// Length of a window if a processor or a disk seems to be the limit. It takes a while until both
/// ends have enough to do.
const APPLICATION_WINDOW: Duration = Duration::from_secs(1);
/// Minimum time for which every stream, on average, must be judged before a per-stream limit
/// counts, in time and in round trips, and the part of it for which the limit must hold.
const MIN_JUDGED: Duration = Duration::from_millis(150);
const MIN_JUDGED_RTTS: u32 = 2;
const CLEAR_LIMIT_RATIO: f64 = 0.6;
/// A rate that grew by less than this factor from one window to the next is steady.
const STEADY_FACTOR: f64 = 1.15;

/// A queue stands if it exceeds both this part of the round-trip time without it and this time.
const STANDING_QUEUE: (f64, Duration) = (0.15, Duration::from_millis(2));
/// Movement of the round-trip time from which losses may be a queue's. A queue that stood when the
/// copy began looks like a part of the path, but it moves.
const MOVING_QUEUE: (f64, Duration) = (0.05, Duration::from_millis(2));
/// The same within the first round trips, when the queue has had little time to move.
const FIRST_QUEUE_MOVE: (f64, Duration) = (0.01, Duration::from_millis(1));
/// Number of loss signs in a window that exceed mere reordering.
pub(super) const MIN_LOSS_SIGNS: u64 = 3;

/// Observation of a copy by the supervisor.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct CopyObservation {
    /// Time since the copy began.
    pub now: Duration,
    /// Bytes that the streams' connections have moved so far. They are not bytes in place, as a
    /// block may take seconds to be complete.
    pub moved: u64,
    /// Bytes of files that were found and are not in place. It grows while the walk continues.
    pub left: u64,
    /// True while the size of the copy is unknown.
    pub is_size_unknown: bool,
    /// True if no stream has been open yet.
    pub is_unopened: bool,
    /// Number of streams that are open and measured.
    pub open: usize,
    /// Limits of the sending ends of all streams since the copy began, as far as this side knows
    /// them.
    pub sending: LimitTally,
    /// Limits as seen by the receiving ends, if they are on this side. They know less, but earlier.
    pub receiving: LimitTally,
    /// Mean round-trip time of the open streams, and the minimum known.
    pub rtt: Duration,
    pub min_rtt: Duration,
    /// Queueing delay of the path, as far as the streams' round-trip times show it.
    pub queue: QueueDelay,
    /// Payload of a segment, in bytes.
    pub mss: u32,
    /// Segments that the sending ends retransmitted.
    pub lost: u64,
    /// Counter that grows as soon as segments are lost, as far as this end sees it: segments
    /// retransmitted, or received out of order.
    pub loss_signs: u64,
    /// Congestion control of the sending ends, if it is known and has a formula.
    pub congestion: Option<CongestionControl>,
    /// Maximum window of one stream, as far as this end knows, in bytes.
    pub largest_window: Option<u64>,
    /// Share of the smallest stream in the recent bytes of all open streams, from 0 to 1. `None`
    /// before there are any.
    pub least_share: Option<f64>,
    /// Hash of the addresses at both ends of the first hop, if they are known.
    pub addresses: Option<u64>,
}

impl CopyObservation {
    /// Returns the conditions of the path, as far as they show.
    pub(super) fn conditions(&self) -> PathConditions {
        let segments = self.moved / u64::from(self.mss.max(1));
        PathConditions {
            rtt: match self.min_rtt.is_zero() {
                true => self.rtt,
                false => self.min_rtt,
            },
            window: self.largest_window.unwrap_or(0),
            loss_ppm: self.lost.saturating_mul(1_000_000) / segments.max(1),
            addresses: self.addresses.unwrap_or(0),
        }
    }

    /// Returns true if a queue certainly stands.
    pub(super) fn has_queue(&self) -> bool {
        self.is_more_than(self.queue.at_least, STANDING_QUEUE)
    }

    /// Returns true if a queue may stand.
    pub(super) fn may_have_queue(&self) -> bool {
        self.is_more_than(self.queue.at_most, STANDING_QUEUE)
    }

    /// Returns true if the queue holds more than the smallest stream has in flight. The path then
    /// stays full without that stream.
    pub(super) fn can_spare_least(&self) -> bool {
        let in_queue = self.queue.at_least.as_secs_f64();
        let in_flight = self.min_rtt.as_secs_f64() + in_queue;
        self.least_share
            .is_some_and(|share| in_flight > 0.0 && share <= in_queue / in_flight)
    }

    fn is_more_than(&self, queue: Duration, (part, least): (f64, Duration)) -> bool {
        queue > self.min_rtt.mul_f64(part).max(least)
    }

    /// Returns the rate of a stream with the given window, in bit/s.
    pub(super) fn rate_with_window(&self, window: u64) -> f64 {
        window as f64 * 8.0 / self.rtt.as_secs_f64().max(1e-6)
    }
}

/// A window that has begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    begun: CopyObservation,
    /// True if a queue certainly stood at any observation since, however short.
    had_queue: bool,
    /// True if a queue may have stood.
    may_have_had_queue: bool,
    /// True if a queue may have begun to stand.
    rtt_moved: bool,
}

/// Result of a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowResult {
    /// Length of the window.
    pub length: Duration,
    /// Limit of the copy, or `None` if no end reported one.
    pub limit: Option<Limit>,
    /// Rate in bytes per second.
    pub rate: f64,
    /// True if the rate is hardly higher than before, and there is no sign of a queue.
    pub is_steady: bool,
    /// True if segments were lost, as far as this end sees it.
    pub has_lost: bool,
    /// Segments that the sending ends retransmitted.
    pub lost: u64,
    /// Segments that arrived.
    pub segments: u64,
}

impl Window {
    pub(super) fn open(view: &CopyObservation) -> Self {
        Self {
            begun: *view,
            had_queue: view.is_more_than(view.queue.at_least, MOVING_QUEUE),
            may_have_had_queue: view.is_more_than(view.queue.at_most, MOVING_QUEUE),
            rtt_moved: view.is_more_than(view.queue.at_most, FIRST_QUEUE_MOVE),
        }
    }

    /// Records an observation in the window.
    pub(super) fn observe(&mut self, view: &CopyObservation) {
        let now = Self::open(view);
        self.had_queue |= now.had_queue;
        self.may_have_had_queue |= now.may_have_had_queue;
        self.rtt_moved |= now.rtt_moved;
    }

    /// Returns the result, once the window is long enough. `on_trial` is true if a step up must
    /// show that it pays. `before` is the rate of the last window, in bytes per second.
    pub(super) fn close(
        &self,
        view: &CopyObservation,
        on_trial: bool,
        before: Option<f64>,
    ) -> Option<WindowResult> {
        let begun = &self.begun;
        let elapsed = view.now.saturating_sub(begun.now);
        let (tally, limit) = self.limit(view);
        let judged = tally.total() / u32::try_from(view.open.max(1)).unwrap_or(u32::MAX);
        let is_judged = judged >= MIN_JUDGED.max(view.rtt.saturating_mul(MIN_JUDGED_RTTS));
        let is_clear = limit
            .is_some_and(|(limit, part)| super::is_per_stream(limit) && part >= CLEAR_LIMIT_RATIO)
            && is_judged;
        let limit = limit.map(|(limit, _)| limit);
        let (length, rtts) = match limit {
            Some(Limit::SendingApplication | Limit::ReceivingApplication) => {
                (APPLICATION_WINDOW, TRIAL_WINDOW_RTTS)
            }
            _ if on_trial => (TRIAL_WINDOW, TRIAL_WINDOW_RTTS),
            _ => (WINDOW, WINDOW_RTTS),
        };
        let is_long = elapsed >= length.max(view.rtt.saturating_mul(rtts));
        if !is_long && (on_trial || !is_clear) {
            return None;
        }
        let moved = view.moved.saturating_sub(begun.moved);
        let rate = moved as f64 / elapsed.as_secs_f64().max(1e-6);
        let is_steady = before.is_some_and(|before| rate < STEADY_FACTOR * before);
        let limit = match limit {
            // A window or buffer that limits the rate and leaves a queue exceeds the path's
            // capacity.
            Some(Limit::ReceiveWindow | Limit::SendBuffer) if view.may_have_queue() => {
                Some(Limit::Path)
            }
            // Autotuning lags behind slow start. The window limits the rate for the moment, and
            // grows.
            Some(Limit::ReceiveWindow | Limit::SendBuffer) if !is_steady => {
                if !is_long {
                    return None;
                }
                Some(Limit::Growing)
            }
            // A single flow mistakes late acknowledgements for a queue. The other flows of the path
            // disprove it.
            Some(Limit::Path) if self.has_lost(view) && !self.had_queue => Some(Limit::Loss),
            // Losses while the round-trip time moves may come from an overflowing queue, including
            // losses of other flows.
            Some(Limit::Loss) if self.had_queue => {
                if !is_long {
                    return None;
                }
                view.has_queue().then_some(Limit::Path)
            }
            limit => limit,
        };
        Some(WindowResult {
            length: elapsed,
            limit,
            rate,
            is_steady: is_steady && !self.may_have_had_queue,
            has_lost: self.has_lost(view),
            lost: view.lost.saturating_sub(begun.lost),
            segments: moved / u64::from(view.mss.max(1)),
        })
    }

    /// Returns true if segments were lost in the window while the round-trip time did not move.
    pub(super) fn lost_without_queue(&self, view: &CopyObservation) -> bool {
        self.has_lost(view) && !self.rtt_moved
    }

    fn has_lost(&self, view: &CopyObservation) -> bool {
        view.loss_signs.saturating_sub(self.begun.loss_signs) >= MIN_LOSS_SIGNS
    }

    /// Returns the limit of the copy, and the part of the time for which it held. A sending end
    /// knows its own limit. A receiving end that receives no report in time sees some of it.
    fn limit(&self, view: &CopyObservation) -> (LimitTally, Option<(Limit, f64)>) {
        let sending = view.sending.since(&self.begun.sending);
        let receiving = view.receiving.since(&self.begun.receiving);
        let tally = if sending.total() * 2 >= receiving.total() {
            sending
        } else {
            receiving
        };
        (
            tally,
            tally
                .dominant_limit()
                .filter(|(limit, _)| *limit != Limit::Sender),
        )
    }
}
