//! Rating of routes: the expected time of each, and the order among them.

use serde::{Deserialize, Serialize};

use super::candidates::{SearchBounds, SearchScratch, find_candidates};
use super::combine::{spread_above, spread_below};
use super::expected::ExpectedTime;
use super::map::RouteMap;
use super::trust::TransferOutcomes;
use super::{NodeId, RouteDepots, Transfer};
use crate::Quantiles;

/// Parameters of the choice.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Size up to which transfers always go direct, in bytes. The paper's depots cost time below
    /// 256 KB.
    pub small: u64,
    /// Minimum relative gain of a route over direct, at the medians. The uncertainty of both is
    /// required instead if it is greater.
    pub margin: f64,
    /// Share of that margin that suffices for the route in use.
    pub kept_margin: f64,
    /// Minimum relative gain for each additional depot, so that none is added for noise.
    pub tolerance: f64,
    /// Minimum relative gain of another route over the one in use.
    pub switch: f64,
    /// Size in bytes from which on a transfer is divided over several routes.
    pub several: u64,
    /// Minimum relative gain of an additional route.
    pub several_gain: f64,
    /// Maximum number of routes at once.
    pub most_at_once: usize,
    /// Share of bulk bytes that explore.
    pub exploration: f64,
    /// Size in bytes from which on a transfer is bulk. Smaller ones do not explore.
    pub bulk: u64,
}

impl Policy {
    /// Default parameters.
    pub const DEFAULT: Self = Self {
        small: 256 << 10,
        margin: 0.05,
        kept_margin: 0.5,
        tolerance: 0.03,
        switch: 0.10,
        several: 64 << 20,
        several_gain: 0.10,
        most_at_once: 3,
        exploration: 0.02,
        bulk: 16 << 20,
    };
}

impl Default for Policy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Request for a route.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RouteRequest {
    /// Node of the sender.
    pub from: NodeId,
    /// Node of the receiver.
    pub to: NodeId,
    /// The transfer.
    pub transfer: Transfer,
    /// If true, someone is waiting for the transfer, and it does not explore.
    pub urgent: bool,
    /// Current time.
    pub now: f64,
    /// Seed that decides between equal routes to explore.
    pub seed: u64,
}

/// A route with its expected time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RatedRoute {
    /// Depots of the route.
    pub via: RouteDepots,
    /// Expected time.
    pub expected: ExpectedTime,
}

/// Bounds of the search for fallback routes when none is faster than direct.
const FALL_BACK_BOUNDS: SearchBounds = SearchBounds {
    all_beginnings: 4,
    all_routes: 4,
    beginnings: 4,
    routes: 4,
};

/// Maximum time of a fallback route, as a multiple of the direct route's.
const MAX_FALLBACK_TIME_FACTOR: f64 = 4.0;

/// Chooser of routes.
pub struct Chooser<'a> {
    /// Hops with their forecasts.
    pub map: &'a RouteMap,
    /// Outcomes of earlier transfers.
    pub outcomes: &'a TransferOutcomes,
    /// Parameters.
    pub policy: &'a Policy,
    /// Route that turns out slower than expected, and its factor. For a choice that is repeated
    /// during a transfer.
    pub slowed: Option<(RouteDepots, f64)>,
    /// Limits of the search.
    pub bounds: SearchBounds,
    /// Reusable memory.
    pub scratch: SearchScratch,
}

impl<'a> Chooser<'a> {
    /// Creates a chooser with default bounds.
    #[must_use]
    pub fn new(map: &'a RouteMap, outcomes: &'a TransferOutcomes, policy: &'a Policy) -> Self {
        Self {
            map,
            outcomes,
            policy,
            slowed: None,
            bounds: SearchBounds::default(),
            scratch: SearchScratch::default(),
        }
    }

    /// Returns the expected time of one route, by the model and by the outcomes of earlier
    /// transfers between these ends. Returns `None` while the route is held back, or if one of its
    /// hops is unknown or dead.
    #[must_use]
    pub fn rate(&self, request: &RouteRequest, via: &RouteDepots) -> Option<RatedRoute> {
        let (from, to) = (request.from, request.to);
        let factor = self.factor(request, via)?;
        let mut expected = self
            .map
            .expected(from, via, to, &request.transfer, request.now)?;
        expected.time = Quantiles {
            p10: expected.time.p10 * factor,
            p50: expected.time.p50 * factor,
            p90: expected.time.p90 * factor,
        };
        Some(RatedRoute {
            via: *via,
            expected,
        })
    }

    fn factor(&self, request: &RouteRequest, via: &RouteDepots) -> Option<f64> {
        let factor = self
            .outcomes
            .factor(request.from, request.to, via, request.now)?;
        let slowed = self.slowed.filter(|(slowed, _)| slowed == via);
        Some(factor * slowed.map_or(1.0, |(_, by)| by.max(1.0)))
    }

    /// Returns all routes with depots that could be faster than direct or serve as a fallback, the
    /// fastest first.
    #[must_use]
    pub fn rate_all(
        &mut self,
        request: &RouteRequest,
        direct: Option<&ExpectedTime>,
    ) -> Vec<RatedRoute> {
        self.rate_until(request, direct, None, usize::MAX)
    }

    /// Rates at least `count` routes, and more until the one that [`Self::choose`] takes is among
    /// them.
    pub(super) fn rate_until(
        &mut self,
        request: &RouteRequest,
        direct: Option<&ExpectedTime>,
        in_use: Option<&RouteDepots>,
        count: usize,
    ) -> Vec<RatedRoute> {
        // Outcomes can only slow a route down: their factors are never below one.
        let below = direct.map_or(f64::INFINITY, |direct| direct.time.p50);
        let (from, to, transfer) = (request.from, request.to, &request.transfer);
        let mut search = |below, bounds: &SearchBounds| {
            find_candidates(
                self.map,
                &mut self.scratch,
                from,
                to,
                transfer,
                below,
                bounds,
            )
        };
        let mut found = search(below, &self.bounds);
        if found.is_empty() {
            found = search(below * MAX_FALLBACK_TIME_FACTOR, &FALL_BACK_BOUNDS);
        }
        let rank = |time: f64, via: &RouteDepots| self.rank(time, via, in_use);
        let mut promising: Vec<(f64, RouteDepots)> = found
            .iter()
            .filter_map(|candidate| {
                let time = self
                    .map
                    .time_at_medians(from, &candidate.via, to, transfer)?;
                Some((time * self.factor(request, &candidate.via)?, candidate.via))
            })
            .collect();
        promising.sort_by(|one, other| rank(one.0, &one.1).total_cmp(&rank(other.0, &other.1)));
        let mut rated: Vec<RatedRoute> = Vec::new();
        let mut best = f64::INFINITY;
        for (least, via) in promising {
            // The following routes are no faster at the medians, and uncertainty only slows them.
            if rated.len() >= count && rank(least, &via) >= best {
                break;
            }
            if let Some(route) = self.rate(request, &via) {
                if direct.is_none_or(|direct| self.is_better(&route, direct, in_use)) {
                    best = best.min(rank(route.expected.time.p50, &via));
                }
                rated.push(route);
            }
        }
        rated.sort_by(|one, other| {
            let of = |rated: &RatedRoute| (rated.expected.time.p50, rated.via.len());
            let (one, other) = (of(one), of(other));
            one.0.total_cmp(&other.0).then(one.1.cmp(&other.1))
        });
        rated
    }

    /// Returns true if a route may be taken instead of the direct one.
    pub(super) fn is_better(
        &self,
        route: &RatedRoute,
        direct: &ExpectedTime,
        in_use: Option<&RouteDepots>,
    ) -> bool {
        let kept = in_use == Some(&route.via);
        let share = if kept { self.policy.kept_margin } else { 1.0 };
        is_better(
            &route.expected.time,
            &direct.time,
            self.policy.margin,
            share,
        )
    }

    /// Returns the rank of a route: its time, increased by the tolerance for each depot, and
    /// decreased for the route in use. A rank depends on its route alone, so other routes never
    /// change the order of two.
    pub(super) fn rank(&self, time: f64, via: &RouteDepots, in_use: Option<&RouteDepots>) -> f64 {
        let depots = i32::try_from(via.len()).unwrap_or(0);
        let used = if Some(via) == in_use {
            1.0 + self.policy.switch
        } else {
            1.0
        };
        time * (1.0 + self.policy.tolerance).powi(depots) / used
    }
}

/// Returns true if a route is faster than direct beyond doubt: at the medians by `margin`, and by
/// the combined uncertainty of both, on the slow side of the route and the fast side of direct.
/// Only the given `share` of that margin is required.
#[must_use]
pub fn is_better(route: &Quantiles, direct: &Quantiles, margin: f64, share: f64) -> bool {
    if route.p50 <= 0.0 || direct.p50 <= 0.0 {
        return false;
    }
    let gain = (direct.p50 / route.p50).ln();
    let doubt = spread_above(route).hypot(spread_below(direct));
    gain > share * doubt.max((1.0 + margin).ln())
}
