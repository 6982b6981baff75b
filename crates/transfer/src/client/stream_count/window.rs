//! What the copy did over some round trips: its rate, and what limited it.

use std::time::Duration;

use drs::{Limit, Tally};
use quantities::path::CongestionControl;

use super::{PathConditions, Queue};

/// How long a window is, in time and in round trips.
const WINDOW: Duration = Duration::from_millis(300);
const WINDOW_RTTS: u32 = 4;
/// How long one is in which a step up must show that it pays: the rate of a flow that loses goes up
/// and down by half.
const TRIAL_WINDOW: Duration = Duration::from_millis(500);
const TRIAL_WINDOW_RTTS: u32 = 8;
/// How long, where a processor or a disk seems to limit the copy: it takes a while until both ends
/// have enough to do.
const APPLICATION_WINDOW: Duration = Duration::from_secs(1);
/// A limit that each stream meets by itself is believed as soon as every stream, on average, was
/// judged for so long, in time and in round trips, and it held for this part of that.
const MIN_JUDGED: Duration = Duration::from_millis(150);
const MIN_JUDGED_RTTS: u32 = 2;
const CLEAR_PART: f64 = 0.6;
/// A rate that grew by less than this factor from one window to the next is steady.
const STEADY_FACTOR: f64 = 1.15;

/// A queue of more than this part of the round trip without it, and of more than so much, is a
/// standing one.
const QUEUE: (f64, Duration) = (0.15, Duration::from_millis(2));
/// The same for losses to be none of a queue's: one that stood when the copy began looks like a
/// part of the path, and moves.
const MOVING_QUEUE: (f64, Duration) = (0.05, Duration::from_millis(2));
/// The same within the first round trips, when it has had little time to move.
const FIRST_MOVE: (f64, Duration) = (0.01, Duration::from_millis(1));
/// Signs of loss in a window that are more than packets overtaking each other.
const MIN_LOSS_SIGNS: u64 = 3;

/// What the supervisor knows at a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct View {
    /// Since the copy began.
    pub now: Duration,
    /// Bytes that the streams' connections have moved so far. Not bytes in place: a block may take
    /// seconds to be complete.
    pub moved: u64,
    /// Bytes of files found and not in place; grows while the walk goes on.
    pub left: u64,
    /// Nothing is known yet of how much there is.
    pub is_size_unknown: bool,
    /// No stream has been open yet.
    pub is_unopened: bool,
    /// Streams that are open and measured.
    pub open: usize,
    /// What limited the sending ends of all streams since the copy began, as far as it is known
    /// here.
    pub sending: Tally,
    /// The same as the receiving ends see it, where they are on this side: they know less, and
    /// sooner.
    pub receiving: Tally,
    /// The mean round trip of the streams that are open, and the least one known.
    pub rtt: Duration,
    pub min_rtt: Duration,
    /// How long what is sent now waits in the path's queue: at least, and at most, as far as the
    /// streams' round trips show it.
    pub queue: Queue,
    /// Payload of a segment, in bytes.
    pub mss: u32,
    /// Segments that the sending ends sent again.
    pub lost: u64,
    /// What grows as soon as segments are lost, as far as this end sees it: sent again, or arrived
    /// out of order.
    pub loss_signs: u64,
    /// The sending ends' congestion control, where it is known and has a formula.
    pub congestion: Option<CongestionControl>,
    /// The most that one stream's window can grow to, as far as this end knows, in bytes.
    pub largest_window: Option<u64>,
    /// What part of all that the open streams carried lately was carried by the one of them that
    /// carried least, 0 to 1; none before there is anything.
    pub least_share: Option<f64>,
    /// Hash of the addresses at both ends of the first hop, where they are known.
    pub addresses: Option<u64>,
}

impl View {
    /// Conditions of the path, as far as they show.
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

    /// Whether a queue stands for certain.
    pub(super) fn has_queue(&self) -> bool {
        self.is_more_than(self.queue.at_least, QUEUE)
    }

    /// Whether one may stand.
    pub(super) fn may_have_queue(&self) -> bool {
        self.is_more_than(self.queue.at_most, QUEUE)
    }

    /// Whether the queue holds more than the stream that carries least has in flight, so that
    /// without it the path stays full.
    pub(super) fn can_spare_least(&self) -> bool {
        let in_queue = self.queue.at_least.as_secs_f64();
        let in_flight = self.min_rtt.as_secs_f64() + in_queue;
        self.least_share
            .is_some_and(|share| in_flight > 0.0 && share <= in_queue / in_flight)
    }

    fn is_more_than(&self, queue: Duration, (part, least): (f64, Duration)) -> bool {
        queue > self.min_rtt.mul_f64(part).max(least)
    }

    /// What a stream with such a window carries, in bit/s.
    pub(super) fn carried_by(&self, window: u64) -> f64 {
        window as f64 * 8.0 / self.rtt.as_secs_f64().max(1e-6)
    }
}

/// A window that has begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    begun: View,
    /// Whether a queue stood for certain at any look since, short as it was.
    had_queue: bool,
    /// Whether one may have.
    may_have_had_queue: bool,
    /// Whether one may have begun to.
    rtt_moved: bool,
}

/// What a window showed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// How long the window was.
    pub length: Duration,
    /// What limited the copy; none where nobody said.
    pub limit: Option<Limit>,
    /// Bytes a second.
    pub rate: f64,
    /// Whether that is hardly more than before, with no sign of a queue.
    pub is_steady: bool,
    /// Whether segments were lost, as far as this end sees it.
    pub has_lost: bool,
    /// Segments that the sending ends sent again.
    pub lost: u64,
    /// Segments that arrived.
    pub segments: u64,
}

impl Window {
    pub(super) fn open(view: &View) -> Self {
        Self {
            begun: *view,
            had_queue: view.is_more_than(view.queue.at_least, MOVING_QUEUE),
            may_have_had_queue: view.is_more_than(view.queue.at_most, MOVING_QUEUE),
            rtt_moved: view.is_more_than(view.queue.at_most, FIRST_MOVE),
        }
    }

    /// Takes a look in it.
    pub(super) fn look(&mut self, view: &View) {
        let now = Self::open(view);
        self.had_queue |= now.had_queue;
        self.may_have_had_queue |= now.may_have_had_queue;
        self.rtt_moved |= now.rtt_moved;
    }

    /// What it showed, once it is long enough to say; `on_trial` where a step up must show that it
    /// pays, `before` what the last window carried, in bytes a second.
    pub(super) fn close(&self, view: &View, on_trial: bool, before: Option<f64>) -> Option<Seen> {
        let begun = &self.begun;
        let elapsed = view.now.saturating_sub(begun.now);
        let (tally, limit) = self.limit(view);
        let judged = tally.total() / u32::try_from(view.open.max(1)).unwrap_or(u32::MAX);
        let is_judged = judged >= MIN_JUDGED.max(view.rtt.saturating_mul(MIN_JUDGED_RTTS));
        let is_clear = limit
            .is_some_and(|(limit, part)| super::is_per_stream(limit) && part >= CLEAR_PART)
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
            // A window, or a buffer, that binds and leaves a queue is more than the path carries.
            Some(Limit::ReceiveWindow | Limit::SendBuffer) if view.may_have_queue() => {
                Some(Limit::Path)
            }
            // Autotuning lags behind a slow start: a window that binds for the moment, and grows.
            Some(Limit::ReceiveWindow | Limit::SendBuffer) if !is_steady => {
                if !is_long {
                    return None;
                }
                Some(Limit::Growing)
            }
            // A flow that is judged by itself takes acknowledgements that come late for a queue;
            // the others of the same path show that there is none.
            Some(Limit::Path) if self.has_lost(view) && !self.had_queue => Some(Limit::Loss),
            // What is lost while the round trip moves may be a queue that overflows, and others' as
            // well.
            Some(Limit::Loss) if self.had_queue => {
                if !is_long {
                    return None;
                }
                view.has_queue().then_some(Limit::Path)
            }
            limit => limit,
        };
        Some(Seen {
            length: elapsed,
            limit,
            rate,
            is_steady: is_steady && !self.may_have_had_queue,
            has_lost: self.has_lost(view),
            lost: view.lost.saturating_sub(begun.lost),
            segments: moved / u64::from(view.mss.max(1)),
        })
    }

    /// Whether segments were lost in it while the round trip did not move.
    pub(super) fn lost_without_queue(&self, view: &View) -> bool {
        self.has_lost(view) && !self.rtt_moved
    }

    fn has_lost(&self, view: &View) -> bool {
        view.loss_signs.saturating_sub(self.begun.loss_signs) >= MIN_LOSS_SIGNS
    }

    /// What limited the copy, and for which part of the time. A sending end knows what holds it,
    /// and a receiving one that receives nothing of it in time sees some of that for itself.
    fn limit(&self, view: &View) -> (Tally, Option<(Limit, f64)>) {
        let sending = view.sending.since(&self.begun.sending);
        let receiving = view.receiving.since(&self.begun.receiving);
        let tally = if sending.total() * 2 >= receiving.total() {
            sending
        } else {
            receiving
        };
        (
            tally,
            tally.chief().filter(|(limit, _)| *limit != Limit::Sender),
        )
    }
}
