//! Decides how many streams a copy has, if the user does not specify it.
//!
//! The needs of a path show within its first round trips, and the number follows in one step:
//!
//! - A copy that is large enough begins with several streams, because they share the cost of slow
//!   start. If the hosts' windows are known to be small, it begins with as many as fill a slow path
//!   at once. It begins with the number that it needed last time, if that is larger and the
//!   measured path agrees with the conditions it was learned under ([`conditions`]). Memory never
//!   makes a copy begin with fewer streams, as it would then detect a degraded path later than
//!   without memory.
//! - Random losses, windows and buffers limit each stream separately. If the capacity of the path
//!   is known, the number grows to what the response functions of Reno and CUBIC give for the
//!   measured loss ([`response`]). Otherwise it grows fourfold.
//! - A standing queue on the path delays everyone there, and more streams only take from other
//!   flows. The number falls in steps to [`MIN_STREAMS_AT_A_QUEUE`]; each step keeps enough streams
//!   to fill the path without the queue. A queue that was full before the copy began shows only in
//!   its drops ([`overflow`]).
//! - If windows hardly grow and there is no queue, twice as many streams are tried, as each new one
//!   brings a slow start of its own.
//! - If a processor or a disk is the limit, twice as many are tried, and given up again if that did
//!   not pay.
//!
//! This module has no clock and no sockets. The supervisor feeds it, and opens or retires streams
//! accordingly.

mod conditions;
mod overflow;
mod quiet_losses;
mod response;
mod round_trips;
#[cfg(test)]
mod tests;
mod window;

use std::time::Duration;

pub(crate) use conditions::{LearnedStreams, PathConditions};
use drs::Limit;
use overflow::{DropCause, OverflowDetector};
use quiet_losses::QuietLosses;
use response::RandomLosses;
pub(super) use round_trips::{QueueDelay, RoundTrips, RouteRtt};
pub(super) use window::CopyObservation;
use window::{Window, WindowResult};

/// Maximum number of streams that one copy opens.
pub const MAX_STREAMS: u32 = 64;

/// Number of streams that a copy keeps on each route at a standing queue. It then takes at most
/// about this many times the rate of one flow.
const MIN_STREAMS_AT_A_QUEUE: usize = 2;
/// Number of streams at the start of a copy, and of a large one. The first losses end slow start,
/// and with more streams they hit a smaller part of them.
const STREAMS_AT_START: usize = 8;
const STREAMS_AT_START_LARGE: usize = 16;
/// Bytes left to copy from which a copy is large.
const LARGE_FROM_BYTES: u64 = 16 << 20;
/// Number of streams at the start of a copy over a near path, and the bytes left from which it has
/// them. The data of one stream is read, hashed and encrypted in turn, so several streams use
/// several processors.
const STREAMS_AT_START_NEAR: usize = 4;
const SEVERAL_NEAR_FROM_BYTES: u64 = 64 << 20;
/// Maximum number of streams at the start, if windows are known to be small.
const MAX_STREAMS_AT_START: usize = 32;
/// Maximum number of streams after the first losses in slow start.
const MAX_STREAMS_AT_FIRST_LOSSES: usize = 16;
/// Bytes left to copy, and round-trip time, from which a copy begins with several streams.
const SEVERAL_FROM_BYTES: u64 = 4 << 20;
const SEVERAL_FROM_RTT: Duration = Duration::from_millis(5);
/// Opening time of the first stream from which the path counts as far. Opening takes two round
/// trips, so the round trip is ten milliseconds or more, or the host is slow. Idle streams do no
/// harm then.
const FAR_PATH_OPEN_TIME: Duration = Duration::from_millis(25);
/// Opening time from which the path counts as long. If a copy turned out to be large, opening half
/// its streams only then would delay it noticeably.
const LONG_PATH_OPEN_TIME: Duration = Duration::from_millis(50);
/// Total rate of the streams at the start if windows are small, in bit/s.
const RATE_AT_START_BPS: f64 = 200e6;
/// Bytes that must be left for each stream at the start.
const BYTES_PER_STREAM_AT_START: u64 = 1 << 19;
/// Bytes that must be left for each stream that is added later. A new stream is slow at first.
const BYTES_PER_NEW_STREAM: u64 = 1 << 20;
/// Maximum factor of one step, if the capacity of the path is unknown.
const MAX_STEP_FACTOR: usize = 4;
/// Maximum factor of one step, if a processor or a disk may be the limit.
const TRIAL_STEP_FACTOR: usize = 2;

/// Factor by which the rate must grow for a step to pay.
const MIN_STEP_GAIN: f64 = 1.1;
/// Number of windows in which a step may show that it pays. With losses, the rate of a flow varies
/// by half.
const TRIAL_WINDOWS: u32 = 2;
/// Time for which no streams are added after a step that did not pay, or after streams were
/// retired. Paths change, so it ends. Lasting random losses are answered earlier, if only the queue
/// led to fewer streams.
const GROW_PAUSE: Duration = Duration::from_secs(30);
/// A path counts as full from this part of the rate that it carried when it was full.
const FULL_RATE_RATIO: f64 = 0.85;

/// Number of consecutive loss-limited windows from which losses count as the limit even if the rate
/// has not decreased.
const MIN_LOSS_WINDOWS: u32 = 3;

/// Time limit for new streams to open. After it, the copy is measured without them.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of round trips of slow start before new streams are measured.
const SLOW_START_RTTS: u32 = 6;
/// Minimum remaining time of a copy to which streams are added, in time and in round trips. Opening
/// and slow start take about as long.
const MIN_LEFT_TO_GROW: Duration = Duration::from_secs(1);
const MIN_LEFT_TO_GROW_RTTS: u32 = 12;

/// Time by which a queue must have been present for longer than absent before streams are retired,
/// in time and in round trips. Other flows empty it at times.
const MIN_QUEUE_TIME: Duration = Duration::from_secs(1);
const MIN_QUEUE_RTTS: u32 = 8;
/// The same for a queue so short that one stream fewer no longer fills the path at once. The path
/// then runs dry until the windows of the others have grown. After this many round trips, windows
/// at CUBIC's plateau (RFC 9438, section 4.1) grow again.
const MIN_SHORT_QUEUE_TIME: Duration = Duration::from_secs(3);
const MIN_SHORT_QUEUE_RTTS: u32 = 56;
/// Minimum remaining time of a copy that retires streams.
const MIN_LEFT_TO_RETIRE: Duration = Duration::from_secs(2);

/// Decides how many streams a copy has.
#[derive(Debug)]
pub(super) struct StreamCount {
    wanted: usize,
    most: usize,
    /// Minimum number of streams: one for each route.
    least: usize,
    fixed: bool,
    /// Number that the path needed last time, with its conditions.
    remembered: Option<LearnedStreams>,
    /// Number that the copy would have begun with without memory. Set while more streams are there
    /// because of remembered losses that have not shown yet.
    without_memory: Option<usize>,
    /// Conditions of the path at the last observation.
    conditions: PathConditions,
    /// True once the number for the start has been chosen.
    started: bool,
    /// Time since which new streams are opening, and time since which all are open.
    opening: Option<(Duration, Option<Duration>)>,
    window: Option<Window>,
    /// Rate of the last window, in bytes per second.
    rate_before: Option<f64>,
    /// Window that began with the first observation.
    slow_start: Option<Window>,
    /// Losses without a queue, however few.
    quiet_losses: QuietLosses,
    /// True while random losses add no streams, because another transport is tried or used.
    ignores_losses: bool,
    /// True once losses that preceded any queue have been answered.
    answered_first_losses: bool,
    /// True once streams were added because losses without a queue limit the copy.
    grew_for_losses: bool,
    trial: Option<StepTrial>,
    /// Time before which no streams are added, because a step did not pay.
    grow_after: Duration,
    /// Number of streams before the step that did not pay. With fewer streams, lasting losses are
    /// answered nevertheless.
    unpaid_from: usize,
    /// Time before which no streams are added, because streams were retired at a queue.
    grow_after_queue: Duration,
    /// Maximum rate with a standing queue, in bytes per second. It is the capacity of the path.
    full_rate: Option<f64>,
    /// Maximum rate of any window, in bytes per second.
    peak_rate: f64,
    /// Number of consecutive windows limited by losses.
    loss_windows: u32,
    /// Time by which windows saw a queue for longer than none, since it last led to fewer streams.
    queue_stood: Duration,
    /// Random losses.
    losses: RandomLosses,
    /// Detector of a queue that shows only in its drops.
    overflow: OverflowDetector,
    /// True once a window has shown the needs of the path.
    judged: bool,
}

/// A step up that must show that it pays.
#[derive(Debug, Clone, Copy)]
struct StepTrial {
    /// Number of streams before the step.
    streams: usize,
    /// Rate that this number would have carried, in bytes per second.
    rate: f64,
    windows_left: u32,
    limit: Limit,
}

impl StreamCount {
    /// Creates the decision. A number `fixed` by the user never changes. Otherwise a copy has one
    /// stream until there is data to decide by. Then it has at least the `remembered` number, if
    /// the path still has the same conditions. `most` is the maximum.
    pub(super) fn new(fixed: Option<u32>, remembered: Option<LearnedStreams>, most: usize) -> Self {
        let most = most.max(1);
        Self {
            wanted: fixed.map_or(1, |fixed| fixed as usize).clamp(1, most),
            most,
            least: 1,
            fixed: fixed.is_some(),
            remembered,
            without_memory: None,
            conditions: PathConditions::default(),
            started: false,
            opening: None,
            window: None,
            rate_before: None,
            slow_start: None,
            quiet_losses: QuietLosses::default(),
            ignores_losses: false,
            answered_first_losses: false,
            grew_for_losses: false,
            trial: None,
            grow_after: Duration::ZERO,
            unpaid_from: 0,
            grow_after_queue: Duration::ZERO,
            full_rate: None,
            peak_rate: 0.0,
            loss_windows: 0,
            queue_stood: Duration::ZERO,
            losses: RandomLosses::default(),
            overflow: OverflowDetector::default(),
            judged: false,
        }
    }

    /// Raises the minimum to `least`, unless the user fixed the number.
    pub(super) fn raise_minimum(&mut self, least: usize) {
        if !self.fixed {
            self.least = self.least.max(least.min(self.most));
            self.wanted = self.wanted.max(self.least);
        }
    }

    /// Lowers the maximum to `most`, even if the user asked for more.
    pub(super) fn lower_maximum(&mut self, most: usize) {
        self.most = self.most.min(most.max(1));
        self.least = self.least.min(self.most);
        self.wanted = self.wanted.min(self.most);
    }

    /// Returns the number of streams that there should be.
    pub(super) fn target(&self) -> usize {
        self.wanted
    }

    /// Returns the maximum number of streams.
    pub(super) fn maximum(&self) -> usize {
        self.most
    }

    /// Sets whether random losses add no streams. This is so while another transport is tried or
    /// used.
    pub(super) fn ignore_losses(&mut self, ignored: bool) {
        self.ignores_losses = ignored;
    }

    /// Returns true if the user fixed the number, so that nothing needs to be observed.
    pub(super) fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// Returns the number that the path turned out to need, to be remembered, or `None` if nothing
    /// showed it.
    pub(super) fn needed(&self) -> Option<LearnedStreams> {
        (self.judged && !self.fixed).then_some(LearnedStreams {
            streams: self.wanted as u32,
            conditions: self.conditions,
        })
    }

    /// Records an observation, and takes a step if one is due.
    pub(super) fn observe(&mut self, view: &CopyObservation) {
        if self.fixed {
            return;
        }
        self.begin(view);
        // Before the first byte, there is nothing to measure.
        if view.open == 0 || view.rtt.is_zero() {
            return;
        }
        self.conditions = view.conditions();
        self.quiet_losses.observe(view);
        self.answer_first_losses(view);
        if self.is_opening(view) {
            self.window = None;
            return;
        }
        let Some(window) = &mut self.window else {
            if view.moved > 0 {
                self.window = Some(Window::open(view));
            }
            return;
        };
        window.observe(view);
        let Some(seen) = window.close(view, self.trial.is_some(), self.rate_before) else {
            return;
        };
        self.window = Some(Window::open(view));
        tracing::trace!(
            ?seen,
            streams = self.wanted,
            rtt = ?view.rtt,
            min_rtt = ?view.min_rtt,
            queue = ?view.queue,
            least_share = ?view.least_share,
            "a window"
        );
        self.losses.add(&seen);
        self.drop_unneeded_memory(view, &seen);
        self.decide(view, &seen);
        self.rate_before = Some(seen.rate);
    }

    /// Chooses the number for the start, as soon as it is known whether the path is long. Streams
    /// take two round trips to open. Over a long path they therefore open alongside the first one,
    /// and are established when the size of the copy is known.
    fn begin(&mut self, view: &CopyObservation) {
        if self.started {
            return;
        }
        let is_far = match view.rtt.is_zero() {
            true => view.is_unopened && view.now >= FAR_PATH_OPEN_TIME,
            false => view.rtt >= SEVERAL_FROM_RTT,
        };
        if !is_far {
            self.started = !view.rtt.is_zero() && view.left >= SEVERAL_NEAR_FROM_BYTES;
            if self.started {
                self.set_target(STREAMS_AT_START_NEAR.max(self.wanted), view);
            }
        } else if view.left >= SEVERAL_FROM_BYTES {
            // With small windows, the number may increase once the round-trip time is known.
            self.started = !view.rtt.is_zero();
            let wanted = self.initial_number(view).max(self.wanted);
            self.set_target(wanted, view);
        } else if view.is_size_unknown {
            let streams = match view.is_unopened && view.now >= LONG_PATH_OPEN_TIME {
                true => STREAMS_AT_START_LARGE,
                false => STREAMS_AT_START,
            };
            self.set_target(streams.max(self.wanted), view);
        }
    }

    /// Answers losses during slow start. If no queue stands yet, they show within a round trip that
    /// the path has random losses. Waiting until they are the limit would cost a short copy half
    /// its time.
    fn answer_first_losses(&mut self, view: &CopyObservation) {
        let begun = self.slow_start.get_or_insert_with(|| Window::open(view));
        begun.observe(view);
        if self.answered_first_losses || !self.started || !begun.lost_without_queue(view) {
            return;
        }
        self.answered_first_losses = true;
        if self.ignores_losses {
            return;
        }
        let next = self
            .wanted
            .saturating_mul(MAX_STEP_FACTOR)
            .min(MAX_STREAMS_AT_FIRST_LOSSES)
            .min(self.bounded_by_work(view, BYTES_PER_NEW_STREAM));
        if next > self.wanted {
            self.judged = true;
            self.set_target(next, view);
        }
    }

    /// Returns true once the path has shown random losses, in this copy or an earlier one.
    pub(super) fn has_random_losses(&self) -> bool {
        self.quiet_losses.has_random_loss()
            || self.answered_first_losses
            || self.grew_for_losses
            || self.loss_windows > 0
    }

    /// Returns the number of streams to begin with.
    fn initial_number(&mut self, view: &CopyObservation) -> usize {
        let by_windows = view.largest_window.map_or(0, |window| {
            response::streams_for(RATE_AT_START_BPS, view.rate_with_window(window))
        });
        let by_size = if view.left < LARGE_FROM_BYTES {
            STREAMS_AT_START
        } else {
            STREAMS_AT_START_LARGE
        };
        let bound = self.bounded_by_work(view, BYTES_PER_STREAM_AT_START);
        let number = by_windows.clamp(by_size, MAX_STREAMS_AT_START).min(bound);
        let agrees = |learned: &LearnedStreams| learned.conditions.agrees_with(&view.conditions());
        let Some(learned) = self.remembered.filter(agrees) else {
            return number;
        };
        let streams = (learned.streams as usize).min(bound).max(number);
        if learned.conditions.is_lossy() {
            self.quiet_losses.remember();
            self.without_memory = (streams > number).then_some(number);
        }
        streams
    }

    /// Gives up remembered streams beyond those of a copy without memory, if the first window shows
    /// no losses. They were learned under losses.
    fn drop_unneeded_memory(&mut self, view: &CopyObservation, seen: &WindowResult) {
        let needs_them = seen.has_lost || seen.limit.is_some_and(is_per_stream);
        if let Some(number) = self.without_memory.take().filter(|_| !needs_them) {
            self.set_target(number.min(self.wanted), view);
        }
    }

    /// Returns the maximum number of streams that all have enough to carry.
    fn bounded_by_work(&self, view: &CopyObservation, bytes_per_stream: u64) -> usize {
        let by_work = usize::try_from(view.left / bytes_per_stream).unwrap_or(usize::MAX);
        by_work.clamp(self.least, self.most)
    }

    fn set_target(&mut self, streams: usize, view: &CopyObservation) {
        let streams = streams.clamp(self.least, self.most);
        if streams > self.wanted {
            self.opening = Some((view.now, None));
        }
        self.wanted = streams;
    }

    /// Returns true if new streams are still opening or in slow start.
    fn is_opening(&mut self, view: &CopyObservation) -> bool {
        let Some((since, all_open)) = self.opening else {
            return false;
        };
        let late = view.now.saturating_sub(since)
            > OPEN_TIMEOUT.max(view.rtt.saturating_mul(MIN_LEFT_TO_GROW_RTTS));
        let open = all_open.or((view.open >= self.wanted || late).then_some(view.now));
        self.opening = Some((since, open));
        // At the start there is no earlier measurement to compare with, so the streams'
        // observations count at once.
        let rtts = if self.trial.is_some() {
            SLOW_START_RTTS
        } else {
            0
        };
        let slow_start = view.rtt.saturating_mul(rtts);
        let opens = open.is_none_or(|open| view.now.saturating_sub(open) < slow_start);
        if !opens {
            self.opening = None;
        }
        opens
    }

    fn decide(&mut self, view: &CopyObservation, seen: &WindowResult) {
        let rate = seen.rate;
        let dropped = self.overflow.judge(seen, view);
        if dropped == DropCause::StandingQueue {
            return self.retire_at_overflow(view, rate);
        }
        let limit = match seen.limit {
            Some(Limit::Loss | Limit::Growing) if dropped == DropCause::Queue => None,
            // The path has carried more before, and no queue stands.
            Some(Limit::Path)
                if seen.has_lost && !view.has_queue() && self.fills_path(rate) == Some(false) =>
            {
                Some(Limit::Loss)
            }
            limit => limit,
        };
        if limit == Some(Limit::Path) {
            self.note_full(rate);
        }
        // A single flow blames the path whenever it has no other explanation.
        if limit == Some(Limit::Path) && view.may_have_queue() {
            self.queue_stood = self.queue_stood.saturating_add(seen.length);
        } else {
            self.queue_stood = self.queue_stood.saturating_sub(seen.length);
        }
        self.peak_rate = self.peak_rate.max(rate);
        self.loss_windows = match limit {
            Some(Limit::Loss) => self.loss_windows.saturating_add(1),
            _ => 0,
        };
        self.judged |= matches!(limit, Some(Limit::Path)) || limit.is_some_and(is_per_stream);
        if let Some(trial) = &mut self.trial
            && rate < MIN_STEP_GAIN * trial.rate
        {
            if trial.windows_left > 1 {
                trial.windows_left -= 1;
                return;
            }
            self.grow_after = view.now.saturating_add(GROW_PAUSE);
            self.unpaid_from = trial.streams;
            // Streams that lose packets or wait for windows harm no other flow unless a queue
            // stands, which is handled below.
            if !is_per_stream(trial.limit) {
                let before = trial.streams;
                self.trial = None;
                return self.set_target(before, view);
            }
        }
        self.trial = None;
        match limit {
            Some(Limit::Loss) if !self.is_limited_by_losses(rate) => {}
            Some(limit) if is_per_stream(limit) => {
                let factor = MAX_STEP_FACTOR;
                self.grow(view, limit, rate, factor);
            }
            // Slow start ended before the path was full, for example because HyStart mistook a
            // delay for a queue. Windows then grow slowly, and a new stream fills the rest by its
            // own slow start.
            Some(Limit::Growing) if seen.is_steady => {
                self.grow(view, Limit::Growing, rate, TRIAL_STEP_FACTOR);
            }
            // One stream is read, hashed and encrypted in turn. Another one may have a processor of
            // its own.
            Some(limit @ (Limit::SendingApplication | Limit::ReceivingApplication)) => {
                self.grow(view, limit, rate, TRIAL_STEP_FACTOR);
            }
            Some(Limit::Path) if view.may_have_queue() => self.retire(view, rate),
            _ => {}
        }
    }

    fn grow(&mut self, view: &CopyObservation, limit: Limit, rate: f64, factor: usize) {
        let min_left = MIN_LEFT_TO_GROW.max(view.rtt.saturating_mul(MIN_LEFT_TO_GROW_RTTS));
        let soon_over = view.left as f64 <= rate * min_left.as_secs_f64();
        let loses_for_long = limit == Limit::Loss && self.loss_windows >= MIN_LOSS_WINDOWS;
        // A step that gained nothing says nothing about fewer streams than it began with. A queue
        // may have led to those.
        let may_gain = loses_for_long && self.wanted < self.unpaid_from;
        let waits = (view.now < self.grow_after && !may_gain)
            || (view.now < self.grow_after_queue && !loses_for_long);
        // The queue may have stood only after the streams that filled it had slowed down. The path
        // can carry the peak rate.
        let full_rate = self.full_rate.map(|full| full.max(self.peak_rate));
        if waits || soon_over || full_rate.is_some_and(|full| rate >= FULL_RATE_RATIO * full) {
            return;
        }
        let each = self.losses.rate_of_one_stream(view);
        let next = self.wanted.saturating_mul(factor);
        let next = full_rate.map_or(next, |full| {
            // There are too few losses to tell, so each stream is assumed to keep its rate.
            let each = each
                .filter(|_| limit == Limit::Loss)
                .unwrap_or(rate / self.wanted as f64);
            response::streams_for(full, each).clamp(self.wanted + 1, next)
        });
        let next = next.min(self.bounded_by_work(view, BYTES_PER_NEW_STREAM));
        self.grew_for_losses |= limit == Limit::Loss;
        if next <= self.wanted || (limit == Limit::Loss && self.ignores_losses) {
            return;
        }
        // Slow start exceeds the long-term rate under losses, so more streams are compared with the
        // latter.
        let lasting = each
            .filter(|_| limit == Limit::Loss)
            .map(|each| each * self.wanted as f64);
        self.trial = Some(StepTrial {
            streams: self.wanted,
            rate: lasting.map_or(rate, |lasting| lasting.min(rate)),
            windows_left: TRIAL_WINDOWS,
            limit,
        });
        self.set_target(next, view);
    }

    /// Returns true if losses limit the copy to `rate`. Losses that end slow start behind a full
    /// queue do not, and are known before the queue is.
    fn is_limited_by_losses(&self, rate: f64) -> bool {
        rate < FULL_RATE_RATIO * self.peak_rate || self.loss_windows >= MIN_LOSS_WINDOWS
    }

    /// Notes that the path is full at `rate`.
    fn note_full(&mut self, rate: f64) {
        self.full_rate = Some(self.full_rate.map_or(rate, |full| full.max(rate)));
    }

    /// Returns true if `rate` is about the capacity of the path, or `None` if that is unknown.
    fn fills_path(&self, rate: f64) -> Option<bool> {
        self.full_rate.map(|full| rate >= FULL_RATE_RATIO * full)
    }

    /// Retires streams at a standing queue.
    fn retire(&mut self, view: &CopyObservation, rate: f64) {
        let Some(least) = self.least_at_queue(view, rate) else {
            return;
        };
        // This number has enough in flight to fill the path when its queue has drained.
        let filling = match view
            .min_rtt
            .saturating_add(view.queue.at_least)
            .as_secs_f64()
        {
            0.0 => self.wanted,
            rtt => (self.wanted as f64 * view.min_rtt.as_secs_f64() / rtt).ceil() as usize,
        };
        let (next, (stands, rtts)) = if filling < self.wanted {
            (
                filling.max(self.wanted / 2),
                (MIN_QUEUE_TIME, MIN_QUEUE_RTTS),
            )
        } else if view.can_spare_least() {
            (self.wanted - 1, (MIN_QUEUE_TIME, MIN_QUEUE_RTTS))
        } else {
            (
                self.wanted - 1,
                (MIN_SHORT_QUEUE_TIME, MIN_SHORT_QUEUE_RTTS),
            )
        };
        if self.queue_stood < stands.max(view.rtt.saturating_mul(rtts)) {
            return;
        }
        self.queue_stood = Duration::ZERO;
        self.grow_after_queue = view.now.saturating_add(GROW_PAUSE);
        // Earlier random losses will need their number of streams again as soon as the queue is
        // gone.
        let each = self.losses.rate_of_one_stream(view);
        let by_losses = each.map_or(0, |each| response::streams_for(rate, each));
        let next = next.max(least).max(by_losses.min(self.wanted));
        self.set_target(next, view);
    }

    /// Halves the number of streams at an overflowing queue; these still fill the path.
    fn retire_at_overflow(&mut self, view: &CopyObservation, rate: f64) {
        self.judged = true;
        self.trial = None;
        self.note_full(rate);
        // The losses so far were due to the queue.
        (self.losses, self.loss_windows) = (RandomLosses::default(), 0);
        let Some(least) = self.least_at_queue(view, rate) else {
            return;
        };
        self.grow_after_queue = view.now.saturating_add(GROW_PAUSE);
        self.set_target((self.wanted / 2).max(least), view);
    }

    /// Returns the minimum number of streams at a queue. Returns `None` if there are no more than
    /// that, or the copy is soon over.
    fn least_at_queue(&self, view: &CopyObservation, rate: f64) -> Option<usize> {
        let least = self
            .least
            .saturating_mul(MIN_STREAMS_AT_A_QUEUE)
            .min(self.most);
        let soon_over = view.left as f64 <= rate * MIN_LEFT_TO_RETIRE.as_secs_f64();
        (self.wanted > least && !soon_over).then_some(least)
    }
}

/// Returns true if the limit applies to each stream separately, so that more streams carry more.
fn is_per_stream(limit: Limit) -> bool {
    matches!(
        limit,
        Limit::SendBuffer | Limit::ReceiveWindow | Limit::Loss
    )
}
