//! A map as nodes and directed edges, for what looks for paths.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use quantities::Rate;

use crate::model::{Direction, Map};

/// Sites as nodes, and each direction of each link as an edge. Numbers of nodes and links are
/// places in [`Map::sites`] and [`Map::links`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Graph {
    names: Vec<String>,
    by_name: HashMap<String, u32>,
    /// By the node from which they lead, then by link.
    edges: Vec<Edge>,
    /// Of each node, where its edges end in `edges`.
    ends: Vec<usize>,
}

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    /// The node from which it leads.
    pub from: u32,
    /// The node to which it leads.
    pub to: u32,
    /// The link.
    pub link: u32,
    /// Whether it is the link's forward direction.
    pub forward: bool,
    /// What it carries, where that is known.
    pub capacity: Option<Rate>,
    /// What of that may be reserved, where that is known.
    pub reservable: Option<Rate>,
    /// How long light takes, where that is known.
    pub latency: Option<Duration>,
    /// What the network's own routing counts it as.
    pub metric: Option<u32>,
}

impl Graph {
    /// The graph of a map; links that name sites which it has not are left out, so check it first.
    #[must_use]
    pub fn of(map: &Map) -> Self {
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
            edges.push(edge(from, to, true, &link.forward));
            edges.extend(
                link.backward
                    .as_ref()
                    .map(|backward| edge(to, from, false, backward)),
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

    /// How many nodes there are: they are numbered from 0.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.names.len()
    }

    /// The node of the site with this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// The site of a node.
    #[must_use]
    pub fn name(&self, node: u32) -> Option<&str> {
        self.names
            .get(usize::try_from(node).ok()?)
            .map(String::as_str)
    }

    /// All edges, by the node from which they lead, then by link.
    #[must_use]
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The places in [`Graph::edges`] of those that lead from a node.
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
