//! Verdicts of the sender: what keeps the next segment from leaving?
//!
//! First come the limits that stop the sender before its congestion control does, by the time that
//! they did so: program, peer's window, send buffer. Without any of them, the congestion control
//! decides what is in flight. The question is then what it follows: a rate that someone set, a
//! model of the path, losses, a queue, or nothing yet.

use std::time::Duration;

use super::interval::Interval;
use super::round_trips::{MinQueue, RoundTrips};
use crate::{Limit, Sample};

/// Minimum part of an interval that a flow is stalled on its limit.
const MIN_STALLED_PART: f64 = 0.5;
/// Part of the largest window ever offered below which the peer's window counts as closed by data
/// that its program did not read.
const MAX_CLOSED_WINDOW_PART: f64 = 0.75;
/// Minimum part of the peer's window that a round trip's data fills if the window limits a sender
/// that paces by a model.
const MIN_FILLED_WINDOW_PART: f64 = 0.75;
/// Minimum part of a set rate that a flow gets if that rate is the limit. A rate below this part of
/// the fitted one was set by someone else.
const MIN_PACED_PART: f64 = 0.85;
/// Minimum standing queue.
const MIN_QUEUE: MinQueue = MinQueue {
    part: 0.15,
    time: Duration::from_millis(1),
};
/// Round trips after a standing queue within which a loss counts as an overflow of that queue. A
/// window that has its former size again within so many round trips was not really cut.
const ROUNDS_OF_LOSS: u32 = 3;

/// Memory of a flow from interval to interval.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    before: Option<Sample>,
    largest_window: u32,
    round_trips: RoundTrips,
    queue_seen: Option<Duration>,
    cut: Option<Cut>,
    /// The cut before the last, in case that is undone.
    earlier_cut: Option<Cut>,
}

/// The last cut of the congestion window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    at: Duration,
    /// Window before the cut, in bytes.
    from: u64,
    /// Slow-start threshold before the cut.
    threshold: Option<u32>,
    /// If true, a standing queue or a congestion mark came before it.
    by_queue: bool,
    /// If true, a congestion mark came before it.
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

    /// Notices that the kernel took a cut back (RFC 3522, RFC 4015, RFC 3708), because a segment
    /// that seemed lost had only been overtaken. Window and threshold have their former values
    /// then. A mark is never taken back.
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

    /// Notices a cut of the window: segments were lost or marked, and the slow-start threshold
    /// fell. Without a loss, a lower threshold only says that slow start ended early (HyStart),
    /// which is not a limit.
    fn notice_cut(&mut self, before: &Sample, now: &Sample) {
        let marked = now.info.delivered_ce > before.info.delivered_ce;
        let lost =
            now.info.retransmits != before.info.retransmits || now.info.lost > before.info.lost;
        let round = now.info.rtt.max(now.at.saturating_sub(before.at));
        let recent = round.saturating_mul(ROUNDS_OF_LOSS);
        // Losses within a round trip, and those during recovery, are one event.
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
        // While a program waits for space in the buffer, no data waits to be sent either. The
        // kernel knows the difference.
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
                // The window or buffer exceeds what the path carries: the excess waits in the
                // path's queue.
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

    /// Judges a model-based flow: BBR's window follows its model of the path, and losses do not cut
    /// it.
    fn by_model(&self, interval: &Interval) -> Limit {
        match interval.last().congestion.bbr {
            Some(bbr) if bbr.starts_up() => Limit::Growing,
            _ => Limit::Path,
        }
    }

    /// Judges a loss-based flow: Reno, CUBIC and the like grow until something is lost.
    fn by_losses(&self, interval: &Interval) -> Limit {
        let sample = interval.last();
        let held = interval.share_of_looks(interval.held) >= MIN_STALLED_PART;
        match self.cut {
            _ if self.round_trips.show_queue() => Limit::Path,
            // Data waits, both windows have room, and yet it does not leave: a queue of this host
            // holds it (TCP small queues).
            _ if held && !is_fitted(sample) => Limit::Pacing,
            None => Limit::Growing,
            Some(cut) if !cut.by_queue => Limit::Loss,
            // The window is growing back to where the path was full. If it grows beyond that
            // without a queue, the path has become wider.
            Some(cut) if sample.congestion_window() <= cut.from.saturating_add(cut.from / 8) => {
                Limit::Path
            }
            Some(_) => Limit::Growing,
        }
    }
}

/// Returns true if someone set a rate, the sender paces at it, and the flow gets it.
fn gets_set_rate(interval: &Interval) -> bool {
    let info = &interval.last().info;
    let (Some(most), Some(now)) = (info.max_pacing_rate, info.pacing_rate) else {
        return false;
    };
    now as f64 >= MIN_PACED_PART * most as f64
        && interval.acknowledged_rate() >= MIN_PACED_PART * most as f64
}

/// Returns true if the set rate was fitted to the path, and nobody has set a lower one.
fn is_fitted(sample: &Sample) -> bool {
    match (sample.fitted_rate, sample.info.max_pacing_rate) {
        (Some(fitted), Some(most)) => most as f64 >= MIN_PACED_PART * fitted as f64,
        _ => false,
    }
}

/// Returns true if a round trip's data fills the peer's window. BBR measures the bandwidth that the
/// window allows and then paces just below it, so the window is the limit although the sender
/// seldom fills it. If the path is the limit, the data fills half of BBR's own window.
fn model_fills_window(interval: &Interval) -> bool {
    let sample = interval.last();
    let window = interval.mean_peer_window();
    sample.congestion.is_model_based()
        && sample.queues.unsent > 0
        && window < sample.congestion_window() as f64
        && interval.acknowledged_rate() * sample.info.rtt.as_secs_f64()
            >= MIN_FILLED_WINDOW_PART * window
}
