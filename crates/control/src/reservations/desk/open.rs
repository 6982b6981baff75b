//! Search for counter-offers while the reservation store continues.

use std::sync::Arc;

use longhaul_circuits::admit::{self, Search};
use longhaul_circuits::book::Fault;
use longhaul_circuits::ledger;
use longhaul_circuits::policy::PolicyRefusal;
use longhaul_circuits::request::RequestFault;
use longhaul_control_api::reservations::{Offers, ReservationRequest};

use super::{Desk, DeskError};
use crate::authority::Refused;
use crate::reservations::names::Names;
use crate::reservations::reported;
use crate::reservations::wanted::WantedFault;

/// Refusal of a command, with a search for counter-offers.
#[derive(Debug)]
pub struct Denied {
    /// Reason of the refusal.
    pub error: DeskError,
    /// Search for counter-offers, if bandwidth is missing and they are computed later.
    pub open: Option<Box<Open>>,
}

macro_rules! without_offers {
    ($($error:ty),*) => {
        $(impl From<$error> for Denied {
            fn from(error: $error) -> Self {
                Self { error: error.into(), open: None }
            }
        })*
    };
}
without_offers!(
    DeskError,
    Refused,
    WantedFault,
    RequestFault,
    PolicyRefusal,
    Fault
);

/// Allocation of all links at one time, with their names.
#[derive(Debug, Clone)]
pub struct Snapshot {
    links: ledger::Snapshot,
    names: Arc<Names>,
}

/// Refusal that waits for counter-offers. The search uses the allocation at the time of the
/// decision.
#[derive(Debug, Clone)]
pub struct Open {
    pub(super) search: Box<Search>,
    pub(super) decided: Snapshot,
    pub(super) asked: ReservationRequest,
}

/// Counter-offers, by the allocation at the time of the search.
#[derive(Debug, Clone)]
pub struct Found {
    offers: admit::Offers,
    /// If true, the search was cut short.
    pub is_broken_off: bool,
}

impl Open {
    /// Searches for counter-offers, which takes as long as many decisions. Stops when `goes_on`,
    /// which is called now and then, returns false.
    #[must_use]
    pub fn look(&self, mut goes_on: impl FnMut() -> bool) -> Found {
        let mut is_broken_off = false;
        let offers = self.search.offers(&self.decided.links, &mut || {
            is_broken_off = is_broken_off || !goes_on();
            !is_broken_off
        });
        Found {
            offers,
            is_broken_off,
        }
    }

    /// Returns the offers that are still valid with the current allocation. The flag is true if
    /// these are all that were found.
    #[must_use]
    pub fn renewed(&self, found: &Found, now: &Snapshot) -> (Offers, bool) {
        let mut is_all = true;
        let mut renew = |offer: &Option<admit::Offer>| {
            let offer = offer.as_ref()?;
            let renewed = self.search.renewed(offer, &self.decided.links, &now.links);
            is_all &= renewed.is_some();
            renewed
        };
        let found = &found.offers;
        let offers = admit::Offers {
            later: renew(&found.later),
            slower: renew(&found.slower),
            volume: renew(&found.volume),
        };
        (reported::offers(&now.names, &self.asked, &offers), is_all)
    }
}

impl Desk {
    /// Returns the current allocation, for use while the reservation store continues.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            links: self.book.snapshot(),
            names: self.names.clone(),
        }
    }
}
