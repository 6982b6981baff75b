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
//! - A queue that stays although the flow steps back is made by others. The flow then is no longer held, and takes its share by TCP's own rules.
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
/// A step up while no queue has been seen yet. Within a round trip and a half of one that is too much, a sixteenth of the window waits at most.
const APPROACH: f64 = 0.02;
/// A pipe is full when what it delivers grows less than this in a round (as BBR has it).
const FULL: f64 = 1.25;
/// As many.
const SURE: u32 = 16;
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
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const MSS: f64 = 8948.0;
    /// Seconds of one step of the model.
    const STEP: f64 = 1e-4;

    /// A path with one bottleneck, and a sender in slow start, as a fluid. Rates in bytes a second.
    struct Path {
        capacity: f64,
        line: f64,
        rtt: f64,
        queue_limit: f64,
        paces: bool,
        now: f64,
        queue: f64,
        /// What others keep in the queue.
        foreign: f64,
        window: f64,
        sent: f64,
        acked: f64,
        /// What left the bottleneck in each step, on its way back as acknowledgements.
        returning: VecDeque<f64>,
        /// The round-trip times that these carry.
        rtts: VecDeque<f64>,
        srtt: f64,
        lost: f64,
        delivered_lately: VecDeque<f64>,
    }

    impl Path {
        fn new(capacity: f64, rtt: f64, queue_limit: f64) -> Self {
            let steps = (rtt / STEP) as usize;
            Self {
                capacity,
                line: capacity * 4.0,
                rtt,
                queue_limit,
                paces: false,
                now: 0.0,
                queue: 0.0,
                foreign: 0.0,
                window: 10.0 * MSS,
                sent: 0.0,
                acked: 0.0,
                returning: VecDeque::from(vec![0.0; steps]),
                rtts: VecDeque::from(vec![rtt; steps]),
                srtt: rtt,
                lost: 0.0,
                delivered_lately: VecDeque::from(vec![0.0; steps]),
            }
        }

        fn step(&mut self, cap: Option<u64>) {
            let arrived = self.returning.pop_front().unwrap();
            let rtt = self.rtts.pop_front().unwrap();
            if arrived > 0.0 {
                self.srtt += (rtt - self.srtt) / 16.0;
            }
            self.acked += arrived;
            self.delivered_lately.pop_front();
            self.delivered_lately.push_back(arrived);
            let flight = self.sent - self.acked - self.lost;
            if flight * 2.0 > self.window {
                self.window += arrived;
            }
            let mut rate = self.line;
            if self.paces || cap.is_some() {
                rate = rate.min(2.0 * self.window / self.srtt);
            }
            if let Some(cap) = cap {
                rate = rate.min(cap as f64);
            }
            let send = (self.window - flight).max(0.0).min(rate * STEP);
            self.sent += send;
            let waiting = self.queue + send;
            let out = waiting.min(self.capacity * STEP);
            self.queue = waiting - out;
            if self.queue > self.queue_limit {
                self.lost += self.queue - self.queue_limit;
                self.queue = self.queue_limit;
            }
            self.returning.push_back(out);
            self.rtts
                .push_back(self.rtt + (self.queue + self.foreign) / self.capacity);
            self.now += STEP;
        }

        fn look(&self) -> Look {
            let lately: f64 = self.delivered_lately.iter().sum();
            Look {
                at: Duration::from_secs_f64(self.now),
                acked: self.acked as u64,
                rtt: Duration::from_secs_f64(self.srtt),
                min_rtt: Duration::from_secs_f64(self.rtt),
                mss: MSS as u64,
                window: self.window as u64,
                delivery: (lately / self.rtt) as u64,
                retransmits: (self.lost / MSS) as u64,
            }
        }

        /// Runs for `seconds`; bytes acknowledged in the last ten.
        fn run(&mut self, seconds: f64, mut cruise: Option<&mut Cruise>) -> f64 {
            let (mut cap, mut next, mut before) = (None, 0.0, 0.0);
            let end = self.now + seconds;
            while self.now < end {
                self.step(cap);
                if self.now < end - 10.0 {
                    before = self.acked;
                }
                if let Some(cruise) = cruise.as_deref_mut().filter(|_| self.now >= next) {
                    cap = cruise.observe(&self.look()).or(cap);
                    // Timers are late.
                    next = self.now + cruise.pause().as_secs_f64() + 2e-4;
                }
            }
            self.acked - before
        }
    }

    /// 2.4 Gbit/s over 180 ms with a queue of 4 MB.
    fn record_path() -> Path {
        Path::new(298.3e6, 0.18, 4.0 * 1024.0 * 1024.0)
    }

    #[test]
    fn left_to_itself_slow_start_overflows_the_queue() {
        let mut path = record_path();
        path.run(3.0, None);
        assert!(path.lost > 0.0);
    }

    #[test]
    fn the_record_path_is_filled_without_a_loss() {
        let mut path = record_path();
        let mut cruise = Cruise::default();
        let lately = path.run(30.0, Some(&mut cruise));
        assert_eq!(path.lost, 0.0);
        assert!(
            lately > 0.98 * 10.0 * path.capacity,
            "{}",
            lately / 10.0 / path.capacity
        );
    }

    #[test]
    fn paths_of_other_sizes_are_filled_without_a_loss() {
        for (capacity, rtt, queue) in [(20e6, 0.1, 0.2), (120e6, 0.06, 0.3), (120e6, 0.3, 0.1)] {
            let mut path = Path::new(capacity, rtt, queue * capacity * rtt);
            let lately = path.run(60.0, Some(&mut Cruise::default()));
            assert_eq!(path.lost, 0.0, "{capacity} {rtt} {queue}");
            assert!(lately > 0.97 * 10.0 * capacity, "{capacity} {rtt}: {lately}");
        }
    }

    #[test]
    fn a_sender_that_paces_is_not_taken_for_the_path() {
        let mut path = record_path();
        path.paces = true;
        path.queue_limit = f64::INFINITY;
        let mut cruise = Cruise::default();
        path.run(1.2, Some(&mut cruise));
        assert!(path.window < 0.4 * path.capacity * path.rtt);
        assert_eq!(cruise.cap, None, "its slope is its own");
    }

    #[test]
    fn a_short_path_is_left_alone() {
        let mut path = Path::new(120e6, 0.002, 1e5);
        let mut cruise = Cruise::default();
        path.run(11.0, Some(&mut cruise));
        assert_eq!(cruise.cap, None);
    }

    #[test]
    fn a_queue_that_others_fill_ends_the_holding_back() {
        let mut path = record_path();
        let mut cruise = Cruise::default();
        path.run(10.0, Some(&mut cruise));
        assert!(!cruise.released);
        let cap = cruise.cap.unwrap();
        path.foreign = path.queue_limit / 2.0;
        path.run(10.0, Some(&mut cruise));
        assert!(cruise.released && cruise.cap == Some(f64::INFINITY), "{cap}");
    }

    #[test]
    fn a_path_that_narrows_is_followed() {
        let mut path = record_path();
        let mut cruise = Cruise::default();
        path.run(20.0, Some(&mut cruise));
        path.capacity /= 2.0;
        path.queue_limit = f64::INFINITY;
        path.run(30.0, Some(&mut cruise));
        let cap = cruise.cap.unwrap();
        assert!(
            (0.9..1.05).contains(&(cap / path.capacity)),
            "{}",
            cap / path.capacity
        );
    }
}
