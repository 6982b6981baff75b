//! Choice of the routes for a transfer, of several at once, and of fallbacks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::expected::{ExpectedTime, LimitKind};
use super::explore::{ExplorationAccount, choose_exploration};
pub use super::rating::{Chooser, Policy, RatedRoute, RouteRequest, is_better};
use super::{NodeId, RouteDepots};

/// Reason for a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Small transfers go direct.
    Small,
    /// The direct route is unknown, so no other can be known to be better.
    DirectUnknown,
    /// The direct route is dead.
    DirectDead,
    /// Direct is best, because no other route is sufficiently faster.
    NothingBetter,
    /// This route is the fastest, or has fewer depots and is little slower.
    Quickest,
    /// This route was in use, and no other is sufficiently faster.
    InUse,
    /// Neither the direct route nor another one is known.
    NothingKnown,
}

/// A choice of routes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Chosen route, the first of [`Self::at_once`].
    pub via: RouteDepots,
    /// Reason for the choice.
    pub reason: Reason,
    /// Expected time over this route alone. `None` if it is unknown.
    pub expected: Option<ExpectedTime>,
    /// Expected time over the direct route. `None` if it is unknown.
    pub direct: Option<ExpectedTime>,
    /// Fastest of the routes that were not chosen.
    pub next: Option<RatedRoute>,
    /// Routes to use at once, the fastest first, each with its expected share of the work.
    pub at_once: Vec<(RouteDepots, f64)>,
    /// Fallback routes in order, if all chosen ones fail. They end with the direct route unless it
    /// is chosen. The caller leaves out those that pass what failed.
    pub fall_back: Vec<RouteDepots>,
    /// Route to explore, with the number of bytes.
    pub explore: Option<(RouteDepots, u64)>,
}

impl Choice {
    /// Returns the choice for the opposite direction, in which a client that fetches opens its
    /// connections: the depots of every route in reverse order.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let rated = |rated: RatedRoute| RatedRoute {
            via: rated.via.reversed(),
            ..rated
        };
        Self {
            via: self.via.reversed(),
            reason: self.reason,
            expected: self.expected,
            direct: self.direct,
            next: self.next.map(rated),
            at_once: self
                .at_once
                .iter()
                .map(|(via, share)| (via.reversed(), *share))
                .collect(),
            fall_back: self.fall_back.iter().map(RouteDepots::reversed).collect(),
            explore: self.explore.map(|(via, bytes)| (via.reversed(), bytes)),
        }
    }
}

/// Routes in use, for hysteresis. The caller keeps them.
pub type RoutesInUse = BTreeMap<(NodeId, NodeId, u8), RouteDepots>;

/// Number of fallback routes for the direct one.
const MAX_FALLBACKS: usize = 2;
/// Minimum number of routes that are evaluated with their uncertainty.
const MIN_RATED_ROUTES: usize = 8;

impl Chooser<'_> {
    /// Chooses routes. `in_use` is the route that this pair of ends currently takes for such
    /// transfers.
    #[must_use]
    pub fn choose(
        &mut self,
        request: &RouteRequest,
        in_use: Option<&RouteDepots>,
        account: &ExplorationAccount,
    ) -> Choice {
        let policy = self.policy;
        let direct = self.rate(request, &RouteDepots::DIRECT);
        let direct_dead = self
            .map
            .hop(request.from, request.to)
            .is_some_and(|hop| self.map.is_dead(hop));
        let rated = self.rate_until(
            request,
            direct.as_ref().map(|direct| &direct.expected),
            in_use,
            MIN_RATED_ROUTES,
        );
        let small = request.transfer.bytes <= policy.small;
        let (chosen, reason) = match &direct {
            // If direct is impossible, even small transfers take the fastest route.
            None if direct_dead
                || self.outcomes.is_held(
                    request.from,
                    request.to,
                    &RouteDepots::DIRECT,
                    request.now,
                ) =>
            {
                match self.quickest(&rated, in_use) {
                    Some(route) => (Some(route), Reason::DirectDead),
                    None => (None, Reason::NothingKnown),
                }
            }
            _ if small => (direct, Reason::Small),
            None => (None, Reason::DirectUnknown),
            Some(direct) => {
                let better: Vec<RatedRoute> = rated
                    .iter()
                    .filter(|route| self.is_better(route, &direct.expected, in_use))
                    .copied()
                    .collect();
                match self.quickest(&better, in_use) {
                    None => (Some(*direct), Reason::NothingBetter),
                    Some(route) if Some(&route.via) == in_use => (Some(route), Reason::InUse),
                    Some(route) => (Some(route), Reason::Quickest),
                }
            }
        };
        let via = chosen.map_or(RouteDepots::DIRECT, |chosen| chosen.via);
        let others = || direct.iter().chain(&rated).filter(|route| route.via != via);
        let next = others()
            .min_by(|one, other| one.expected.time.p50.total_cmp(&other.expected.time.p50))
            .copied();
        let at_once = match &chosen {
            Some(chosen) if request.transfer.bytes >= policy.several => {
                self.parallel_routes(request, chosen, others().copied().collect())
            }
            _ => vec![(via, 1.0)],
        };
        let used = |via: &RouteDepots| at_once.iter().any(|(used, _)| used == via);
        let mut fall_back = fallbacks(&rated, &via);
        fall_back.retain(|via| !used(via));
        if !used(&RouteDepots::DIRECT) {
            fall_back.push(RouteDepots::DIRECT);
        }
        let explore = choose_exploration(self, request, &at_once, chosen.as_ref(), account);
        Choice {
            via,
            reason,
            expected: chosen.map(|chosen| chosen.expected),
            direct: direct.map(|direct| direct.expected),
            next,
            at_once,
            fall_back,
            explore,
        }
    }

    fn quickest(&self, rated: &[RatedRoute], in_use: Option<&RouteDepots>) -> Option<RatedRoute> {
        let rank = |route: &RatedRoute| self.rank(route.expected.time.p50, &route.via, in_use);
        rated
            .iter()
            .min_by(|one, other| rank(one).total_cmp(&rank(other)))
            .copied()
    }

    /// Returns the chosen route and others that add to its rate. They share no depot or hop, and
    /// each has a bottleneck that differs from all the others'. A transfer that is limited by
    /// connection setup or an end does not gain from several routes.
    fn parallel_routes(
        &self,
        request: &RouteRequest,
        chosen: &RatedRoute,
        mut others: Vec<RatedRoute>,
    ) -> Vec<(RouteDepots, f64)> {
        let bytes = request.transfer.bytes as f64;
        let within = |time: f64, route: &RatedRoute| {
            bytes / (time - route.expected.around).max(f64::MIN_POSITIVE)
        };
        let rate = |route: &RatedRoute| within(route.expected.time.p50, route);
        // A route is added for the rate that it reaches in nine cases of ten.
        let sure = |route: &RatedRoute| within(route.expected.time.p90, route);
        let mut used = vec![*chosen];
        let mut together = rate(chosen);
        others.sort_by(|one, other| one.expected.time.p50.total_cmp(&other.expected.time.p50));
        for other in others {
            if used.len() >= self.policy.most_at_once {
                break;
            }
            let adds = used
                .iter()
                .all(|route| self.bottlenecks_differ(request, route, &other));
            if adds && sure(&other) >= together * self.policy.several_gain {
                together += rate(&other);
                used.push(other);
            }
        }
        used.iter()
            .map(|route| (route.via, rate(route) / together))
            .collect()
    }

    fn bottlenecks_differ(
        &self,
        request: &RouteRequest,
        one: &RatedRoute,
        other: &RatedRoute,
    ) -> bool {
        let shareable = |route: &RatedRoute| {
            let kind = route.expected.limit.kind;
            !matches!(
                kind,
                LimitKind::SetUp | LimitKind::SlowStart | LimitKind::Host
            )
        };
        let (from, to) = (request.from, request.to);
        let hop = |route: &RatedRoute| {
            self.map
                .hop(route.expected.limit.hop.0, route.expected.limit.hop.1)
        };
        let (Some(narrow), Some(narrow_other)) = (hop(one), hop(other)) else {
            return false;
        };
        shareable(one)
            && shareable(other)
            && !one.via.depots().any(|depot| other.via.passes(depot))
            && !one
                .via
                .hops(from, to)
                .any(|hop| other.via.hops(from, to).any(|also| also == hop))
            && self.map.bottlenecks_differ(narrow, narrow_other)
    }
}

/// Returns the fallbacks of a route: for each of its depots, the fastest route that avoids it.
fn fallbacks(rated: &[RatedRoute], via: &RouteDepots) -> Vec<RouteDepots> {
    let mut found: Vec<RouteDepots> = Vec::new();
    for depot in via.depots() {
        let other = rated.iter().find(|other| !other.via.passes(depot));
        found.extend(
            other
                .map(|other| other.via)
                .filter(|other| !found.contains(other)),
        );
    }
    if via.is_direct() {
        found.extend(rated.iter().take(MAX_FALLBACKS).map(|other| other.via));
    }
    let place = |via: &RouteDepots| rated.iter().position(|other| other.via == *via);
    found.sort_by_key(place);
    found
}

#[cfg(test)]
mod tests;
