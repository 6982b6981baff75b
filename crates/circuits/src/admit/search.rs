//! Offers that are looked for beside whoever decides, and whether they are still good on a book
//! that has gone on since.

use super::{Offer, Offers, Proof, Short, grant, offer};
use crate::ledger::{Seen, Snapshot, View};
use crate::policy::Limits;
use crate::request::Request;
use crate::time::Moment;

/// What is known of a request that was refused, to look for offers with: on the book that it was
/// decided by.
#[derive(Debug, Clone)]
pub struct Search {
    request: Request,
    limits: Limits,
    now: Moment,
    short: Short,
    /// Until when the cut of the proof is too narrow, where the proof is one.
    frees: Option<Option<Moment>>,
    /// What the view had that is not of the book.
    seen: Seen,
}

impl Search {
    pub(super) fn new(
        view: &View<'_>,
        request: &Request,
        limits: &Limits,
        now: Moment,
        (short, proof): (Short, &Proof),
    ) -> Self {
        Self {
            request: request.clone(),
            limits: *limits,
            now,
            short,
            frees: match proof {
                Proof::Cut { until, .. } => Some(*until),
                _ => None,
            },
            seen: Seen::of(view),
        }
    }

    /// The offers, by the book as it was when the request was decided. `goes_on` is asked before
    /// each step of the search: those that are found when it says no are all.
    #[must_use]
    pub fn offers(&self, decided: &Snapshot, goes_on: &mut dyn FnMut() -> bool) -> Offers {
        self.offers_in(&decided.seen_by(&self.seen), goes_on)
    }

    pub(super) fn offers_in(&self, view: &View<'_>, goes_on: &mut dyn FnMut() -> bool) -> Offers {
        offer::offers(
            view,
            &self.request,
            &self.limits,
            self.now,
            (&self.short, self.frees),
            goes_on,
        )
    }

    /// An offer that was found on one book, as it is on a newer one: what it asks for is granted
    /// there, too. Where nothing has changed that it can meet, it is the same, which is seen
    /// without planning; else it is planned anew. None where it goes no longer, or is one for a
    /// change of something that may have changed itself.
    #[must_use]
    pub fn renewed(&self, found: &Offer, before: &Snapshot, newer: &Snapshot) -> Option<Offer> {
        let Offer { request, .. } = found;
        let network = newer.network();
        let mut usable = network
            .ids()
            .filter(|link| request.elements.allow(network, request.ends, *link));
        let is_as_large = network.links().len() == before.network().links().len();
        if is_as_large && usable.all(|link| newer.is_alike(before, link, request.window)) {
            return Some(found.clone());
        }
        if self.seen.leaves_out() {
            return None;
        }
        request.check(network).ok()?;
        let plan = grant(&newer.seen_by(&self.seen), request, &self.limits).ok()?;
        Some(Offer {
            request: request.clone(),
            plan,
        })
    }
}
