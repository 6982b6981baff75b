use super::*;
use crate::route::Transfer;
use crate::route::choice::{Policy, Reason};
use crate::route::map::Node;
use crate::route::testing::{exact, map};
use crate::route::trust::TransferOutcomes;

#[test]
fn exploration_revives_a_dead_hop() {
    let mut map = map(
        vec![Node::END, Node::DEPOT, Node::END],
        &[
            (0, 1, exact(50.0, 0.0, 500.0)),
            (1, 2, exact(50.0, 0.0, 500.0)),
            (0, 2, exact(100.0, 1e-3, 500.0)),
        ],
    );
    let (outcomes, policy) = (TransferOutcomes::default(), Policy::default());
    let hop = map.hop(NodeId(0), NodeId(1)).unwrap();
    let through = RouteDepots::new(&[NodeId(1)]).unwrap();
    map.mark_dead(hop, 0.0);
    let ask = |map: &crate::route::map::RouteMap, now| {
        let transfer = Transfer {
            bytes: 1 << 30,
            streams: 1,
        };
        let request = RouteRequest {
            from: NodeId(0),
            to: NodeId(2),
            transfer,
            urgent: false,
            now,
            seed: 5,
        };
        Chooser::new(map, &outcomes, &policy).choose(&request, None, &ExplorationAccount::default())
    };
    assert_eq!(
        (ask(&map, 5.0).via, ask(&map, 5.0).explore),
        (RouteDepots::DIRECT, None)
    );
    let choice = ask(&map, 20.0);
    assert_eq!(
        (choice.via, choice.reason),
        (RouteDepots::DIRECT, Reason::NothingBetter)
    );
    let (tried, bytes) = choice.explore.unwrap();
    assert_eq!((tried, bytes), (through, 16 << 20));
    map.mark_alive(hop);
    assert_eq!(ask(&map, 21.0).via, through);
}

#[test]
fn an_account_allows_its_share_but_no_tiny_slices() {
    let account = ExplorationAccount {
        bulk: 1 << 30,
        explored: 20 << 20,
    };
    assert_eq!(
        account.allowance(64 << 20, 0.02),
        (64u64 << 20) * 2 / 100 - 1 + 1
    );
    let spent = ExplorationAccount {
        explored: 22 << 20,
        ..account
    };
    assert!(spent.allowance(64 << 20, 0.02) < 256 << 10);
}
