//! Which other route is tried, and what that may cost.
//!
//! Forecasts go stale where nothing flows, and a dead hop is found alive only by trying. So a bulk
//! transfer may send a little of its work over another route, at the side: work that it does not
//! bring home goes over the others. Of all bulk bytes, exploration has at most the policy's share,
//! always; small and urgent transfers have no part in it.

use serde::{Deserialize, Serialize};

use super::choice::{Chooser, Rated, Request};
use super::{NodeId, Via};

/// The least that shows something of a route, in bytes, and the most that one transfer explores
/// with.
const SLICE: std::ops::RangeInclusive<u64> = 256 << 10..=16 << 20;
/// A forecast that is younger is not explored for, in seconds.
const MAX_FRESH_AGE_SECONDS: f64 = 60.0;
/// A route is explored only where it may well be this part of the chosen one's time.
const MAX_TIME_FACTOR: f64 = 1.0;
/// Routes that are looked at for exploration.
const LOOKED_AT: usize = 32;

/// What was explored with, passed in and out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Account {
    /// Bytes of bulk transfers so far.
    pub bulk: u64,
    /// Of those, bytes that explored.
    pub explored: u64,
}

impl Account {
    /// Books a transfer that was chosen for.
    pub fn book(&mut self, bytes: u64, bulk_from: u64, explored: u64) {
        if bytes >= bulk_from {
            self.bulk = self.bulk.saturating_add(bytes);
            self.explored = self.explored.saturating_add(explored);
        }
    }

    /// Bytes that a transfer may explore with: what keeps all of them within the share, this
    /// transfer counted.
    #[must_use]
    pub fn allowance(&self, bytes: u64, share: f64) -> u64 {
        let most = (self.bulk.saturating_add(bytes)) as f64 * share;
        (most as u64)
            .saturating_sub(self.explored)
            .min(*SLICE.end())
            .min((bytes as f64 * share) as u64)
    }
}

/// A route to try, and the bytes to try it with.
pub(super) fn explored(
    chooser: &Chooser<'_>,
    request: &Request,
    used: &[(Via, f64)],
    chosen: Option<&Rated>,
    account: &Account,
) -> Option<(Via, u64)> {
    if request.urgent || request.transfer.bytes < chooser.policy.bulk {
        return None;
    }
    let bytes = account.allowance(request.transfer.bytes, chooser.policy.exploration);
    if !SLICE.contains(&bytes) {
        return None;
    }
    let routes = short_routes(chooser, request);
    let wanted: Vec<&Via> = routes
        .iter()
        .filter(|via| !used.iter().any(|(used, _)| used == *via))
        .filter(|via| is_worth_trying(chooser, request, via, chosen))
        .collect();
    let place = usize::try_from(request.seed.checked_rem(wanted.len() as u64)?).ok()?;
    Some((*wanted[place], bytes))
}

/// Direct, and the routes of one depot: what is learnt of their hops serves longer routes as well.
fn short_routes(chooser: &Chooser<'_>, request: &Request) -> Vec<Via> {
    let map = chooser.map;
    let is_depot = |id: NodeId| map.node(id).is_some_and(|node| node.relay.is_some());
    let through = map
        .leaving(request.from)
        .filter(|(_, depot)| is_depot(*depot) && map.hop(*depot, request.to).is_some())
        .filter_map(|(_, depot)| Via::new(&[depot]));
    let all: Vec<Via> = std::iter::once(Via::DIRECT).chain(through).collect();
    // Where there are more, the seed decides which are looked at.
    let start = (request.seed >> 32) as usize % all.len();
    all.iter()
        .cycle()
        .skip(start)
        .take(all.len().min(LOOKED_AT))
        .copied()
        .collect()
}

/// Whether something can be learnt: it was dead or held back and its time has come; or it is
/// unknown or was measured long ago, and may, with some luck, be quicker than what was chosen.
fn is_worth_trying(
    chooser: &Chooser<'_>,
    request: &Request,
    via: &Via,
    chosen: Option<&Rated>,
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
