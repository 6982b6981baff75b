//! Sites and links of the operator's map as a network. Numbers of sites and links stay what they
//! are for as long as the journal lasts, so that what was promised is about the same links whatever
//! the map becomes: what leaves the map keeps its number and carries nothing, and has all again
//! when it comes back.
//!
//! A direction of a link is distinguished by the link's name and the two sites: a link that is
//! drawn elsewhere is another one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use longhaul_circuits::network::{Link, LinkId, Network, NetworkFault, NodeId, Share};
use longhaul_circuits::time::{MAX_RATE, Rate};
use longhaul_control_api::map::Map;
use longhaul_control_api::reservations::LinkDirection;
use longhaul_map::{Direction, graph::Graph};
use serde::{Deserialize, Serialize};

/// One way, in microseconds, where the map does not say: so that hops are not free.
const ASSUMED_LATENCY_US: u64 = 1_000;
/// Millionths of the whole.
const WHOLE: u128 = 1_000_000;

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedLink {
    /// The link's name on the map.
    pub name: String,
    /// What it is in the network.
    #[serde(flatten)]
    pub link: Link,
}

/// Sites and links that were ever on the map, in the order in which they came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Sites: their places are their numbers.
    pub sites: Vec<String>,
    /// Directions of links: their places are their numbers.
    pub links: Vec<NamedLink>,
}

impl Names {
    /// The same with what a map says now.
    #[must_use]
    pub fn with(&self, map: &Map) -> Self {
        let mut sites = self.sites.clone();
        let mut nodes: HashMap<String, NodeId> = HashMap::new();
        for (id, site) in (0..).map(NodeId).zip(&sites) {
            nodes.insert(site.clone(), id);
        }
        for site in &map.sites {
            let next = NodeId(u32::try_from(sites.len()).unwrap_or(u32::MAX));
            if let Entry::Vacant(place) = nodes.entry(site.name.clone()) {
                place.insert(next);
                sites.push(site.name.clone());
            }
        }
        let mut links: Vec<NamedLink> = self.links.iter().map(gone).collect();
        let mut places: HashMap<(String, NodeId, NodeId), usize> = links
            .iter()
            .enumerate()
            .map(|(place, known)| ((known.name.clone(), known.link.from, known.link.to), place))
            .collect();
        let mut next_cable = links
            .iter()
            .map(|known| known.link.cable + 1)
            .max()
            .unwrap_or(0);
        let graph = Graph::of(map);
        for edge in graph.edges() {
            let of_map = usize::try_from(edge.link)
                .ok()
                .and_then(|place| map.links.get(place));
            let node = |node: u32| graph.name(node).and_then(|name| nodes.get(name)).copied();
            let (Some(of_map), Some(from), Some(to)) = (of_map, node(edge.from), node(edge.to))
            else {
                continue;
            };
            let direction = if edge.forward {
                Some(&of_map.forward)
            } else {
                of_map.backward.as_ref()
            };
            let (capacity, share) = direction.map_or((0, Share::WHOLE), carried);
            let latency = edge.latency.map_or(ASSUMED_LATENCY_US, |latency| {
                u64::try_from(latency.as_micros()).unwrap_or(u64::MAX)
            });
            let back = places
                .get(&(of_map.name.clone(), to, from))
                .and_then(|place| links.get(*place));
            let cable = back.map_or(next_cable, |back| back.link.cable);
            let link = Link {
                from,
                to,
                capacity,
                share,
                latency,
                cable,
            };
            let key = (of_map.name.clone(), from, to);
            match places.get(&key).and_then(|place| links.get_mut(*place)) {
                Some(known) => {
                    known.link = Link {
                        cable: known.link.cable,
                        ..link
                    }
                }
                None => {
                    places.insert(key, links.len());
                    links.push(NamedLink {
                        name: of_map.name.clone(),
                        link,
                    });
                    next_cable = next_cable.max(cable + 1);
                }
            }
        }
        Self { sites, links }
    }

    /// The network.
    ///
    /// # Errors
    /// It is larger than anything that is planned with.
    pub fn network(&self) -> Result<Network, NetworkFault> {
        let nodes = u32::try_from(self.sites.len()).unwrap_or(u32::MAX);
        Network::new(nodes, self.links.iter().map(|known| known.link).collect())
    }

    /// The node of a site.
    #[must_use]
    pub fn node(&self, site: &str) -> Option<NodeId> {
        let place = self.sites.iter().position(|known| known == site)?;
        u32::try_from(place).ok().map(NodeId)
    }

    /// The site of a node.
    #[must_use]
    pub fn site(&self, node: NodeId) -> &str {
        let place = usize::try_from(node.0).ok();
        place
            .and_then(|place| self.sites.get(place))
            .map_or("", String::as_str)
    }

    /// Both directions of the links of that name.
    pub fn links_named(&self, name: &str) -> impl Iterator<Item = LinkId> {
        let named = (0..)
            .map(LinkId)
            .zip(&self.links)
            .filter(move |(_, known)| known.name == name);
        named.map(|(id, _)| id)
    }

    /// A link.
    #[must_use]
    pub fn link(&self, id: LinkId) -> Option<&NamedLink> {
        self.links.get(usize::try_from(id.0).ok()?)
    }

    /// A link as the API reports it.
    #[must_use]
    pub fn reported(&self, id: LinkId) -> Option<LinkDirection> {
        let known = self.link(id)?;
        Some(LinkDirection {
            link: known.name.clone(),
            from: self.site(known.link.from).to_owned(),
            to: self.site(known.link.to).to_owned(),
        })
    }
}

/// A link that is not on the map.
fn gone(known: &NamedLink) -> NamedLink {
    NamedLink {
        name: known.name.clone(),
        link: Link {
            capacity: 0,
            ..known.link
        },
    }
}

/// What a direction carries, in bit/s, and what of that may be reserved. Of one of which nobody
/// knows what it carries, what may be reserved is all that is counted with; if that is not said
/// either, nothing.
fn carried(direction: &Direction) -> (Rate, Share) {
    let whole = |rate: quantities::Rate| (rate.bits_per_second() as Rate).min(MAX_RATE);
    let reservable = direction.reservable_rate().map(whole);
    let Some(capacity) = direction.rate().map(whole) else {
        return (reservable.unwrap_or(0), Share::WHOLE);
    };
    let share = u128::from(reservable.unwrap_or(0)) * WHOLE / u128::from(capacity.max(1));
    let share = u32::try_from(share).ok().and_then(Share::millionths);
    (capacity, share.unwrap_or(Share::WHOLE))
}
