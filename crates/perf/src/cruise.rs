//! Fits a flow's sending rate to its path, so that TCP never drives the path into loss.
//!
//! The Land Speed Record of 2003 held the window to capacity times round trip, known beforehand, because a flow that is left to
//! itself doubles its window until a queue overflows, and then takes minutes to come back. Here the capacity is measured, and the
//! sending rate is held to it (`SO_MAX_PACING_RATE`), which keeps the bytes in flight at capacity times round trip as well:
//!
//! - In slow start a sender that does not pace sends each window as a burst. The bottleneck spreads the burst to its own rate, and
//!   the acknowledgements come back at that rate (the packet train of Jain and Routhier, 1986): the slope of a train of
//!   acknowledgements is the capacity, known many round trips before the window is as wide as the path. A train counts only
//!   when it is much faster than a sender that paces would have sent it, for there the slope is the sender's own.
//! - A queue that stands, while nothing is lost, shows that the path is full: the delivery rate is then its capacity.
//! - From then on the rate is raised in small steps as long as all of it is delivered without a queue, and taken back to the delivery
//!   rate when one stands. Where it stands at the same rate again, steps become rare.
//! - A queue that stays although the flow steps back is made by others. The flow is then no longer held, and takes its share by
//!   TCP's own rules.
//!
//! Pure: looks go in, rates come out.

use std::time::Duration;

/// On shorter paths a flow recovers so soon that there is nothing to gain.
const SHORT: Duration = Duration::from_millis(10);
/// A train is measured once it has lasted this long: the shorter it is, the more do acknowledgements that come in bunches blur it ...
const TRAIN: Duration = Duration::from_millis(5);
/// ... and acknowledged as many segments.
const TRAIN_SEGMENTS: u64 = 16;
/// Without an acknowledgement for this long, and for as long as so many segments take, a train is over.
const GAP: (Duration, f64) = (Duration::from_micros(1500), 8.0);
/// A look that comes so long after the one before may have missed the end of a train.
const LATE: Duration = Duration::from_millis(4);
/// No slow start takes more round trips: 10 segments have become 10 GiB or more by then.
const SLOW_START: u32 = 32;
/// How much faster than a sender that paces a train must be.
const UNPACED: f64 = 1.5;
/// The part of a train's slope that is sent at first: trains are short, and their ends blurred.
const CAUTION: f64 = 0.88;
/// The part of the delivery rate that is sent after a queue stood, so that it drains, and once it has.
const BACK: (f64, f64) = (0.995, 0.9975);
/// The least and the largest step up, as parts of the rate. What a step sends too much until its queue is seen, some two round
/// trips later, a queue of a thirtieth of the window can hold.
/// The third is for when so many steps have met no queue that the first estimate must have been far too low.
const STEPS: (f64, f64, f64) = (0.0025, 0.01, 0.03);
/// As many.
const SURE: u32 = 16;
/// A step up while no queue has been seen yet: by the time that one too many is seen, a sixteenth of the window waits at most.
const APPROACH: f64 = 0.02;
/// A pipe is full when what it delivers grows less than this in a round (as BBR has it).
const FULL: f64 = 1.25;
/// Rounds in which a step up shows.
const FRESH: u32 = 3;
/// Rounds without a step after a queue stood; as many as the second when it stood again and again at the same rate.
const REST: (u32, u32) = (6, 48);
/// Delivery rates that differ by less than this part are the same.
const SAME: f64 = 0.03;
/// A queue that does not shrink for so many rounds while this flow steps back is not its own: others fill it, who would take all.
const OTHERS: u32 = 8;
/// A round of stepping back takes more than this part of the path's round trip off a queue of this flow's own.
const DRAINED: u32 = 400;

/// One look at the flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Look {
    /// When, on a clock that never goes back.
    pub(crate) at: Duration,
    /// Bytes acknowledged so far.
    pub(crate) acked: u64,
    /// Smoothed round-trip time.
    pub(crate) rtt: Duration,
    /// The least round-trip time of the path.
    pub(crate) min_rtt: Duration,
    /// Bytes in a segment.
    pub(crate) mss: u64,
    /// Congestion window, in bytes.
    pub(crate) window: u64,
    /// Delivery rate as the kernel measures it, in bytes a second.
    pub(crate) delivery: u64,
    /// Segments retransmitted so far.
    pub(crate) retransmits: u64,
}

/// The decider for one flow.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cruise {
    /// The rate set, in bytes a second; none yet at first.
    cap: Option<f64>,
    train: Option<Train>,
    /// The slope of the last train that was at least half as long as it should be, in bytes a second.
    shorter: Option<f64>,
    last: Option<Look>,
    round: Round,
    step: f64,
    rest: u32,
    /// Rounds to rest after the last queue, and the delivery rate while it stood.
    rested: (u32, f64),
    /// Rounds in a row in which a queue did not shrink, and the round trip at the last look at that.
    outlasted: (u32, Duration),
    /// Left to TCP alone.
    released: bool,
    /// Steps up since a queue was seen.
    raised: u32,
    /// Rounds since the last step up.
    since_raise: u32,
    /// The last change was a step back.
    draining: bool,
}

/// Acknowledgements that come without a gap: times, and bytes acknowledged by then.
#[derive(Debug, Clone, Copy)]
struct Train {
    first: (Duration, u64),
    /// The congestion window at the first look, in bytes: at least that with which the train was sent.
    window: u64,
    /// The last look but one that saw progress: that there was more after it shows that the train had not ended by then.
    before: (Duration, u64),
    /// The last look that saw progress.
    last: (Duration, u64),
}

impl Train {
    fn lasted(&self) -> Duration {
        self.before.0.saturating_sub(self.first.0)
    }

    /// Bytes a second, once it is long enough to tell.
    fn slope(&self, look: &Look, least: Duration) -> Option<f64> {
        let (lasted, bytes) = (self.lasted(), self.before.1.saturating_sub(self.first.1));
        // Without an end in sight it is no train: the pipe is full, or the sender paces.
        if lasted < least || lasted > look.min_rtt / 2 || bytes < TRAIN_SEGMENTS * look.mss {
            return None;
        }
        let slope = bytes as f64 / lasted.as_secs_f64();
        // Linux paces slow start at twice the window a round trip.
        let paced = 2.0 * self.window as f64 / look.min_rtt.as_secs_f64();
        (slope > UNPACED * paced).then_some(slope)
    }

    /// Whether nothing came for so long that it is over.
    fn is_over(&self, look: &Look) -> bool {
        let bytes = self.last.1.saturating_sub(self.first.1).max(1) as f64;
        let lasted = self.last.0.saturating_sub(self.first.0).as_secs_f64();
        let spacing = GAP.1 * look.mss as f64 * lasted / bytes;
        look.at.saturating_sub(self.last.0).as_secs_f64() > GAP.0.as_secs_f64() + spacing
    }
}

/// What has happened since the round began; a round is a little more than a round trip.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    began: Duration,
    acked: u64,
    retransmits: u64,
    /// The delivery rate then.
    delivery: u64,
    /// The least of the smoothed round trips seen in it.
    rtt: Option<Duration>,
}

impl Cruise {
    /// Takes a look; the rate to send at from now on, in bytes a second, if it changes.
    pub(crate) fn observe(&mut self, look: &Look) -> Option<u64> {
        let last = self.last.replace(*look);
        if self.released || look.min_rtt < SHORT || look.acked == 0 {
            return None;
        }
        self.round.rtt = Some(self.round.rtt.map_or(look.rtt, |least| least.min(look.rtt)));
        let cap = match self.cap {
            None => self.first_cap(look, last),
            Some(cap) => self.adjusted(look, cap),
        }?;
        self.cap = Some(cap);
        self.round = Round::from(look);
        Some(cap as u64)
    }

    /// How long until the next look is due.
    pub(crate) fn pause(&self) -> Duration {
        let trains = |last: &Look| last.min_rtt >= SHORT && last.at < last.min_rtt * SLOW_START;
        match &self.last {
            _ if self.cap.is_some() => Duration::from_millis(10),
            None => Duration::from_micros(300),
            Some(last) if trains(last) => Duration::from_micros(300),
            Some(_) => Duration::from_millis(10),
        }
    }

    fn first_cap(&mut self, look: &Look, last: Option<Look>) -> Option<f64> {
        if look.retransmits == 0
            && let Some(slope) = self.train_slope(look, &last?)
        {
            // What the burst itself left in the queue has a round to drain.
            (self.step, self.draining) = (APPROACH, true);
            return Some(slope * CAUTION);
        }
        // A burst makes a queue for a while; one that stands is there for a whole round.
        let elapsed = look.at.saturating_sub(self.round.began);
        if elapsed < look.min_rtt + look.min_rtt / 4 {
            return None;
        }
        let stands = self.round.rtt.is_some_and(|least| queued(least, look));
        let grows = look.delivery as f64 > self.round.delivery as f64 * FULL;
        self.round = Round::from(look);
        if !stands || grows {
            return None;
        }
        (self.step, self.rest, self.draining) = (STEPS.0, REST.0, true);
        Some(look.delivery as f64 * BACK.0)
    }

    /// Bytes a second of the train under way, once it says the path's capacity; of the train before where that was slower.
    fn train_slope(&mut self, look: &Look, last: &Look) -> Option<f64> {
        let now = (look.at, look.acked);
        let progress = look.acked > last.acked;
        let late = look.at.saturating_sub(last.at) > LATE;
        self.train = match self.train {
            _ if late => None,
            Some(train) if progress => Some(Train {
                before: train.last,
                last: now,
                ..train
            }),
            Some(train) if train.is_over(look) => {
                self.shorter = train.slope(look, TRAIN / 2).or(self.shorter);
                None
            }
            None if progress => Some(Train {
                first: now,
                window: look.window,
                before: now,
                last: now,
            }),
            other => other,
        };
        let slope = self.train?.slope(look, TRAIN)?;
        Some(self.shorter.map_or(slope, |shorter| slope.min(shorter)))
    }

    fn adjusted(&mut self, look: &Look, cap: f64) -> Option<f64> {
        let elapsed = look.at.saturating_sub(self.round.began);
        // Of the path's own round trip: one that a growing queue stretches might never end.
        let full_round = elapsed >= look.min_rtt + look.min_rtt / 4;
        let seen = if self.since_raise < FRESH && !self.draining {
            // After a step up a queue counts as soon as it is seen.
            queued(look.rtt, look)
        } else {
            // At other times a host may have stood still for a moment; and after a step back a queue has a round to drain.
            full_round && self.round.rtt.is_some_and(|least| queued(least, look))
        };
        if seen {
            // A moment in which a host stood still looks the same, and has a low delivery rate.
            let back = (look.delivery as f64 * BACK.0).clamp(cap * (1.0 - STEPS.2), cap);
            if self.draining {
                let (rounds, before) = self.outlasted;
                let shrank = look.rtt + look.min_rtt / DRAINED < before;
                // While less is delivered than sent, stepping back is not over.
                let delivered = back > cap * (1.0 - STEPS.2);
                let outlasted = if delivered { rounds + 1 } else { rounds };
                self.outlasted = (if shrank { 0 } else { outlasted }, look.rtt);
                if self.outlasted.0 >= OTHERS {
                    self.released = true;
                    return Some(f64::INFINITY);
                }
                if shrank {
                    // What drains need not drain faster.
                    self.round = Round::from(look);
                    return None;
                }
            } else {
                self.outlasted = (0, look.rtt);
                self.rested = self.next_rest(look.delivery as f64);
            }
            self.draining = true;
            (self.step, self.rest, self.raised) = (STEPS.0, self.rested.0.max(REST.0), 0);
            self.round = Round::from(look);
            return (back < cap).then_some(back);
        }
        if !full_round {
            return None;
        }
        self.outlasted.0 = 0;
        self.since_raise = self.since_raise.saturating_add(1);
        let delivered = look.acked.saturating_sub(self.round.acked) as f64 / elapsed.as_secs_f64();
        let lost = look.retransmits > self.round.retransmits;
        self.round = Round::from(look);
        if lost {
            // Without a queue it was not this flow's doing, and a lower rate would not help.
            (self.step, self.rest) = (STEPS.0, REST.0);
        }
        let drained = std::mem::take(&mut self.draining);
        if let Some(rest) = self.rest.checked_sub(1) {
            self.rest = rest;
            let settled = self.rested.1 * BACK.1;
            return (drained && settled > cap && settled < cap * (1.0 + STEPS.1)).then_some(settled);
        }
        // Below the cap, something else holds the flow.
        if delivered < cap * 0.97 {
            return None;
        }
        let raised = cap * (1.0 + self.step);
        self.since_raise = 0;
        self.raised += 1;
        let most = match (self.raised > SURE, self.rested.1 > 0.0) {
            (true, _) => STEPS.2,
            (false, true) => STEPS.1,
            (false, false) => APPROACH,
        };
        self.step = (self.step * 2.0).min(most);
        Some(raised)
    }

    /// How long to rest after a queue that stood at this delivery rate.
    fn next_rest(&self, delivery: f64) -> (u32, f64) {
        let (rest, before) = self.rested;
        let same = (delivery - before).abs() < before * SAME;
        let rest = if same { (rest * 2).min(REST.1) } else { REST.0 };
        (rest, delivery)
    }
}

impl From<&Look> for Round {
    fn from(look: &Look) -> Self {
        Self {
            began: look.at,
            acked: look.acked,
            retransmits: look.retransmits,
            delivery: look.delivery,
            rtt: None,
        }
    }
}

/// Whether `rtt` is longer than the path's least by more than noise explains.
fn queued(rtt: Duration, look: &Look) -> bool {
    let noise = (look.min_rtt / 64).max(Duration::from_millis(2));
    rtt > look.min_rtt + noise
}

#[cfg(test)]
mod tests;
