use super::*;
use crate::route::map::Node;
use crate::route::minimax::all_routes;
use crate::route::testing::{exact, map};

const TRANSFER: Transfer = Transfer {
    bytes: 64 << 20,
    streams: 4,
};

fn mesh(depots: u32) -> RouteMap {
    let count = depots + 2;
    let mut hops = Vec::new();
    for a in 0..count {
        for b in a + 1..count {
            hops.push((
                a,
                b,
                exact(
                    10.0 + f64::from(a * 7 + b * 3),
                    1e-5,
                    100.0 + f64::from(a + b),
                ),
            ));
        }
    }
    map(vec![Node::DEPOT; count as usize], &hops)
}

#[test]
fn with_six_depots_nothing_is_left_out() {
    let map = mesh(6);
    let (from, to) = (NodeId(0), NodeId(7));
    let mut found: Vec<RouteDepots> = find_candidates(
        &map,
        &mut SearchScratch::default(),
        from,
        to,
        &TRANSFER,
        f64::INFINITY,
        &SearchBounds::default(),
    )
    .iter()
    .map(|candidate| candidate.via)
    .collect();
    let mut all = all_routes(&map, from, to);
    all.retain(|via| !via.is_direct());
    found.sort();
    all.sort();
    assert_eq!(all.len(), 6 + 30 + 120);
    assert_eq!(found, all);
}

#[test]
fn hopeless_routes_are_left_out_and_scratch_is_reusable() {
    let mut map = mesh(6);
    let mut scratch = SearchScratch::default();
    let (from, to) = (NodeId(0), NodeId(7));
    let below = 3.0 * (0.010 + 0.003 * 2.0 + 0.010 + 0.007 * 2.0 + 0.021);
    let bounds = SearchBounds::default();
    let few = find_candidates(&map, &mut scratch, from, to, &TRANSFER, below, &bounds);
    assert!(few.len() < 156);
    // A dead hop is in no route.
    let dead = map.hop(NodeId(3), to).unwrap();
    map.mark_dead(dead, 0.0);
    let left = find_candidates(
        &map,
        &mut scratch,
        from,
        to,
        &TRANSFER,
        f64::INFINITY,
        &bounds,
    );
    assert!(
        !left.is_empty()
            && left
                .iter()
                .all(|candidate| candidate.via.depots().next_back() != Some(NodeId(3)))
    );
    let small = mesh(1);
    assert_eq!(
        find_candidates(
            &small,
            &mut scratch,
            NodeId(0),
            NodeId(2),
            &TRANSFER,
            f64::INFINITY,
            &bounds
        )
        .len(),
        1
    );
}

#[test]
fn with_more_depots_the_best_estimates_are_kept_in_order() {
    let map = mesh(20);
    let found = find_candidates(
        &map,
        &mut SearchScratch::default(),
        NodeId(0),
        NodeId(21),
        &TRANSFER,
        f64::INFINITY,
        &SearchBounds::default(),
    );
    assert_eq!(found.len(), 24);
    assert!(found.is_sorted_by(|one, other| one.about <= other.about));
}
