//! A map as nodes and directed edges, for the search of paths.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use quantities::Rate;

use crate::model::{Direction, Map};

/// Sites as nodes, and each direction of each link as an edge. Numbers of nodes and links are
/// indices in [`Map::sites`] and [`Map::links`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Graph {
    names: Vec<String>,
    by_name: HashMap<String, u32>,
    /// Edges, sorted by start node, then by link.
    edges: Vec<Edge>,
    /// End of each node's edges in `edges`.
    ends: Vec<usize>,
}

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    /// Start node.
    pub from: u32,
    /// End node.
    pub to: u32,
    /// The link.
    pub link: u32,
    /// If true, this is the link's forward direction.
    pub forward: bool,
    /// Capacity, if known.
    pub capacity: Option<Rate>,
    /// Reservable rate, if known.
    pub reservable: Option<Rate>,
    /// One-way latency, if known.
    pub latency: Option<Duration>,
    /// Cost in the network's own routing.
    pub metric: Option<u32>,
}

impl Graph {
    /// Creates the graph of a map. Links that name unknown sites are left out, so check the map
    /// first.
    #[must_use]
    pub fn from_map(map: &Map) -> Self {
        let number = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        let names: Vec<String> = map.sites.iter().map(|site| site.name.clone()).collect();
        let by_name: HashMap<String, u32> = names
            .iter()
            .enumerate()
            .map(|(index, name)| (name.clone(), number(index)))
            .collect();
        let mut edges = Vec::with_capacity(2 * map.links.len());
        for (index, link) in map.links.iter().enumerate() {
            let ends = (by_name.get(&link.from), by_name.get(&link.to));
            let (Some(&from), Some(&to)) = ends else {
                continue;
            };
            let edge = |from, to, forward, direction: &Direction| Edge {
                from,
                to,
                link: number(index),
                forward,
                capacity: direction.rate(),
                reservable: direction.reservable_rate(),
                latency: link.latency.map(|latency| latency.one_way),
                metric: direction.metric,
            };
            edges.push(edge(from, to, true, &link.current_forward()));
            edges.extend(
                link.current_backward()
                    .map(|backward| edge(to, from, false, &backward)),
            );
        }
        edges.sort_by_key(|edge| (edge.from, edge.link));
        let ends = (0..names.len())
            .map(|node| edges.partition_point(|edge| edge.from <= number(node)))
            .collect();
        Self {
            names,
            by_name,
            edges,
            ends,
        }
    }

    /// Returns the number of nodes. They are numbered from 0.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.names.len()
    }

    /// Returns the node of the site with this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Returns the name of a node's site.
    #[must_use]
    pub fn name(&self, node: u32) -> Option<&str> {
        self.names
            .get(usize::try_from(node).ok()?)
            .map(String::as_str)
    }

    /// Returns all edges, sorted by start node, then by link.
    #[must_use]
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Returns the range in [`Graph::edges`] of those that start at a node.
    #[must_use]
    pub fn edges_from(&self, node: u32) -> Range<usize> {
        let Ok(node) = usize::try_from(node) else {
            return 0..0;
        };
        let begin = match node.checked_sub(1) {
            None => 0,
            Some(before) => self.ends.get(before).copied().unwrap_or(self.edges.len()),
        };
        begin..self.ends.get(node).copied().unwrap_or(begin).max(begin)
    }
}
