use super::*;
use crate::route::map::Node;
use crate::route::testing::{exact, map};

fn tree(cost: HopCost, tolerance: f64) -> MinimaxTree {
    // Direct has 100; over 1 there are 105 and 200; over 1 and 2, 200 on all hops.
    let map = map(
        vec![Node::DEPOT; 4],
        &[
            (0, 3, exact(10.0, 0.0, 100.0)),
            (0, 1, exact(10.0, 0.0, 200.0)),
            (1, 3, exact(10.0, 0.0, 105.0)),
            (1, 2, exact(10.0, 0.0, 200.0)),
            (2, 3, exact(10.0, 0.0, 106.0)),
        ],
    );
    MinimaxTree::new(&map, NodeId(0), cost, tolerance, 0.0)
}

#[test]
fn the_worst_hop_counts_and_a_tolerance_saves_depots() {
    let via =
        |depots: &[u32]| RouteDepots::new(&depots.iter().map(|id| NodeId(*id)).collect::<Vec<_>>());
    assert_eq!(tree(HopCost::Bandwidth, 0.0).path(NodeId(3)), via(&[1, 2]));
    assert_eq!(
        tree(HopCost::Bandwidth, LSL_TOLERANCE).path(NodeId(3)),
        Some(RouteDepots::DIRECT)
    );
    assert_eq!(
        tree(HopCost::Throughput, LSL_TOLERANCE).path(NodeId(2)),
        via(&[1])
    );
    let time = HopCost::Time(Transfer {
        bytes: 1 << 30,
        streams: 1,
    });
    assert_eq!(tree(time, 0.0).path(NodeId(3)), via(&[1, 2]));
}

#[test]
fn ends_do_not_forward_and_unreachable_nodes_have_no_path() {
    let map = map(
        vec![Node::END; 3],
        &[(0, 1, exact(1.0, 0.0, 1.0)), (1, 2, exact(1.0, 0.0, 1.0))],
    );
    let tree = MinimaxTree::new(&map, NodeId(0), HopCost::Bandwidth, 0.0, 0.0);
    assert_eq!(
        (
            tree.path(NodeId(1)),
            tree.path(NodeId(2)),
            tree.path(NodeId(9))
        ),
        (Some(RouteDepots::DIRECT), None, None)
    );
    assert_eq!(
        all_routes(&map, NodeId(0), NodeId(2)),
        [RouteDepots::DIRECT]
    );
}

#[test]
fn the_oracle_takes_the_fastest_route() {
    let routes = [RouteDepots::DIRECT, RouteDepots::new(&[NodeId(1)]).unwrap()];
    assert_eq!(
        best_actual_route(routes, |via| Some(2.0 - via.len() as f64)),
        Some((routes[1], 1.0))
    );
    assert_eq!(best_actual_route(routes, |_| None), None);
}
