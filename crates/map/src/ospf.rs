//! The traffic engineering database of OSPF (RFC 3630), as `ospfd` of FRR prints it with
//! `show ip ospf mpls-te database json`, and the states of a map's links in it.
//!
//! OSPF knows routers by their ids and links by the addresses of interfaces, so the operator says
//! which router is at which site ([`RouterNames`]). A link of the map is *followed* if both of its
//! sites have a router. It is up while both routers announce a link to the other.

mod matching;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use longhaul_proto::text::printable_within;
use quantities::Rate;
use serde::Deserialize;

pub use matching::{ObservedLink, ObservedLinks, RouterNames, observe};

/// Maximum length of a printed database, in bytes: some 25,000 links.
pub const MAX_DATABASE_BYTES: usize = 32 << 20;
/// Maximum number of announced directions of links in a database.
pub const MAX_EDGES: usize = 200_000;
/// Maximum length of what is repeated of a text that is not a database.
const MAX_QUOTED_BYTES: usize = 80;

/// Fault of a database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseFault {
    /// The answer is longer than [`MAX_DATABASE_BYTES`]: follow a router of a smaller area.
    #[error("the database has {0} bytes: at most {MAX_DATABASE_BYTES} are read")]
    TooLong(usize),
    /// The answer has more links than [`MAX_EDGES`]: follow a router of a smaller area.
    #[error("the database has {0} directions of links: at most {MAX_EDGES} are read")]
    TooManyEdges(usize),
    /// The answer is not a database in JSON: check that the router runs `ospfd` of FRR 8.4 or later
    /// with `mpls-te on` and `mpls-te export`.
    #[error(
        "the answer is not a traffic engineering database ({why}; it begins \"{beginning}\"): ospfd \
         needs `mpls-te on` and `mpls-te export`"
    )]
    NotADatabase {
        /// Fault that the parser found.
        why: String,
        /// Beginning of the answer.
        beginning: String,
    },
    /// The database has no links, as right after the start of `ospfd`: wait until it has neighbors,
    /// and check that its interfaces have `link-params` with `enable`.
    #[error(
        "the database has no links yet: ospfd has no neighbors, or its interfaces have no \
         link-params with enable"
    )]
    Empty,
}

/// Announced links of a database.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrafficDatabase {
    /// Directions of links, by the ids of the router that announces it and of the other one.
    edges: BTreeMap<(Ipv4Addr, Ipv4Addr), Vec<Edge>>,
}

/// One direction of a link between two routers, as the first one announces it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Edge {
    /// Addresses of the interfaces at the router that announces it and at the other one.
    pub addresses: [Option<Ipv4Addr>; 2],
    /// Capacity, if it is announced.
    pub capacity: Option<Rate>,
    /// Rate that may be reserved at any priority, if it is announced.
    pub reservable: Option<Rate>,
}

impl TrafficDatabase {
    /// Parses a printed database.
    ///
    /// # Errors
    /// [`DatabaseFault`].
    pub fn parse(text: &str) -> Result<Self, DatabaseFault> {
        if text.len() > MAX_DATABASE_BYTES {
            return Err(DatabaseFault::TooLong(text.len()));
        }
        let printed: PrintedDatabase =
            serde_json::from_str(text).map_err(|error| DatabaseFault::NotADatabase {
                why: printable_within(error.to_string().as_bytes(), MAX_QUOTED_BYTES),
                beginning: printable_within(text.trim().as_bytes(), MAX_QUOTED_BYTES),
            })?;
        let PrintedDatabase { ted } = printed;
        if ted.edges.len() > MAX_EDGES {
            return Err(DatabaseFault::TooManyEdges(ted.edges.len()));
        }
        let routers: BTreeMap<u64, Ipv4Addr> = ted
            .vertices
            .iter()
            .filter_map(|vertex| Some((vertex.vertex_id, vertex.router_id?)))
            .collect();
        let router = |id: Option<u64>| routers.get(&id?).copied();
        let announced = ted.edges.iter().filter(|edge| edge.is_announced());
        let announced: Vec<AnnouncedEdge> = announced
            .filter_map(|edge| {
                Some(AnnouncedEdge {
                    from: router(edge.local_vertex_id)?,
                    to: router(edge.remote_vertex_id),
                    edge: edge.edge(),
                })
            })
            .collect();
        let interfaces = Interfaces::new(&announced);
        let mut edges: BTreeMap<_, Vec<Edge>> = BTreeMap::new();
        for AnnouncedEdge { from, to, edge } in &announced {
            let to = to.or_else(|| interfaces.neighbor(edge));
            // An edge without a neighbor is half of an adjacency that is not complete.
            if let Some(to) = to.filter(|to| to != from) {
                edges.entry((*from, to)).or_default().push(*edge);
            }
        }
        if edges.is_empty() {
            return Err(DatabaseFault::Empty);
        }
        Ok(Self { edges })
    }

    /// Returns the links that one router announces to another.
    #[must_use]
    pub fn edges(&self, from: Ipv4Addr, to: Ipv4Addr) -> &[Edge] {
        self.edges.get(&(from, to)).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of announced directions of links.
    #[must_use]
    pub fn len(&self) -> usize {
        self.edges.values().map(Vec::len).sum()
    }

    /// Returns true if there are no links.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }
}

/// An edge with the routers that the database names.
struct AnnouncedEdge {
    from: Ipv4Addr,
    to: Option<Ipv4Addr>,
    edge: Edge,
}

/// Routers by the addresses of interfaces. They connect edges that FRR leaves without a remote
/// router: it forgets what a router announced of a link before the link was in its router LSA.
struct Interfaces {
    /// Routers that have an address.
    owners: BTreeMap<Ipv4Addr, Ipv4Addr>,
    /// Routers that announce a link to an address.
    neighbors: BTreeMap<Ipv4Addr, Ipv4Addr>,
}

impl Interfaces {
    fn new(announced: &[AnnouncedEdge]) -> Self {
        let by_end = |end: usize| {
            let edges = announced.iter();
            let ends = edges.filter_map(|one| Some(((*one.edge.addresses.get(end)?)?, one.from)));
            ends.collect()
        };
        Self {
            owners: by_end(0),
            neighbors: by_end(1),
        }
    }

    /// Returns the router at the other end of an edge. One of both routers must name both
    /// addresses, and both must announce the link.
    fn neighbor(&self, edge: &Edge) -> Option<Ipv4Addr> {
        let [local, remote] = edge.addresses;
        let named = remote.and_then(|remote| self.owners.get(&remote));
        let names = local.and_then(|local| self.neighbors.get(&local));
        named.or(names).copied()
    }
}

/// Printed form of a database. Unknown fields are those of other releases of FRR.
#[derive(Deserialize)]
struct PrintedDatabase {
    ted: PrintedLists,
}

#[derive(Deserialize)]
struct PrintedLists {
    #[serde(default)]
    vertices: Vec<PrintedVertex>,
    #[serde(default)]
    edges: Vec<PrintedEdge>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PrintedVertex {
    vertex_id: u64,
    router_id: Option<Ipv4Addr>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PrintedEdge {
    status: Option<String>,
    local_vertex_id: Option<u64>,
    remote_vertex_id: Option<u64>,
    edge_attributes: Option<PrintedAttributes>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PrintedAttributes {
    local_address: Option<Ipv4Addr>,
    remote_address: Option<Ipv4Addr>,
    max_link_bandwidth: Option<f64>,
    max_resv_link_bandwidth: Option<f64>,
    #[serde(default)]
    unreserved_bandwidth: Vec<BTreeMap<String, f64>>,
}

impl PrintedEdge {
    /// Returns false if the edge is about to be removed.
    fn is_announced(&self) -> bool {
        matches!(self.status.as_deref(), Some("Sync" | "New" | "Update"))
    }

    fn edge(&self) -> Edge {
        let Some(attributes) = &self.edge_attributes else {
            return Edge::default();
        };
        let unreserved = attributes.unreserved_bandwidth.iter();
        let unreserved = unreserved.flat_map(BTreeMap::values).copied();
        let reservable = unreserved.chain(attributes.max_resv_link_bandwidth);
        Edge {
            addresses: [attributes.local_address, attributes.remote_address],
            capacity: attributes
                .max_link_bandwidth
                .and_then(rate)
                .filter(|rate| *rate > Rate::ZERO),
            reservable: reservable
                .filter_map(rate)
                .min_by(|one, other| one.bits_per_second().total_cmp(&other.bits_per_second())),
        }
    }
}

/// Converts bytes per second, in which RFC 3630 counts; `None` if the number is no rate.
fn rate(bytes_per_second: f64) -> Option<Rate> {
    Rate::new(bytes_per_second * 8.0)
}
