//! Search for counter-offers.

use super::over_time::PartialPlans;
use super::{
    BestFound, CounterOffer, CounterOffers, Shortfall, available_field, over_time, plan_request,
    until,
};
use crate::ledger::View;
use crate::policy::RequestLimits;
use crate::proof::Proof;
use crate::request::{CircuitRequest, Demand, Pace, ReservationPlan};
use crate::split::{RatedPath, find_routes, max_rate_routes, total_rate};
use crate::time::{BitsPerSecond, MomentMs, Window};

/// Maximum number of start times to try.
const MAX_STARTS: usize = 48;

/// Maximum number of start times to try without a cut that rules out the earlier ones. Each may
/// need a search.
const MAX_UNGUIDED_STARTS: usize = 4;

/// Finds counter-offers for a request that does not fit. `goes_on` is called before each step; the
/// search stops once it returns `false`. The cheapest steps run first.
pub(super) fn find_offers(
    view: &View<'_>,
    short: &Shortfall,
    goes_on: &mut dyn FnMut() -> bool,
) -> CounterOffers {
    let Shortfall {
        request,
        limits,
        now,
        ..
    } = short;
    let now = *now;
    let carried = |found: &PartialPlans, most| {
        let request = volume_request(request, found.bytes(), most)?;
        offer_with_plan(view, request, limits, now, |request| {
            let plan = found.plan_for(found.bytes());
            plan.or_else(|| plan_request(view, request, limits).ok())
        })
    };
    match (&short.found, request.wish) {
        // Explicit paths have explicit rates, so only another time can be offered.
        (BestFound::Routes(_), Demand::Rate(rate)) if !request.bounds.explicit.is_empty() => {
            CounterOffers {
                later: offer_later_start(view, short, rate, goes_on),
                ..CounterOffers::default()
            }
        }
        (BestFound::Routes(routes), Demand::Rate(rate)) => {
            let slower = goes_on()
                .then(|| offer_lower_rate(view, request, limits, now, (rate, routes)))
                .flatten();
            let later = offer_later_start(view, short, rate, goes_on);
            let most = goes_on().then(|| over_time::plan_most(view, request, limits.rate));
            CounterOffers {
                later,
                slower,
                volume: most.and_then(|most| carried(&most, None)),
            }
        }
        (BestFound::Volume(found), Demand::Volume { most, .. }) => {
            let volume = goes_on().then(|| carried(found, most)).flatten();
            let later = goes_on()
                .then(|| earliest_finish_request(view, request, limits))
                .flatten();
            CounterOffers {
                later: later.and_then(|later| {
                    offer_with_plan(view, later, limits, now, |request| {
                        plan_request(view, request, limits).ok()
                    })
                }),
                slower: None,
                volume,
            }
        }
        _ => CounterOffers::default(),
    }
}

/// Returns the request as an offer if it passes the checks and `plan` yields a plan.
fn offer_with_plan(
    view: &View<'_>,
    request: CircuitRequest,
    limits: &RequestLimits,
    now: MomentMs,
    plan: impl FnOnce(&CircuitRequest) -> Option<ReservationPlan>,
) -> Option<CounterOffer> {
    request.check(view.network()).ok()?;
    limits.check(&request, now).ok()?;
    let plan = plan(&request)?;
    Some(CounterOffer { request, plan })
}

/// Returns the same request for `bytes` bytes as early as possible, or `None` for zero bytes.
fn volume_request(
    request: &CircuitRequest,
    bytes: u64,
    most: Option<BitsPerSecond>,
) -> Option<CircuitRequest> {
    (bytes > 0).then(|| CircuitRequest {
        wish: Demand::Volume {
            bytes,
            most,
            pace: Pace::Early,
        },
        ..request.clone()
    })
}

/// Offers the same request at the earliest start at which it fits.
fn offer_later_start(
    view: &View<'_>,
    short: &Shortfall,
    rate: BitsPerSecond,
    goes_on: &mut dyn FnMut() -> bool,
) -> Option<CounterOffer> {
    let Shortfall {
        request,
        limits,
        now,
        ..
    } = short;
    let network = view.network();
    let mut asked = request.clone();
    // The proof names the moment at which its cut frees up.
    let mut next = match &short.proof {
        Proof::Cut { until, .. } => Some((*until)?),
        _ => None,
    };
    let mut searched = 0;
    for _ in 0..MAX_STARTS {
        if !goes_on() {
            return None;
        }
        let start = match next.take() {
            Some(start) => start,
            None => {
                searched += 1;
                if searched > MAX_UNGUIDED_STARTS {
                    return None;
                }
                let usable = network
                    .ids()
                    .filter(|link| request.elements.allows_link(network, request.ends, *link));
                until::next_change(view, usable, asked.window)?
            }
        };
        asked.window = asked.window.starting_at(start.max(asked.window.start));
        if asked.check(network).is_err() || limits.check(&asked, *now).is_err() {
            return None;
        }
        let partial = match plan_request(view, &asked, limits) {
            Ok(plan) => {
                return Some(CounterOffer {
                    request: asked,
                    plan,
                });
            }
            Err(partial) => partial,
        };
        if let Proof::Cut { links, .. } = &partial.proof {
            let start = until::earliest_free_start(view, links, request.paths, rate, asked.window)?;
            next = Some(start);
        }
    }
    None
}

/// Offers the highest rate in the same window.
fn offer_lower_rate(
    view: &View<'_>,
    request: &CircuitRequest,
    limits: &RequestLimits,
    now: MomentMs,
    (rate, found): (BitsPerSecond, &[RatedPath]),
) -> Option<CounterOffer> {
    let field = available_field(view, request, request.window);
    let (routes, _) = max_rate_routes(&field, &request.path_constraints(), rate.saturating_sub(1));
    let rate = total_rate(&routes).max(total_rate(found));
    let slower = (rate > 0).then(|| CircuitRequest {
        wish: Demand::Rate(rate),
        ..request.clone()
    });
    offer_with_plan(view, slower?, limits, now, |slower| {
        let routes = find_routes(&field, &slower.path_constraints(), rate).ok()?;
        Some(ReservationPlan::constant(slower.window, routes))
    })
}

/// Returns a request for the same volume by the earliest end.
fn earliest_finish_request(
    view: &View<'_>,
    request: &CircuitRequest,
    limits: &RequestLimits,
) -> Option<CircuitRequest> {
    let Demand::Volume { bytes, most, .. } = request.wish else {
        return None;
    };
    let goal = over_time::Goal::within_limits(bytes, most, Pace::Early, limits);
    let plan = over_time::plan_earliest_finish(view, request, &goal)?;
    let window = Window::new(request.window.start, plan.window().end);
    Some(CircuitRequest {
        window,
        wish: Demand::Volume {
            bytes,
            most,
            pace: Pace::Early,
        },
        ..request.clone()
    })
}
