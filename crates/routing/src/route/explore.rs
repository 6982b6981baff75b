//! Exploration of other routes, and its cost.
//!
//! Forecasts become stale where nothing flows, and only a trial reveals that a dead hop is alive
//! again. So a bulk transfer may send a little of its work over another route; if that fails, the
//! others carry it. Exploration never exceeds the policy's share of all bulk bytes. Small and
//! urgent transfers do not explore.

use serde::{Deserialize, Serialize};

use super::rating::{Chooser, RatedRoute, RouteRequest};
use super::{NodeId, RouteDepots};

/// Minimum number of bytes that reveals something about a route, and maximum that one transfer
/// explores with.
const EXPLORATION_BYTES: std::ops::RangeInclusive<u64> = 256 << 10..=16 << 20;
/// Age up to which a forecast is fresh and needs no exploration, in seconds.
const MAX_FRESH_AGE_SECONDS: f64 = 60.0;
/// Maximum optimistic time of an explored route, as a multiple of the chosen one's time.
const MAX_TIME_FACTOR: f64 = 1.0;
/// Maximum number of routes to consider for exploration.
const MAX_CONSIDERED_ROUTES: usize = 32;

/// Budget of exploration. The caller keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExplorationAccount {
    /// Bytes of bulk transfers so far.
    pub bulk: u64,
    /// Share of those that explored.
    pub explored: u64,
}

impl ExplorationAccount {
    /// Records a transfer that was routed.
    pub fn record(&mut self, bytes: u64, bulk_from: u64, explored: u64) {
        if bytes >= bulk_from {
            self.bulk = self.bulk.saturating_add(bytes);
            self.explored = self.explored.saturating_add(explored);
        }
    }

    /// Returns the number of bytes that a transfer may explore with, so that all exploration,
    /// including this transfer, stays within the share.
    #[must_use]
    pub fn allowance(&self, bytes: u64, share: f64) -> u64 {
        let most = (self.bulk.saturating_add(bytes)) as f64 * share;
        (most as u64)
            .saturating_sub(self.explored)
            .min(*EXPLORATION_BYTES.end())
            .min((bytes as f64 * share) as u64)
    }
}

/// Returns a route to explore, and the number of bytes for it.
pub(super) fn choose_exploration(
    chooser: &Chooser<'_>,
    request: &RouteRequest,
    used: &[(RouteDepots, f64)],
    chosen: Option<&RatedRoute>,
    account: &ExplorationAccount,
) -> Option<(RouteDepots, u64)> {
    if request.urgent || request.transfer.bytes < chooser.policy.bulk {
        return None;
    }
    let bytes = account.allowance(request.transfer.bytes, chooser.policy.exploration);
    if !EXPLORATION_BYTES.contains(&bytes) {
        return None;
    }
    let routes = short_routes(chooser, request);
    let wanted: Vec<&RouteDepots> = routes
        .iter()
        .filter(|via| !used.iter().any(|(used, _)| used == *via))
        .filter(|via| is_worth_trying(chooser, request, via, chosen))
        .collect();
    let place = usize::try_from(request.seed.checked_rem(wanted.len() as u64)?).ok()?;
    Some((*wanted[place], bytes))
}

/// Returns the direct route and those of one depot. Knowledge of their hops serves longer routes as
/// well.
fn short_routes(chooser: &Chooser<'_>, request: &RouteRequest) -> Vec<RouteDepots> {
    let map = chooser.map;
    let is_depot = |id: NodeId| map.node(id).is_some_and(|node| node.relay.is_some());
    let through = map
        .hops_leaving(request.from)
        .filter(|(_, depot)| is_depot(*depot) && map.hop(*depot, request.to).is_some())
        .filter_map(|(_, depot)| RouteDepots::new(&[depot]));
    let all: Vec<RouteDepots> = std::iter::once(RouteDepots::DIRECT)
        .chain(through)
        .collect();
    // If there are more, the seed decides which are considered.
    let start = (request.seed >> 32) as usize % all.len();
    all.iter()
        .cycle()
        .skip(start)
        .take(all.len().min(MAX_CONSIDERED_ROUTES))
        .copied()
        .collect()
}

/// Returns true if exploration of a route can reveal something. Either it was dead or held back and
/// its wait is over, or it is unknown or was measured long ago. It must also possibly be faster
/// than the chosen one.
fn is_worth_trying(
    chooser: &Chooser<'_>,
    request: &RouteRequest,
    via: &RouteDepots,
    chosen: Option<&RatedRoute>,
) -> bool {
    let (map, now) = (chooser.map, request.now);
    let mut stale = chooser
        .outcomes
        .may_be_tried_again(request.from, request.to, via, now);
    for depot in via.depots() {
        if !map.depot_may_be_explored(depot, now) {
            return false;
        }
        stale |= map.depot_is_dead(depot);
    }
    for (from, to) in via.hops(request.from, request.to) {
        let Some(hop) = map.hop(from, to) else {
            return false;
        };
        if !map.may_be_explored(hop, now) {
            return false;
        }
        stale |= map.is_dead(hop)
            || map
                .forecast(hop)
                .is_none_or(|known| now - known.at > MAX_FRESH_AGE_SECONDS);
    }
    if !stale || chooser.outcomes.is_held(request.from, request.to, via, now) {
        return false;
    }
    let expected = map.expected(request.from, via, request.to, &request.transfer, now);
    match (expected, chosen) {
        (Some(expected), Some(chosen)) => {
            expected.time.p10 < chosen.expected.time.p50 * MAX_TIME_FACTOR
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests;
