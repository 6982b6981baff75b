//! Links between the places of a path, with the rates that are left.

use std::collections::BTreeMap;

use longhaul_circuits::network::{CircuitLink, CircuitNetwork, LinkShare, NodeId};
use longhaul_circuits::path::{BandwidthField, LinkPath, PathEnds, Preference, k_best_paths};
use longhaul_circuits::time::MAX_RATE;
use longhaul_control_api::domains::{
    AvailableRate, Criteria, DomainName, Edge, Segment, TerminationPoint,
};

use super::GraphPlanner;

/// Number of paths among which one that passes no domain twice is looked for.
const MAX_CANDIDATES: usize = 16;
/// Latency that is assumed for a link between two domains, in microseconds.
const LINK_LATENCY_US: u64 = 1_000;

/// Place of a path: an end, or an edge in one direction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// End at which the bytes begin.
    Source,
    /// End at which the bytes end.
    Destination,
    /// Edge at which they enter a domain.
    Inward(TerminationPoint),
    /// Edge at which they leave a domain.
    Outward(TerminationPoint),
}

/// Links between places, with the rates that are left.
pub(super) struct Links {
    places: BTreeMap<Place, NodeId>,
    names: Vec<Place>,
    links: Vec<(CircuitLink, u64)>,
}

impl Links {
    pub(super) fn new(
        planner: &GraphPlanner,
        criteria: &Criteria,
        path_trace: &[DomainName],
    ) -> Self {
        let mut links = Self {
            places: BTreeMap::new(),
            names: Vec::new(),
            links: Vec::new(),
        };
        let start = links.node(Place::Source);
        let end = links.node(Place::Destination);
        let usable = planner
            .topologies
            .iter()
            .filter(|(name, _)| !path_trace.contains(name) && !planner.avoided.contains(*name));
        for (name, topology) in usable {
            let point = |edge: &str| TerminationPoint::new(name.clone(), edge).ok();
            let rate = |rates: &[AvailableRate]| lowest_rate(rates, criteria);
            for edge in &topology.edges {
                if let (Some(own), true) = (point(&edge.name), is_mutual(planner, name, edge)) {
                    let (from, to) = (
                        links.node(Place::Outward(own)),
                        links.node(Place::Inward(edge.peer.clone())),
                    );
                    links.add(from, to, MAX_RATE, LINK_LATENCY_US);
                }
            }
            for crossing in &topology.crossings {
                let Some((from, to)) = point(&crossing.from).zip(point(&crossing.to)) else {
                    continue;
                };
                let (from, to) = (
                    links.node(Place::Inward(from)),
                    links.node(Place::Outward(to)),
                );
                links.add(from, to, rate(&crossing.available), crossing.latency_us);
            }
            let is_edge = |name: &str| topology.edges.iter().any(|edge| edge.name == name);
            if criteria.source.domain == *name {
                if is_edge(&criteria.source.point) {
                    let to = links.node(Place::Inward(criteria.source.clone()));
                    links.add(start, to, MAX_RATE, 0);
                }
                for access in &topology.accesses {
                    if let Some(edge) = point(&access.edge).filter(|edge| *edge != criteria.source)
                    {
                        let to = links.node(Place::Outward(edge));
                        links.add(start, to, rate(&access.outward), 0);
                    }
                }
            }
            if criteria.destination.domain == *name {
                if is_edge(&criteria.destination.point) {
                    let from = links.node(Place::Outward(criteria.destination.clone()));
                    links.add(from, end, MAX_RATE, 0);
                }
                for access in &topology.accesses {
                    let edge = point(&access.edge);
                    if let Some(edge) = edge.filter(|edge| *edge != criteria.destination) {
                        let from = links.node(Place::Inward(edge));
                        links.add(from, end, rate(&access.inward), 0);
                    }
                }
            }
        }
        links
    }

    fn node(&mut self, place: Place) -> NodeId {
        if let Some(node) = self.places.get(&place) {
            return *node;
        }
        let node = NodeId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(place.clone());
        self.places.insert(place, node);
        node
    }

    fn add(&mut self, from: NodeId, to: NodeId, rate: u64, latency: u64) {
        let cable = u32::try_from(self.links.len()).unwrap_or(u32::MAX);
        let link = CircuitLink {
            from,
            to,
            capacity: MAX_RATE,
            share: LinkShare::WHOLE,
            latency,
            cable,
        };
        self.links.push((link, rate));
    }

    /// Returns the best paths with this rate left.
    pub(super) fn candidates(&self, rate: u64) -> Vec<LinkPath> {
        let nodes = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let links = self.links.iter().map(|(link, _)| *link).collect();
        let Ok(network) = CircuitNetwork::new(nodes, links) else {
            return Vec::new();
        };
        let rates: Vec<u64> = self.links.iter().map(|(_, rate)| *rate).collect();
        let field = BandwidthField::new(&network, |link| {
            usize::try_from(link.0)
                .ok()
                .and_then(|place| rates.get(place).copied())
        });
        let ends = PathEnds {
            from: NodeId(0),
            to: NodeId(1),
        };
        k_best_paths(&field, ends, rate, Preference::FewestHops, MAX_CANDIDATES)
    }

    /// Returns the segments of a path.
    pub(super) fn segments(&self, criteria: &Criteria, path: &LinkPath) -> Vec<Segment> {
        let mut segments = Vec::new();
        let mut source = criteria.source.clone();
        for link in &path.0 {
            let link = usize::try_from(link.0).ok();
            let link = link.and_then(|place| self.links.get(place));
            let place = |node: NodeId| self.names.get(usize::try_from(node.0).ok()?);
            let Some((link, _)) = link else { continue };
            match (place(link.from), place(link.to)) {
                (Some(Place::Outward(left)), Some(Place::Inward(entered))) => {
                    segments.push(Segment {
                        source: source.clone(),
                        destination: left.clone(),
                    });
                    source = entered.clone();
                }
                (Some(_), Some(Place::Destination)) => segments.push(Segment {
                    source: source.clone(),
                    destination: criteria.destination.clone(),
                }),
                _ => {}
            }
        }
        segments
    }
}

/// Returns true if both domains say that their edges are the ends of one link.
fn is_mutual(planner: &GraphPlanner, domain: &DomainName, edge: &Edge) -> bool {
    let other = planner.topologies.get(&edge.peer.domain);
    other.is_some_and(|other| {
        other.edges.iter().any(|theirs| {
            theirs.name == edge.peer.point
                && theirs.peer.domain == *domain
                && theirs.peer.point == edge.name
        })
    })
}

/// Returns the lowest rate that is available within the window. A domain that discloses none may
/// have any.
pub(super) fn lowest_rate(rates: &[AvailableRate], criteria: &Criteria) -> u64 {
    let ends = rates.iter().skip(1).map(|next| next.from_ms);
    let ends = ends.chain([u64::MAX]);
    let within = rates
        .iter()
        .zip(ends)
        .filter(|(rate, end)| rate.from_ms < criteria.end_ms && *end > criteria.start_ms);
    let lowest = within.map(|(rate, _)| rate.rate_bps).min();
    lowest.unwrap_or(MAX_RATE)
}
