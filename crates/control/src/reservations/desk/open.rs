//! Search for counter-offers while the reservation store continues.

use std::sync::Arc;

use longhaul_circuits::admit::{self, OfferSearch};
use longhaul_circuits::book::BookFault;
use longhaul_circuits::ledger;
use longhaul_circuits::policy::PolicyRefusal;
use longhaul_circuits::request::RequestFault;
use longhaul_control_api::reservations::{Offers, ReservationRequest};

use super::{ReservationError, ReservationStore};
use crate::authority::AccessDenied;
use crate::reservations::names::NetworkNames;
use crate::reservations::reported;
use crate::reservations::wanted::InvalidReservation;

/// Refusal of a command, with a search for counter-offers.
#[derive(Debug)]
pub struct DeniedCommand {
    /// Reason of the refusal.
    pub error: ReservationError,
    /// Search for counter-offers, if bandwidth is missing and they are computed later.
    pub open: Option<Box<PendingOffers>>,
}

macro_rules! without_offers {
    ($($error:ty),*) => {
        $(impl From<$error> for DeniedCommand {
            fn from(error: $error) -> Self {
                Self { error: error.into(), open: None }
            }
        })*
    };
}
without_offers!(
    ReservationError,
    AccessDenied,
    InvalidReservation,
    RequestFault,
    PolicyRefusal,
    BookFault
);

/// Allocation of all links at one time, with their names.
#[derive(Debug, Clone)]
pub struct AllocationSnapshot {
    links: ledger::LedgerSnapshot,
    names: Arc<NetworkNames>,
}

/// Refusal that waits for counter-offers. The search uses the allocation at the time of the
/// decision.
#[derive(Debug, Clone)]
pub struct PendingOffers {
    pub(super) search: Box<OfferSearch>,
    pub(super) decided: AllocationSnapshot,
    pub(super) asked: ReservationRequest,
}

/// Counter-offers, by the allocation at the time of the search.
#[derive(Debug, Clone)]
pub struct FoundOffers {
    offers: admit::CounterOffers,
    /// If true, the search was cut short.
    pub is_broken_off: bool,
}

impl PendingOffers {
    /// Searches for counter-offers, which takes as long as many decisions. Stops when `goes_on`,
    /// which is called now and then, returns false.
    #[must_use]
    pub fn run(&self, mut goes_on: impl FnMut() -> bool) -> FoundOffers {
        let mut is_broken_off = false;
        let offers = self.search.find_offers(&self.decided.links, &mut || {
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
        let mut renew = |offer: &Option<admit::CounterOffer>| {
            let offer = offer.as_ref()?;
            let renewed = self
                .search
                .revalidate(offer, &self.decided.links, &now.links);
            is_all &= renewed.is_some();
            renewed
        };
        let found = &found.offers;
        let offers = admit::CounterOffers {
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
