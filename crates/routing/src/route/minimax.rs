//! Trees of the Logistical Session Layer, as a baseline. They lead to each node by the path whose
//! worst hop is best. A longer path must be better by more than a tolerance, so that no hop is
//! added for noise.
//!
//! Here paths have at most [`MAX_DEPOTS`] depots, and are found by length: the best of one hop, of
//! two, and so on. The published trees have no such bound.

use super::map::RouteMap;
use super::{MAX_DEPOTS, NodeId, RouteDepots, Transfer};

/// Tolerance of the published trees.
pub const LSL_TOLERANCE: f64 = 0.1;

/// Cost of a hop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HopCost {
    /// Inverse of the median rate of one stream, as losses and windows allow it.
    Throughput,
    /// Inverse of the median available rate, whatever one stream carries of it.
    Bandwidth,
    /// Expected time of a transfer over the hop alone.
    Time(Transfer),
}

/// The best path from one node to each other.
#[derive(Debug, Clone)]
pub struct MinimaxTree {
    from: NodeId,
    /// By number of hops, then by node: the cost of the worst hop, and the previous node.
    best: Vec<Vec<(f64, u32)>>,
    tolerance: f64,
}

impl MinimaxTree {
    /// Creates the tree of a node.
    #[must_use]
    pub fn new(map: &RouteMap, from: NodeId, cost: HopCost, tolerance: f64, now: f64) -> Self {
        let nothing = vec![(f64::INFINITY, u32::MAX); map.nodes()];
        let mut best = vec![nothing.clone()];
        if let Some(root) = best[0].get_mut(from.index()) {
            root.0 = 0.0;
        }
        let costs: Vec<f64> = (0..map.nodes() as u32)
            .flat_map(|node| {
                map.hops_leaving(NodeId(node))
                    .map(move |(hop, to)| (hop, NodeId(node), to))
            })
            .map(|(hop, from, to)| {
                if !map.is_usable(hop) {
                    return f64::INFINITY;
                }
                match cost {
                    HopCost::Bandwidth => {
                        1.0 / map.forecast(hop).map_or(0.0, |known| known.rate.p50)
                    }
                    HopCost::Throughput => {
                        let known = map.forecast(hop);
                        let one =
                            known.map(|q| map.connection(hop, q.rtt.p50, q.loss.p50, q.rate.p50));
                        1.0 / one.map_or(0.0, |one| one.without_loss().min(one.under_loss()))
                    }
                    HopCost::Time(transfer) => {
                        let one = map.expected_over_hop(from, to, &transfer, now);
                        one.map_or(f64::INFINITY, |expected| expected.time.p50)
                    }
                }
            })
            .collect();
        for length in 1..=MAX_DEPOTS + 1 {
            let mut layer = nothing.clone();
            let mut hop = 0;
            for node in 0..map.nodes() as u32 {
                let (so_far, _) = best[length - 1][node as usize];
                // Only depots forward.
                let passes = NodeId(node) == from
                    || map
                        .node(NodeId(node))
                        .is_some_and(|node| node.relay.is_some());
                for (_, to) in map.hops_leaving(NodeId(node)) {
                    let worst = so_far.max(costs[hop]);
                    hop += 1;
                    if passes && to != from && worst < layer[to.index()].0 {
                        layer[to.index()] = (worst, node);
                    }
                }
            }
            best.push(layer);
        }
        Self {
            from,
            best,
            tolerance,
        }
    }

    /// Returns the path to a node, or `None` if it is unreachable.
    #[must_use]
    pub fn path(&self, to: NodeId) -> Option<RouteDepots> {
        let mut chosen: Option<(f64, RouteDepots)> = None;
        for length in 1..self.best.len() {
            let (worst, _) = *self.best[length].get(to.index())?;
            let better = chosen.is_none_or(|(cost, _)| worst * (1.0 + self.tolerance) < cost);
            // A path that returns to an earlier node is a shorter one with a detour, and no better.
            if worst.is_finite()
                && better
                && let Some(via) = self.trace_back(to, length)
            {
                chosen = Some((worst, via));
            }
        }
        chosen.map(|(_, via)| via)
    }

    fn trace_back(&self, to: NodeId, length: usize) -> Option<RouteDepots> {
        let mut depots = Vec::new();
        let mut node = to;
        for length in (1..=length).rev() {
            let (_, before) = *self.best[length].get(node.index())?;
            node = NodeId(before);
            if length > 1 {
                depots.push(node);
            }
        }
        depots.reverse();
        (node == self.from && !depots.contains(&to)).then(|| RouteDepots::new(&depots))?
    }
}

impl RouteMap {
    /// Returns the expected time of a transfer over one hop alone.
    #[must_use]
    pub fn expected_over_hop(
        &self,
        from: NodeId,
        to: NodeId,
        transfer: &Transfer,
        now: f64,
    ) -> Option<super::expected::ExpectedTime> {
        self.expected(from, &RouteDepots::DIRECT, to, transfer, now)
    }
}

/// Returns the best of some routes by their actual times, as a yardstick for a policy in
/// simulation.
#[must_use]
pub fn best_actual_route(
    routes: impl IntoIterator<Item = RouteDepots>,
    mut takes: impl FnMut(&RouteDepots) -> Option<f64>,
) -> Option<(RouteDepots, f64)> {
    routes
        .into_iter()
        .filter_map(|via| takes(&via).map(|time| (via, time)))
        .min_by(|one, other| one.1.total_cmp(&other.1))
}

/// Returns every route of at most three depots between two nodes, direct first. For small maps.
#[must_use]
pub fn all_routes(map: &RouteMap, from: NodeId, to: NodeId) -> Vec<RouteDepots> {
    let mut routes = vec![RouteDepots::DIRECT];
    let mut last = vec![RouteDepots::DIRECT];
    for _ in 0..MAX_DEPOTS {
        last = last
            .iter()
            .flat_map(|via| {
                let at = via.depots().next_back().unwrap_or(from);
                let depots = map.hops_leaving(at).map(|(_, depot)| depot);
                let fits = move |depot: &NodeId| {
                    *depot != from
                        && *depot != to
                        && map.node(*depot).is_some_and(|node| node.relay.is_some())
                };
                depots
                    .filter(fits)
                    .filter_map(|depot| via.with_depot(depot))
            })
            .collect();
        let ends = |via: &&RouteDepots| {
            via.depots()
                .next_back()
                .is_some_and(|depot| map.hop(depot, to).is_some())
        };
        routes.extend(last.iter().filter(ends));
    }
    routes
}

#[cfg(test)]
mod tests;
