//! A fitted rate that follows the path: small steps up while no queue stands, back to the delivery
//! rate when one does.

use std::time::Duration;

use super::{
    FitSample, Siblings,
    draining::{Draining, MAX_UNDRAINED_ROUNDS},
    round::FitRound,
    rtt_floor::RttFloor,
};

/// Part of a train's slope that is the first rate: trains are short, and their ends blurred.
const FIRST_SHARE_OF_SLOPE: f64 = 0.88;
/// Part of the delivery rate that is sent while a queue drains, and after it has drained.
const DRAINING_SHARE: f64 = 0.995;
const DRAINED_SHARE: f64 = 0.9975;
/// Part of the delivery rate that is sent in the first round after a queue was seen. Data in flight
/// by then joins the queue, and CoDel (RFC 8289) drops segments when 5 ms stand for 100 ms.
const FIRST_DRAINING_SHARE: f64 = 0.98;
/// Minimum and maximum step up, as parts of the rate. The excess of a step until its queue is seen,
/// two round trips later or so, fits a queue of a thirtieth of the window.
const MIN_STEP: f64 = 0.0025;
const MAX_STEP: f64 = 0.01;
/// Maximum step near a rate at which a queue stood, or near the first slope: one step too many
/// shows late, and a second one joins it.
const MAX_STEP_NEAR_CAPACITY: f64 = 0.005;
/// Maximum step before any queue has been seen: by the time that a step too many shows, at most a
/// sixteenth of the window waits.
const MAX_STEP_BEFORE_FIRST_QUEUE: f64 = 0.02;
/// Part of its slope up to which the first rate is known to be too low.
const MIN_SHARE_OF_SLOPE: f64 = 0.95;
/// Multiple of its slope above which the first rate was too low.
const MAX_SHARE_OF_SLOPE: f64 = 1.1;
/// Maximum scatter of smoothed round trips for which varying delay does not blur a slope.
const MAX_SCATTER_FOR_SLOPE: Duration = Duration::from_micros(500);
/// Number of steps without a queue after which the rate must be far too low.
const STEPS_OF_LOW_RATE: u32 = 16;
/// Maximum step at such a rate.
const MAX_STEP_OF_LOW_RATE: f64 = 0.03;
/// Maximum step back when a queue is first seen. The delivery rate is also low for a moment after a
/// host stood still.
const MAX_BACKOFF: f64 = 0.03;
/// Maximum step back in a later round, or if siblings have less.
const MAX_LATER_BACKOFF: f64 = 0.25;
/// Maximum step back if siblings have more.
const MAX_BACKOFF_BELOW_SIBLINGS: f64 = 0.005;
/// Part of its excess over the mean that a flow yields whenever a queue stands.
const YIELDED_SHARE_OF_EXCESS: f64 = 0.1;
/// Relative difference below which the rates of siblings count as equal.
const SIBLING_TOLERANCE: f64 = 0.02;
/// Part of its rate that a flow delivers if nothing else limits it.
const FILLED_SHARE: f64 = 0.97;
/// Time for which something other than the path may limit the flow. After a longer time the next
/// step is immediate and large.
const MAX_AGE_OF_RATE: Duration = Duration::from_secs(10);
/// Rounds until a step up shows.
const STEP_VISIBLE_ROUNDS: u32 = 3;
/// Minimum and maximum number of rounds without a step after a queue stood. The maximum applies if
/// it stood repeatedly at the same rate.
const MIN_REST_ROUNDS: u32 = 6;
const MAX_REST_ROUNDS: u32 = 48;
/// Relative difference below which delivery rates count as the same.
const SAME_RATE_TOLERANCE: f64 = 0.03;
/// Verdict of a sample on the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FitVerdict {
    /// The round is not over.
    Undecided,
    /// The rate is adjusted.
    Followed,
    /// Others fill the path's queue.
    QueueOfOthers,
}

/// The rate of one flow.
#[derive(Debug, Clone)]
pub(super) struct FittedRate {
    /// Rate in bytes per second.
    rate: f64,
    /// Next step up, as a part of the rate.
    step: f64,
    /// Amounts of the last steps, latest first, in bytes per second. Their queue may not have been
    /// seen yet when the next step is due.
    last_steps: [f64; 3],
    /// Slope of the first rate, or this flow's part of it, in bytes per second.
    slope: Option<f64>,
    steps_since_queue: u32,
    rounds_since_step: u32,
    /// Rounds before the next step.
    rest_rounds: u32,
    last_queue: Option<LastQueue>,
    /// Set if the last change was a step back.
    draining: Option<Draining>,
    /// Siblings at the last sample; `None` before the first.
    siblings: Option<Siblings>,
    rounds_since_siblings_changed: u32,
    /// Time since which something other than the path limits the flow.
    held_since: Option<Duration>,
}

/// The last standing queue.
#[derive(Debug, Clone, Copy)]
struct LastQueue {
    delivery_rate: f64,
    /// Rounds to rest after it.
    rest_rounds: u32,
}

impl LastQueue {
    /// Returns true if a rate is close to what the path delivered then.
    fn is_near(&self, rate: f64) -> bool {
        (rate - self.delivery_rate).abs() < SAME_RATE_TOLERANCE * self.delivery_rate
    }
}

impl FittedRate {
    /// Returns a rate from the slope of a train of all siblings' acknowledgements, in bytes per
    /// second.
    pub(super) fn from_ack_train(slope: f64, siblings: &Siblings) -> Self {
        let share = slope * FIRST_SHARE_OF_SLOPE / f64::from(siblings.flows.max(1));
        Self {
            slope: Some(share / FIRST_SHARE_OF_SLOPE),
            ..Self::with_rate(share, MAX_STEP_BEFORE_FIRST_QUEUE, 0)
        }
    }

    /// Returns a rate from the delivery rate while a queue stands.
    pub(super) fn from_queue(sample: &FitSample) -> Self {
        let rate = sample.delivery_rate as f64 * DRAINING_SHARE;
        Self::with_rate(rate, MIN_STEP, MIN_REST_ROUNDS)
    }

    /// Returns a rate of `share` bytes per second, next to siblings that were fitted before and
    /// make room.
    pub(super) fn next_to_siblings(share: f64) -> Self {
        Self::with_rate(share, MIN_STEP, MIN_REST_ROUNDS)
    }

    /// Leaves a round for the queue of earlier bursts to drain.
    fn with_rate(rate: f64, step: f64, rest_rounds: u32) -> Self {
        Self {
            rate,
            step,
            last_steps: [0.0; 3],
            slope: None,
            steps_since_queue: 0,
            rounds_since_step: 0,
            rest_rounds,
            last_queue: None,
            draining: Some(Draining::default()),
            siblings: None,
            rounds_since_siblings_changed: 0,
            held_since: None,
        }
    }

    /// Returns the rate in bytes per second.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns true if something other than the path limits the flow.
    pub(super) fn is_held(&self) -> bool {
        self.held_since.is_some()
    }

    pub(super) fn observe(
        &mut self,
        sample: &FitSample,
        round: &mut FitRound,
        floor: &mut RttFloor,
        siblings: &Siblings,
    ) -> FitVerdict {
        self.make_room(siblings);
        let round_trips = floor.round_trips();
        let is_full = round.is_full(sample, round_trips);
        if is_full && !floor.knows_scatter() {
            floor.observe_scatter(round.rtt_scatter());
        }
        let is_filled = round.delivered_rate(sample) >= FILLED_SHARE * self.rate;
        let has_new_step = self.rounds_since_step < STEP_VISIBLE_ROUNDS && self.draining.is_none();
        // After a step up, a queue counts as soon as it is seen. If it is hard to tell from noise,
        // a loss shows one, too.
        let has_new_queue =
            has_new_step && (round.has_queue_now() || round_trips > 1 && round.has_losses(sample));
        // A queue that this flow's step has made is its own until it has drained, whatever its
        // program does.
        let is_draining = self.draining.is_some() && self.last_queue.is_some();
        if round.is_held(sample) && !is_filled && !has_new_queue && !is_draining {
            if !is_full {
                return FitVerdict::Undecided;
            }
            *round = FitRound::begin(sample);
            self.held_since.get_or_insert(sample.at);
            return FitVerdict::Followed;
        }
        let has_queue = if has_new_step {
            has_new_queue
        } else {
            // At other times a host may have stood still for a moment. After a step back, a queue
            // has a round to drain.
            is_full && round.has_standing_queue(floor, sample)
        };
        if !has_queue && !is_full {
            return FitVerdict::Undecided;
        }
        self.end_hold(sample.at);
        let verdict = if has_queue {
            self.step_back(sample, round, floor, siblings)
        } else {
            // A new queue stretches round trips unequally, so only rounds without one show the
            // noise.
            floor.observe_scatter(round.rtt_scatter());
            self.step_up(sample, round, floor, siblings, is_filled);
            FitVerdict::Followed
        };
        *round = FitRound::begin(sample);
        verdict
    }

    /// Lowers the rate after a queue stood.
    fn step_back(
        &mut self,
        sample: &FitSample,
        round: &FitRound,
        floor: &RttFloor,
        siblings: &Siblings,
    ) -> FitVerdict {
        let round_trips = floor.round_trips();
        if siblings.has_released {
            return FitVerdict::QueueOfOthers;
        }
        let rtt = round.least_rtt(sample);
        let delivery_rate = if round_trips > 1 {
            round.delivered_rate(sample)
        } else {
            // The rate over one round trip is distorted by the change of the delay meanwhile.
            let change = floor.scatter().as_secs_f64() / sample.min_rtt.as_secs_f64().max(1e-3);
            (sample.delivery_rate as f64).max(round.delivered_rate(sample))
                * (1.0 - change).max(0.0)
        };
        let share = if self.draining.is_none() {
            FIRST_DRAINING_SHARE
        } else {
            DRAINING_SHARE
        };
        // All steps since the queue began may have been too much.
        let steps: f64 = std::mem::take(&mut self.last_steps).iter().sum();
        let least = (self.rate - steps) * (1.0 - self.max_backoff(sample, siblings));
        let excess = self.rate - siblings.mean_rate().unwrap_or(self.rate);
        let rate = (delivery_rate * share)
            .min(self.rate - YIELDED_SHARE_OF_EXCESS * excess.max(0.0))
            .clamp(least, self.rate);
        match &mut self.draining {
            None => {
                self.draining = Some(Draining::begin(rtt));
                self.last_queue = Some(self.queue_at(sample.delivery_rate as f64));
            }
            Some(draining) => {
                // A sibling without a rate, or a new one, fills the queue, too. While less is
                // delivered than sent, stepping back is not complete.
                let counts = siblings.flows <= siblings.fitted
                    && self.rounds_since_siblings_changed >= MAX_UNDRAINED_ROUNDS
                    && rate > self.rate * (1.0 - MAX_BACKOFF);
                let shrinks = draining.observe(rtt, sample.min_rtt, counts);
                if draining.is_queue_of_others(rtt, sample.min_rtt) {
                    return FitVerdict::QueueOfOthers;
                }
                if shrinks {
                    // A queue that drains need not drain faster.
                    return FitVerdict::Followed;
                }
            }
        }
        self.step = MIN_STEP;
        self.rest_rounds = self
            .last_queue
            .map_or(MIN_REST_ROUNDS, |queue| queue.rest_rounds);
        self.steps_since_queue = 0;
        self.rate = rate;
        FitVerdict::Followed
    }

    /// Returns the maximum part that a round may take off the rate.
    fn max_backoff(&self, sample: &FitSample, siblings: &Siblings) -> f64 {
        let mean = siblings.mean_rate().unwrap_or(self.rate);
        let window_allows_rate =
            sample.congestion_window as f64 >= self.rate * sample.min_rtt.as_secs_f64();
        if self.rate < mean * (1.0 - SIBLING_TOLERANCE) {
            MAX_BACKOFF_BELOW_SIBLINGS
        } else if self.rate > mean * (1.0 + SIBLING_TOLERANCE)
            || self.draining.is_some() && window_allows_rate
        {
            MAX_LATER_BACKOFF
        } else {
            MAX_BACKOFF
        }
    }

    /// Raises the rate, if it is time, after a round without a queue.
    fn step_up(
        &mut self,
        sample: &FitSample,
        round: &FitRound,
        floor: &RttFloor,
        siblings: &Siblings,
        is_filled: bool,
    ) {
        let round_trips = floor.round_trips();
        self.rounds_since_step = self.rounds_since_step.saturating_add(1);
        if self.rounds_since_step >= STEP_VISIBLE_ROUNDS {
            self.last_steps = [0.0; 3];
        }
        if round.has_losses(sample) {
            // Without a queue, this flow did not cause the losses, and a lower rate would not help.
            (self.step, self.rest_rounds) = (MIN_STEP, MIN_REST_ROUNDS);
        }
        let has_drained = self.draining.take().is_some();
        if self.rest_rounds > 0 {
            self.rest_rounds = self.rest_rounds.saturating_sub(round_trips);
            let drained = self
                .last_queue
                .map_or(0.0, |queue| queue.delivery_rate * DRAINED_SHARE);
            if has_drained && drained > self.rate && drained < self.rate * (1.0 + MAX_BACKOFF) {
                self.rate = drained;
            }
        } else if is_filled {
            // All siblings take the same step, so that their rates converge. If it takes several
            // round trips to see a queue, the rate has to rise more slowly near the capacity.
            let parts = self.last_queue.map_or(1, |_| round_trips);
            let max_step = match self.last_queue {
                None if self.is_near_slope(floor) => MAX_STEP_NEAR_CAPACITY,
                _ if self.steps_since_queue > STEPS_OF_LOW_RATE => MAX_STEP_OF_LOW_RATE,
                Some(queue) if queue.is_near(self.rate) => MAX_STEP_NEAR_CAPACITY,
                Some(_) => MAX_STEP,
                None if self
                    .slope
                    .is_none_or(|slope| self.rate < MIN_SHARE_OF_SLOPE * slope) =>
                {
                    MAX_STEP_BEFORE_FIRST_QUEUE
                }
                None => MAX_STEP,
            };
            self.step = self.step.min(max_step);
            let step = self.step * siblings.mean_rate().unwrap_or(self.rate) / f64::from(parts);
            self.rate += step;
            self.last_steps = [step, self.last_steps[0], self.last_steps[1]];
            self.rounds_since_step = 0;
            self.steps_since_queue += 1;
            self.step *= 2.0;
        }
    }

    /// Returns true if the capacity is close according to a reliable slope.
    fn is_near_slope(&self, floor: &RttFloor) -> bool {
        floor.scatter() < MAX_SCATTER_FOR_SLOPE
            && self.slope.is_some_and(|slope| {
                (MIN_SHARE_OF_SLOPE..MAX_SHARE_OF_SLOPE).contains(&(self.rate / slope))
            })
    }

    fn queue_at(&self, delivery_rate: f64) -> LastQueue {
        let rest_rounds = match self.last_queue {
            Some(last) if last.is_near(delivery_rate) => {
                (last.rest_rounds * 2).min(MAX_REST_ROUNDS)
            }
            _ => MIN_REST_ROUNDS,
        };
        LastQueue {
            delivery_rate,
            rest_rounds,
        }
    }

    /// Ends a time in which something other than the path limited the flow.
    fn end_hold(&mut self, at: Duration) {
        let since = self.held_since.take();
        if since.is_some_and(|since| at.saturating_sub(since) > MAX_AGE_OF_RATE) {
            // The path may carry more by now.
            (self.rest_rounds, self.step) = (0, MAX_STEP);
        }
        self.rounds_since_siblings_changed = self.rounds_since_siblings_changed.saturating_add(1);
    }

    /// Makes room for new siblings, and takes up what departed ones leave.
    fn make_room(&mut self, siblings: &Siblings) {
        let Some(before) = self.siblings.replace(*siblings) else {
            return;
        };
        if (siblings.present, siblings.fitted) != (before.present, before.fitted) {
            self.rounds_since_siblings_changed = 0;
        }
        let newcomers = siblings.newcomers.saturating_sub(before.newcomers);
        if newcomers > 0 {
            let fitted = f64::from(before.fitted.max(1));
            self.rate *= fitted / (fitted + f64::from(newcomers));
        } else if siblings.present < before.present && siblings.fitted < before.fitted {
            self.rate *= f64::from(before.fitted) / f64::from(siblings.fitted.max(1));
        }
    }
}
