//! Nodes, and the unidirectional links between them.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::time::{BitsPerSecond, MAX_RATE};

/// Maximum number of nodes in a network.
pub const MAX_NODES: u32 = 100_000;

/// Maximum number of links in a network.
pub const MAX_LINKS: usize = 1_000_000;

/// Number of a node. The names of nodes are kept by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// Number of one direction of a link: its index in [`CircuitNetwork::links`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LinkId(pub u32);

impl NodeId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Part of a whole, in millionths from 0 to 1,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct LinkShare(u32);

impl LinkShare {
    /// Half, the default reservable share of a link (MULTIPATH, section 3).
    pub const HALF: Self = Self(500_000);
    /// The whole.
    pub const WHOLE: Self = Self(1_000_000);

    /// Returns a share of `count` millionths, or `None` if that exceeds the whole.
    #[must_use]
    pub const fn millionths(count: u32) -> Option<Self> {
        if count <= Self::WHOLE.0 {
            Some(Self(count))
        } else {
            None
        }
    }

    /// Returns this part of a rate, rounded down.
    #[must_use]
    pub fn apply_to(self, rate: BitsPerSecond) -> BitsPerSecond {
        let part = u128::from(rate) * u128::from(self.0) / u128::from(Self::WHOLE.0);
        BitsPerSecond::try_from(part).unwrap_or(BitsPerSecond::MAX)
    }
}

impl Default for LinkShare {
    fn default() -> Self {
        Self::HALF
    }
}

/// A share that exceeds the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} millionths are more than the whole: a share is at most 1000000")]
pub struct ShareOutOfRange(u32);

impl TryFrom<u32> for LinkShare {
    type Error = ShareOutOfRange;

    fn try_from(count: u32) -> Result<Self, ShareOutOfRange> {
        Self::millionths(count).ok_or(ShareOutOfRange(count))
    }
}

impl From<LinkShare> for u32 {
    fn from(share: LinkShare) -> Self {
        share.0
    }
}

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CircuitLink {
    /// Node at which it begins.
    pub from: NodeId,
    /// Node at which it ends.
    pub to: NodeId,
    /// Capacity in bit/s.
    pub capacity: BitsPerSecond,
    /// Share of the capacity that all reservations together may use.
    #[serde(default)]
    pub share: LinkShare,
    /// One-way latency in microseconds.
    pub latency: u64,
    /// Number of the cable. The two directions of one link share it, and fail together.
    pub cable: u32,
}

impl CircuitLink {
    /// Returns the reservable rate in bit/s.
    #[must_use]
    pub fn reservable(&self) -> BitsPerSecond {
        self.share.apply_to(self.capacity)
    }
}

/// Fault of a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkFault {
    /// The network exceeds [`MAX_NODES`] or [`MAX_LINKS`]. Make the map smaller. Reservations use
    /// the map before it.
    #[error("{nodes} nodes and {links} links: at most {MAX_NODES} and {MAX_LINKS} are supported")]
    TooLarge {
        /// Number of nodes.
        nodes: u32,
        /// Number of links.
        links: usize,
    },
    /// A link begins or ends at a node that does not exist: add the node, or remove the link.
    #[error(
        "link {link} joins node {from} to node {to}, but there are {nodes} nodes: add the node, or \
         remove the link",
        link = link.0, from = from.0, to = to.0
    )]
    NoNode {
        /// The link.
        link: LinkId,
        /// Node at which it begins.
        from: NodeId,
        /// Node at which it ends.
        to: NodeId,
        /// Number of nodes.
        nodes: u32,
    },
    /// A link leads from a node to itself: remove it.
    #[error("link {} leads from a node to itself: remove it", .0.0)]
    Loop(LinkId),
    /// The capacity of a link exceeds [`MAX_RATE`]. Check the unit.
    #[error("link {} carries {capacity} bit/s: at most {MAX_RATE} bit/s are supported", link.0)]
    Capacity {
        /// The link.
        link: LinkId,
        /// Stated capacity, in bit/s.
        capacity: BitsPerSecond,
    },
    /// Two links share a cable but are not the two directions of one link: give each its own.
    #[error(
        "links {} and {} name cable {cable}, but are not the two directions of one link: give each \
         its own cable",
        first.0, second.0
    )]
    Cable {
        /// The first link.
        first: LinkId,
        /// The second link.
        second: LinkId,
        /// Cable that both name.
        cable: u32,
    },
}

/// Nodes and links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CircuitNetwork {
    nodes: u32,
    links: Vec<CircuitLink>,
    /// Links, sorted by the node at which they begin.
    out: Vec<LinkId>,
    /// Index in `out` of the first link of each node, and of the end.
    link_offsets: Vec<usize>,
}

impl CircuitNetwork {
    /// Creates a network of `nodes` nodes, numbered from 0. The index of a link is its number.
    ///
    /// # Errors
    /// [`NetworkFault`] names the first invalid link.
    pub fn new(nodes: u32, links: Vec<CircuitLink>) -> Result<Self, NetworkFault> {
        if nodes > MAX_NODES || links.len() > MAX_LINKS {
            return Err(NetworkFault::TooLarge {
                nodes,
                links: links.len(),
            });
        }
        let mut cables: BTreeMap<u32, (LinkId, u8)> = BTreeMap::new();
        for (id, link) in (0..).map(LinkId).zip(&links) {
            let (from, to) = (link.from, link.to);
            if from.0 >= nodes || to.0 >= nodes {
                return Err(NetworkFault::NoNode {
                    link: id,
                    from,
                    to,
                    nodes,
                });
            }
            if from == to {
                return Err(NetworkFault::Loop(id));
            }
            if link.capacity > MAX_RATE {
                return Err(NetworkFault::Capacity {
                    link: id,
                    capacity: link.capacity,
                });
            }
            let (first, count) = *cables
                .entry(link.cable)
                .and_modify(|(_, count)| *count += 1)
                .or_insert((id, 1));
            let opposite = links
                .get(first.index())
                .is_some_and(|first| (first.from, first.to) == (to, from));
            if count > 2 || (count == 2 && !opposite) {
                return Err(NetworkFault::Cable {
                    first,
                    second: id,
                    cable: link.cable,
                });
            }
        }
        let mut out: Vec<LinkId> = (0..).map(LinkId).take(links.len()).collect();
        out.sort_by_key(|id| (links.get(id.index()).map(|link| link.from), *id));
        let begins = (0..=nodes)
            .map(|node| {
                out.partition_point(|id| {
                    links.get(id.index()).is_some_and(|link| link.from.0 < node)
                })
            })
            .collect();
        Ok(Self {
            nodes,
            links,
            out,
            link_offsets: begins,
        })
    }

    /// Returns the number of nodes.
    #[must_use]
    pub const fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Returns all links in order of their numbers.
    #[must_use]
    pub fn links(&self) -> &[CircuitLink] {
        &self.links
    }

    /// Returns a link.
    #[must_use]
    pub fn link(&self, id: LinkId) -> Option<&CircuitLink> {
        self.links.get(id.index())
    }

    /// Returns the numbers of all links.
    pub fn ids(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..).map(LinkId).take(self.links.len())
    }

    /// Returns the links that leave a node, with their numbers.
    pub fn links_from(&self, node: NodeId) -> impl Iterator<Item = (LinkId, &CircuitLink)> {
        let range = self.range(node);
        self.out
            .get(range)
            .unwrap_or_default()
            .iter()
            .filter_map(|id| Some((*id, self.link(*id)?)))
    }

    fn range(&self, node: NodeId) -> Range<usize> {
        let begin = self
            .link_offsets
            .get(node.index())
            .copied()
            .unwrap_or(self.out.len());
        begin
            ..self
                .link_offsets
                .get(node.index() + 1)
                .copied()
                .unwrap_or(begin)
    }
}
