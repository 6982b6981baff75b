//! Constraints on each path of a request, and the paths that satisfy them.
//!
//! Without nodes to pass, the best path within a number of hops and a latency is found exactly:
//! labels of hops and latency are extended link by link, and only those are kept that no other
//! label beats in both. With nodes to pass, or for all paths, the search follows links depth first.
//! It is exact as long as it follows no more than [`MAX_FOLLOWED_LINKS`] links.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};

use super::{BandwidthField, LinkPath, PathCost, PathEnds, Preference};
use crate::network::{LinkId, NodeId};
use crate::time::BitsPerSecond;

/// Maximum number of nodes that a request can name to be passed.
pub const MAX_VIA: usize = 16;

/// Maximum number of links to follow in one search.
pub const MAX_FOLLOWED_LINKS: usize = 10_000;

/// Maximum number of paths that one search returns.
const MAX_FOUND_PATHS: usize = 256;

/// Constraints on each path of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PathBounds {
    /// Nodes that each path passes, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<NodeId>,
    /// Maximum number of links of a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hops: Option<u32>,
    /// Maximum one-way latency of a path, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_latency: Option<u64>,
    /// Paths to take, each at exactly its rate. Empty if the paths are to be found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub explicit: Vec<ExplicitPath>,
}

/// A path that the request itself names, by its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExplicitPath {
    /// Nodes from one end to the other.
    pub nodes: Vec<NodeId>,
    /// Rate in bit/s.
    pub rate: BitsPerSecond,
}

impl PathBounds {
    /// Returns true if there is no constraint.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if paths have to be searched within constraints.
    pub(crate) const fn is_bounded(&self) -> bool {
        !self.via.is_empty() || self.max_hops.is_some() || self.max_latency.is_some()
    }

    /// Returns true if a path from end to end satisfies the constraints on hops, latency and nodes
    /// to pass.
    #[must_use]
    pub fn allows(&self, field: &BandwidthField<'_>, path: &LinkPath) -> bool {
        let network = field.network();
        let hops = u32::try_from(path.0.len()).unwrap_or(u32::MAX);
        let links = || path.0.iter().filter_map(|link| network.link(*link));
        let mut inner = links().skip(1).map(|link| link.from);
        self.max_hops.is_none_or(|most| hops <= most)
            && self
                .max_latency
                .is_none_or(|most| latency_of(field, path) <= most)
            && self.via.iter().all(|via| inner.any(|node| node == *via))
    }

    /// Returns the best path within the constraints whose links have at least `at_least` bit/s
    /// left, and at least 1 bit/s.
    pub(crate) fn best_path(
        &self,
        field: &BandwidthField<'_>,
        ends: PathEnds,
        at_least: BitsPerSecond,
        preference: Preference,
    ) -> Option<LinkPath> {
        if preference == Preference::MostRoom {
            let (path, width) = self.widest_path(field, ends)?;
            return (width >= at_least).then_some(path);
        }
        if self.via.is_empty() {
            return self.labelled_path(field, ends, at_least, preference);
        }
        let found = self.all_paths(field, ends, at_least, preference);
        let paths = found.paths.into_iter();
        paths.min_by_key(|path| (field.cost_of(path, preference), path.clone()))
    }

    /// Returns the path within the constraints with the most bandwidth left on its fullest link,
    /// and that rate. Of several, it is the one with the fewest hops.
    pub(crate) fn widest_path(
        &self,
        field: &BandwidthField<'_>,
        ends: PathEnds,
    ) -> Option<(LinkPath, BitsPerSecond)> {
        if !self.via.is_empty() {
            // All paths are as hard to find as one of them.
            let found = self.all_paths(field, ends, 1, Preference::FewestHops);
            let widths = found.paths.into_iter().map(|path| {
                let width = field.width(&path);
                (path, width)
            });
            return widths.min_by_key(|(path, width)| {
                let cost = field.cost_of(path, Preference::FewestHops);
                (Reverse(*width), cost, path.clone())
            });
        }
        let rates: Vec<BitsPerSecond> = field.distinct_rates().into_iter().collect();
        let path_at = |rate| self.best_path(field, ends, rate, Preference::FewestHops);
        let mut best = None;
        let (mut low, mut high) = (0, rates.len());
        while low < high {
            let middle = low.midpoint(high);
            match rates.get(middle).and_then(|rate| path_at(*rate)) {
                Some(path) => {
                    best = Some(path);
                    low = middle + 1;
                }
                None => high = middle,
            }
        }
        best.map(|path| {
            let width = field.width(&path);
            (path, width)
        })
    }

    /// Returns the best path without nodes to pass. Labels leave the queue in the order of the
    /// preference, so each label at a node is beaten by none before it or has less of the other
    /// criterion.
    fn labelled_path(
        &self,
        field: &BandwidthField<'_>,
        ends: PathEnds,
        at_least: BitsPerSecond,
        preference: Preference,
    ) -> Option<LinkPath> {
        let network = field.network();
        let mut least: Vec<Option<u64>> = vec![None; network.nodes() as usize];
        let mut labels: Vec<(LinkId, Option<usize>)> = Vec::new();
        let mut queue = BinaryHeap::from([Reverse((PathCost::default(), ends.from, None))]);
        while let Some(Reverse((cost, node, by))) = queue.pop() {
            // What left the queue before has no more of the first criterion. So this label is worth
            // following only if it has less of the second.
            let Some(known) = least.get_mut(node.index()) else {
                continue;
            };
            if known.is_some_and(|known| cost.1 >= known) {
                continue;
            }
            *known = Some(cost.1);
            if node == ends.to {
                return Some(trace_labels(&labels, by));
            }
            for (id, link) in network.links_from(node) {
                let through = cost.plus(field.cost(id, preference));
                if field.room(id) < at_least.max(1)
                    || link.to == ends.from
                    || !self.allows_cost(through, preference)
                {
                    continue;
                }
                labels.push((id, by));
                queue.push(Reverse((through, link.to, Some(labels.len() - 1))));
            }
        }
        None
    }

    fn allows_cost(&self, cost: PathCost, preference: Preference) -> bool {
        let (hops, latency) = match preference {
            Preference::LeastLatency => (cost.1, cost.0),
            Preference::FewestHops | Preference::MostRoom => (cost.0, cost.1),
        };
        self.max_hops.is_none_or(|most| hops <= u64::from(most))
            && self.max_latency.is_none_or(|most| latency <= most)
    }

    /// Returns the loop-free paths within the constraints whose links have at least `at_least`
    /// bit/s left, and at least 1 bit/s. Those that are short by the preference come early.
    pub(crate) fn all_paths(
        &self,
        field: &BandwidthField<'_>,
        ends: PathEnds,
        at_least: BitsPerSecond,
        preference: Preference,
    ) -> FoundPaths {
        let mut search = BoundedSearch::new(self, field, ends, at_least.max(1), preference);
        search.run();
        FoundPaths {
            paths: search.found,
            complete: search.complete,
        }
    }
}

/// Returns the one-way latency of a path in microseconds.
pub(crate) fn latency_of(field: &BandwidthField<'_>, path: &LinkPath) -> u64 {
    field.cost_of(path, Preference::LeastLatency).0
}

/// Returns the path of a label.
fn trace_labels(labels: &[(LinkId, Option<usize>)], last: Option<usize>) -> LinkPath {
    let steps = std::iter::successors(last.and_then(|at| labels.get(at)), |(_, before)| {
        before.and_then(|at| labels.get(at))
    });
    let mut links: Vec<LinkId> = steps.map(|(link, _)| *link).collect();
    links.reverse();
    LinkPath(links)
}

/// Paths within constraints.
#[derive(Debug, Clone)]
pub(crate) struct FoundPaths {
    /// The paths.
    pub(crate) paths: Vec<LinkPath>,
    /// If true, these are all.
    pub(crate) complete: bool,
}

/// Cost from a node to the next node to pass, by hops and by latency. `None` if none leads there.
type CostsToTarget = Vec<Option<(u64, u64)>>;

/// Depth-first search for paths within constraints.
struct BoundedSearch<'a, 'f> {
    bounds: &'a PathBounds,
    field: &'a BandwidthField<'f>,
    ends: PathEnds,
    at_least: BitsPerSecond,
    preference: Preference,
    /// Nodes to pass in order, and the end.
    targets: Vec<NodeId>,
    /// Least costs from each node to each target.
    to_target: Vec<CostsToTarget>,
    /// Least cost from each target to the end, over all targets behind it.
    behind: Vec<Option<(u64, u64)>>,
    seen: Vec<bool>,
    steps: usize,
    found: Vec<LinkPath>,
    complete: bool,
}

/// A link to follow.
struct OpenLink {
    link: LinkId,
    /// Length of the trail before it.
    length: usize,
    /// Index of the next target before it.
    stage: usize,
    /// Cost of the trail before it, in hops and in microseconds.
    cost: (u64, u64),
}

impl<'a, 'f> BoundedSearch<'a, 'f> {
    fn new(
        bounds: &'a PathBounds,
        field: &'a BandwidthField<'f>,
        ends: PathEnds,
        at_least: BitsPerSecond,
        preference: Preference,
    ) -> Self {
        let targets: Vec<NodeId> = bounds.via.iter().copied().chain([ends.to]).collect();
        let to_target: Vec<CostsToTarget> = targets
            .iter()
            .map(|target| {
                let hops = costs_to(field, *target, at_least, |_| 1);
                let latencies = costs_to(field, *target, at_least, |link| {
                    field.cost(link, Preference::LeastLatency).0
                });
                let both = hops.into_iter().zip(latencies);
                both.map(|(hops, latency)| hops.zip(latency)).collect()
            })
            .collect();
        let mut behind = vec![Some((0, 0))];
        for (place, target) in targets.iter().enumerate().rev().skip(1) {
            let next = to_target
                .get(place + 1)
                .and_then(|costs| costs.get(target.index()).copied().flatten());
            let rest = behind.last().copied().flatten();
            behind.push(next.zip(rest).map(|(next, rest)| add_costs(next, rest)));
        }
        behind.reverse();
        Self {
            bounds,
            field,
            ends,
            at_least,
            preference,
            targets,
            to_target,
            behind,
            seen: vec![false; field.network().nodes() as usize],
            steps: 0,
            found: Vec::new(),
            complete: true,
        }
    }

    fn run(&mut self) {
        let network = self.field.network();
        let mut trail: Vec<LinkId> = Vec::new();
        let mut stack: Vec<OpenLink> = Vec::new();
        self.set_seen(self.ends.from, true);
        self.open_links(&mut stack, self.ends.from, 0, 0, (0, 0));
        while let Some(OpenLink {
            link: id,
            length,
            stage,
            cost,
        }) = stack.pop()
        {
            for left in trail.drain(length..) {
                if let Some(link) = network.link(left)
                    && let Some(seen) = self.seen.get_mut(link.to.index())
                {
                    *seen = false;
                }
            }
            self.steps += 1;
            if self.steps > MAX_FOLLOWED_LINKS || self.found.len() >= MAX_FOUND_PATHS {
                self.complete = false;
                return;
            }
            let Some(link) = network.link(id) else {
                continue;
            };
            trail.push(id);
            if link.to == self.ends.to {
                self.found.push(LinkPath(trail.clone()));
                trail.pop();
                continue;
            }
            self.set_seen(link.to, true);
            let cost = add_costs(cost, self.cost(id));
            let stage = stage + usize::from(self.targets.get(stage) == Some(&link.to));
            self.open_links(&mut stack, link.to, trail.len(), stage, cost);
        }
    }

    /// Pushes the links of a node that can still lead to a path, the best last.
    fn open_links(
        &self,
        stack: &mut Vec<OpenLink>,
        node: NodeId,
        length: usize,
        stage: usize,
        cost: (u64, u64),
    ) {
        let mut open: Vec<(PathCost, OpenLink)> = Vec::new();
        for (id, link) in self.field.network().links_from(node) {
            if self.field.room(id) < self.at_least
                || self.seen.get(link.to.index()).copied().unwrap_or(true)
            {
                continue;
            }
            // A node to pass is passed when its turn comes, and the end comes last.
            let later = self.targets.get(stage + 1..).unwrap_or_default();
            if later.contains(&link.to) {
                continue;
            }
            let Some(rest) = self.least_rest(link.to, stage) else {
                continue;
            };
            let (hops, latency) = add_costs(add_costs(cost, self.cost(id)), rest);
            let is_within = self
                .bounds
                .max_hops
                .is_none_or(|most| hops <= u64::from(most))
                && self.bounds.max_latency.is_none_or(|most| latency <= most);
            if is_within {
                let bound = match self.preference {
                    Preference::LeastLatency => PathCost(latency, hops),
                    Preference::FewestHops | Preference::MostRoom => PathCost(hops, latency),
                };
                open.push((
                    bound,
                    OpenLink {
                        link: id,
                        length,
                        stage,
                        cost,
                    },
                ));
            }
        }
        open.sort_by_key(|(bound, open)| Reverse((*bound, open.link)));
        stack.extend(open.into_iter().map(|(_, open)| open));
    }

    /// Returns the least cost from a node over the remaining targets to the end.
    fn least_rest(&self, node: NodeId, stage: usize) -> Option<(u64, u64)> {
        let next = self.to_target.get(stage)?.get(node.index()).copied()??;
        Some(add_costs(next, self.behind.get(stage).copied()??))
    }

    fn cost(&self, link: LinkId) -> (u64, u64) {
        (1, self.field.cost(link, Preference::LeastLatency).0)
    }

    fn set_seen(&mut self, node: NodeId, to: bool) {
        if let Some(seen) = self.seen.get_mut(node.index()) {
            *seen = to;
        }
    }
}

const fn add_costs(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (one.0.saturating_add(other.0), one.1.saturating_add(other.1))
}

/// Returns the least cost from each node to a target (Dijkstra's algorithm, backwards).
fn costs_to(
    field: &BandwidthField<'_>,
    target: NodeId,
    at_least: BitsPerSecond,
    cost: impl Fn(LinkId) -> u64,
) -> Vec<Option<u64>> {
    let network = field.network();
    let mut into: Vec<Vec<(LinkId, NodeId)>> = vec![Vec::new(); network.nodes() as usize];
    for (id, link) in network.ids().zip(network.links()) {
        if field.room(id) >= at_least
            && let Some(into) = into.get_mut(link.to.index())
        {
            into.push((id, link.from));
        }
    }
    let mut least: Vec<Option<u64>> = vec![None; into.len()];
    let mut queue = BinaryHeap::from([Reverse((0, target))]);
    while let Some(Reverse((so_far, node))) = queue.pop() {
        match least.get_mut(node.index()) {
            Some(least) if least.is_none() => *least = Some(so_far),
            _ => continue,
        }
        for (id, from) in into.get(node.index()).into_iter().flatten() {
            queue.push(Reverse((so_far.saturating_add(cost(*id)), *from)));
        }
    }
    least
}
