//! Maps for the tests of these modules.

use super::NodeId;
use super::map::{HopForecast, Node, RouteMap};
use crate::Quantiles;

/// Returns a forecast that is known exactly, from milliseconds, a probability, and Mbit/s.
pub fn exact(rtt_ms: f64, loss: f64, mbits: f64) -> HopForecast {
    HopForecast {
        rtt: Quantiles::exactly(rtt_ms / 1e3),
        loss: Quantiles::exactly(loss),
        rate: Quantiles::exactly(mbits * 1e6),
        at: 0.0,
        samples: 1_000_000,
    }
}

/// Returns a map with these nodes, in order, and hops in both directions.
pub fn map(nodes: Vec<Node>, hops: &[(u32, u32, HopForecast)]) -> RouteMap {
    let both: Vec<(NodeId, NodeId)> = hops
        .iter()
        .flat_map(|(a, b, _)| [(NodeId(*a), NodeId(*b)), (NodeId(*b), NodeId(*a))])
        .collect();
    let mut map = RouteMap::new(nodes, &both);
    for (a, b, forecast) in hops {
        for (from, to) in [(a, b), (b, a)] {
            let hop = map.hop(NodeId(*from), NodeId(*to)).unwrap();
            assert!(map.update(hop, forecast));
        }
    }
    map
}
