//! Fits a flow's sending rate to its path, so that TCP never drives the path into loss.
//!
//! The Land Speed Record of 2003 held the window to capacity times round trip, known beforehand. A
//! flow without such a limit doubles its window until a queue overflows, and then takes minutes to
//! recover. Here the capacity is measured, and the sending rate is held to it
//! (`SO_MAX_PACING_RATE`), which keeps the bytes in flight at capacity times round trip as well:
//!
//! - In slow start a sender that does not pace sends each window as a burst. The bottleneck spreads
//!   the burst to its own rate, and the acknowledgements come back at that rate ([`ack_train`]). So
//!   the capacity is known many round trips before the window is as wide as the path.
//! - A standing queue without losses shows that the path is full: the delivery rate is then its
//!   capacity.
//! - From then on the rate rises in small steps as long as all of it is delivered without a queue,
//!   and returns to the delivery rate when a queue stands ([`fitted`]).
//! - A queue that stays although the flow steps back is made by others. The flow is then released,
//!   and takes its share by TCP's own rules.
//! - A flow limited by its own program, its buffer or its receiver says nothing about the path, and
//!   is left as it is ([`round`]).
//! - Flows to one destination share the path's capacity in equal parts ([`siblings`]).
//!
//! Pure: samples go in, rates come out. [`RateFitter`](crate::RateFitter) applies it to sockets.

mod ack_train;
mod draining;
mod fitted;
mod round;
mod rtt_floor;
mod sample;
mod siblings;
#[cfg(test)]
mod tests;

use std::time::Duration;

use ack_train::{AckTrains, Progress};
use fitted::{Fitted, Verdict};
use round::Round;
use rtt_floor::RttFloor;
pub use sample::FitSample;
pub use siblings::Siblings;

/// Minimum round trip of a fitted flow. On shorter paths a flow recovers from losses so fast that
/// there is nothing to gain.
const MIN_FITTED_RTT: Duration = Duration::from_millis(10);
/// Maximum length of slow start in round trips: 10 segments have become 10 GiB or more by then.
const MAX_SLOW_START_ROUND_TRIPS: u32 = 32;
/// Sampling period while trains of acknowledgements are measured. At other times [`SAMPLE_PERIOD`]
/// applies.
const TRAIN_SAMPLE_PERIOD: Duration = Duration::from_micros(300);
const SAMPLE_PERIOD: Duration = Duration::from_millis(10);
/// Minimum rate of a fitted flow, in segments per round trip.
const MIN_SEGMENTS_PER_ROUND_TRIP: f64 = 2.0;

/// Maximum sending rate of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacingLimit {
    /// Rate in bytes per second.
    Rate(u64),
    /// No limit beyond TCP's own.
    Unlimited,
}

impl PacingLimit {
    fn from_ceiling(ceiling: Option<u64>) -> Self {
        ceiling.map_or(Self::Unlimited, Self::Rate)
    }
}

/// Progress of fitting a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FitState {
    /// The capacity of the path is not known yet; only the ceiling limits the flow.
    Searching,
    /// The flow sends at the measured capacity of the path, or its share of it, in bytes per
    /// second.
    Fitted(u64),
    /// The ceiling limits the flow, in bytes per second; the path would carry more.
    AtCeiling(u64),
    /// Others fill the path's queue. The flow takes its share by TCP's own rules from now on.
    Released,
}

/// Fits one flow.
#[derive(Debug, Clone)]
pub struct RateFit {
    ceiling: Option<u64>,
    /// Last limit that was requested for the socket.
    applied: PacingLimit,
    phase: Phase,
    last: Option<FitSample>,
    round: Round,
    rtt_floor: RttFloor,
    trains: AckTrains,
    /// If true, siblings were already fitted when this flow first had data; `None` before that.
    is_newcomer: Option<bool>,
}

#[derive(Debug, Clone)]
enum Phase {
    Searching,
    Fitted(Box<Fitted>),
    Released,
}

impl RateFit {
    /// Begins to fit a flow, best from its start. It never asks for a rate over `ceiling`, in bytes
    /// per second.
    #[must_use]
    pub fn new(ceiling: Option<u64>) -> Self {
        Self {
            ceiling,
            applied: PacingLimit::Unlimited,
            phase: Phase::Searching,
            last: None,
            round: Round::default(),
            rtt_floor: RttFloor::default(),
            trains: AckTrains::default(),
            is_newcomer: None,
        }
    }

    /// Takes the next sample. Returns the new limit of the socket if it changes. `siblings` are the
    /// flows to the same destination, including this one, as they were before this sample.
    pub fn observe(&mut self, sample: &FitSample, siblings: &Siblings) -> Option<PacingLimit> {
        let last = self.last.replace(*sample);
        if sample.min_rtt >= MIN_FITTED_RTT && sample.delivered > 0 {
            self.rtt_floor.observe(sample);
            self.round.observe(sample, &self.rtt_floor);
            self.fit(sample, last.as_ref(), siblings);
        }
        self.change()
    }

    /// Sets a new ceiling, in bytes per second. Returns the new limit if it changes.
    pub fn set_ceiling(&mut self, ceiling: Option<u64>) -> Option<PacingLimit> {
        self.ceiling = ceiling;
        self.change()
    }

    /// Releases the flow: its rate is no longer fitted, and no limit but the ceiling remains.
    /// Returns the new limit if it changes.
    pub fn release(&mut self) -> Option<PacingLimit> {
        self.phase = Phase::Released;
        self.change()
    }

    /// Returns the progress of the fitting.
    #[must_use]
    pub fn state(&self) -> FitState {
        match (&self.phase, self.ceiling) {
            (Phase::Searching, _) => FitState::Searching,
            (Phase::Released, _) => FitState::Released,
            (Phase::Fitted(fitted), Some(ceiling)) if fitted.rate() > ceiling as f64 => {
                FitState::AtCeiling(ceiling)
            }
            (Phase::Fitted(fitted), _) => FitState::Fitted(fitted.rate() as u64),
        }
    }

    /// Returns the time until the next sample is due.
    #[must_use]
    pub fn sample_period(&self) -> Duration {
        let in_slow_start = |last: &FitSample| {
            last.min_rtt >= MIN_FITTED_RTT && last.at < last.min_rtt * MAX_SLOW_START_ROUND_TRIPS
        };
        match (&self.phase, &self.last) {
            (Phase::Searching, last) if last.as_ref().is_none_or(in_slow_start) => {
                TRAIN_SAMPLE_PERIOD
            }
            _ => SAMPLE_PERIOD,
        }
    }

    fn fit(&mut self, sample: &FitSample, last: Option<&FitSample>, siblings: &Siblings) {
        match &mut self.phase {
            Phase::Searching => {
                if let Some(fitted) = self.first_fit(sample, last, siblings) {
                    self.phase = Phase::Fitted(Box::new(fitted));
                    self.round = Round::begin(sample);
                }
            }
            Phase::Fitted(fitted) => {
                let verdict =
                    fitted.observe(sample, &mut self.round, &mut self.rtt_floor, siblings);
                if verdict == Verdict::QueueOfOthers {
                    self.phase = Phase::Released;
                }
            }
            Phase::Released => {}
        }
    }

    fn first_fit(
        &mut self,
        sample: &FitSample,
        last: Option<&FitSample>,
        siblings: &Siblings,
    ) -> Option<Fitted> {
        let full_round = self.round.is_full(sample, 1);
        if !sample.app_limited && self.is_newcomer.is_none() {
            self.is_newcomer = Some(siblings.make_room());
            if siblings.make_room() {
                return Some(Fitted::beside(siblings.share_of_newcomer()));
            }
        }
        let progress = Progress::of(sample, siblings);
        let slope = self.trains.observe(&progress, last.is_some());
        if let Some(slope) = slope {
            return Some(Fitted::from_ack_train(slope, siblings));
        }
        if !full_round {
            return None;
        }
        // A burst makes a queue for a moment; a standing queue lasts for a whole round.
        let full = self.round.has_standing_queue(&self.rtt_floor, sample)
            && !self.round.is_delivering_more(sample)
            && !self.round.is_held(sample);
        self.round = Round::begin(sample);
        full.then(|| Fitted::from_queue(sample))
    }

    fn change(&mut self) -> Option<PacingLimit> {
        let least = |last: &FitSample| {
            MIN_SEGMENTS_PER_ROUND_TRIP * last.mss as f64 / last.min_rtt.as_secs_f64().max(1e-3)
        };
        let limit = match &self.phase {
            Phase::Searching | Phase::Released => PacingLimit::from_ceiling(self.ceiling),
            Phase::Fitted(fitted) => {
                let rate = fitted.rate().max(self.last.as_ref().map_or(1.0, least)) as u64;
                PacingLimit::Rate(self.ceiling.map_or(rate, |ceiling| rate.min(ceiling)))
            }
        };
        (limit != self.applied).then(|| {
            self.applied = limit;
            limit
        })
    }
}
