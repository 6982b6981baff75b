//! A trial: makes requests one after another and checks each answer. Also applies OSCARS' published
//! rule to the same requests.

use std::collections::BTreeMap;

use longhaul_circuits::admit::{AdmissionRefusal, CounterOffer, CounterOffers, CutLink};
use longhaul_circuits::book::{BookChange, DecisionTerms, ReservationBook};
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::ReservationEvent;
use longhaul_circuits::network::CircuitNetwork;
use longhaul_circuits::policy::RequestLimits;
use longhaul_circuits::proof::Proof;
use longhaul_circuits::request::{CircuitRequest, Demand, ReservationPlan};
use longhaul_circuits::time::{BitsPerSecond, MomentMs, Volume};

use crate::check::{CheckVerdict, Checker};
use crate::oscars::OscarsAdmission;
use crate::requests::RandomRequests;
use crate::{Error, MINUTE};

/// Parameters of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialParameters {
    /// Number of requests.
    pub requests: usize,
    /// Seed of the requests.
    pub seed: u64,
    /// Maximum number of paths per request.
    pub paths: usize,
    /// If true, a refused caller accepts an offer that is close to its request.
    pub takes_offers: bool,
}

/// Result of a trial.
#[derive(Debug, Clone, Default)]
pub struct TrialOutcome {
    /// Number of granted requests, including accepted offers.
    pub granted: usize,
    /// Number of accepted offers.
    pub by_offer: usize,
    /// Total volume of granted requests.
    pub booked: Volume,
    /// Verdicts of the checker, with their numbers.
    pub verdicts: BTreeMap<CheckVerdict, usize>,
    /// Numbers of refusals by the kind of their proof.
    pub proofs: BTreeMap<&'static str, usize>,
    /// Number of offers. Each one was granted when requested immediately.
    pub offers: usize,
    /// Number of offers of a later start for which the flow bound would allow an earlier one.
    pub not_earliest: usize,
}

impl TrialOutcome {
    /// Returns the number of refusals that the checker could neither confirm nor refute.
    #[must_use]
    pub fn unverified(&self) -> usize {
        self.verdicts
            .get(&CheckVerdict::Open)
            .copied()
            .unwrap_or_default()
    }
}

/// Makes all requests, one after another, and checks each answer.
///
/// # Errors
/// [`Error::Wrong`] at the first wrong answer, [`Error::Overbooked`] if more is promised than
/// available, [`Error::Book`] if the book refused its own entry.
pub fn run(network: &CircuitNetwork, trial: &TrialParameters) -> Result<TrialOutcome, Error> {
    let mut book = ReservationBook::new(network.clone());
    let mut checker = Checker::new(network);
    let mut requests = RandomRequests::new(network, trial.seed);
    let mut outcome = TrialOutcome::default();
    let terms = DecisionTerms {
        limits: RequestLimits::default(),
        hold: MINUTE.unsigned_abs(),
    };
    for number in 0..trial.requests {
        let (now, request) = requests.next(trial.paths);
        forget_expired(&mut book, &mut checker, now)?;
        let answer = book.decide(&request, &terms, now);
        let offers = match &answer {
            Err(AdmissionRefusal::Shortfall(short)) if trial.takes_offers => {
                short.find_offers(&book.snapshot(), &mut || true)
            }
            _ => CounterOffers::default(),
        };
        let wrong = |what| Error::Wrong { number, what };
        check_answer(&checker, &request, &answer, &mut outcome).map_err(wrong)?;
        for offer in offers.iter() {
            outcome.offers += 1;
            check_offer((&checker, &book), &request, offer, (&terms, now)).map_err(wrong)?;
        }
        let later = offers.later.as_ref();
        let earlier = later.and_then(|later| checker.earlier_start(&request, later));
        outcome.not_earliest += usize::from(earlier.is_some());
        let (answer, is_offer) = match accepted_offer(&request, &offers) {
            Some(offer) => (book.decide(&offer.request, &terms, now), true),
            None => (answer, false),
        };
        let Ok(change) = answer else { continue };
        for (id, carried, plan) in commit_granted(&mut book, change, now)? {
            outcome.booked = outcome.booked.plus(carried);
            checker.promise(id, &plan);
        }
        outcome.granted += 1;
        outcome.by_offer += usize::from(is_offer);
    }
    match checker.overbooked() {
        None => Ok(outcome),
        Some(where_and_when) => Err(Error::Overbooked(format!("{where_and_when:?}"))),
    }
}

/// Holds and commits a granted request. Returns each reservation with its volume and plan.
///
/// # Errors
/// [`Error::Book`]: the book refused its own entry.
pub fn commit_granted(
    book: &mut ReservationBook,
    change: BookChange,
    now: MomentMs,
) -> Result<Vec<(ReservationId, Volume, ReservationPlan)>, Error> {
    let BookChange::Held { holds, .. } = &change else {
        return Err(Error::Book(format!(
            "what is granted is not held: {change:?}"
        )));
    };
    let kept = holds
        .iter()
        .map(|hold| (hold.id, hold.plan.carried(), hold.plan.clone()));
    let kept: Vec<_> = kept.collect();
    apply_change(book, change, now)?;
    for (id, ..) in &kept {
        apply_change(
            book,
            BookChange::Event {
                id: *id,
                event: ReservationEvent::Commit,
            },
            now,
        )?;
    }
    Ok(kept)
}

/// Returns the offer that a caller accepts: one that ends at most a window's length later, or one
/// with at least half the rate.
fn accepted_offer<'a>(
    request: &CircuitRequest,
    offers: &'a CounterOffers,
) -> Option<&'a CounterOffer> {
    let length = request.window.end - request.window.start;
    let soon = offers
        .later
        .as_ref()
        .filter(|offer| offer.request.window.end - request.window.end <= length);
    let fast = offers
        .slower
        .as_ref()
        .filter(|offer| match (offer.request.wish, request.wish) {
            (Demand::Rate(offered), Demand::Rate(asked)) => offered.saturating_mul(2) >= asked,
            _ => false,
        });
    soon.or(fast)
}

fn kind(proof: &Proof<CutLink>) -> &'static str {
    match proof {
        Proof::Cut { .. } => "cut",
        Proof::Volume { .. } => "volume",
        Proof::Stretches { .. } => "stretches",
        Proof::Searched { .. } => "searched",
        Proof::Constrained { .. } => "constrained",
        Proof::Unknown => "unknown",
    }
}

fn apply_change(
    book: &mut ReservationBook,
    change: BookChange,
    now: MomentMs,
) -> Result<(), Error> {
    let entry = book.entry(change, now);
    match book.apply(&entry) {
        Ok(_) => Ok(()),
        Err(fault) => Err(Error::Book(format!("{fault}: {entry:?}"))),
    }
}

/// Ends and forgets expired reservations.
fn forget_expired(
    book: &mut ReservationBook,
    checker: &mut Checker<'_>,
    now: MomentMs,
) -> Result<(), Error> {
    for change in book.due(now) {
        let BookChange::Event { id, .. } = change else {
            continue;
        };
        apply_change(book, change, now)?;
        for event in [
            ReservationEvent::Terminate,
            ReservationEvent::TerminateConfirmed,
        ] {
            apply_change(book, BookChange::Event { id, event }, now)?;
        }
        apply_change(book, BookChange::Forgotten { id }, now)?;
    }
    checker.forget_before(now);
    Ok(())
}

fn check_answer(
    checker: &Checker<'_>,
    request: &CircuitRequest,
    answer: &Result<BookChange, AdmissionRefusal>,
    outcome: &mut TrialOutcome,
) -> Result<(), String> {
    let plan = match answer {
        Ok(change) => Ok(granted_plan(change).ok_or("a grant without a plan")?),
        Err(refusal) => Err(refusal),
    };
    let verdict = checker
        .check_answer(request, plan)
        .map_err(|wrong| wrong.to_string())?;
    *outcome.verdicts.entry(verdict).or_default() += 1;
    if let Err(AdmissionRefusal::Shortfall(short)) = answer {
        *outcome.proofs.entry(kind(&short.proof)).or_default() += 1;
    }
    Ok(())
}

/// Checks an offer, and that it is granted if it is requested immediately.
fn check_offer(
    (checker, book): (&Checker<'_>, &ReservationBook),
    request: &CircuitRequest,
    offer: &CounterOffer,
    (terms, now): (&DecisionTerms, MomentMs),
) -> Result<(), String> {
    let checked = checker.check_offer(request, offer);
    checked.map_err(|wrong| wrong.to_string())?;
    match book.decide(&offer.request, terms, now) {
        Ok(change) if granted_plan(&change) == Some(&offer.plan) => Ok(()),
        other => Err(format!("an offer is not kept: {offer:?}: {other:?}")),
    }
}

/// Returns the plan of a request that was granted.
fn granted_plan(change: &BookChange) -> Option<&ReservationPlan> {
    match change {
        BookChange::Held { holds, .. } => holds.first().map(|hold| &hold.plan),
        _ => None,
    }
}

/// Returns the rate and volume of a request; for a volume, the rate that it needs.
fn rate_and_volume(request: &CircuitRequest) -> (BitsPerSecond, Volume) {
    let length = request.window.length();
    match request.wish {
        Demand::Rate(rate) => (rate, Volume::carried(rate, length)),
        Demand::Volume { bytes, .. } => {
            let volume = Volume::from_bytes(bytes);
            (
                volume.min_rate_within(length).unwrap_or(BitsPerSecond::MAX),
                volume,
            )
        }
    }
}

/// Returns the number and volume of requests that OSCARS' published rule grants over one path. A
/// volume is requested as the rate that it needs.
#[must_use]
pub fn granted_by_oscars(network: &CircuitNetwork, trial: &TrialParameters) -> (usize, Volume) {
    let mut oscars = OscarsAdmission::new(network);
    let mut requests = RandomRequests::new(network, trial.seed);
    let (mut granted, mut booked) = (0, Volume::default());
    for _ in 0..trial.requests {
        let (_, request) = requests.next(1);
        let (rate, volume) = rate_and_volume(&request);
        if oscars.reserve(request.ends, request.window, rate).is_some() {
            granted += 1;
            booked = booked.plus(volume);
        }
    }
    (granted, booked)
}

/// Returns the total volume of a trial's requests.
#[must_use]
pub fn requested_volume(network: &CircuitNetwork, trial: &TrialParameters) -> Volume {
    let mut requests = RandomRequests::new(network, trial.seed);
    let volumes = (0..trial.requests).map(|_| rate_and_volume(&requests.next(1).1).1);
    volumes.fold(Volume::default(), Volume::plus)
}
