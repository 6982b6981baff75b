//! Decides when a flow gets a circuit, which offer it takes, and when it returns the circuit. Pure:
//! times are durations since the flow began.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::broker::{CircuitAnswer, CircuitState, OfferedCircuit, ReservedCircuit};
use crate::terms::{FlowDirection, ReserveTerms};

/// Silence after which a circuit is returned.
pub const MAX_SILENCE: Duration = Duration::from_secs(30);
/// Interval between questions for the state of a circuit. A revoked one is noticed within it.
pub const STATE_INTERVAL: Duration = Duration::from_secs(5);
/// Least time for which a circuit is worth its set-up.
pub const MIN_USEFUL_TIME: Duration = Duration::from_secs(5);
/// Maximum number of requests for one flow, offers included.
pub const MAX_REQUESTS: u32 = 6;
/// Pause before a request is repeated; it doubles each time.
pub const FIRST_PAUSE: Duration = Duration::from_secs(15);
/// Interval over which the rate of a flow is measured.
const RATE_INTERVAL: Duration = Duration::from_secs(1);
/// Time that a circuit lasts beyond the expected end of its flow.
const END_MARGIN: Duration = Duration::from_secs(10);
/// Least rate of an acceptable offer, as a divisor of the wanted one.
const MIN_OFFER_DIVISOR: u64 = 2;
/// Maximum delay of an acceptable offer, as a divisor of the wanted duration.
const MAX_DELAY_DIVISOR: u32 = 10;

/// Bytes that a flow has carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowSample {
    /// Bytes to the far end.
    pub sent: u64,
    /// Bytes from the far end.
    pub received: u64,
}

/// Action that the planner wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlannerAction {
    /// Ask for a circuit. The answer is due ([`FlowPlanner::answer`]).
    Ask {
        /// Direction of its bytes.
        direction: FlowDirection,
        /// Rate, in bit/s.
        rate: u64,
        /// Duration.
        duration: Duration,
    },
    /// Take an offer. The answer is due ([`FlowPlanner::answer`]).
    TakeOffer(OfferedCircuit),
    /// Hold the flow to its circuit, which has begun.
    Begin {
        /// The circuit.
        circuit: ReservedCircuit,
        /// Direction of its bytes.
        direction: FlowDirection,
    },
    /// Ask for the state of a circuit. The answer is due ([`FlowPlanner::state`]).
    AskState(u64),
    /// Let the flow continue as best effort, without a circuit.
    End(CircuitEnd),
    /// Nothing was reserved, for this reason. The flow continues as best effort.
    GiveUp(String),
}

/// End of a circuit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CircuitEnd {
    /// Its time is over.
    Over {
        /// The reservation.
        id: u64,
    },
    /// The flow was silent, and the circuit must be returned.
    Silent {
        /// The reservation.
        id: u64,
    },
    /// It was revoked or has failed.
    Lost {
        /// The reservation.
        id: u64,
        /// Reason, in one line.
        why: String,
    },
}

/// Planner of one flow.
#[derive(Debug)]
pub struct FlowPlanner {
    terms: ReserveTerms,
    phase: Phase,
    requests: u32,
    /// Time before which no request is made.
    not_before: Duration,
    seen: FlowSample,
    /// Time at which bytes moved last.
    moved_at: Duration,
    meter: RateMeter,
}

#[derive(Debug)]
enum Phase {
    /// Without a circuit.
    BestEffort,
    /// An answer is due.
    Asking(FlowDirection),
    /// A circuit is reserved.
    Reserved(HeldCircuit),
    /// Nothing more is reserved.
    Done,
}

#[derive(Debug)]
struct HeldCircuit {
    circuit: ReservedCircuit,
    direction: FlowDirection,
    start: Duration,
    end: Duration,
    begun: bool,
    state_due: Duration,
}

impl FlowPlanner {
    /// Creates the planner of a flow that begins.
    #[must_use]
    pub fn new(terms: ReserveTerms) -> Self {
        Self {
            terms,
            phase: Phase::BestEffort,
            requests: 0,
            not_before: Duration::ZERO,
            seen: FlowSample::default(),
            moved_at: Duration::ZERO,
            meter: RateMeter::default(),
        }
    }

    /// Returns the reservation to return if the flow ends now.
    #[must_use]
    pub fn reserved(&self) -> Option<u64> {
        match &self.phase {
            Phase::Reserved(held) => Some(held.circuit.id),
            _ => None,
        }
    }

    /// Returns true if nothing will be reserved any more, and nothing is.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// Observes the flow, and returns the next action, if there is one.
    pub fn observe(&mut self, now: Duration, sample: FlowSample) -> Option<PlannerAction> {
        if sample != self.seen {
            (self.seen, self.moved_at) = (sample, now);
        }
        self.meter.observe(now, sample);
        match &mut self.phase {
            Phase::BestEffort => self.ask(now),
            Phase::Asking(_) | Phase::Done => None,
            Phase::Reserved(held) => {
                let id = held.circuit.id;
                if now >= held.end {
                    // It is lost on time. Another one would outlast what was stated.
                    self.phase = Phase::Done;
                    return Some(PlannerAction::End(CircuitEnd::Over { id }));
                }
                if now.saturating_sub(self.moved_at.max(held.start)) >= MAX_SILENCE {
                    self.phase = Phase::BestEffort;
                    self.pause(now);
                    return Some(PlannerAction::End(CircuitEnd::Silent { id }));
                }
                if !held.begun && now >= held.start {
                    held.begun = true;
                    let (circuit, direction) = (held.circuit, held.direction);
                    return Some(PlannerAction::Begin { circuit, direction });
                }
                if now >= held.state_due {
                    held.state_due = now.saturating_add(STATE_INTERVAL);
                    return Some(PlannerAction::AskState(id));
                }
                None
            }
        }
    }

    /// Takes the answer to a request.
    pub fn answer(&mut self, now: Duration, answer: CircuitAnswer) -> Option<PlannerAction> {
        let Phase::Asking(direction) = self.phase else {
            return None;
        };
        match answer {
            CircuitAnswer::Reserved(circuit) => {
                let start = now.saturating_add(circuit.starts_in);
                self.phase = Phase::Reserved(HeldCircuit {
                    circuit,
                    direction,
                    start,
                    end: start.saturating_add(circuit.lasts),
                    begun: false,
                    state_due: now.saturating_add(STATE_INTERVAL),
                });
                self.observe(now, self.seen)
            }
            CircuitAnswer::Refused { offers, why } => {
                let offer = self.best_offer(offers);
                let Some(offer) = offer.filter(|_| self.requests < MAX_REQUESTS) else {
                    return self.refuse(now, true, why);
                };
                self.requests = self.requests.saturating_add(1);
                Some(PlannerAction::TakeOffer(offer))
            }
            CircuitAnswer::Failed { why, is_transient } => self.refuse(now, is_transient, why),
        }
    }

    /// Takes the state of a circuit.
    pub fn state(&mut self, now: Duration, id: u64, state: CircuitState) -> Option<PlannerAction> {
        match (state, &self.phase) {
            (CircuitState::Lost(why), Phase::Reserved(held)) if held.circuit.id == id => {
                let is_over = now >= held.end;
                // The next one would be revoked as well.
                self.phase = Phase::Done;
                Some(PlannerAction::End(match is_over {
                    true => CircuitEnd::Over { id },
                    false => CircuitEnd::Lost { id, why },
                }))
            }
            // Without an answer, the promise stays: the controller keeps it until its end.
            _ => None,
        }
    }

    fn ask(&mut self, now: Duration) -> Option<PlannerAction> {
        let reserve = self.terms.reserve;
        let FlowSample { sent, received } = self.seen;
        let carried = sent.max(received);
        let is_silent = now.saturating_sub(self.moved_at) >= MAX_SILENCE;
        if now < self.not_before || is_silent || carried < reserve.after {
            return None;
        }
        let observed = match sent >= received {
            true => FlowDirection::Send,
            false => FlowDirection::Receive,
        };
        let direction = reserve.direction.unwrap_or(observed);
        if !self.terms.is_stated {
            let rate = self.meter.rate(direction)?;
            // A circuit that is slower than best effort would only hold the flow back.
            if reserve.above.is_some_and(|above| rate < above) || rate >= reserve.rate {
                return None;
            }
        }
        let duration = self.duration(carried);
        if duration < MIN_USEFUL_TIME {
            self.phase = Phase::Done;
            return Some(PlannerAction::GiveUp(
                "the rest is too short for a circuit".to_owned(),
            ));
        }
        self.requests = self.requests.saturating_add(1);
        self.phase = Phase::Asking(direction);
        Some(PlannerAction::Ask {
            direction,
            rate: reserve.rate,
            duration,
        })
    }

    /// Returns the duration to ask for: no longer than the rest of the stated size takes.
    fn duration(&self, carried: u64) -> Duration {
        let wanted = self.terms.reserve.duration;
        let Some(size) = self.terms.size else {
            return wanted;
        };
        let bits = u128::from(size.saturating_sub(carried)) * 8;
        let needed_ms = bits * 1000 / u128::from(self.terms.reserve.rate.max(1));
        let needed = Duration::from_millis(u64::try_from(needed_ms).unwrap_or(u64::MAX));
        match needed < MIN_USEFUL_TIME {
            true => needed,
            false => wanted.min(needed.saturating_add(END_MARGIN)),
        }
    }

    /// Returns the best acceptable offer: the soonest, and of these the fastest.
    fn best_offer(&self, offers: Vec<OfferedCircuit>) -> Option<OfferedCircuit> {
        let reserve = self.terms.reserve;
        let is_acceptable = |offer: &OfferedCircuit| {
            let is_fast = offer.rate.saturating_mul(MIN_OFFER_DIVISOR) >= reserve.rate;
            let is_soon = offer.starts_in <= reserve.duration / MAX_DELAY_DIVISOR;
            is_fast && offer.rate > 0 && is_soon && offer.lasts >= MIN_USEFUL_TIME
        };
        let acceptable = offers.into_iter().filter(is_acceptable);
        acceptable.min_by_key(|offer| (offer.starts_in, std::cmp::Reverse(offer.rate)))
    }

    fn refuse(&mut self, now: Duration, is_transient: bool, why: String) -> Option<PlannerAction> {
        self.phase = Phase::BestEffort;
        self.pause(now);
        if !is_transient {
            self.phase = Phase::Done;
        }
        Some(PlannerAction::GiveUp(why))
    }

    /// Pauses before the next request, or ends them if there were enough.
    fn pause(&mut self, now: Duration) {
        if self.requests >= MAX_REQUESTS {
            self.phase = Phase::Done;
            return;
        }
        let doubled = 2_u32.saturating_pow(self.requests.saturating_sub(1));
        self.not_before = now.saturating_add(FIRST_PAUSE.saturating_mul(doubled));
    }
}

/// Measures the rate of a flow over the last interval.
#[derive(Debug, Default)]
struct RateMeter {
    since: Duration,
    from: FlowSample,
    /// Latest rates: to the far end, and from it.
    latest: Option<(u64, u64)>,
}

impl RateMeter {
    fn observe(&mut self, now: Duration, sample: FlowSample) {
        let time = now.saturating_sub(self.since);
        if time < RATE_INTERVAL {
            return;
        }
        let rate = |bytes: u64, before: u64| {
            let bits = u128::from(bytes.saturating_sub(before)) * 8;
            u64::try_from(bits * 1000 / time.as_millis().max(1)).unwrap_or(u64::MAX)
        };
        self.latest = Some((
            rate(sample.sent, self.from.sent),
            rate(sample.received, self.from.received),
        ));
        (self.since, self.from) = (now, sample);
    }

    fn rate(&self, direction: FlowDirection) -> Option<u64> {
        let (sent, received) = self.latest?;
        Some(match direction {
            FlowDirection::Send => sent,
            FlowDirection::Receive => received,
        })
    }
}

/// Returns how long a connection may wait for a reserved path before it is dialled: a twentieth of
/// the time that it should take, and two seconds at most. Longer waits would not pay off.
#[must_use]
pub fn patience(terms: &ReserveTerms) -> Duration {
    /// Maximum wait.
    const MAX_WAIT: Duration = Duration::from_secs(2);
    let reserve = terms.reserve;
    let by_size = terms.size.map(|size| {
        let ms = u128::from(size) * 8 * 1000 / u128::from(reserve.rate.max(1));
        Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
    });
    let expected = by_size.map_or(reserve.duration, |time| time.min(reserve.duration));
    (expected / 20).min(MAX_WAIT)
}
