//! Admission of requests. Each answer proves itself: a plan, or the full cut and the time at which
//! it frees up, with counter-offers.

mod offer;
mod over_time;
mod search;
#[cfg(test)]
mod tests;
mod until;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::ledger::{Ledger, ReservationId, View};
use crate::network::LinkId;
use crate::path::Field;
use crate::policy::{Limits, PolicyRefusal};
use crate::request::{Plan, Request, RequestFault, Wish};
use crate::split::{Cut, Known, reach};
use crate::time::{Moment, Rate, Volume, Window};

pub use search::Search;

/// Answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The request is granted with this plan.
    Granted(Plan),
    /// The request is refused.
    Refused(Refusal),
}

/// Reason for a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The request is malformed.
    Fault(RequestFault),
    /// The limits of the user forbid the request.
    Policy(PolicyRefusal),
    /// The available bandwidth does not suffice.
    NoRoom(Box<NoRoom>),
}

/// A shortage of bandwidth: its proof, and counter-offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoRoom {
    /// Evidence that the request does not fit.
    pub proof: Proof,
    /// Counter-offers.
    pub offers: Offers,
}

/// Evidence that a request does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// Every path between the ends crosses these links, and too little is left on them.
    Cut {
        /// Links of the cut, with the reservations that hold them.
        links: Vec<Full>,
        /// Most that the allowed number of paths carries across the cut, in bit/s. It is less than
        /// the requested rate.
        rate: Rate,
        /// Start before which the cut is always too full. `None` if the links are too narrow even
        /// when nothing is reserved.
        until: Option<Moment>,
    },
    /// Within the window, these links carry less than the requested volume.
    Volume {
        /// Links of the cut, with the reservations that hold them when they are fullest.
        links: Vec<Full>,
        /// Most that crosses the cut within the window.
        volume: Volume,
    },
    /// In each stretch of the window without changes, some cut is too full. This is the most that
    /// all stretches carry together.
    Stretches {
        /// Upper bound of what fits.
        volume: Volume,
    },
    /// Every choice of that many paths was tried. More paths would carry the rate.
    Searched {
        /// Rate of all paths together, in bit/s.
        all: Rate,
    },
    /// Missing evidence: no choice was found, but there are too many to try them all. More paths,
    /// or a choice that was not tried, would carry the rate.
    Unknown,
}

/// A link of a cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Full {
    /// The link.
    pub link: LinkId,
    /// Rate left on it throughout the window, in bit/s.
    pub left: Rate,
    /// Moment at which it is fullest.
    pub at: Moment,
    /// Reservations that hold it at that moment.
    pub by: Vec<ReservationId>,
}

/// Counter-offers. Each is granted if it is requested before anything else is reserved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offers {
    /// The same request later. For a rate, at the earliest start that was found; for a volume, by
    /// the earliest end that was found.
    pub later: Option<Offer>,
    /// The highest rate that was found for the same window.
    pub slower: Option<Offer>,
    /// The largest volume that was found by the end of the window.
    pub volume: Option<Offer>,
}

/// A counter-offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Request that would be granted.
    pub request: Request,
    /// Plan that would be promised.
    pub plan: Plan,
}

/// Handling of counter-offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Search for them before answering.
    Offer,
    /// Do not search for them, which is faster.
    Refuse,
    /// Answer without them, and return a [`Search`] that finds them later.
    Later,
}

/// Decides a request against the available bandwidth. The ledger names the reservations that hold
/// the rest.
#[must_use]
pub fn decide(
    view: &View<'_>,
    ledger: &Ledger,
    request: &Request,
    limits: &Limits,
    now: Moment,
    counter: Counter,
) -> Answer {
    let (mut answer, search) = open(view, ledger, request, limits, now);
    if let (Counter::Offer, Some(search), Answer::Refused(Refusal::NoRoom(none))) =
        (counter, search, &mut answer)
    {
        none.offers = search.offers_in(&narrowed(view, limits), &mut || true);
    }
    answer
}

/// Decides a request without counter-offers. If bandwidth is short, also returns the [`Search`] for
/// counter-offers. It takes longer than the decision and can run elsewhere.
#[must_use]
pub fn open(
    view: &View<'_>,
    ledger: &Ledger,
    request: &Request,
    limits: &Limits,
    now: Moment,
) -> (Answer, Option<Search>) {
    let refused = |refusal| (Answer::Refused(refusal), None);
    if let Err(fault) = request.check(view.network()) {
        return refused(Refusal::Fault(fault));
    }
    if request.window.start < now {
        let start = request.window.start;
        return refused(Refusal::Fault(RequestFault::Past { start, now }));
    }
    if let Err(refusal) = limits.check(request, now) {
        return refused(Refusal::Policy(refusal));
    }
    let view = narrowed(view, limits);
    let short = match grant(&view, request, limits) {
        Ok(plan) => return (Answer::Granted(plan), None),
        Err(short) => short,
    };
    let proof = proof((&view, ledger), request, &short);
    let search = Search::new(&view, request, limits, now, (short, &proof));
    let offers = Offers::default();
    let none = Box::new(NoRoom { proof, offers });
    (Answer::Refused(Refusal::NoRoom(none)), Some(search))
}

/// Returns the view that these limits allow.
fn narrowed<'a>(view: &'a View<'a>, limits: &Limits) -> Cow<'a, View<'a>> {
    match limits.share {
        Some(share) => Cow::Owned(view.clone().with_share(share)),
        None => Cow::Borrowed(view),
    }
}

/// Shortfall of a request that passed the checks.
#[derive(Debug, Clone)]
enum Short {
    /// A rate does not fit.
    Rate(crate::split::Short),
    /// A volume does not fit.
    Volume(over_time::Short),
}

/// Returns the rate left for a request on each link throughout a window.
fn field<'a>(view: &View<'a>, request: &Request, window: Window) -> Field<'a> {
    let network = view.network();
    Field::new(network, |link| {
        request
            .elements
            .allow(network, request.ends, link)
            .then(|| view.left(link, window))
    })
}

/// Plans a request that passed the checks.
fn grant(view: &View<'_>, request: &Request, limits: &Limits) -> Result<Plan, Short> {
    match request.wish {
        Wish::Rate(rate) => reach(&field(view, request, request.window), &request.ask(), rate)
            .map(|routes| Plan::constant(request.window, routes))
            .map_err(Short::Rate),
        Wish::Volume { bytes, most, pace } => {
            let goal = over_time::Goal::of(bytes, most, pace, limits);
            over_time::plan(view, request, &goal).map_err(Short::Volume)
        }
    }
}

fn proof((view, ledger): (&View<'_>, &Ledger), request: &Request, short: &Short) -> Proof {
    let full = |cut: &Cut| -> Vec<Full> {
        let links = cut.links.iter();
        links
            .map(|link| {
                let peak = view.peak(*link, request.window);
                let by = ledger.holders(*link, peak.at).into_keys().collect();
                Full {
                    link: *link,
                    left: view.ceiling(*link).saturating_sub(peak.rate),
                    at: peak.at,
                    by,
                }
            })
            .collect()
    };
    match (short, request.wish) {
        (Short::Rate(short), Wish::Rate(rate)) => match &short.known {
            Known::Cut(cut) => {
                let until = until::frees(view, &cut.links, request.paths, rate, request.window);
                Proof::Cut {
                    links: full(cut),
                    rate: cut.rate,
                    until,
                }
            }
            Known::Searched(all) => Proof::Searched { all: *all },
            Known::Unknown(_) => Proof::Unknown,
        },
        (Short::Volume(short), _) => match &short.known {
            over_time::Known::Cut(cut, volume) => Proof::Volume {
                links: full(cut),
                volume: *volume,
            },
            over_time::Known::Stretches(volume) => Proof::Stretches { volume: *volume },
            over_time::Known::Unknown => Proof::Unknown,
        },
        (Short::Rate(_), Wish::Volume { .. }) => Proof::Unknown,
    }
}
