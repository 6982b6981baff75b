//! Independent check of answers: slow, simple, and written without the code that makes them. It
//! keeps a list of all promises and adds them up.
//!
//! It serves tests and doubtful answers; no decision uses it.

mod brute;
mod plans;
mod proofs;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use longhaul_circuits::admit::{AdmissionRefusal, CounterOffer, CutLink};
use longhaul_circuits::ledger::{BandwidthLedger, ReservationId};
use longhaul_circuits::network::{CircuitNetwork, LinkId};
use longhaul_circuits::proof::Proof;
use longhaul_circuits::request::{CircuitRequest, Demand, ReservationPlan};
use longhaul_circuits::time::{BitsPerSecond, MAX_MOMENT, MomentMs, Window};

use brute::AvailableRates;

/// Maximum number of path sets to try one by one when a refusal is checked.
const MAX_PATH_SETS: usize = 20_000;

/// Result of checking an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckVerdict {
    /// Granted, and it fits.
    Granted,
    /// Refused, and the maximum flow is less.
    Flow,
    /// Refused, and some cut lets less through for that many paths.
    FewPaths,
    /// Refused, and every set of that many paths carries less.
    Exhausted,
    /// Refused, but the check cannot tell if that is right.
    Open,
    /// Refused because the request is malformed or not allowed.
    NotAsked,
}

/// An incorrect answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: request {request:?}")]
pub struct IncorrectAnswer {
    /// The mistake.
    pub what: String,
    /// Request that was answered.
    pub request: Box<CircuitRequest>,
}

impl IncorrectAnswer {
    fn new(what: String, request: &CircuitRequest) -> Self {
        let request = Box::new(request.clone());
        Self { what, request }
    }
}

/// All promises on all links.
#[derive(Debug, Clone)]
pub struct Checker<'a> {
    network: &'a CircuitNetwork,
    taken: Vec<Vec<(Window, BitsPerSecond, ReservationId)>>,
}

impl<'a> Checker<'a> {
    /// Creates a checker for a network without promises.
    #[must_use]
    pub fn new(network: &'a CircuitNetwork) -> Self {
        Self {
            network,
            taken: vec![Vec::new(); network.links().len()],
        }
    }

    /// Records a promise.
    pub fn promise(&mut self, id: ReservationId, plan: &ReservationPlan) {
        for piece in &plan.0 {
            for route in &piece.routes {
                for link in &route.path.0 {
                    if let Some(taken) = self.taken.get_mut(link.0 as usize) {
                        taken.push((piece.window, route.rate, id));
                    }
                }
            }
        }
    }

    /// Removes a promise.
    pub fn withdraw(&mut self, id: ReservationId) {
        for taken in &mut self.taken {
            taken.retain(|(_, _, of)| *of != id);
        }
    }

    /// Removes what ended by `now`, which cannot affect later windows.
    pub fn forget_before(&mut self, now: MomentMs) {
        for taken in &mut self.taken {
            taken.retain(|(window, ..)| window.end > now);
        }
    }

    /// Returns the first link on which more is promised than is reservable, and the moment.
    #[must_use]
    pub fn overbooked(&self) -> Option<(LinkId, MomentMs)> {
        self.taken
            .iter()
            .zip(self.network.ids())
            .find_map(|(taken, id)| {
                let most = self.network.link(id)?.reservable();
                let starts = taken.iter().map(|(window, ..)| window.start);
                let mut starts = starts.filter(|at| brute::promised_at(taken, *at) > most);
                starts.next().map(|at| (id, at))
            })
    }

    /// Returns true if a ledger agrees on every link, at every moment at which anything begins or
    /// ends.
    #[must_use]
    pub fn matches(&self, ledger: &BandwidthLedger) -> bool {
        self.taken
            .iter()
            .zip(self.network.ids())
            .all(|(taken, id)| {
                let ends = taken
                    .iter()
                    .flat_map(|(window, ..)| [window.start, window.end]);
                let steps = ledger.steps(id);
                let known = steps
                    .into_iter()
                    .flat_map(|steps| steps.changes_within(Window::new(-MAX_MOMENT, MAX_MOMENT)));
                let mut moments = ends.chain(known.map(|(at, _)| at));
                moments.all(|at| {
                    brute::promised_at(taken, at) == steps.map_or(0, |steps| steps.rate_at(at))
                })
            })
    }

    fn available_rates<'b>(
        &'b self,
        request: &'b CircuitRequest,
        window: Window,
    ) -> AvailableRates<'b> {
        AvailableRates::new(self.network, &self.taken, request, window)
    }

    /// Checks an answer.
    ///
    /// # Errors
    /// [`IncorrectAnswer`] if it promises bandwidth that is not available or was not requested,
    /// refuses a request that fits, or its proof does not hold.
    pub fn check_answer(
        &self,
        request: &CircuitRequest,
        answer: Result<&ReservationPlan, &AdmissionRefusal>,
    ) -> Result<CheckVerdict, IncorrectAnswer> {
        match answer {
            Ok(plan) => self
                .check_granted(request, plan)
                .map(|()| CheckVerdict::Granted)
                .map_err(|what| IncorrectAnswer::new(what, request)),
            Err(AdmissionRefusal::Fault(_) | AdmissionRefusal::Policy(_)) => {
                Ok(CheckVerdict::NotAsked)
            }
            Err(AdmissionRefusal::Shortfall(short)) => self.check_refusal(request, &short.proof),
        }
    }

    /// Checks a refusal with this proof.
    ///
    /// # Errors
    /// [`IncorrectAnswer`] if the request fits, or the proof does not hold.
    pub fn check_refusal(
        &self,
        request: &CircuitRequest,
        proof: &Proof<CutLink>,
    ) -> Result<CheckVerdict, IncorrectAnswer> {
        self.check_proof(request, proof)
            .and_then(|()| self.find_verdict(request))
            .map_err(|what| IncorrectAnswer::new(what, request))
    }

    /// Checks that an offer fits and matches the request in all that it does not give up.
    ///
    /// # Errors
    /// [`IncorrectAnswer`] if it does not.
    pub fn check_offer(
        &self,
        request: &CircuitRequest,
        offer: &CounterOffer,
    ) -> Result<(), IncorrectAnswer> {
        let other = &offer.request;
        let same = (other.ends, other.paths, other.diversity)
            == (request.ends, request.paths, request.diversity)
            && (&other.elements, &other.bounds) == (&request.elements, &request.bounds);
        let checked = match !same || other.window.start < request.window.start {
            true => Err(format!("an offer of something else: {other:?}")),
            false => self
                .check_granted(other, &offer.plan)
                .map_err(|what| format!("an offer is none: {what}")),
        };
        checked.map_err(|what| IncorrectAnswer::new(what, request))
    }

    /// Determines how a refusal can be shown to be right.
    fn find_verdict(&self, request: &CircuitRequest) -> Result<CheckVerdict, String> {
        match request.wish {
            Demand::Rate(rate) => self
                .available_rates(request, request.window)
                .check_rate_refusal(request, rate, MAX_PATH_SETS),
            Demand::Volume { bytes, most, .. } => {
                let most = most.unwrap_or(BitsPerSecond::MAX);
                let stretches = brute::stretches(&self.taken, request.window);
                let goes = |most_of: &dyn Fn(&AvailableRates<'_>) -> BitsPerSecond| -> u128 {
                    let of = |window: &Window| {
                        u128::from(most_of(&self.available_rates(request, *window)).min(most))
                    };
                    stretches
                        .iter()
                        .map(|window| of(window) * u128::from(window.length()))
                        .sum()
                };
                let needed = u128::from(bytes) * 8_000;
                if goes(&|rooms| rooms.max_flow_above(0)) < needed {
                    return Ok(CheckVerdict::Flow);
                }
                if goes(&|rooms| rooms.few_paths_bound(request.paths)) < needed {
                    return Ok(CheckVerdict::FewPaths);
                }
                let (mut exact, mut slack) = (0.0, 0.0);
                for window in &stretches {
                    let length = window.length() as f64;
                    let Some(goes) = self
                        .available_rates(request, *window)
                        .exact_maximum(request, MAX_PATH_SETS / stretches.len())
                    else {
                        return Ok(CheckVerdict::Open);
                    };
                    exact += goes.min(most as f64) * length;
                    slack += brute::rounding_slack(request) * length;
                }
                if exact >= needed as f64 + slack {
                    return Err(format!(
                        "{exact} bit/s times ms go, and {needed} were refused"
                    ));
                }
                Ok(CheckVerdict::Exhausted)
            }
        }
    }

    /// Returns the earliest start before that of an offer at which the maximum flow admits the
    /// request, if there is one.
    #[must_use]
    pub fn earlier_start(
        &self,
        request: &CircuitRequest,
        offer: &CounterOffer,
    ) -> Option<MomentMs> {
        let Demand::Rate(rate) = request.wish else {
            return None;
        };
        let ends = self.taken.iter().flatten().map(|(window, ..)| window.end);
        let starts: BTreeSet<MomentMs> = ends
            .filter(|end| (request.window.start..offer.request.window.start).contains(end))
            .collect();
        starts.into_iter().find(|start| {
            self.available_rates(request, request.window.starting_at(*start))
                .few_paths_bound(request.paths)
                >= rate
        })
    }
}
