//! Small networks for tests.

use proptest::prelude::*;

use crate::network::{Link, LinkId, Network, NodeId, Share};
use crate::path::{Diversity, Ends, Path, Preference};
use crate::request::{Elements, Request, Wish};
use crate::time::{Rate, Window};

/// Returns a network of links in both directions with these capacities, all of them reservable.
pub(crate) fn network(nodes: u32, links: &[(u32, u32, Rate)]) -> Network {
    let both = (0..).zip(links).flat_map(|(cable, (from, to, capacity))| {
        [(*from, *to), (*to, *from)].map(|(from, to)| Link {
            from: NodeId(from),
            to: NodeId(to),
            capacity: *capacity,
            share: Share::WHOLE,
            latency: 1 + u64::from(cable) % 5,
            cable,
        })
    });
    Network::new(nodes, both.collect()).unwrap()
}

/// Generates networks of up to seven nodes with small capacities.
pub(crate) fn small() -> impl Strategy<Value = Network> {
    (3..7_u32).prop_flat_map(|nodes| {
        let link =
            (0..nodes, 0..nodes, 0..10_u64).prop_filter("a loop", |(from, to, _)| from != to);
        prop::collection::vec(link, 2..11).prop_map(move |links| network(nodes, &links))
    })
}

/// Returns a request from the first node to the last, without further constraints.
pub(crate) fn request(network: &Network, window: Window, wish: Wish, paths: usize) -> Request {
    Request {
        ends: Ends {
            from: NodeId(0),
            to: NodeId(network.nodes() - 1),
        },
        window,
        wish,
        paths,
        diversity: Diversity::Any,
        preference: Preference::FewestHops,
        elements: Elements::default(),
    }
}

/// Returns all loop-free paths.
pub(crate) fn simple_paths(network: &Network, ends: Ends) -> Vec<Path> {
    fn on(
        network: &Network,
        node: NodeId,
        to: NodeId,
        path: &mut Vec<LinkId>,
        seen: &mut Vec<NodeId>,
        all: &mut Vec<Path>,
    ) {
        if node == to {
            all.push(Path(path.clone()));
            return;
        }
        seen.push(node);
        for (id, link) in network.from(node) {
            if !seen.contains(&link.to) {
                path.push(id);
                on(network, link.to, to, path, seen, all);
                path.pop();
            }
        }
        seen.pop();
    }
    let mut all = Vec::new();
    on(
        network,
        ends.from,
        ends.to,
        &mut Vec::new(),
        &mut Vec::new(),
        &mut all,
    );
    all
}
