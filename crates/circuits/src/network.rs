//! Nodes, and the links between them, each of one direction.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::time::{MAX_RATE, Rate};

/// Most nodes of a network.
pub const MAX_NODES: u32 = 100_000;

/// Most links of a network.
pub const MAX_LINKS: usize = 1_000_000;

/// A node: where links begin and end. Whoever keeps the network knows its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// One direction of a link: its place in [`Network::links`].
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

/// A part of a whole, in millionths: from 0 to 1,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Share(u32);

impl Share {
    /// Half: what of a link may be reserved unless it is said otherwise (MULTIPATH, section 3).
    pub const HALF: Self = Self(500_000);
    /// All of it.
    pub const WHOLE: Self = Self(1_000_000);

    /// So many millionths; none where that is more than the whole.
    #[must_use]
    pub const fn millionths(count: u32) -> Option<Self> {
        if count <= Self::WHOLE.0 {
            Some(Self(count))
        } else {
            None
        }
    }

    /// This part of a rate, rounded down.
    #[must_use]
    pub fn of(self, rate: Rate) -> Rate {
        let part = u128::from(rate) * u128::from(self.0) / u128::from(Self::WHOLE.0);
        Rate::try_from(part).unwrap_or(Rate::MAX)
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::HALF
    }
}

/// More than the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} millionths are more than the whole: a share is at most 1000000")]
pub struct NoShare(u32);

impl TryFrom<u32> for Share {
    type Error = NoShare;

    fn try_from(count: u32) -> Result<Self, NoShare> {
        Self::millionths(count).ok_or(NoShare(count))
    }
}

impl From<Share> for u32 {
    fn from(share: Share) -> Self {
        share.0
    }
}

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The node from which it leads.
    pub from: NodeId,
    /// The node to which it leads.
    pub to: NodeId,
    /// What it carries, in bit/s.
    pub capacity: Rate,
    /// What of that may be reserved, by all together.
    #[serde(default)]
    pub share: Share,
    /// One way, in microseconds.
    pub latency: u64,
    /// The cable: the two directions of one link have the same number, and fail together.
    pub cable: u32,
}

impl Link {
    /// What may be reserved of it, in bit/s.
    #[must_use]
    pub fn reservable(&self) -> Rate {
        self.share.of(self.capacity)
    }
}

/// What is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkFault {
    /// It is larger than anything that is planned with.
    #[error("{nodes} nodes and {links} links: at most {MAX_NODES} and {MAX_LINKS} are taken")]
    TooLarge {
        /// Nodes.
        nodes: u32,
        /// Links.
        links: usize,
    },
    /// A link begins or ends at a node that is not there.
    #[error("link {link} joins node {from} to node {to}, but nodes end at {nodes}: add the node, or take the link out", link = link.0, from = from.0, to = to.0)]
    NoNode {
        /// The link.
        link: LinkId,
        /// Where it begins.
        from: NodeId,
        /// Where it ends.
        to: NodeId,
        /// How many nodes there are.
        nodes: u32,
    },
    /// A link leads from a node to itself.
    #[error("link {} leads from a node to itself: take it out", .0.0)]
    Loop(LinkId),
    /// A link carries more than any does.
    #[error("link {} carries {capacity} bit/s: at most {MAX_RATE} is taken", link.0)]
    Capacity {
        /// The link.
        link: LinkId,
        /// What it is said to carry, in bit/s.
        capacity: Rate,
    },
    /// Links have a cable in common and are not its two directions.
    #[error("links {} and {} name cable {cable}, but are not the two directions of one link: give them cables of their own", first.0, second.0)]
    Cable {
        /// One link.
        first: LinkId,
        /// The other.
        second: LinkId,
        /// What both name.
        cable: u32,
    },
}

/// Nodes and links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    nodes: u32,
    links: Vec<Link>,
    /// Links by the node from which they lead.
    out: Vec<LinkId>,
    /// Of each node, where its links begin in `out`; and of one behind the last.
    begins: Vec<usize>,
}

impl Network {
    /// Nodes numbered from 0, and links, whose places are their numbers.
    ///
    /// # Errors
    /// [`NetworkFault`], which names the first link that can't be.
    pub fn new(nodes: u32, links: Vec<Link>) -> Result<Self, NetworkFault> {
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
            begins,
        })
    }

    /// How many nodes there are.
    #[must_use]
    pub const fn nodes(&self) -> u32 {
        self.nodes
    }

    /// All links, by number.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// A link.
    #[must_use]
    pub fn link(&self, id: LinkId) -> Option<&Link> {
        self.links.get(id.index())
    }

    /// The numbers of all links.
    pub fn ids(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..).map(LinkId).take(self.links.len())
    }

    /// The links that lead from a node, with their numbers.
    pub fn from(&self, node: NodeId) -> impl Iterator<Item = (LinkId, &Link)> {
        let range = self.range(node);
        self.out
            .get(range)
            .unwrap_or_default()
            .iter()
            .filter_map(|id| Some((*id, self.link(*id)?)))
    }

    fn range(&self, node: NodeId) -> Range<usize> {
        let begin = self
            .begins
            .get(node.index())
            .copied()
            .unwrap_or(self.out.len());
        begin..self.begins.get(node.index() + 1).copied().unwrap_or(begin)
    }
}
