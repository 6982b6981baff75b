//! How many streams a copy has, when the user doesn't say.
//!
//! What a path needs shows within its first round trips, and the number follows in one step:
//!
//! - A copy that is worth it begins with several streams, because they share the cost of slow
//!   start; with as many as fill a slow path at once where the hosts' windows are known to be
//!   small; with as many as it needed last time, if those are more and what is measured of the path
//!   agrees with what they were learned from ([`conditions`]). A memory never makes a copy begin
//!   with fewer: what a path that has got worse needs would show later than with nothing
//!   remembered.
//! - Losses without a queue, windows and buffers hold each stream by itself: the number grows to
//!   what the response functions of Reno and CUBIC give for the measured loss ([`response`]) where
//!   it is known what the path carries, and fourfold otherwise.
//! - A queue that stands on the path is there for everybody on it, and more streams only take from
//!   the others: the number comes down to [`STREAMS_AT_A_QUEUE`], each time to no fewer than fill
//!   the path without the queue. One that was full before the copy began shows in what it drops
//!   alone ([`overflow`]).
//! - Windows that hardly grow any more, with no queue, are tried with twice as many streams: each
//!   new one brings a slow start of its own.
//! - A processor or a disk is tried with twice as many, and left again where that did not pay.
//!
//! No clock and no socket in here; the supervisor feeds it and opens or retires what it asks for.

mod conditions;
mod overflow;
mod response;
mod round_trips;
#[cfg(test)]
mod tests;
mod window;

use std::time::Duration;

pub(crate) use conditions::{LearnedStreams, PathConditions};
use drs::Limit;
use overflow::{Dropped, Overflow};
use response::Losses;
pub(super) use round_trips::{Queue, RoundTrips, RouteRtt};
pub(super) use window::View;
use window::{Seen, Window};

/// Streams that a copy keeps on each route at a standing queue: it then takes at most about this
/// many times what one flow would.
const STREAMS_AT_A_QUEUE: usize = 2;
/// Streams of a copy at its start, and of a large one: the first losses end slow start, and hit
/// fewer streams where there are more.
const STREAMS_AT_START: usize = 8;
const STREAMS_AT_START_LARGE: usize = 16;
/// Bytes to copy from which a copy is large.
const LARGE_FROM_BYTES: u64 = 16 << 20;
/// Streams of a copy over a near path at its start, and the bytes to copy from which it has them:
/// what one stream carries is read, hashed and encrypted in turn, so that several have as many
/// processors.
const STREAMS_AT_START_NEAR: usize = 4;
const SEVERAL_NEAR_FROM_BYTES: u64 = 64 << 20;
/// Most streams at the start, where windows are known to be small.
const MAX_STREAMS_AT_START: usize = 32;
/// Most streams that the first losses in slow start lead to.
const MAX_STREAMS_AT_FIRST_LOSSES: usize = 16;
/// Bytes to copy, and the round trip, from which a copy begins with several streams.
const SEVERAL_FROM_BYTES: u64 = 4 << 20;
const SEVERAL_FROM_RTT: Duration = Duration::from_millis(5);
/// Opening takes two round trips: a first stream that is not open after this goes over a path of
/// ten milliseconds or more, or to a slow host, where idle streams beside it do no harm.
const FAR_IF_NOT_OPEN_AFTER: Duration = Duration::from_millis(25);
/// The same for a path so long that a large copy, if it turns out to be one, would take a
/// noticeable time longer if half its streams were opened only then.
const LONG_IF_NOT_OPEN_AFTER: Duration = Duration::from_millis(50);
/// Small windows are answered at the start with streams that together carry so much, in bit/s.
const RATE_AT_START: f64 = 200e6;
/// Bytes that must be left for each stream at the start.
const BYTES_PER_STREAM_AT_START: u64 = 1 << 19;
/// The same later on: a new one is slow at first.
const BYTES_PER_NEW_STREAM: u64 = 1 << 20;
/// A step up multiplies the number by at most this where it is not known how much the path carries.
const MAX_GROWTH: usize = 4;
/// The same where a processor or a disk may be the limit.
const TRIAL_GROWTH: usize = 2;

/// A step has paid when the rate grew by this factor.
const PAID_FACTOR: f64 = 1.1;
/// Windows in which it may show: the rate of a flow that loses goes up and down by half.
const TRIAL_WINDOWS: u32 = 2;
/// After a step that did not pay, and after streams were retired, none are added for so long: paths
/// change. Losses without a queue that last are answered before, as long as it was only the queue
/// that was answered.
const GROW_AGAIN_AFTER: Duration = Duration::from_secs(30);
/// A path that gives this part of what it carried when it was full is taken to be full.
const FULL_PART: f64 = 0.85;

/// Windows in a row in which losses are the limit, from which they are believed although the rate
/// has not gone down.
const MIN_LOSS_WINDOWS: u32 = 3;

/// How long new streams may take to open before the copy is measured without them.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);
/// Round trips of slow start that new streams have before they are measured.
const SLOW_START_RTTS: u32 = 6;
/// Streams are added only to copies that take longer than this, in time and in round trips: opening
/// and slow start take about as long.
const MIN_LEFT: Duration = Duration::from_secs(1);
const MIN_LEFT_RTTS: u32 = 12;

/// For how much longer a queue must stand than not before streams are retired, in time and in round
/// trips: others' flows empty it at times.
const QUEUE_STANDS: Duration = Duration::from_secs(1);
const QUEUE_STANDS_RTTS: u32 = 8;
/// The same where the queue is so short that one stream less no longer fills the path at once: it
/// runs dry until the others' windows have grown, which takes a number of round trips. After this
/// many, windows that stood at CUBIC's plateau (RFC 9438, section 4.1) grow again.
const SHORT_QUEUE_STANDS: Duration = Duration::from_secs(3);
const SHORT_QUEUE_STANDS_RTTS: u32 = 56;
/// Copies that are over sooner than this retire none.
const RETIRE_MIN_LEFT: Duration = Duration::from_secs(2);

/// Decides. See the module's documentation.
#[derive(Debug)]
pub(super) struct StreamCount {
    wanted: usize,
    most: usize,
    /// One for each route.
    least: usize,
    fixed: bool,
    /// What the path needed last time.
    remembered: Option<LearnedStreams>,
    /// The number that a copy without a memory would have begun with, while more are there because
    /// of losses that have not shown yet.
    without_memory: Option<usize>,
    /// Conditions of the path at the last look.
    conditions: PathConditions,
    /// Whether the number for the start has been chosen.
    started: bool,
    /// Since when new streams are opening, and since when all are open.
    opening: Option<(Duration, Option<Duration>)>,
    window: Option<Window>,
    /// What the last window carried, in bytes a second.
    rate_before: Option<f64>,
    /// From the first look on.
    slow_start: Option<Window>,
    /// Whether losses before there was a queue were answered.
    answered_first_losses: bool,
    trial: Option<Trial>,
    /// No streams are added before this, because a step did not pay ...
    grow_after: Duration,
    /// ... that began with so many: lasting losses of fewer are answered all the same ...
    unpaid_from: usize,
    /// ... or because streams were retired at a queue.
    grow_after_queue: Duration,
    /// The greatest rate at which a queue stood, in bytes a second: what the path carries.
    full_rate: Option<f64>,
    /// The greatest rate of any window, in bytes a second.
    peak_rate: f64,
    /// Windows in a row in which losses were the limit.
    loss_windows: u32,
    /// For how much longer windows saw a queue than none, since it last led to fewer streams.
    queue_stood: Duration,
    /// Losses without a queue.
    losses: Losses,
    /// A queue that is known by nothing but what it drops.
    overflow: Overflow,
    /// Whether a window has shown what the path needs.
    judged: bool,
}

/// A step up that must show that it pays.
#[derive(Debug, Clone, Copy)]
struct Trial {
    /// The number before.
    streams: usize,
    /// What that number would have carried, in bytes a second.
    rate: f64,
    windows_left: u32,
    limit: Limit,
}

impl StreamCount {
    /// A number that the user gave; otherwise one stream until there is something to decide by,
    /// then at least what the path needed last time, if that is `remembered` and the path is still
    /// like that. `most` at most.
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
            answered_first_losses: false,
            trial: None,
            grow_after: Duration::ZERO,
            unpaid_from: 0,
            grow_after_queue: Duration::ZERO,
            full_rate: None,
            peak_rate: 0.0,
            loss_windows: 0,
            queue_stood: Duration::ZERO,
            losses: Losses::default(),
            overflow: Overflow::default(),
            judged: false,
        }
    }

    /// At least so many from now on, unless the user gave a number.
    pub(super) fn at_least(&mut self, least: usize) {
        if !self.fixed {
            self.least = self.least.max(least.min(self.most));
            self.wanted = self.wanted.max(self.least);
        }
    }

    /// No more than so many from now on, whoever asked for more.
    pub(super) fn at_most(&mut self, most: usize) {
        self.most = self.most.min(most.max(1));
        self.least = self.least.min(self.most);
        self.wanted = self.wanted.min(self.most);
    }

    /// How many streams there should be.
    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    /// How many streams there may be.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Whether the user gave the number, so that nothing has to be observed.
    pub(super) fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// What the path turned out to need, to be remembered; none where nothing showed it.
    pub(super) fn needed(&self) -> Option<LearnedStreams> {
        (self.judged && !self.fixed).then_some(LearnedStreams {
            streams: self.wanted as u32,
            conditions: self.conditions,
        })
    }

    /// Looks, and takes a step where one is due.
    pub(super) fn observe(&mut self, view: &View) {
        if self.fixed {
            return;
        }
        self.begin(view);
        // Before the first byte there is nothing to measure.
        if view.open == 0 || view.rtt.is_zero() {
            return;
        }
        self.conditions = view.conditions();
        self.answer_first_losses(view);
        if self.opens(view) {
            self.window = None;
            return;
        }
        let Some(window) = &mut self.window else {
            if view.moved > 0 {
                self.window = Some(Window::open(view));
            }
            return;
        };
        window.look(view);
        let Some(seen) = window.close(view, self.trial.is_some(), self.rate_before) else {
            return;
        };
        self.window = Some(Window::open(view));
        tracing::trace!(?seen, streams = self.wanted, rtt = ?view.rtt, min_rtt = ?view.min_rtt, queue = ?view.queue, least_share = ?view.least_share, "a window");
        self.losses.add(&seen);
        self.doubt_memory(view, &seen);
        self.decide(view, &seen);
        self.rate_before = Some(seen.rate);
    }

    /// Chooses the number for the start, as soon as it is known whether the path is long. Streams
    /// take two round trips to open, so over a long one they are opened beside the first one: by
    /// the time at which it is known what there is to copy, they stand.
    fn begin(&mut self, view: &View) {
        if self.started {
            return;
        }
        let is_far = match view.rtt.is_zero() {
            true => view.is_unopened && view.now >= FAR_IF_NOT_OPEN_AFTER,
            false => view.rtt >= SEVERAL_FROM_RTT,
        };
        if !is_far {
            self.started = !view.rtt.is_zero() && view.left >= SEVERAL_NEAR_FROM_BYTES;
            if self.started {
                self.want(STREAMS_AT_START_NEAR.max(self.wanted), view);
            }
        } else if view.left >= SEVERAL_FROM_BYTES {
            // By small windows there may be more as soon as the round trip is known.
            self.started = !view.rtt.is_zero();
            let wanted = self.at_start(view).max(self.wanted);
            self.want(wanted, view);
        } else if view.is_size_unknown {
            let streams = match view.is_unopened && view.now >= LONG_IF_NOT_OPEN_AFTER {
                true => STREAMS_AT_START_LARGE,
                false => STREAMS_AT_START,
            };
            self.want(streams.max(self.wanted), view);
        }
    }

    /// Losses in slow start, when no queue stands yet, show within a round trip that the path loses
    /// packets by itself; to wait until they are the limit costs a short copy half its time.
    fn answer_first_losses(&mut self, view: &View) {
        let begun = self.slow_start.get_or_insert_with(|| Window::open(view));
        begun.look(view);
        if self.answered_first_losses || !self.started || !begun.lost_without_queue(view) {
            return;
        }
        self.answered_first_losses = true;
        let next = self
            .wanted
            .saturating_mul(MAX_GROWTH)
            .min(MAX_STREAMS_AT_FIRST_LOSSES)
            .min(self.bounded_by_work(view, BYTES_PER_NEW_STREAM));
        if next > self.wanted {
            self.judged = true;
            self.want(next, view);
        }
    }

    /// How many to begin with.
    fn at_start(&mut self, view: &View) -> usize {
        let by_windows = view.largest_window.map_or(0, |window| {
            response::streams_for(RATE_AT_START, view.carried_by(window))
        });
        let by_size = if view.left < LARGE_FROM_BYTES {
            STREAMS_AT_START
        } else {
            STREAMS_AT_START_LARGE
        };
        let bound = self.bounded_by_work(view, BYTES_PER_STREAM_AT_START);
        let number = by_windows.clamp(by_size, MAX_STREAMS_AT_START).min(bound);
        let agrees = |learned: &LearnedStreams| learned.conditions.agree(&view.conditions());
        match self.remembered.filter(agrees) {
            Some(learned) if learned.streams as usize > number => {
                self.without_memory = learned.conditions.is_lossy().then_some(number);
                (learned.streams as usize).min(bound)
            }
            _ => number,
        }
    }

    /// Streams beyond those of a copy without a memory were learned under losses. Gives them up if
    /// the first window shows none.
    fn doubt_memory(&mut self, view: &View, seen: &Seen) {
        let needs_them = seen.has_lost || seen.limit.is_some_and(is_per_stream);
        if let Some(number) = self.without_memory.take().filter(|_| !needs_them) {
            self.want(number.min(self.wanted), view);
        }
    }

    /// No more than have something to carry.
    fn bounded_by_work(&self, view: &View, bytes_per_stream: u64) -> usize {
        let by_work = usize::try_from(view.left / bytes_per_stream).unwrap_or(usize::MAX);
        by_work.clamp(self.least, self.most)
    }

    fn want(&mut self, streams: usize, view: &View) {
        let streams = streams.clamp(self.least, self.most);
        if streams > self.wanted {
            self.opening = Some((view.now, None));
        }
        self.wanted = streams;
    }

    /// Whether new streams still open, or are in slow start.
    fn opens(&mut self, view: &View) -> bool {
        let Some((since, all_open)) = self.opening else {
            return false;
        };
        let late = view.now.saturating_sub(since)
            > OPEN_TIMEOUT.max(view.rtt.saturating_mul(MIN_LEFT_RTTS));
        let open = all_open.or((view.open >= self.wanted || late).then_some(view.now));
        self.opening = Some((since, open));
        // At the start nothing was measured that they could be held against: what they meet counts
        // at once.
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

    fn decide(&mut self, view: &View, seen: &Seen) {
        let rate = seen.rate;
        let dropped = self.overflow.judge(seen, view);
        if dropped == Dropped::StandingQueue {
            return self.retire_at_overflow(view, rate);
        }
        let limit = match seen.limit {
            Some(Limit::Loss | Limit::Growing) if dropped == Dropped::Queue => None,
            // It has carried more, and nothing stands in it.
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
        // A flow by itself says that the path is full as long as it has no other explanation.
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
            && rate < PAID_FACTOR * trial.rate
        {
            if trial.windows_left > 1 {
                trial.windows_left -= 1;
                return;
            }
            self.grow_after = view.now.saturating_add(GROW_AGAIN_AFTER);
            self.unpaid_from = trial.streams;
            // Streams that lose packets, or wait for windows, are in nobody's way unless a queue
            // stands, and that is seen to below.
            if !is_per_stream(trial.limit) {
                let before = trial.streams;
                self.trial = None;
                return self.want(before, view);
            }
        }
        self.trial = None;
        match limit {
            Some(Limit::Loss) if !self.losses_cut(rate) => {}
            Some(limit) if is_per_stream(limit) => {
                let factor = MAX_GROWTH;
                self.grow(view, limit, rate, factor);
            }
            // Slow start is over before the path is full, as where HyStart takes a delay for a
            // queue, and a window then grows by little in a second: a new stream fills the rest by
            // its own slow start.
            Some(Limit::Growing) if seen.is_steady => {
                self.grow(view, Limit::Growing, rate, TRIAL_GROWTH);
            }
            // One stream is read, hashed and encrypted in turn; another one may have a processor of
            // its own.
            Some(limit @ (Limit::SendingApplication | Limit::ReceivingApplication)) => {
                self.grow(view, limit, rate, TRIAL_GROWTH);
            }
            Some(Limit::Path) if view.may_have_queue() => self.retire(view, rate),
            _ => {}
        }
    }

    fn grow(&mut self, view: &View, limit: Limit, rate: f64, factor: usize) {
        let min_left = MIN_LEFT.max(view.rtt.saturating_mul(MIN_LEFT_RTTS));
        let soon_over = view.left as f64 <= rate * min_left.as_secs_f64();
        let loses_for_long = limit == Limit::Loss && self.loss_windows >= MIN_LOSS_WINDOWS;
        // What a step did not gain says nothing of fewer streams than it began with: a queue may
        // have led to those.
        let may_gain = loses_for_long && self.wanted < self.unpaid_from;
        let waits = (view.now < self.grow_after && !may_gain)
            || (view.now < self.grow_after_queue && !loses_for_long);
        // A queue may have stood only when the streams that filled it had slowed down already: the
        // path carries what it has carried before.
        let full_rate = self.full_rate.map(|full| full.max(self.peak_rate));
        if waits || soon_over || full_rate.is_some_and(|full| rate >= FULL_PART * full) {
            return;
        }
        let each = self.losses.carried_by_one(view);
        let next = self.wanted.saturating_mul(factor);
        let next = full_rate.map_or(next, |full| {
            // Too few losses to say: each goes on carrying what it did.
            let each = each
                .filter(|_| limit == Limit::Loss)
                .unwrap_or(rate / self.wanted as f64);
            response::streams_for(full, each).clamp(self.wanted + 1, next)
        });
        let next = next.min(self.bounded_by_work(view, BYTES_PER_NEW_STREAM));
        if next <= self.wanted {
            return;
        }
        // Slow start goes past what losses leave in the long run: that is what more streams are
        // held against.
        let lasting = each
            .filter(|_| limit == Limit::Loss)
            .map(|each| each * self.wanted as f64);
        self.trial = Some(Trial {
            streams: self.wanted,
            rate: lasting.map_or(rate, |lasting| lasting.min(rate)),
            windows_left: TRIAL_WINDOWS,
            limit,
        });
        self.want(next, view);
    }

    /// Whether losses hold the copy to such a rate. Those with which slow start ends behind a full
    /// queue do not, and the queue is known later than they are.
    fn losses_cut(&self, rate: f64) -> bool {
        rate < FULL_PART * self.peak_rate || self.loss_windows >= MIN_LOSS_WINDOWS
    }

    /// The path is full at such a rate.
    fn note_full(&mut self, rate: f64) {
        self.full_rate = Some(self.full_rate.map_or(rate, |full| full.max(rate)));
    }

    /// Whether that is about as much as the path carries; none where that is not known.
    fn fills_path(&self, rate: f64) -> Option<bool> {
        self.full_rate.map(|full| rate >= FULL_PART * full)
    }

    /// A queue stands.
    fn retire(&mut self, view: &View, rate: f64) {
        let Some(least) = self.least_at_queue(view, rate) else {
            return;
        };
        // So many have enough in flight to fill the path when its queue has drained.
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
                (QUEUE_STANDS, QUEUE_STANDS_RTTS),
            )
        } else if view.can_spare_least() {
            (self.wanted - 1, (QUEUE_STANDS, QUEUE_STANDS_RTTS))
        } else {
            (
                self.wanted - 1,
                (SHORT_QUEUE_STANDS, SHORT_QUEUE_STANDS_RTTS),
            )
        };
        if self.queue_stood < stands.max(view.rtt.saturating_mul(rtts)) {
            return;
        }
        self.queue_stood = Duration::ZERO;
        self.grow_after_queue = view.now.saturating_add(GROW_AGAIN_AFTER);
        // Losses without a queue that came before need their number again as soon as it is gone.
        let each = self.losses.carried_by_one(view);
        let by_losses = each.map_or(0, |each| response::streams_for(rate, each));
        let next = next.max(least).max(by_losses.min(self.wanted));
        self.want(next, view);
    }

    /// A queue overflows: half as many fill the path.
    fn retire_at_overflow(&mut self, view: &View, rate: f64) {
        self.judged = true;
        self.trial = None;
        self.note_full(rate);
        // They were the queue's.
        (self.losses, self.loss_windows) = (Losses::default(), 0);
        let Some(least) = self.least_at_queue(view, rate) else {
            return;
        };
        self.grow_after_queue = view.now.saturating_add(GROW_AGAIN_AFTER);
        self.want((self.wanted / 2).max(least), view);
    }

    /// To how many streams a queue may lead; none where there are no more, or the copy is soon
    /// over.
    fn least_at_queue(&self, view: &View, rate: f64) -> Option<usize> {
        let least = self.least.saturating_mul(STREAMS_AT_A_QUEUE).min(self.most);
        let soon_over = view.left as f64 <= rate * RETIRE_MIN_LEFT.as_secs_f64();
        (self.wanted > least && !soon_over).then_some(least)
    }
}

/// Whether each stream meets the limit by itself, so that more streams carry more.
fn is_per_stream(limit: Limit) -> bool {
    matches!(
        limit,
        Limit::SendBuffer | Limit::ReceiveWindow | Limit::Loss
    )
}
