//! A second opinion on answers: slow, simple, and written without what made them. It keeps every
//! promise as it was made, and adds up.
//!
//! It is for tests and for those who doubt an answer; nothing that decides uses it.

mod brute;
mod plans;
mod proofs;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::admit::{Answer, Offer, Refusal};
use crate::ledger::{Ledger, ReservationId};
use crate::network::{LinkId, Network};
use crate::request::{Plan, Request, Wish};
use crate::time::{MAX_MOMENT, Moment, Rate, Window};

use brute::Rooms;

/// Sets of paths that are tried one by one, at most, to know a refusal to be right.
const MAX_SETS: usize = 20_000;

/// What an answer is found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It is granted, and it fits.
    Granted,
    /// It is refused, and the greatest flow is less.
    Flow,
    /// It is refused, and no cut lets so many paths through with that much.
    FewPaths,
    /// It is refused, and all sets of so many paths carry less.
    Exhausted,
    /// It is refused, and nothing shows whether that is right.
    Open,
    /// It can't or may not be asked.
    NotAsked,
}

/// An answer that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: request {request:?}")]
pub struct Wrong {
    /// What is wrong.
    pub what: String,
    /// With the answer to which request.
    pub request: Box<Request>,
}

/// Every promise, on every link.
#[derive(Debug, Clone)]
pub struct Checker<'a> {
    network: &'a Network,
    taken: Vec<Vec<(Window, Rate, ReservationId)>>,
}

impl<'a> Checker<'a> {
    /// Of a network of which nothing is promised.
    #[must_use]
    pub fn new(network: &'a Network) -> Self {
        Self {
            network,
            taken: vec![Vec::new(); network.links().len()],
        }
    }

    /// Writes a promise down.
    pub fn promise(&mut self, id: ReservationId, plan: &Plan) {
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

    /// Strikes a promise out.
    pub fn withdraw(&mut self, id: ReservationId) {
        for taken in &mut self.taken {
            taken.retain(|(_, _, of)| *of != id);
        }
    }

    /// Strikes out what was over by a moment, and can't matter to what starts then or later.
    pub fn forget(&mut self, now: Moment) {
        for taken in &mut self.taken {
            taken.retain(|(window, ..)| window.end > now);
        }
    }

    /// The first link, and moment, at which more is promised than may be.
    #[must_use]
    pub fn overbooked(&self) -> Option<(LinkId, Moment)> {
        self.taken
            .iter()
            .zip(self.network.ids())
            .find_map(|(taken, id)| {
                let most = self.network.link(id)?.reservable();
                let starts = taken.iter().map(|(window, ..)| window.start);
                let mut starts = starts.filter(|at| brute::level(taken, *at) > most);
                starts.next().map(|at| (id, at))
            })
    }

    /// Whether a ledger has the same, on every link and at every moment at which anything begins or
    /// ends.
    #[must_use]
    pub fn matches(&self, ledger: &Ledger) -> bool {
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
                moments.all(|at| brute::level(taken, at) == steps.map_or(0, |steps| steps.at(at)))
            })
    }

    fn rooms(&self, request: &Request, window: Window) -> Rooms<'_> {
        Rooms::new(self.network, &self.taken, request, window)
    }

    /// Looks an answer over.
    ///
    /// # Errors
    /// [`Wrong`], where it promises what is not there or not what was asked, refuses what goes, or
    /// its proof is none.
    pub fn answer(&self, request: &Request, answer: &Answer) -> Result<Verdict, Wrong> {
        let wrong = |what: String| Wrong {
            what,
            request: Box::new(request.clone()),
        };
        match answer {
            Answer::Granted(plan) => self
                .granted(request, plan)
                .map_err(wrong)
                .map(|()| Verdict::Granted),
            Answer::Refused(Refusal::Fault(_) | Refusal::Policy(_)) => Ok(Verdict::NotAsked),
            Answer::Refused(Refusal::NoRoom(none)) => {
                self.proof(request, &none.proof).map_err(&wrong)?;
                let offers = &none.offers;
                for offer in [&offers.later, &offers.slower, &offers.volume]
                    .into_iter()
                    .flatten()
                {
                    self.offer(request, offer).map_err(&wrong)?;
                }
                self.refused(request).map_err(wrong)
            }
        }
    }

    /// Whether an offer fits, and is what was asked for but for what it gives up.
    fn offer(&self, request: &Request, offer: &Offer) -> Result<(), String> {
        let other = &offer.request;
        let same = (other.ends, other.paths, other.diversity, &other.elements)
            == (
                request.ends,
                request.paths,
                request.diversity,
                &request.elements,
            );
        if !same || other.window.start < request.window.start {
            return Err(format!("an offer of something else: {other:?}"));
        }
        self.granted(other, &offer.plan)
            .map_err(|what| format!("an offer is none: {what}"))
    }

    /// How it is known that a request does not go.
    fn refused(&self, request: &Request) -> Result<Verdict, String> {
        match request.wish {
            Wish::Rate(rate) => self
                .rooms(request, request.window)
                .verdict(request, rate, MAX_SETS),
            Wish::Volume { bytes, most, .. } => {
                let most = most.unwrap_or(Rate::MAX);
                let stretches = brute::stretches(&self.taken, request.window);
                let goes = |most_of: &dyn Fn(&Rooms<'_>) -> Rate| -> u128 {
                    let of = |window: &Window| {
                        u128::from(most_of(&self.rooms(request, *window)).min(most))
                    };
                    stretches
                        .iter()
                        .map(|window| of(window) * u128::from(window.length()))
                        .sum()
                };
                let needed = u128::from(bytes) * 8_000;
                if goes(&|rooms| rooms.flow(0)) < needed {
                    return Ok(Verdict::Flow);
                }
                if goes(&|rooms| rooms.few(request.paths)) < needed {
                    return Ok(Verdict::FewPaths);
                }
                let (mut exact, mut slack) = (0.0, 0.0);
                for window in &stretches {
                    let length = window.length() as f64;
                    let Some(goes) = self
                        .rooms(request, *window)
                        .exact(request, MAX_SETS / stretches.len())
                    else {
                        return Ok(Verdict::Open);
                    };
                    exact += goes.min(most as f64) * length;
                    slack += brute::slack(request) * length;
                }
                if exact >= needed as f64 + slack {
                    return Err(format!(
                        "{exact} bit/s times ms go, and {needed} were refused"
                    ));
                }
                Ok(Verdict::Exhausted)
            }
        }
    }

    /// Whether a request could be granted at an earlier start than an offer's, by the greatest
    /// flow: the earliest such start, if any.
    #[must_use]
    pub fn earlier(&self, request: &Request, offer: &Offer) -> Option<Moment> {
        let Wish::Rate(rate) = request.wish else {
            return None;
        };
        let ends = self.taken.iter().flatten().map(|(window, ..)| window.end);
        let starts: BTreeSet<Moment> = ends
            .filter(|end| (request.window.start..offer.request.window.start).contains(end))
            .collect();
        starts.into_iter().find(|start| {
            self.rooms(request, request.window.from_start(*start))
                .few(request.paths)
                >= rate
        })
    }
}
