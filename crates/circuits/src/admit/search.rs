//! A request that does not fit: the proof, the search for counter-offers, and their validation
//! against a newer book.

use super::cause::{RefusalCause, find_cause};
use super::{
    BestFound, CounterOffer, CounterOffers, CutLink, cut_link, offer, plan_request, until,
};
use crate::ledger::{BandwidthLedger, LedgerSnapshot, View, ViewAdjustments};
use crate::policy::RequestLimits;
use crate::proof::{PartialFit, Proof};
use crate::request::{CircuitRequest, Demand};
use crate::time::MomentMs;

/// A request that does not fit, from which counter-offers can be found in the book that refused it.
#[derive(Debug, Clone)]
pub struct Shortfall {
    /// Evidence that the request does not fit.
    pub proof: Proof<CutLink>,
    /// Constraints on the paths without which it would fit. `None` if bandwidth is short whatever
    /// paths are allowed.
    pub cause: Option<RefusalCause>,
    pub(super) request: CircuitRequest,
    pub(super) limits: RequestLimits,
    pub(super) now: MomentMs,
    pub(super) found: BestFound,
    /// Differences between the view and the book.
    seen: ViewAdjustments,
}

impl Shortfall {
    pub(super) fn new(
        (view, ledger): (&View<'_>, &BandwidthLedger),
        request: &CircuitRequest,
        limits: &RequestLimits,
        now: MomentMs,
        PartialFit { found, proof }: PartialFit<BestFound>,
    ) -> Self {
        let window = request.window;
        let proof = proof.complete(
            |link| cut_link(view, ledger, link, window),
            |links| match request.wish {
                Demand::Rate(rate) => {
                    until::earliest_free_start(view, links, request.paths, rate, window)
                }
                Demand::Volume { .. } => None,
            },
        );
        Self {
            proof,
            cause: find_cause(view, request, limits, &found),
            request: request.clone(),
            limits: *limits,
            now,
            found,
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
        offer::find_offers(&decided.view_with(&self.seen), self, goes_on)
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
