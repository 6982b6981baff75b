//! Search for counter-offers.

use super::over_time::Found;
use super::{Offer, Offers, Short, field, grant, over_time, until};
use crate::ledger::View;
use crate::policy::Limits;
use crate::request::{Pace, Plan, Request, Wish};
use crate::split::{Known, Route, most, reach, total};
use crate::time::{Moment, Rate, Window};

/// Maximum number of start times to try.
const MAX_STARTS: usize = 48;

/// Maximum number of start times to try without a cut that rules out the earlier ones. Each may
/// need a search.
const MAX_SEARCHED: usize = 4;

/// Finds counter-offers for a request that does not fit.
///
/// `frees` is the moment at which the cut of the proof frees up, if the proof is a cut; the inner
/// `None` means never. `goes_on` is called before each step; the search stops once it returns
/// `false`. The cheapest steps run first.
pub(super) fn offers(
    view: &View<'_>,
    request: &Request,
    limits: &Limits,
    now: Moment,
    (short, frees): (&Short, Option<Option<Moment>>),
    goes_on: &mut dyn FnMut() -> bool,
) -> Offers {
    let good = |request: Request| offer(view, request, limits, now);
    let carried = |found: &Found, most| {
        let request = carrying(request, found.bytes(), most)?;
        offer_of(view, request, limits, now, |request| {
            let plan = found.plan(found.bytes());
            plan.or_else(|| grant(view, request, limits).ok())
        })
    };
    match (short, request.wish) {
        (Short::Rate(short), Wish::Rate(rate)) => {
            let slower = goes_on()
                .then(|| slower(view, request, limits, now, (rate, &short.routes)))
                .flatten();
            let later = later(
                view,
                request,
                limits,
                now,
                (rate, &short.known, frees),
                goes_on,
            );
            let most = goes_on().then(|| over_time::most(view, request, limits.rate));
            Offers {
                later,
                slower,
                volume: most.and_then(|most| carried(&most, None)),
            }
        }
        (Short::Volume(short), Wish::Volume { most, .. }) => {
            let volume = goes_on().then(|| carried(&short.found, most)).flatten();
            let later = goes_on().then(|| finish(view, request, limits)).flatten();
            Offers {
                later: later.and_then(good),
                slower: None,
                volume,
            }
        }
        _ => Offers::default(),
    }
}

/// Returns the request as an offer if it is granted.
fn offer(view: &View<'_>, request: Request, limits: &Limits, now: Moment) -> Option<Offer> {
    offer_of(view, request, limits, now, |request| {
        grant(view, request, limits).ok()
    })
}

/// Returns the request as an offer if it passes the checks and `plan` yields a plan.
fn offer_of(
    view: &View<'_>,
    request: Request,
    limits: &Limits,
    now: Moment,
    plan: impl FnOnce(&Request) -> Option<Plan>,
) -> Option<Offer> {
    request.check(view.network()).ok()?;
    limits.check(&request, now).ok()?;
    let plan = plan(&request)?;
    Some(Offer { request, plan })
}

/// Returns the same request for `bytes` bytes as early as possible, or `None` for zero bytes.
fn carrying(request: &Request, bytes: u64, most: Option<Rate>) -> Option<Request> {
    (bytes > 0).then(|| Request {
        wish: Wish::Volume {
            bytes,
            most,
            pace: Pace::Early,
        },
        ..request.clone()
    })
}

/// Offers the same request at the earliest start at which it fits.
fn later(
    view: &View<'_>,
    request: &Request,
    limits: &Limits,
    now: Moment,
    (rate, known, frees): (Rate, &Known, Option<Option<Moment>>),
    goes_on: &mut dyn FnMut() -> bool,
) -> Option<Offer> {
    let network = view.network();
    let mut asked = request.clone();
    let mut known = known.clone();
    // The proof names the moment at which its cut frees up.
    let mut first = match frees {
        Some(until) => Some(until?),
        None => None,
    };
    let mut searched = 0;
    for _ in 0..MAX_STARTS {
        if !goes_on() {
            return None;
        }
        let start = match &known {
            Known::Cut(cut) => match first.take() {
                Some(start) => start,
                None => until::frees(view, &cut.links, request.paths, rate, asked.window)?,
            },
            Known::Searched(_) | Known::Unknown(_) => {
                searched += 1;
                if searched > MAX_SEARCHED {
                    return None;
                }
                let usable = network
                    .ids()
                    .filter(|link| request.elements.allow(network, request.ends, *link));
                until::changes(view, usable, asked.window)?
            }
        };
        asked.window = asked.window.from_start(start.max(asked.window.start));
        if asked.check(network).is_err() || limits.check(&asked, now).is_err() {
            return None;
        }
        match grant(view, &asked, limits) {
            Ok(plan) => {
                return Some(Offer {
                    request: asked,
                    plan,
                });
            }
            Err(Short::Rate(short)) => known = short.known,
            Err(Short::Volume(_)) => return None,
        }
    }
    None
}

/// Offers the highest rate in the same window.
fn slower(
    view: &View<'_>,
    request: &Request,
    limits: &Limits,
    now: Moment,
    (rate, found): (Rate, &[Route]),
) -> Option<Offer> {
    let field = field(view, request, request.window);
    let (routes, _) = most(&field, &request.ask(), rate.saturating_sub(1));
    let rate = total(&routes).max(total(found));
    let slower = (rate > 0).then(|| Request {
        wish: Wish::Rate(rate),
        ..request.clone()
    });
    offer_of(view, slower?, limits, now, |slower| {
        let routes = reach(&field, &slower.ask(), rate).ok()?;
        Some(Plan::constant(slower.window, routes))
    })
}

/// Returns a request for the same volume by the earliest end.
fn finish(view: &View<'_>, request: &Request, limits: &Limits) -> Option<Request> {
    let Wish::Volume { bytes, most, .. } = request.wish else {
        return None;
    };
    let goal = over_time::Goal::of(bytes, most, Pace::Early, limits);
    let plan = over_time::earliest(view, request, &goal)?;
    let window = Window::new(request.window.start, plan.window().end);
    Some(Request {
        window,
        wish: Wish::Volume {
            bytes,
            most,
            pace: Pace::Early,
        },
        ..request.clone()
    })
}
