//! Sites and links of the operator's map as a network. Their numbers never change as long as the
//! journal lasts, so promises refer to the same links whatever the map becomes. A link that leaves
//! the map keeps its number with no capacity, and regains its capacity when it returns.
//!
//! A direction of a link is identified by the link's name and the two sites. A link that connects
//! other sites is another link.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use longhaul_circuits::network::{
    CircuitLink, CircuitNetwork, LinkId, LinkShare, NetworkFault, NodeId,
};
use longhaul_circuits::time::{BitsPerSecond, MAX_RATE};
use longhaul_control_api::map::Map;
use longhaul_control_api::reservations::LinkDirection;
use longhaul_map::{Direction, graph::Graph};
use serde::{Deserialize, Serialize};

/// Assumed latency of a link without one on the map, in microseconds, so that hops have a cost.
const ASSUMED_LATENCY_US: u64 = 1_000;
/// Millionths in the whole.
const MILLIONTHS: u128 = 1_000_000;

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedLink {
    /// Name of the link on the map.
    pub name: String,
    /// The link in the network.
    #[serde(flatten)]
    pub link: CircuitLink,
    /// If true, the running network says that it has failed, and it has no capacity.
    #[serde(default, skip_serializing_if = "is_false")]
    pub down: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// All sites and links that were ever on the map, in the order in which they were added.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkNames {
    /// Sites; the index is the site's number.
    pub sites: Vec<String>,
    /// Directions of links; the index is the direction's number.
    pub links: Vec<NamedLink>,
}

impl NetworkNames {
    /// Returns the names updated with a map.
    #[must_use]
    pub fn updated_with(&self, map: &Map) -> Self {
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
        let mut links: Vec<NamedLink> = self.links.iter().map(without_capacity).collect();
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
        let graph = Graph::from_map(map);
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
                Some(of_map.current_forward())
            } else {
                of_map.current_backward()
            };
            let down = of_map.is_down();
            let direction = direction.filter(|_| !down);
            let (capacity, share) = direction
                .as_ref()
                .map_or((0, LinkShare::WHOLE), capacity_and_share);
            let latency = edge.latency.map_or(ASSUMED_LATENCY_US, |latency| {
                u64::try_from(latency.as_micros()).unwrap_or(u64::MAX)
            });
            let back = places
                .get(&(of_map.name.clone(), to, from))
                .and_then(|place| links.get(*place));
            let cable = back.map_or(next_cable, |back| back.link.cable);
            let link = CircuitLink {
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
                    known.down = down;
                    known.link = CircuitLink {
                        cable: known.link.cable,
                        ..link
                    }
                }
                None => {
                    places.insert(key, links.len());
                    links.push(NamedLink {
                        name: of_map.name.clone(),
                        link,
                        down,
                    });
                    next_cable = next_cable.max(cable + 1);
                }
            }
        }
        Self { sites, links }
    }

    /// Returns the network.
    ///
    /// # Errors
    /// The network is too large to plan with.
    pub fn network(&self) -> Result<CircuitNetwork, NetworkFault> {
        let nodes = u32::try_from(self.sites.len()).unwrap_or(u32::MAX);
        CircuitNetwork::new(nodes, self.links.iter().map(|known| known.link).collect())
    }

    /// Returns the node of a site.
    #[must_use]
    pub fn node(&self, site: &str) -> Option<NodeId> {
        let place = self.sites.iter().position(|known| known == site)?;
        u32::try_from(place).ok().map(NodeId)
    }

    /// Returns the site of a node.
    #[must_use]
    pub fn site(&self, node: NodeId) -> &str {
        let place = usize::try_from(node.0).ok();
        place
            .and_then(|place| self.sites.get(place))
            .map_or("", String::as_str)
    }

    /// Returns both directions of the links of that name.
    pub fn links_named(&self, name: &str) -> impl Iterator<Item = LinkId> {
        let named = (0..)
            .map(LinkId)
            .zip(&self.links)
            .filter(move |(_, known)| known.name == name);
        named.map(|(id, _)| id)
    }

    /// Returns true if a link with capacity leads from one node to another.
    #[must_use]
    pub fn has_link(&self, from: NodeId, to: NodeId) -> bool {
        let mut links = self.links.iter().map(|known| &known.link);
        links.any(|link| link.from == from && link.to == to && link.capacity > 0)
    }

    /// Returns a link.
    #[must_use]
    pub fn link(&self, id: LinkId) -> Option<&NamedLink> {
        self.links.get(usize::try_from(id.0).ok()?)
    }

    /// Returns a link in the form of the API.
    #[must_use]
    pub fn link_direction(&self, id: LinkId) -> Option<LinkDirection> {
        let known = self.link(id)?;
        Some(LinkDirection {
            link: known.name.clone(),
            from: self.site(known.link.from).to_owned(),
            to: self.site(known.link.to).to_owned(),
        })
    }
}

/// Returns a link without capacity, as it is not on the map.
fn without_capacity(known: &NamedLink) -> NamedLink {
    NamedLink {
        name: known.name.clone(),
        link: CircuitLink {
            capacity: 0,
            ..known.link
        },
        down: false,
    }
}

/// Returns the capacity of a direction, in bit/s, and the share of it that may be reserved. If the
/// capacity is unknown, the reservable rate is used instead; without that, zero.
fn capacity_and_share(direction: &Direction) -> (BitsPerSecond, LinkShare) {
    let whole = |rate: quantities::Rate| (rate.bits_per_second() as BitsPerSecond).min(MAX_RATE);
    let reservable = direction.reservable_rate().map(whole);
    let Some(capacity) = direction.rate().map(whole) else {
        return (reservable.unwrap_or(0), LinkShare::WHOLE);
    };
    let share = u128::from(reservable.unwrap_or(0)) * MILLIONTHS / u128::from(capacity.max(1));
    let share = u32::try_from(share).ok().and_then(LinkShare::millionths);
    (capacity, share.unwrap_or(LinkShare::WHOLE))
}
