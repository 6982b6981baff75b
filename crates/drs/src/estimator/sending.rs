//! The sending side: who keeps the next segment from leaving?
//!
//! First come those who stop the sender before its congestion control does, by the time they did
//! so: program, peer's window, send buffer. Where none does, what is in flight is the congestion
//! control's choice, and the question is what the choice rests on: a rate that someone set, a model
//! of the path, losses, a queue, or nothing yet.

use std::time::Duration;

use super::interval::Interval;
use super::round_trips::{MinQueue, RoundTrips};
use crate::{Limit, Sample};

/// Stalled for at least this part of an interval, and it is what limits the flow.
const MIN_STALLED_PART: f64 = 0.5;
/// A peer's window below this part of the largest it ever offered has been closed by data that its
/// program did not read.
const MAX_CLOSED_WINDOW_PART: f64 = 0.75;
/// A round trip's data fills this part of the peer's window: a sender that paces by a model is
/// limited by the window.
const MIN_FILLED_WINDOW_PART: f64 = 0.75;
/// A rate that was set is what limits when the flow gets this part of it; a rate of less than this
/// part of the fitted one is another.
const MIN_PACED_PART: f64 = 0.85;
/// Less is no standing queue.
const MIN_QUEUE: MinQueue = MinQueue {
    part: 0.15,
    time: Duration::from_millis(1),
};
/// A loss within so many round trips after a standing queue was seen was that queue overflowing. A
/// window that is what it was before within so many round trips was not cut for good.
const ROUNDS_OF_LOSS: u32 = 3;

/// What is remembered of a flow from interval to interval.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    before: Option<Sample>,
    largest_window: u32,
    round_trips: RoundTrips,
    queue_seen: Option<Duration>,
    cut: Option<Cut>,
    /// The one before that, for when it is undone.
    earlier_cut: Option<Cut>,
}

/// The last time that the congestion window was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    at: Duration,
    /// The window before, in bytes.
    from: u64,
    /// The slow-start threshold before.
    threshold: Option<u32>,
    /// Whether a standing queue, or a congestion mark, came before it.
    by_queue: bool,
    /// Whether a congestion mark did.
    marked: bool,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            before: None,
            largest_window: 0,
            round_trips: RoundTrips::new(MIN_QUEUE),
            queue_seen: None,
            cut: None,
            earlier_cut: None,
        }
    }
}

impl Memory {
    pub fn look(&mut self, sample: &Sample) {
        self.largest_window = self
            .largest_window
            .max(sample.info.send_window.unwrap_or(0));
        if let Some(before) = self
            .before
            .replace(*sample)
            .filter(|before| before.at <= sample.at)
        {
            self.notice_undone(sample);
            self.notice_cut(&before, sample);
        }
        let info = &sample.info;
        let min_rtt = info.min_rtt.unwrap_or(info.rtt);
        self.round_trips.look(sample.at, info.rtt, min_rtt, None);
        if self.round_trips.show_queue() {
            self.queue_seen = Some(sample.at);
        }
    }

    /// What seemed lost had only been overtaken, and the kernel took the cut back (RFC 3522, RFC
    /// 4015, RFC 3708): window and threshold are what they were. A mark is never taken back.
    fn notice_undone(&mut self, now: &Sample) {
        let soon = now.info.rtt.saturating_mul(ROUNDS_OF_LOSS);
        let undone = self.cut.is_some_and(|cut| {
            !cut.marked
                && now.at.saturating_sub(cut.at) <= soon
                && now.info.lost == 0
                && now.info.slow_start_threshold == cut.threshold
                && now.congestion_window() >= cut.from
        });
        if undone {
            self.cut = self.earlier_cut.take();
        }
    }

    /// A window is cut when segments were lost or marked and the slow-start threshold came down.
    /// Without a loss the threshold only says that slow start ended early (HyStart), which is no
    /// limit met.
    fn notice_cut(&mut self, before: &Sample, now: &Sample) {
        let marked = now.info.delivered_ce > before.info.delivered_ce;
        let lost =
            now.info.retransmits != before.info.retransmits || now.info.lost > before.info.lost;
        let round = now.info.rtt.max(now.at.saturating_sub(before.at));
        let recent = round.saturating_mul(ROUNDS_OF_LOSS);
        // Everything that is lost within a round trip is one event, and so is what recovery takes
        // to repair it.
        let same = |cut: &Cut| now.at.saturating_sub(cut.at) < recent;
        if !(marked || lost) {
            return;
        }
        let by_queue = marked
            || self
                .queue_seen
                .is_some_and(|seen| now.at.saturating_sub(seen) <= recent);
        match &mut self.cut {
            Some(cut) if same(cut) => {
                cut.at = now.at;
                cut.by_queue |= by_queue;
                cut.marked |= marked;
            }
            cut => {
                self.earlier_cut = *cut;
                *cut = Some(Cut {
                    at: now.at,
                    from: before.congestion_window(),
                    threshold: before.info.slow_start_threshold,
                    by_queue,
                    marked,
                });
            }
        }
    }

    pub fn judge(&self, interval: &Interval) -> Limit {
        let sample = interval.last();
        let stalled = |time: Option<f64>| time.unwrap_or(0.0);
        let on_window = stalled(interval.receive_window_limited());
        let on_buffer = stalled(interval.send_buffer_limited());
        let windowed = on_window
            .max(interval.share_of_looks(interval.windowed))
            .max(f64::from(u8::from(model_fills_window(interval))));
        let buffer_full = on_buffer.max(interval.share_of_looks(interval.buffer_full));
        // Nothing waits to be sent while a program waits for room in the buffer, either; the kernel
        // knows the difference.
        let starved = interval
            .share_of_looks(interval.starved)
            .max(1.0 - interval.busy())
            .min(1.0 - on_window - on_buffer);
        let most = starved.max(windowed).max(buffer_full);
        if most >= MIN_STALLED_PART {
            let closed = interval.mean_peer_window()
                < MAX_CLOSED_WINDOW_PART * f64::from(self.largest_window);
            return if starved >= most {
                Limit::SendingApplication
            } else if windowed >= most && closed {
                Limit::ReceivingApplication
            } else if self.round_trips.show_queue() {
                // The window, or the buffer, is more than the path carries: what it adds waits in
                // the path's queue.
                Limit::Path
            } else if windowed >= most {
                Limit::ReceiveWindow
            } else {
                Limit::SendBuffer
            };
        }
        if gets_set_rate(interval) {
            // A rate that was fitted to the path is what the path carries.
            if is_fitted(sample) {
                Limit::Path
            } else {
                Limit::Pacing
            }
        } else if sample.congestion.is_model_based() {
            self.by_model(interval)
        } else {
            self.by_losses(interval)
        }
    }

    /// BBR's window follows its model of the path, and losses do not cut it.
    fn by_model(&self, interval: &Interval) -> Limit {
        match interval.last().congestion.bbr {
            Some(bbr) if bbr.starts_up() => Limit::Growing,
            _ => Limit::Path,
        }
    }

    /// Reno, CUBIC and their like grow until something is lost.
    fn by_losses(&self, interval: &Interval) -> Limit {
        let sample = interval.last();
        let held = interval.share_of_looks(interval.held) >= MIN_STALLED_PART;
        match self.cut {
            _ if self.round_trips.show_queue() => Limit::Path,
            // Data waits, both windows have room, and yet it does not leave: a queue of this host's
            // own holds it (TCP small queues).
            _ if held && !is_fitted(sample) => Limit::Pacing,
            None => Limit::Growing,
            Some(cut) if !cut.by_queue => Limit::Loss,
            // The way back to where the path was full. Beyond that without a queue, the path has
            // become wider.
            Some(cut) if sample.congestion_window() <= cut.from.saturating_add(cut.from / 8) => {
                Limit::Path
            }
            Some(_) => Limit::Growing,
        }
    }
}

/// Someone set a rate, the sender paces at it, and that is what the flow gets.
fn gets_set_rate(interval: &Interval) -> bool {
    let info = &interval.last().info;
    let (Some(most), Some(now)) = (info.max_pacing_rate, info.pacing_rate) else {
        return false;
    };
    now as f64 >= MIN_PACED_PART * most as f64
        && interval.acknowledged_rate() >= MIN_PACED_PART * most as f64
}

/// The rate that was set was fitted to the path, and nobody has set a lower one.
fn is_fitted(sample: &Sample) -> bool {
    match (sample.fitted_rate, sample.info.max_pacing_rate) {
        (Some(fitted), Some(most)) => most as f64 >= MIN_PACED_PART * fitted as f64,
        _ => false,
    }
}

/// BBR measures the bandwidth that the peer's window allows, and then paces just below it: the
/// window limits although the sender seldom runs into it. A round trip's data fills the window;
/// where the path limits, it fills half of BBR's own.
fn model_fills_window(interval: &Interval) -> bool {
    let sample = interval.last();
    let window = interval.mean_peer_window();
    sample.congestion.is_model_based()
        && sample.queues.unsent > 0
        && window < sample.congestion_window() as f64
        && interval.acknowledged_rate() * sample.info.rtt.as_secs_f64()
            >= MIN_FILLED_WINDOW_PART * window
}
