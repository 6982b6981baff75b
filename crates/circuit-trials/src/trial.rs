//! A trial: makes requests one after another and checks each answer. Also applies OSCARS' published
//! rule to the same requests.

use std::collections::BTreeMap;

use longhaul_circuits::admit::{Answer, Counter, Offer, Proof, Refusal};
use longhaul_circuits::book::{Book, Change, Terms};
use longhaul_circuits::check::{Checker, Verdict};
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::Event;
use longhaul_circuits::network::Network;
use longhaul_circuits::oscars::Oscars;
use longhaul_circuits::policy::Limits;
use longhaul_circuits::request::{Plan, Request, Wish};
use longhaul_circuits::time::{Moment, Rate, Volume};

use crate::requests::Requests;
use crate::{Error, MINUTE};

/// Parameters of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
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
pub struct Outcome {
    /// Number of granted requests, including accepted offers.
    pub granted: usize,
    /// Number of accepted offers.
    pub by_offer: usize,
    /// Total volume of granted requests.
    pub booked: Volume,
    /// Verdicts of the checker, with their numbers.
    pub verdicts: BTreeMap<Verdict, usize>,
    /// Numbers of refusals by the kind of their proof.
    pub proofs: BTreeMap<&'static str, usize>,
    /// Number of offers. Each one was granted when requested immediately.
    pub offers: usize,
    /// Number of offers of a later start for which the flow bound would allow an earlier one.
    pub not_earliest: usize,
}

impl Outcome {
    /// Returns the number of refusals that the checker could neither confirm nor refute.
    #[must_use]
    pub fn open(&self) -> usize {
        self.verdicts
            .get(&Verdict::Open)
            .copied()
            .unwrap_or_default()
    }
}

/// Makes all requests, one after another, and checks each answer.
///
/// # Errors
/// [`Error::Wrong`] at the first wrong answer, [`Error::Overbooked`] if more is promised than
/// available, [`Error::Book`] if the book refused its own entry.
pub fn run(network: &Network, trial: &Trial) -> Result<Outcome, Error> {
    let mut book = Book::new(network.clone());
    let mut checker = Checker::new(network);
    let mut requests = Requests::new(network, trial.seed);
    let mut outcome = Outcome::default();
    let terms = Terms {
        limits: Limits::default(),
        hold: MINUTE.unsigned_abs(),
        counter: match trial.takes_offers {
            true => Counter::Offer,
            false => Counter::Refuse,
        },
    };
    for number in 0..trial.requests {
        let (now, request) = requests.next(trial.paths);
        finish(&mut book, &mut checker, now)?;
        let answer = book.decide(&request, &terms, now);
        look_over(
            &checker,
            &book,
            &request,
            &answer.answer,
            now,
            &terms,
            &mut outcome,
        )
        .map_err(|what| Error::Wrong { number, what })?;
        let (change, is_offer) = match &answer.answer {
            Answer::Granted(_) => (answer.change, false),
            Answer::Refused(refusal) => match taken(&request, refusal) {
                Some(offer) => (book.decide(&offer.request, &terms, now).change, true),
                None => (None, false),
            },
        };
        let Some(change) = change else { continue };
        for (id, carried, plan) in keep(&mut book, change, now)? {
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
pub fn keep(
    book: &mut Book,
    change: Change,
    now: Moment,
) -> Result<Vec<(ReservationId, Volume, Plan)>, Error> {
    let Change::Held { holds, .. } = &change else {
        return Err(Error::Book(format!(
            "what is granted is not held: {change:?}"
        )));
    };
    let kept = holds
        .iter()
        .map(|hold| (hold.id, hold.plan.carried(), hold.plan.clone()));
    let kept: Vec<_> = kept.collect();
    write(book, change, now)?;
    for (id, ..) in &kept {
        write(
            book,
            Change::Event {
                id: *id,
                event: Event::Commit,
            },
            now,
        )?;
    }
    Ok(kept)
}

/// Returns the offer that a caller accepts: one that ends at most a window's length later, or one
/// with at least half the rate.
fn taken<'a>(request: &Request, refusal: &'a Refusal) -> Option<&'a Offer> {
    let Refusal::NoRoom(none) = refusal else {
        return None;
    };
    let length = request.window.end - request.window.start;
    let soon = none
        .offers
        .later
        .as_ref()
        .filter(|offer| offer.request.window.end - request.window.end <= length);
    let fast =
        none.offers
            .slower
            .as_ref()
            .filter(|offer| match (offer.request.wish, request.wish) {
                (Wish::Rate(offered), Wish::Rate(asked)) => offered.saturating_mul(2) >= asked,
                _ => false,
            });
    soon.or(fast)
}

fn kind(proof: &Proof) -> &'static str {
    match proof {
        Proof::Cut { .. } => "cut",
        Proof::Volume { .. } => "volume",
        Proof::Stretches { .. } => "stretches",
        Proof::Searched { .. } => "searched",
        Proof::Unknown => "unknown",
    }
}

fn write(book: &mut Book, change: Change, now: Moment) -> Result<(), Error> {
    let entry = book.entry(change, now);
    match book.apply(&entry) {
        Ok(_) => Ok(()),
        Err(fault) => Err(Error::Book(format!("{fault}: {entry:?}"))),
    }
}

/// Ends and forgets expired reservations.
fn finish(book: &mut Book, checker: &mut Checker<'_>, now: Moment) -> Result<(), Error> {
    for change in book.due(now) {
        let Change::Event { id, .. } = change else {
            continue;
        };
        write(book, change, now)?;
        for event in [Event::Terminate, Event::TerminateConfirmed] {
            write(book, Change::Event { id, event }, now)?;
        }
        write(book, Change::Forgotten { id }, now)?;
    }
    checker.forget(now);
    Ok(())
}

fn look_over(
    checker: &Checker<'_>,
    book: &Book,
    request: &Request,
    answer: &Answer,
    now: Moment,
    terms: &Terms,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let verdict = checker
        .answer(request, answer)
        .map_err(|wrong| wrong.to_string())?;
    *outcome.verdicts.entry(verdict).or_default() += 1;
    let Answer::Refused(Refusal::NoRoom(none)) = answer else {
        return Ok(());
    };
    *outcome.proofs.entry(kind(&none.proof)).or_default() += 1;
    let offers = [&none.offers.later, &none.offers.slower, &none.offers.volume];
    for offer in offers.into_iter().flatten() {
        outcome.offers += 1;
        // An offer is granted if it is requested immediately.
        match book.decide(&offer.request, terms, now).answer {
            Answer::Granted(plan) if plan == offer.plan => {}
            other => return Err(format!("an offer is not kept: {offer:?}: {other:?}")),
        }
    }
    if let Some(later) = &none.offers.later
        && checker.earlier(request, later).is_some()
    {
        outcome.not_earliest += 1;
    }
    Ok(())
}

/// Returns the rate and volume of a request; for a volume, the rate that it needs.
fn wanted(request: &Request) -> (Rate, Volume) {
    let length = request.window.length();
    match request.wish {
        Wish::Rate(rate) => (rate, Volume::carried(rate, length)),
        Wish::Volume { bytes, .. } => {
            let volume = Volume::of_bytes(bytes);
            (volume.rate_within(length).unwrap_or(Rate::MAX), volume)
        }
    }
}

/// Returns the number and volume of requests that OSCARS' published rule grants over one path. A
/// volume is requested as the rate that it needs.
#[must_use]
pub fn by_oscars(network: &Network, trial: &Trial) -> (usize, Volume) {
    let mut oscars = Oscars::new(network);
    let mut requests = Requests::new(network, trial.seed);
    let (mut granted, mut booked) = (0, Volume::default());
    for _ in 0..trial.requests {
        let (_, request) = requests.next(1);
        let (rate, volume) = wanted(&request);
        if oscars.reserve(request.ends, request.window, rate).is_some() {
            granted += 1;
            booked = booked.plus(volume);
        }
    }
    (granted, booked)
}

/// Returns the total volume of a trial's requests.
#[must_use]
pub fn asked(network: &Network, trial: &Trial) -> Volume {
    let mut requests = Requests::new(network, trial.seed);
    let volumes = (0..trial.requests).map(|_| wanted(&requests.next(1).1).1);
    volumes.fold(Volume::default(), Volume::plus)
}
