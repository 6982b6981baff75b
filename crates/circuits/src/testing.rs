//! Small networks for tests.

use proptest::prelude::*;

use crate::network::{CircuitLink, CircuitNetwork, LinkId, LinkShare, NodeId};
use crate::path::{Diversity, LinkPath, PathBounds, PathEnds, Preference};
use crate::request::{CircuitRequest, Demand, PathElements};
use crate::time::{BitsPerSecond, Window};

/// Returns a network of links in both directions with these capacities, all of them reservable.
pub(crate) fn network(nodes: u32, links: &[(u32, u32, BitsPerSecond)]) -> CircuitNetwork {
    let both = (0..).zip(links).flat_map(|(cable, (from, to, capacity))| {
        [(*from, *to), (*to, *from)].map(|(from, to)| CircuitLink {
            from: NodeId(from),
            to: NodeId(to),
            capacity: *capacity,
            share: LinkShare::WHOLE,
            latency: 1 + u64::from(cable) % 5,
            cable,
        })
    });
    CircuitNetwork::new(nodes, both.collect()).unwrap()
}

/// Generates networks of up to seven nodes with small capacities.
pub(crate) fn small_networks() -> impl Strategy<Value = CircuitNetwork> {
    (3..7_u32).prop_flat_map(|nodes| {
        let link =
            (0..nodes, 0..nodes, 0..10_u64).prop_filter("a loop", |(from, to, _)| from != to);
        prop::collection::vec(link, 2..11).prop_map(move |links| network(nodes, &links))
    })
}

/// Returns a request from the first node to the last, without further constraints.
pub(crate) fn request(
    network: &CircuitNetwork,
    window: Window,
    wish: Demand,
    paths: usize,
) -> CircuitRequest {
    CircuitRequest {
        ends: PathEnds {
            from: NodeId(0),
            to: NodeId(network.nodes() - 1),
        },
        window,
        wish,
        paths,
        diversity: Diversity::Any,
        preference: Preference::FewestHops,
        elements: PathElements::default(),
        bounds: PathBounds::default(),
    }
}

/// Returns all loop-free paths.
pub(crate) fn simple_paths(network: &CircuitNetwork, ends: PathEnds) -> Vec<LinkPath> {
    fn walk(
        network: &CircuitNetwork,
        node: NodeId,
        to: NodeId,
        path: &mut Vec<LinkId>,
        seen: &mut Vec<NodeId>,
        all: &mut Vec<LinkPath>,
    ) {
        if node == to {
            all.push(LinkPath(path.clone()));
            return;
        }
        seen.push(node);
        for (id, link) in network.links_from(node) {
            if !seen.contains(&link.to) {
                path.push(id);
                walk(network, link.to, to, path, seen, all);
                path.pop();
            }
        }
        seen.pop();
    }
    let mut all = Vec::new();
    walk(
        network,
        ends.from,
        ends.to,
        &mut Vec::new(),
        &mut Vec::new(),
        &mut all,
    );
    all
}
