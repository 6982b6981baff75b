use super::*;
use crate::route::map::Node;
use crate::route::testing::{exact, map};

fn tree(cost: Cost, tolerance: f64) -> Tree {
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
    Tree::new(&map, NodeId(0), cost, tolerance, 0.0)
}

#[test]
fn the_worst_hop_counts_and_a_tolerance_saves_depots() {
    let via = |depots: &[u32]| Via::new(&depots.iter().map(|id| NodeId(*id)).collect::<Vec<_>>());
    assert_eq!(tree(Cost::Bandwidth, 0.0).path(NodeId(3)), via(&[1, 2]));
    assert_eq!(
        tree(Cost::Bandwidth, LSL_TOLERANCE).path(NodeId(3)),
        Some(Via::DIRECT)
    );
    assert_eq!(
        tree(Cost::Throughput, LSL_TOLERANCE).path(NodeId(2)),
        via(&[1])
    );
    let time = Cost::Time(Transfer {
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
    let tree = Tree::new(&map, NodeId(0), Cost::Bandwidth, 0.0, 0.0);
    assert_eq!(
        (
            tree.path(NodeId(1)),
            tree.path(NodeId(2)),
            tree.path(NodeId(9))
        ),
        (Some(Via::DIRECT), None, None)
    );
    assert_eq!(all_routes(&map, NodeId(0), NodeId(2)), [Via::DIRECT]);
}

#[test]
fn the_oracle_takes_the_fastest_route() {
    let routes = [Via::DIRECT, Via::new(&[NodeId(1)]).unwrap()];
    assert_eq!(
        oracle(routes, |via| Some(2.0 - via.len() as f64)),
        Some((routes[1], 1.0))
    );
    assert_eq!(oracle(routes, |_| None), None);
}
