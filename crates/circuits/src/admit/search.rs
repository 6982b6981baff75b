//! Search for counter-offers outside the decision, and their validation against a newer book.

use super::{CounterOffer, CounterOffers, RefusalProof, RequestShortfall, offer, plan_request};
use crate::ledger::{LedgerSnapshot, View, ViewAdjustments};
use crate::policy::RequestLimits;
use crate::request::CircuitRequest;
use crate::time::MomentMs;

/// State of a refused request, from which counter-offers can be found in the book that refused it.
#[derive(Debug, Clone)]
pub struct OfferSearch {
    request: CircuitRequest,
    limits: RequestLimits,
    now: MomentMs,
    short: RequestShortfall,
    /// Moment at which the cut of the proof frees up, if the proof is a cut.
    frees: Option<Option<MomentMs>>,
    /// Differences between the view and the book.
    seen: ViewAdjustments,
}

impl OfferSearch {
    pub(super) fn new(
        view: &View<'_>,
        request: &CircuitRequest,
        limits: &RequestLimits,
        now: MomentMs,
        (short, proof): (RequestShortfall, &RefusalProof),
    ) -> Self {
        Self {
            request: request.clone(),
            limits: *limits,
            now,
            short,
            frees: match proof {
                RefusalProof::Cut { until, .. } => Some(*until),
                _ => None,
            },
            seen: ViewAdjustments::from_view(view),
        }
    }

    /// Finds counter-offers in the book as it was at the decision. `goes_on` is called before each
    /// step; once it returns `false`, only the offers found so far are returned.
    #[must_use]
    pub fn find_offers(
        &self,
        decided: &LedgerSnapshot,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> CounterOffers {
        self.find_offers_in(&decided.view_with(&self.seen), goes_on)
    }

    pub(super) fn find_offers_in(
        &self,
        view: &View<'_>,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> CounterOffers {
        offer::find_offers(
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
    pub fn revalidate(
        &self,
        found: &CounterOffer,
        before: &LedgerSnapshot,
        newer: &LedgerSnapshot,
    ) -> Option<CounterOffer> {
        let CounterOffer { request, .. } = found;
        let network = newer.network();
        let mut usable = network
            .ids()
            .filter(|link| request.elements.allows_link(network, request.ends, *link));
        let is_as_large = network.links().len() == before.network().links().len();
        if is_as_large && usable.all(|link| newer.is_unchanged(before, link, request.window)) {
            return Some(found.clone());
        }
        if self.seen.removes_plan() {
            return None;
        }
        request.check(network).ok()?;
        let plan = plan_request(&newer.view_with(&self.seen), request, &self.limits).ok()?;
        Some(CounterOffer {
            request: request.clone(),
            plan,
        })
    }
}
