//! Refusals for lack of bandwidth, and the search for counter-offers while the reservation store
//! continues.

use std::sync::Arc;

use longhaul_circuits::admit::{CounterOffer, CounterOffers, Shortfall};
use longhaul_circuits::ledger::LedgerSnapshot;
use longhaul_control_api::reservations::{Offers, Refusal, ReservationRequest};

use super::ReservationStore;
use crate::reservations::names::NetworkNames;
use crate::reservations::reported;

/// Allocation of all links at one time, with their names.
#[derive(Debug, Clone)]
pub struct AllocationSnapshot {
    links: LedgerSnapshot,
    names: Arc<NetworkNames>,
}

/// Request for which there is not enough bandwidth.
#[derive(Debug, Clone)]
pub struct RefusedRequest {
    /// Refusal for the caller, without offers until they are found.
    pub refusal: Refusal,
    pub(super) short: Box<Shortfall>,
    /// Allocation at the time of the decision, which the search uses.
    pub(super) decided: AllocationSnapshot,
    pub(super) asked: ReservationRequest,
}

/// Counter-offers, by the allocation at the time of the search.
#[derive(Debug, Clone)]
pub struct FoundOffers {
    offers: CounterOffers,
    /// If true, the search was cut short.
    pub is_broken_off: bool,
}

impl RefusedRequest {
    /// Searches for counter-offers, which takes as long as many decisions. Stops when `goes_on`,
    /// which is called now and then, returns false.
    #[must_use]
    pub fn find_offers(&self, mut goes_on: impl FnMut() -> bool) -> FoundOffers {
        let mut is_broken_off = false;
        let offers = self.short.find_offers(&self.decided.links, &mut || {
            is_broken_off = is_broken_off || !goes_on();
            !is_broken_off
        });
        FoundOffers {
            offers,
            is_broken_off,
        }
    }

    /// Returns the offers that are still valid with the current allocation. The flag is true if
    /// these are all that were found.
    #[must_use]
    pub fn renewed(&self, found: &FoundOffers, now: &AllocationSnapshot) -> (Offers, bool) {
        let mut is_all = true;
        let mut renew = |offer: &Option<CounterOffer>| {
            let offer = offer.as_ref()?;
            let renewed = self
                .short
                .revalidate(offer, &self.decided.links, &now.links);
            is_all &= renewed.is_some();
            renewed
        };
        let found = &found.offers;
        let offers = CounterOffers {
            later: renew(&found.later),
            slower: renew(&found.slower),
            volume: renew(&found.volume),
        };
        (reported::offers(&now.names, &self.asked, &offers), is_all)
    }
}

impl ReservationStore {
    /// Returns the current allocation, for use while the reservation store continues.
    #[must_use]
    pub fn snapshot(&self) -> AllocationSnapshot {
        AllocationSnapshot {
            links: self.book.snapshot(),
            names: self.names.clone(),
        }
    }
}
