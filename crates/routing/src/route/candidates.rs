//! Routes of at most three depots that could be faster than the direct one.
//!
//! Routes grow hop by hop from the sender. One is dropped when its round trips, or its bytes at the
//! rate of one of its hops, already take as long as the direct route. That depends only on its own
//! hops, so no depot can displace another one's routes by its reports. Only beyond [`SearchBounds`]
//! is the search limited to the best routes by rough estimate.

use super::expected::{HOST_SECONDS, ROUND_TRIPS_AROUND};
use super::map::{HopId, RouteMap};
use super::{MAX_DEPOTS, NodeId, RouteDepots, Transfer};

/// Limits of the search. Up to the first two, nothing is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchBounds {
    /// Number of partial routes of one length up to which all are extended.
    pub all_beginnings: usize,
    /// Number of complete routes up to which all are evaluated.
    pub all_routes: usize,
    /// Number of partial routes that are extended if there are more: the best by rough estimate.
    pub beginnings: usize,
    /// Number of complete routes that are evaluated if there are more.
    pub routes: usize,
}

impl Default for SearchBounds {
    /// Returns bounds that leave out nothing with up to six depots: 30 partial routes of two
    /// depots, and 156 routes.
    fn default() -> Self {
        Self {
            all_beginnings: 30,
            all_routes: 156,
            beginnings: 12,
            routes: 24,
        }
    }
}

/// A route with its rough time at the medians, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RouteCandidate {
    /// Depots of the route.
    pub via: RouteDepots,
    /// Rough time in seconds.
    pub about: f64,
}

#[derive(Clone, Copy)]
struct PartialRoute {
    via: RouteDepots,
    at: NodeId,
    rtt: f64,
    /// Lower bound and rough estimate of the data's time on the slowest hop, in seconds.
    least: f64,
    about: f64,
}

impl PartialRoute {
    /// Returns the route extended by one hop, with the lower bound and rough estimate of its time.
    fn extended(&self, rtt: f32, (least, about): (f64, f64), at: NodeId, via: RouteDepots) -> Self {
        Self {
            via,
            at,
            rtt: self.rtt + f64::from(rtt),
            least: self.least.max(least),
            about: self.about.max(about),
        }
    }

    fn least_time(&self) -> f64 {
        HOST_SECONDS + ROUND_TRIPS_AROUND * self.rtt + self.least
    }

    fn estimated_time(&self) -> f64 {
        HOST_SECONDS + ROUND_TRIPS_AROUND * self.rtt + self.about
    }
}

/// Reusable memory of the search.
#[derive(Debug, Clone, Default)]
pub struct SearchScratch {
    /// For each node, the index of its hop to the destination plus one; 0 if it has no such hop.
    last: Vec<u32>,
    hops: Vec<(NodeId, HopId)>,
}

impl SearchScratch {
    fn prepare(&mut self, map: &RouteMap, to: NodeId) {
        for (node, _) in self.hops.drain(..) {
            if let Some(place) = self.last.get_mut(node.index()) {
                *place = 0;
            }
        }
        self.last.resize(map.nodes(), 0);
        for (hop, from) in map.hops_entering(to) {
            if map.is_usable(hop) {
                self.last[from.index()] = self.hops.len() as u32 + 1;
                self.hops.push((from, hop));
            }
        }
    }

    fn hop_from(&self, node: NodeId) -> Option<HopId> {
        let place = *self.last.get(node.index())?;
        Some(self.hops.get(place.checked_sub(1)? as usize)?.1)
    }
}

/// Finds the routes with depots that could take less than `below` seconds, the fastest by rough
/// estimate first. No route passes a dead or unknown hop.
#[must_use]
pub fn find_candidates(
    map: &RouteMap,
    scratch: &mut SearchScratch,
    from: NodeId,
    to: NodeId,
    transfer: &Transfer,
    below: f64,
    bounds: &SearchBounds,
) -> Vec<RouteCandidate> {
    scratch.prepare(map, to);
    let (bytes, streams) = (transfer.bytes as f64, f64::from(transfer.streams.max(1)));
    let relay = |node: NodeId| map.relay_rate(node, streams);
    let mut found: Vec<RouteCandidate> = Vec::new();
    let start = PartialRoute {
        via: RouteDepots::DIRECT,
        at: from,
        rtt: 0.0,
        least: 0.0,
        about: 0.0,
    };
    let mut beginnings = vec![start];
    for depots in 1..=MAX_DEPOTS {
        let is_last = depots == MAX_DEPOTS;
        let mut grown = Vec::new();
        for beginning in &beginnings {
            for (hop, depot) in map.hops_leaving(beginning.at) {
                if depot == to || depot == from || !map.is_usable(hop) {
                    continue;
                }
                // The last depot must have a hop to the destination.
                if is_last && scratch.hop_from(depot).is_none() {
                    continue;
                }
                let Some(cap) = relay(depot) else { continue };
                let Some(via) = beginning.via.with_depot(depot) else {
                    continue;
                };
                let rough = map.rough(hop);
                let next =
                    beginning.extended(rough.rtt, rough.seconds(bytes, streams, cap), depot, via);
                if next.least_time() < below {
                    grown.push(next);
                }
            }
        }
        for beginning in &grown {
            let Some(hop) = scratch.hop_from(beginning.at) else {
                continue;
            };
            let cap = relay(beginning.at).unwrap_or(f64::INFINITY);
            let rough = map.rough(hop);
            let whole = beginning.extended(
                rough.rtt,
                rough.seconds(bytes, streams, cap),
                to,
                beginning.via,
            );
            if whole.least_time() < below {
                found.push(RouteCandidate {
                    via: whole.via,
                    about: whole.estimated_time(),
                });
            }
        }
        if is_last {
            break;
        }
        keep_best(
            &mut grown,
            bounds.all_beginnings,
            bounds.beginnings,
            PartialRoute::estimated_time,
        );
        beginnings = grown;
    }
    keep_best(&mut found, bounds.all_routes, bounds.routes, |route| {
        route.about
    });
    found
}

/// Sorts the elements, and keeps only the best if there are too many.
fn keep_best<T: Copy>(found: &mut Vec<T>, all: usize, best: usize, rank: impl Fn(&T) -> f64) {
    if found.len() > all && best > 0 {
        found.select_nth_unstable_by(best - 1, |one, other| rank(one).total_cmp(&rank(other)));
        found.truncate(best);
    }
    found.sort_by(|one, other| rank(one).total_cmp(&rank(other)));
}

#[cfg(test)]
mod tests;
