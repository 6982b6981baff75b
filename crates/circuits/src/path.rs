//! Paths through the available bandwidth of a network: by fewest hops, least latency or greatest
//! width; the k best; and disjoint ones.

mod bounds;
mod disjoint;
pub(crate) mod flow;
#[cfg(test)]
mod tests;
mod yen;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use serde::{Deserialize, Serialize};

use crate::network::{CircuitLink, CircuitNetwork, LinkId, NodeId};
use crate::time::BitsPerSecond;

pub(crate) use bounds::latency_of;
pub use bounds::{ExplicitPath, MAX_FOLLOWED_LINKS, MAX_VIA, PathBounds};
pub use disjoint::disjoint_paths;
pub use longhaul_reservation_terms::{Disjoint, Preference};
pub use yen::k_best_paths;

/// Two nodes between which a path leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PathEnds {
    /// Node at which the path begins.
    pub from: NodeId,
    /// Node at which the path ends.
    pub to: NodeId,
}

/// Sequence of links, each beginning where the one before it ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LinkPath(pub Vec<LinkId>);

/// Search space for paths: a network with the rate left on each link.
#[derive(Debug, Clone)]
pub struct BandwidthField<'a> {
    network: &'a CircuitNetwork,
    room: Vec<BitsPerSecond>,
    usable: Vec<bool>,
}

impl<'a> BandwidthField<'a> {
    /// Creates a field with this rate left on each link, in bit/s, or `None` if a link may not be
    /// used.
    #[must_use]
    pub fn new(
        network: &'a CircuitNetwork,
        room: impl Fn(LinkId) -> Option<BitsPerSecond>,
    ) -> Self {
        let rooms: Vec<Option<BitsPerSecond>> = network.ids().map(room).collect();
        let usable = rooms.iter().map(Option::is_some).collect();
        let room = rooms.into_iter().map(Option::unwrap_or_default).collect();
        Self {
            network,
            room,
            usable,
        }
    }

    /// Returns the network.
    #[must_use]
    pub const fn network(&self) -> &'a CircuitNetwork {
        self.network
    }

    /// Returns the rate left on a link, in bit/s; 0 if it may not be used.
    #[must_use]
    pub fn room(&self, link: LinkId) -> BitsPerSecond {
        self.room.get(link.index()).copied().unwrap_or(0)
    }

    /// Returns true if a link may be used, full or not.
    #[must_use]
    pub fn is_usable(&self, link: LinkId) -> bool {
        self.usable.get(link.index()).copied().unwrap_or(false)
    }

    /// Returns the rate left on a path.
    #[must_use]
    pub fn width(&self, path: &LinkPath) -> BitsPerSecond {
        path.0
            .iter()
            .map(|link| self.room(*link))
            .min()
            .unwrap_or(0)
    }

    /// Sets the rate left on a link, unless it may not be used.
    pub(crate) fn set_room(&mut self, link: LinkId, rate: BitsPerSecond) {
        if self.is_usable(link)
            && let Some(room) = self.room.get_mut(link.index())
        {
            *room = rate;
        }
    }

    /// Deducts a rate from each link of a path.
    pub fn deduct(&mut self, path: &LinkPath, rate: BitsPerSecond) {
        for link in &path.0 {
            if let Some(room) = self.room.get_mut(link.index()) {
                *room = room.saturating_sub(rate);
            }
        }
    }

    /// Removes all links that a path disjoint from this one must not use.
    pub fn remove_conflicts(&mut self, path: &LinkPath, diversity: Disjoint) {
        if diversity == Disjoint::No {
            return;
        }
        let network = self.network;
        let links = || path.0.iter().filter_map(|link| network.link(*link));
        let cables: BTreeSet<u32> = links().map(|link| link.cable).collect();
        // Inner nodes of the path.
        let inner: BTreeSet<NodeId> = match diversity {
            Disjoint::Sites => links().skip(1).map(|link| link.from).collect(),
            _ => BTreeSet::new(),
        };
        for (place, link) in network.links().iter().enumerate() {
            if (cables.contains(&link.cable)
                || inner.contains(&link.from)
                || inner.contains(&link.to))
                && let Some(room) = self.room.get_mut(place)
            {
                *room = 0;
            }
        }
    }

    /// Returns true if two paths share what disjoint paths must not share.
    #[must_use]
    pub fn conflict(&self, one: &LinkPath, other: &LinkPath, diversity: Disjoint) -> bool {
        let links = |path: &LinkPath| -> Vec<CircuitLink> {
            let links = path.0.iter().filter_map(|link| self.network.link(*link));
            links.copied().collect()
        };
        let (one, other) = (links(one), links(other));
        let shares = |of: fn(&CircuitLink) -> u32, first: usize| {
            let values: BTreeSet<u32> = one.iter().skip(first).map(of).collect();
            other
                .iter()
                .skip(first)
                .any(|link| values.contains(&of(link)))
        };
        match diversity {
            Disjoint::No => false,
            Disjoint::Links => shares(|link| link.cable, 0),
            Disjoint::Sites => shares(|link| link.cable, 0) || shares(|link| link.from.0, 1),
        }
    }

    /// Returns the distinct rates left on the links, without 0.
    #[must_use]
    pub fn distinct_rates(&self) -> BTreeSet<BitsPerSecond> {
        self.room.iter().copied().filter(|room| *room > 0).collect()
    }

    pub(crate) fn cost(&self, link: LinkId, preference: Preference) -> PathCost {
        let latency = self.network.link(link).map_or(0, |link| link.latency);
        match preference {
            Preference::LeastLatency => PathCost(latency, 1),
            Preference::FewestHops | Preference::MostRoom => PathCost(1, latency),
        }
    }

    pub(crate) fn cost_of(&self, path: &LinkPath, preference: Preference) -> PathCost {
        let costs = path.0.iter().map(|link| self.cost(*link, preference));
        costs.fold(PathCost::default(), PathCost::plus)
    }

    /// Returns the best path whose links have at least `at_least` bit/s left, and at least 1 bit/s.
    #[must_use]
    pub fn best_path(
        &self,
        ends: PathEnds,
        at_least: BitsPerSecond,
        preference: Preference,
    ) -> Option<LinkPath> {
        if preference == Preference::MostRoom {
            let (path, width) = self.widest_path(ends)?;
            return (width >= at_least).then_some(path);
        }
        self.cheapest_path(ends, preference, |link| self.room(link) >= at_least.max(1))
    }

    /// Returns the path with the most bandwidth left on its fullest link, and that rate. Of
    /// several, it is the one with the fewest hops.
    #[must_use]
    pub fn widest_path(&self, ends: PathEnds) -> Option<(LinkPath, BitsPerSecond)> {
        let mut widths = vec![0; self.network.nodes() as usize];
        *widths.get_mut(ends.from.index())? = BitsPerSecond::MAX;
        let mut queue = BinaryHeap::from([(BitsPerSecond::MAX, Reverse(ends.from))]);
        while let Some((width, Reverse(node))) = queue.pop() {
            if node == ends.to {
                break;
            }
            if widths.get(node.index()).is_some_and(|known| width < *known) {
                continue;
            }
            for (id, link) in self.network.links_from(node) {
                let through = width.min(self.room(id));
                if let Some(known) = widths
                    .get_mut(link.to.index())
                    .filter(|known| through > **known)
                {
                    *known = through;
                    queue.push((through, Reverse(link.to)));
                }
            }
        }
        let width = widths
            .get(ends.to.index())
            .copied()
            .filter(|width| *width > 0)?;
        if ends.from == ends.to {
            return None;
        }
        let path = self.cheapest_path(ends, Preference::FewestHops, |link| {
            self.room(link) >= width
        })?;
        Some((path, width))
    }

    /// Returns the cheapest path over the links that `may` admits (Dijkstra's algorithm). Ties are
    /// resolved deterministically.
    pub(crate) fn cheapest_path(
        &self,
        ends: PathEnds,
        preference: Preference,
        may: impl Fn(LinkId) -> bool,
    ) -> Option<LinkPath> {
        let nodes = self.network.nodes() as usize;
        if ends.from == ends.to || ends.from.index() >= nodes {
            return None;
        }
        let mut known: Vec<Option<(PathCost, Option<LinkId>)>> = vec![None; nodes];
        if let Some(start) = known.get_mut(ends.from.index()) {
            *start = Some((PathCost::default(), None));
        }
        let mut queue = BinaryHeap::from([Reverse((PathCost::default(), ends.from))]);
        while let Some(Reverse((cost, node))) = queue.pop() {
            if node == ends.to {
                break;
            }
            if known
                .get(node.index())
                .copied()
                .flatten()
                .is_some_and(|(best, _)| best < cost)
            {
                continue;
            }
            for (id, link) in self.network.links_from(node).filter(|(id, _)| may(*id)) {
                let through = cost.plus(self.cost(id, preference));
                let Some(there) = known.get_mut(link.to.index()) else {
                    continue;
                };
                if there.is_none_or(|(best, _)| through < best) {
                    *there = Some((through, Some(id)));
                    queue.push(Reverse((through, link.to)));
                }
            }
        }
        let mut links = Vec::new();
        let mut node = ends.to;
        while node != ends.from {
            let (_, by) = known.get(node.index()).copied().flatten()?;
            let by = by?;
            links.push(by);
            node = self.network.link(by)?.from;
        }
        links.reverse();
        Some(LinkPath(links))
    }
}

/// Cost of a path: the main criterion, then the tie-breaker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PathCost(pub(crate) u64, pub(crate) u64);

impl PathCost {
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self(
            self.0.saturating_add(other.0),
            self.1.saturating_add(other.1),
        )
    }
}
