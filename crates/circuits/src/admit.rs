//! Whether a request is granted. The answer is a proof: paths with their rates, or the cut that is
//! full and until when, with what could be had instead.

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

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It goes, over these routes.
    Granted(Plan),
    /// It does not.
    Refused(Refusal),
}

/// Why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// It can't be asked.
    Fault(RequestFault),
    /// It may not be asked.
    Policy(PolicyRefusal),
    /// There is no room.
    NoRoom(Box<NoRoom>),
}

/// There is no room: how that is known, and what there is instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoRoom {
    /// How it is known.
    pub proof: Proof,
    /// What could be had.
    pub offers: Offers,
}

/// How it is known that there is no room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// Whatever goes from one end to the other passes these links, and too little is left on them.
    Cut {
        /// The links, and who has them.
        links: Vec<Full>,
        /// What so many paths carry through them, in bit/s: less than what is asked for.
        rate: Rate,
        /// They are too full for it whenever it starts before this moment; none where they are too
        /// narrow even when nobody has them.
        until: Option<Moment>,
    },
    /// Within the window, less than the volume passes these links.
    Volume {
        /// The links, and who has them when they are fullest.
        links: Vec<Full>,
        /// What passes them at most.
        volume: Volume,
    },
    /// In each stretch of the window in which nothing changes, some cut is too full; this much goes
    /// in all of them together at most.
    Stretches {
        /// What goes at most.
        volume: Volume,
    },
    /// All choices of so many paths were looked at. More paths would carry it.
    Searched {
        /// What all paths together carry, in bit/s.
        all: Rate,
    },
    /// None: no choice was found, but there are too many to look at all. More paths would carry it,
    /// or some of those not looked at.
    Unknown,
}

/// A link of a cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Full {
    /// The link.
    pub link: LinkId,
    /// What is left of it throughout the window, in bit/s.
    pub left: Rate,
    /// When it is fullest.
    pub at: Moment,
    /// Who has it then.
    pub by: Vec<ReservationId>,
}

/// What could be had instead; each is granted when it is asked for before anything else is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offers {
    /// The same, later: of a rate, from the earliest start on that is found; of a volume, by the
    /// earliest end that is found.
    pub later: Option<Offer>,
    /// The highest rate in the same window, as far as it is found.
    pub slower: Option<Offer>,
    /// The largest volume by the end of the window, as far as it is found.
    pub volume: Option<Offer>,
}

/// What could be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// To be asked for in these words.
    pub request: Request,
    /// What would be promised.
    pub plan: Plan,
}

/// Whether offers are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// They are.
    Offer,
    /// They aren't, which is quicker.
    Refuse,
    /// They aren't yet: whoever asks receives how to look for them ([`Search`]).
    Later,
}

/// Decides a request against what is left by a ledger, which says who has the rest.
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

/// The same without offers, with what finds them where there is no room: that takes longer than the
/// rest, and may be done elsewhere.
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

/// What is left to whoever has these limits.
fn narrowed<'a>(view: &'a View<'a>, limits: &Limits) -> Cow<'a, View<'a>> {
    match limits.share {
        Some(share) => Cow::Owned(view.clone().with_share(share)),
        None => Cow::Borrowed(view),
    }
}

/// Why a request that was checked is not granted.
#[derive(Debug, Clone)]
enum Short {
    /// A rate does not go.
    Rate(crate::split::Short),
    /// A volume does not.
    Volume(over_time::Short),
}

/// What is left for a request throughout a window.
fn field<'a>(view: &View<'a>, request: &Request, window: Window) -> Field<'a> {
    let network = view.network();
    Field::new(network, |link| {
        request
            .elements
            .allow(network, request.ends, link)
            .then(|| view.left(link, window))
    })
}

/// A plan for a request that was checked.
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
