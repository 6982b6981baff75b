//! Offers that are looked for beside the desk, which goes on meanwhile.

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

/// Why something is not done, and what finds offers in its place.
#[derive(Debug)]
pub struct Denied {
    /// Why.
    pub error: DeskError,
    /// What finds offers, where there is no room and they are looked for later.
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

/// What is taken of each link at one moment, and what links are called then.
#[derive(Debug, Clone)]
pub struct Snapshot {
    links: ledger::Snapshot,
    names: Arc<Names>,
}

/// A refusal for which offers are to be looked for: where the desk goes on meanwhile, it looks at
/// what there was when the request was decided.
#[derive(Debug, Clone)]
pub struct Open {
    pub(super) search: Box<Search>,
    pub(super) decided: Snapshot,
    pub(super) asked: ReservationRequest,
}

/// Offers, by what was taken when they were looked for.
#[derive(Debug, Clone)]
pub struct Found {
    offers: admit::Offers,
    /// Whether the search was broken off.
    pub is_broken_off: bool,
}

impl Open {
    /// Looks for offers, which takes as long as many decisions: until `goes_on`, which is asked now
    /// and then, says no.
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

    /// The offers that are as good by what is taken now, in the words of the API; and whether they
    /// are all that were found.
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
    /// What is taken now, to look at while the desk goes on.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            links: self.book.snapshot(),
            names: self.names.clone(),
        }
    }
}
