//! Search for counter-offers outside the decision, and their validation against a newer book.

use super::{Offer, Offers, Proof, Short, grant, offer};
use crate::ledger::{Seen, Snapshot, View};
use crate::policy::Limits;
use crate::request::Request;
use crate::time::Moment;

/// State of a refused request, from which counter-offers can be found in the book that refused it.
#[derive(Debug, Clone)]
pub struct Search {
    request: Request,
    limits: Limits,
    now: Moment,
    short: Short,
    /// Moment at which the cut of the proof frees up, if the proof is a cut.
    frees: Option<Option<Moment>>,
    /// Differences between the view and the book.
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

    /// Finds counter-offers in the book as it was at the decision. `goes_on` is called before each
    /// step; once it returns `false`, only the offers found so far are returned.
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

    /// Validates an offer of one book against a newer book, so that the newer book grants it too.
    ///
    /// If nothing that concerns the offer has changed, it is returned without planning. Otherwise
    /// it is planned again. Returns `None` if it no longer fits, or if it changes a reservation
    /// that may itself have changed.
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
