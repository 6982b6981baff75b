use super::*;
use crate::route::testing::{exact, map};

#[test]
fn hops_are_found_from_both_ends() {
    let hops =
        [(0, 1), (0, 2), (2, 1), (2, 2), (1, 9), (0, 1)].map(|(a, b)| (NodeId(a), NodeId(b)));
    let map = RouteMap::new(vec![Node::END; 3], &hops);
    assert_eq!(map.hops(), 3);
    let hop = map.hop(NodeId(2), NodeId(1)).unwrap();
    assert_eq!(map.ends(hop), (NodeId(2), NodeId(1)));
    assert_eq!(map.hop(NodeId(1), NodeId(2)), None);
    let entering: Vec<u32> = map
        .hops_entering(NodeId(1))
        .map(|(_, from)| from.0)
        .collect();
    assert_eq!(entering, [0, 2]);
    let leaving: Vec<u32> = map.hops_leaving(NodeId(0)).map(|(_, to)| to.0).collect();
    assert_eq!(leaving, [1, 2]);
    assert_eq!(
        map.hops_entering(NodeId(7)).count() + map.hops_leaving(NodeId(7)).count(),
        0
    );
    const { assert!(RouteMap::BYTES_PER_HOP <= 104) }
}

#[test]
fn valid_forecasts_are_kept_and_invalid_ones_ignored() {
    let mut map = map(vec![Node::END; 2], &[(0, 1, exact(100.0, 1e-4, 500.0))]);
    let hop = map.hop(NodeId(0), NodeId(1)).unwrap();
    assert!((map.forecast(hop).unwrap().rtt.p50 - 0.1).abs() < 1e-6);
    for wrong in [
        HopForecast {
            rtt: Quantiles::exactly(f64::NAN),
            ..exact(1.0, 0.0, 1.0)
        },
        HopForecast {
            rate: Quantiles::exactly(0.0),
            ..exact(1.0, 0.0, 1.0)
        },
        HopForecast {
            rate: Quantiles::exactly(f64::INFINITY),
            ..exact(1.0, 0.0, 1.0)
        },
        exact(1.0, 1.5, 1.0),
        HopForecast {
            loss: Quantiles {
                p10: 0.2,
                p50: 0.1,
                p90: 0.3,
            },
            ..exact(1.0, 0.0, 1.0)
        },
    ] {
        assert!(!map.update(hop, &wrong), "{wrong:?}");
    }
    assert!((map.forecast(hop).unwrap().rtt.p50 - 0.1).abs() < 1e-6);
}

#[test]
fn a_dead_hop_waits_longer_each_time() {
    let mut map = map(vec![Node::END; 2], &[(0, 1, exact(1.0, 0.0, 1.0))]);
    let hop = map.hop(NodeId(0), NodeId(1)).unwrap();
    map.mark_dead(hop, 100.0);
    assert!(
        !map.is_usable(hop) && !map.may_be_explored(hop, 109.9) && map.may_be_explored(hop, 110.0)
    );
    // The same failure, reported by another node.
    map.mark_dead(hop, 105.0);
    assert!(map.may_be_explored(hop, 110.0));
    map.mark_dead(hop, 111.0);
    assert!(!map.may_be_explored(hop, 130.9) && map.may_be_explored(hop, 131.0));
    // A forecast alone does not revive it: probes may pass where data does not.
    map.update(hop, &exact(1.0, 0.0, 2.0));
    assert!(!map.is_usable(hop));
    map.mark_alive(hop);
    assert!(map.is_usable(hop));
}

#[test]
fn bottlenecks_differ_if_hops_share_no_node() {
    let known = exact(10.0, 0.0, 100.0);
    let map = map(
        vec![Node::DEPOT; 4],
        &[(0, 1, known), (0, 2, known), (2, 3, known)],
    );
    let hop = |map: &RouteMap, a, b| map.hop(NodeId(a), NodeId(b)).unwrap();
    let (one, beside, far) = (hop(&map, 0, 1), hop(&map, 0, 2), hop(&map, 2, 3));
    assert!(
        !map.bottlenecks_differ(one, one)
            && !map.bottlenecks_differ(one, beside)
            && map.bottlenecks_differ(one, far)
    );
}

#[test]
fn a_dead_depot_relays_nothing_but_its_host_is_reachable() {
    use crate::route::{RouteDepots, Transfer};
    let known = exact(10.0, 0.0, 100.0);
    let mut map = map(
        vec![Node::DEPOT; 3],
        &[(0, 1, known), (1, 2, known), (0, 2, known)],
    );
    let (depot, transfer) = (
        NodeId(1),
        Transfer {
            bytes: 1,
            streams: 1,
        },
    );
    let through = RouteDepots::new(&[depot]).unwrap();
    map.mark_depot_dead(depot, 0.0);
    assert!(
        map.expected(NodeId(0), &through, NodeId(2), &transfer, 0.0)
            .is_none()
    );
    assert!(
        map.expected(NodeId(0), &RouteDepots::DIRECT, depot, &transfer, 0.0)
            .is_some()
    );
    assert!(
        map.depot_is_dead(depot)
            && !map.depot_may_be_explored(depot, 9.0)
            && map.depot_may_be_explored(depot, 10.0)
    );
    map.mark_depot_alive(depot);
    assert!(
        map.expected(NodeId(0), &through, NodeId(2), &transfer, 0.0)
            .is_some()
    );
}
