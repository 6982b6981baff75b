use proptest::prelude::*;

use super::*;
use crate::Quantiles;
use crate::route::Transfer;
use crate::route::map::{HopForecast, Node, RouteMap};
use crate::route::minimax::all_routes;
use crate::route::testing::{exact, map};
use crate::route::trust::TransferOutcomes;

const FROM: NodeId = NodeId(0);
const TO: NodeId = NodeId(3);
const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);

fn request(bytes: u64) -> RouteRequest {
    RouteRequest {
        from: FROM,
        to: TO,
        transfer: Transfer { bytes, streams: 1 },
        urgent: false,
        now: 0.0,
        seed: 1,
    }
}

fn via(depots: &[NodeId]) -> RouteDepots {
    RouteDepots::new(depots).unwrap()
}

/// Returns a map in which direct is long and lossy. Over A both halves are clean; over B as well,
/// but slightly longer.
fn two_depots(direct: HopForecast) -> RouteMap {
    map(
        vec![Node::END, Node::DEPOT, Node::DEPOT, Node::END],
        &[
            (0, 3, direct),
            (0, 1, exact(50.0, 0.0, 500.0)),
            (1, 3, exact(50.0, 0.0, 400.0)),
            (0, 2, exact(55.0, 0.0, 500.0)),
            (2, 3, exact(55.0, 0.0, 380.0)),
            (1, 2, exact(5.0, 0.0, 50.0)),
        ],
    )
}

fn choose(map: &RouteMap, request: &RouteRequest, in_use: Option<&RouteDepots>) -> Choice {
    Chooser::new(map, &TransferOutcomes::default(), &Policy::default()).choose(
        request,
        in_use,
        &ExplorationAccount::default(),
    )
}

#[test]
fn the_fastest_route_is_taken_with_direct_as_fallback() {
    let map = two_depots(exact(100.0, 1e-3, 1000.0));
    let choice = choose(&map, &request(32 << 20), None);
    assert_eq!((choice.via, choice.reason), (via(&[A]), Reason::Quickest));
    assert_eq!(choice.next.unwrap().via, via(&[B]));
    assert_eq!(choice.fall_back, [via(&[B]), RouteDepots::DIRECT]);
}

#[test]
fn small_transfers_and_those_without_gain_go_direct() {
    let map = two_depots(exact(100.0, 1e-3, 1000.0));
    assert_eq!(
        choose(&map, &request(256 << 10), None).reason,
        Reason::Small
    );
    // Its slow start is longer, which does not matter for a gigabyte.
    let clean = two_depots(exact(100.0, 0.0, 400.0));
    let choice = choose(&clean, &request(1 << 30), None);
    assert_eq!(
        (choice.via, choice.reason),
        (RouteDepots::DIRECT, Reason::NothingBetter)
    );
    // For the case that direct fails.
    assert_eq!(choice.fall_back, [via(&[A])]);
}

#[test]
fn an_unknown_direct_route_is_kept_and_a_dead_one_left() {
    let mut map = two_depots(exact(100.0, 1e-3, 1000.0));
    let unknown = RouteMap::new(
        vec![Node::END, Node::DEPOT, Node::DEPOT, Node::END],
        &[(FROM, A), (A, TO), (FROM, TO)],
    );
    assert_eq!(
        choose(&unknown, &request(32 << 20), None).reason,
        Reason::DirectUnknown
    );
    // A dead direct route is avoided, even for small transfers.
    let direct = map.hop(FROM, TO).unwrap();
    map.mark_dead(direct, 0.0);
    let choice = choose(&map, &request(1000), None);
    assert_eq!((choice.via, choice.reason), (via(&[A]), Reason::DirectDead));
    assert_eq!(choice.fall_back.last(), Some(&RouteDepots::DIRECT));
}

#[test]
fn uncertainty_of_either_route_keeps_a_transfer_direct() {
    let wide = |spread: f64| HopForecast {
        rate: Quantiles {
            p10: 400e6 / spread,
            p50: 400e6,
            p90: 400e6 * spread,
        },
        ..exact(100.0, 0.0, 400.0)
    };
    let mut map = two_depots(exact(100.0, 0.0, 300.0));
    let large = request(60 << 20);
    assert_eq!(choose(&map, &large, None).via, via(&[A]));
    let narrow = map.hop(A, TO).unwrap();
    map.update(narrow, &wide(2.0));
    assert_eq!(choose(&map, &large, None).via, via(&[B]));
    let other = map.hop(B, TO).unwrap();
    map.update(other, &wide(2.0));
    assert_eq!(choose(&map, &large, None).reason, Reason::NothingBetter);
}

#[test]
fn the_route_in_use_stays_until_another_is_enough_faster() {
    let map = two_depots(exact(100.0, 1e-3, 1000.0));
    let choice = choose(&map, &request(32 << 20), Some(&via(&[B])));
    assert_eq!((choice.via, choice.reason), (via(&[B]), Reason::InUse));
    let mut map = map;
    let hop = map.hop(B, TO).unwrap();
    map.update(hop, &exact(55.0, 0.0, 250.0));
    assert_eq!(
        choose(&map, &request(32 << 20), Some(&via(&[B]))).via,
        via(&[A])
    );
}

#[test]
fn a_depot_is_not_added_for_noise() {
    // A and then B is little faster than A.
    let mut map = two_depots(exact(100.0, 1e-3, 1000.0));
    for (from, to, known) in [
        (A, TO, exact(50.0, 0.0, 400.0)),
        (A, B, exact(5.0, 0.0, 1000.0)),
        (B, TO, exact(50.0, 0.0, 420.0)),
        (FROM, B, exact(100.0, 0.0, 10.0)),
    ] {
        let hop = map.hop(from, to).unwrap();
        map.update(hop, &known);
    }
    let choice = choose(&map, &request(60 << 20), None);
    assert_eq!(choice.via, via(&[A]));
    let next = choice.next.unwrap();
    assert_eq!(next.via, via(&[A, B]));
    assert!(next.expected.time.p50 < choice.expected.unwrap().time.p50);
}

#[test]
fn several_routes_are_used_if_bottlenecks_differ() {
    let mut map = two_depots(exact(100.0, 0.0, 300.0));
    let large = request(2 << 30);
    // The narrow hops enter the same node.
    assert_eq!(choose(&map, &large, None).at_once, [(via(&[A]), 1.0)]);
    let hop = map.hop(FROM, A).unwrap();
    map.update(hop, &exact(50.0, 0.0, 390.0));
    let choice = choose(&map, &large, None);
    let routes: Vec<RouteDepots> = choice.at_once.iter().map(|(via, _)| *via).collect();
    assert_eq!(routes, [via(&[A]), via(&[B])]);
    let shares: f64 = choice.at_once.iter().map(|(_, share)| share).sum();
    assert!((shares - 1.0).abs() < 1e-9);
    // Small transfers are not divided.
    assert_eq!(choose(&map, &request(32 << 20), None).at_once.len(), 1);
}

#[test]
fn a_dead_hop_is_left_at_once() {
    let mut map = two_depots(exact(100.0, 1e-3, 1000.0));
    let hop = map.hop(FROM, A).unwrap();
    map.mark_dead(hop, 0.0);
    let choice = choose(&map, &request(32 << 20), Some(&via(&[A])));
    assert!(!choice.via.is_direct());
    let begins = |via: &RouteDepots| via.hops(FROM, TO).next() == Some((FROM, A));
    assert!(
        !choice.at_once.iter().any(|(via, _)| begins(via)) && !choice.fall_back.iter().any(begins)
    );
}

#[test]
fn a_route_that_turns_out_slow_is_left_during_a_transfer() {
    let map = two_depots(exact(100.0, 0.0, 400.0));
    let (outcomes, policy) = (TransferOutcomes::default(), Policy::default());
    let mut chooser = Chooser::new(&map, &outcomes, &policy);
    let left = request(1 << 30);
    assert!(
        chooser
            .choose(&left, None, &ExplorationAccount::default())
            .via
            .is_direct()
    );
    chooser.slowed = Some((RouteDepots::DIRECT, 10.0));
    assert_eq!(
        chooser
            .choose(&left, None, &ExplorationAccount::default())
            .via,
        via(&[A])
    );
    chooser.slowed = Some((via(&[A]), 10.0));
    assert!(
        !chooser
            .choose(&left, Some(&via(&[A])), &ExplorationAccount::default())
            .via
            .passes(A)
    );
}

fn forecasts() -> impl Strategy<Value = HopForecast> {
    let quantiles = |low: f64, high: f64| {
        (low..high, 1.0..1.5f64, 1.0..1.5f64).prop_map(|(p50, below, above)| Quantiles {
            p10: p50 / below,
            p50,
            p90: p50 * above,
        })
    };
    (
        quantiles(0.001, 0.2),
        prop_oneof![Just(Quantiles::exactly(0.0)), quantiles(1e-6, 1e-2)],
        quantiles(1e6, 1e9),
    )
        .prop_map(|(rtt, loss, rate)| HopForecast {
            rtt,
            loss,
            rate,
            at: 0.0,
            samples: 20,
        })
}

/// Generates full meshes of six nodes, all of them depots, for transfers from 0 to 5.
fn meshes() -> impl Strategy<Value = RouteMap> {
    prop::collection::vec(forecasts(), 15).prop_map(|known| {
        let pairs = (0..6u32).flat_map(|a| (a + 1..6).map(move |b| (a, b)));
        let hops: Vec<_> = pairs
            .zip(known)
            .map(|((a, b), known)| (a, b, known))
            .collect();
        map(vec![Node::DEPOT; 6], &hops)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The hard rule: the choice is direct, or better than direct by a margin that covers the
    /// uncertainty of both. Direct is always among the answers. No other better route is faster by
    /// more than its depots count.
    #[test]
    fn a_chosen_route_is_better_than_direct(
        map in meshes(),
        bytes in 1u64..1 << 32,
        streams in 1u16..32,
    ) {
        let request =
            RouteRequest { to: NodeId(5), transfer: Transfer { bytes, streams }, ..request(bytes) };
        let policy = Policy::default();
        let choice = choose(&map, &request, None);
        let direct = choice.direct.unwrap();
        prop_assert!(
            choice.at_once.iter().any(|(via, _)| via.is_direct())
                || choice.fall_back.last() == Some(&RouteDepots::DIRECT)
        );
        prop_assert!(choice.at_once[0].0 == choice.via);
        prop_assert!(bytes > policy.small || choice.via.is_direct());
        if !choice.via.is_direct() {
            prop_assert!(
                is_better(&choice.expected.unwrap().time, &direct.time, policy.margin, 1.0)
            );
        }
        if bytes > policy.small {
            let rank =
                |time: f64, via: &RouteDepots| {
                    time * (1.0 + policy.tolerance).powi(via.len() as i32)
                };
            let took = rank(choice.expected.unwrap().time.p50, &choice.via);
            for via in all_routes(&map, FROM, NodeId(5)) {
                let other = map.expected(FROM, &via, NodeId(5), &request.transfer, 0.0).unwrap();
                let better = is_better(&other.time, &direct.time, policy.margin, 1.0);
                prop_assert!(!better || took <= rank(other.time.p50, &via) * (1.0 + 1e-9));
            }
        }
    }

    #[test]
    fn exploring_costs_no_more_than_its_share(
        map in meshes(),
        sizes in prop::collection::vec((1u64..1 << 31, any::<bool>(), any::<u64>()), 1..40),
    ) {
        let policy = Policy::default();
        let outcomes = TransferOutcomes::default();
        let mut account = ExplorationAccount::default();
        for (bytes, urgent, seed) in sizes {
            let to = NodeId(5);
            let request = RouteRequest { to, urgent, seed, now: 1000.0, ..request(bytes) };
            let choice = Chooser::new(&map, &outcomes, &policy).choose(&request, None, &account);
            let explored = choice.explore.map_or(0, |(_, bytes)| bytes);
            prop_assert!(explored == 0 || (!urgent && bytes >= policy.bulk));
            prop_assert!(explored as f64 <= bytes as f64 * policy.exploration);
            account.record(bytes, policy.bulk, explored);
            prop_assert!(account.explored as f64 <= account.bulk as f64 * policy.exploration);
        }
    }
}
