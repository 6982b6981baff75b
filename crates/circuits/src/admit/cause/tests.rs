//! Causes of refusals, for each constraint.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{PathConstraint, RefusalCause};
use crate::admit::{AdmissionRefusal, decide};
use crate::ledger::{BandwidthLedger, View};
use crate::network::{CircuitNetwork, LinkId, NodeId};
use crate::path::{Disjoint, ExplicitPath, PathBounds};
use crate::policy::RequestLimits;
use crate::request::{CircuitRequest, Demand, RequestFault, ReservationPlan};
use crate::testing::{network, request, small_networks};
use crate::time::Window;

const WINDOW: Window = Window { start: 0, end: 100 };

fn answer(
    network: &CircuitNetwork,
    request: &CircuitRequest,
) -> Result<ReservationPlan, AdmissionRefusal> {
    let ledger = BandwidthLedger::new(network);
    let view = View::new(network, &ledger);
    decide(&view, &ledger, request, &RequestLimits::default(), 0)
}

fn refusal_cause(network: &CircuitNetwork, request: &CircuitRequest) -> Option<RefusalCause> {
    match answer(network, request) {
        Err(AdmissionRefusal::Shortfall(short)) => short.cause,
        other => panic!("{other:?}"),
    }
}

/// Returns a network with three ways from 0 to 4: 0-4 with 2 bit/s, 0-1-4 with 4, and 0-2-3-4 with
/// 9. Latencies go from 1 to 5 in the order of the links, and start over after the fifth.
fn three_ways() -> CircuitNetwork {
    network(
        5,
        &[
            (0, 4, 2),
            (0, 1, 4),
            (1, 4, 4),
            (0, 2, 9),
            (2, 3, 9),
            (3, 4, 9),
        ],
    )
}

fn asked(rate: u64, change: impl FnOnce(&mut CircuitRequest)) -> CircuitRequest {
    let mut asked = request(&three_ways(), WINDOW, Demand::Rate(rate), 1);
    change(&mut asked);
    asked
}

fn single(constraint: PathConstraint, found: u64) -> Option<RefusalCause> {
    Some(RefusalCause {
        constraints: vec![constraint],
        together: false,
        found: Some(found),
    })
}

#[test]
fn each_constraint_is_named_as_the_cause() {
    let network = three_ways();
    let cause = |asked: CircuitRequest| refusal_cause(&network, &asked);
    assert_eq!(
        cause(asked(5, |asked| asked.bounds.via = vec![NodeId(1)])),
        single(PathConstraint::Via, 4)
    );
    assert_eq!(
        cause(asked(5, |asked| asked.bounds.max_hops = Some(2))),
        single(
            PathConstraint::MaxHops {
                needed: 3,
                is_unreachable: false
            },
            4
        )
    );
    assert_eq!(
        cause(asked(5, |asked| asked.bounds.max_latency = Some(9))),
        single(
            PathConstraint::MaxLatency {
                needed: 10,
                is_unreachable: false
            },
            4
        )
    );
    let only = |nodes: &[u32]| Some(nodes.iter().copied().map(NodeId).collect());
    assert_eq!(
        cause(asked(5, |asked| asked.elements.only_nodes = only(&[1]))),
        single(PathConstraint::OnlyNodes, 4)
    );
    let links = |links: &[u32]| -> BTreeSet<LinkId> { links.iter().copied().map(LinkId).collect() };
    assert_eq!(
        cause(asked(5, |asked| asked.elements.only_links =
            Some(links(&[0, 2, 4])))),
        single(PathConstraint::OnlyLinks, 4)
    );
    assert_eq!(
        cause(asked(5, |asked| asked.elements.no_nodes = [NodeId(3)].into())),
        single(PathConstraint::AvoidedNodes, 4)
    );
    assert_eq!(
        cause(asked(5, |asked| asked.elements.no_links = links(&[6]))),
        single(PathConstraint::AvoidedLinks, 4)
    );
    let shared = network_with_shared_link();
    let mut disjoint = request(&shared, WINDOW, Demand::Rate(8), 2);
    disjoint.diversity = Disjoint::Links;
    let found = refusal_cause(&shared, &disjoint);
    assert_eq!(found, single(PathConstraint::Disjoint, 4));
}

/// Returns a network whose two ways share the first link.
fn network_with_shared_link() -> CircuitNetwork {
    network(4, &[(0, 1, 9), (1, 3, 4), (1, 2, 4), (2, 3, 4)])
}

#[test]
fn a_path_that_does_not_exist_is_told_from_a_full_one() {
    let network = network(4, &[(0, 1, 9), (1, 2, 9), (2, 3, 9)]);
    let mut asked = request(&network, WINDOW, Demand::Rate(5), 1);
    asked.bounds.max_hops = Some(2);
    let hops = PathConstraint::MaxHops {
        needed: 3,
        is_unreachable: true,
    };
    assert_eq!(refusal_cause(&network, &asked), single(hops, 0));
    asked.bounds = PathBounds {
        max_latency: Some(5),
        ..PathBounds::default()
    };
    let latency = PathConstraint::MaxLatency {
        needed: 6,
        is_unreachable: true,
    };
    assert_eq!(refusal_cause(&network, &asked), single(latency, 0));
}

#[test]
fn constraints_that_fail_only_together_are_all_named() {
    let network = three_ways();
    let both = asked(5, |asked| {
        asked.bounds.via = vec![NodeId(1)];
        asked.elements.no_nodes = [NodeId(2)].into();
    });
    let found = refusal_cause(&network, &both).unwrap();
    assert!(found.together);
    assert_eq!(
        found.constraints,
        [PathConstraint::Via, PathConstraint::AvoidedNodes]
    );
    // Nothing that is removed helps a rate that is too high for any path.
    let high = asked(10, |asked| asked.bounds.max_hops = Some(2));
    assert_eq!(refusal_cause(&network, &high), None);
}

#[test]
fn a_full_hop_of_an_explicit_path_is_named() {
    let network = three_ways();
    let path = |nodes: &[u32], rate| ExplicitPath {
        nodes: nodes.iter().copied().map(NodeId).collect(),
        rate,
    };
    let explicit = |paths: Vec<ExplicitPath>| {
        let rate = paths.iter().map(|path| path.rate).sum();
        asked(rate, |asked| {
            asked.paths = paths.len();
            asked.bounds.explicit = paths;
        })
    };
    let fits = explicit(vec![path(&[0, 1, 4], 3), path(&[0, 4], 2)]);
    let plan = answer(&network, &fits).unwrap();
    assert_eq!(plan.0[0].routes.len(), 2);
    let full = explicit(vec![path(&[0, 4], 2), path(&[0, 1, 4], 5)]);
    let found = refusal_cause(&network, &full).unwrap();
    assert_eq!(
        found.constraints,
        [PathConstraint::Explicit {
            path: 2,
            from: NodeId(0),
            to: NodeId(1),
            needed: 5,
            left: 4
        }]
    );
}

#[test]
fn malformed_constraints_are_faults() {
    let network = three_ways();
    let fault = |asked: CircuitRequest| asked.check(&network).unwrap_err();
    let path = |nodes: &[u32], rate| ExplicitPath {
        nodes: nodes.iter().copied().map(NodeId).collect(),
        rate,
    };
    let via = |nodes: &[u32]| {
        let nodes = nodes.iter().copied().map(NodeId).collect();
        asked(1, |asked| asked.bounds.via = nodes)
    };
    assert_eq!(fault(via(&[0])), RequestFault::Via(NodeId(0)));
    assert_eq!(fault(via(&[1, 2, 1])), RequestFault::Via(NodeId(1)));
    assert_eq!(fault(via(&[9])), RequestFault::Via(NodeId(9)));
    assert_eq!(fault(via(&[1; 17])), RequestFault::ViaCount(17));
    assert_eq!(
        fault(asked(1, |asked| asked.bounds.max_hops = Some(0))),
        RequestFault::Hops
    );
    let explicit = |rate, paths: Vec<ExplicitPath>| {
        asked(rate, |asked| {
            asked.paths = 2;
            asked.bounds.explicit = paths;
        })
    };
    for nodes in [&[0, 1][..], &[1, 4], &[0, 3, 4], &[0, 1, 0, 4], &[0], &[]] {
        let asked = explicit(1, vec![path(nodes, 1)]);
        assert_eq!(fault(asked), RequestFault::Explicit(1), "{nodes:?}");
    }
    let twice = explicit(2, vec![path(&[0, 4], 1), path(&[0, 4], 1)]);
    assert_eq!(fault(twice), RequestFault::Explicit(2));
    let sum = explicit(3, vec![path(&[0, 4], 2)]);
    assert_eq!(fault(sum), RequestFault::ExplicitRate(2));
    let mut both = explicit(2, vec![path(&[0, 4], 2)]);
    both.bounds.max_hops = Some(3);
    assert_eq!(fault(both), RequestFault::ExplicitAndBounds);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn removing_a_cause_makes_the_request_fit(
        network in small_networks(),
        rate in 1..9_u64,
        hops in prop::option::of(1..4_u32),
        latency in prop::option::of(1..9_u64),
        without in prop::option::of(0..8_u32),
    ) {
        let mut asked = request(&network, WINDOW, Demand::Rate(rate), 1);
        asked.bounds.max_hops = hops;
        asked.bounds.max_latency = latency;
        asked.elements.no_links.extend(without.map(LinkId));
        let Err(AdmissionRefusal::Shortfall(short)) = answer(&network, &asked) else {
            return Ok(());
        };
        let remove = |constraint: &PathConstraint, from: &mut CircuitRequest| match constraint {
            PathConstraint::MaxHops { needed, .. } => from.bounds.max_hops = Some(*needed),
            PathConstraint::MaxLatency { needed, .. } => from.bounds.max_latency = Some(*needed),
            _ => from.elements.no_links.clear(),
        };
        let fits = |request: &CircuitRequest| answer(&network, request).is_ok();
        let mut bare = asked.clone();
        bare.bounds = PathBounds::default();
        bare.elements.no_links.clear();
        prop_assert_eq!(short.cause.is_some(), fits(&bare));
        let Some(cause) = short.cause else { return Ok(()) };
        if !cause.together {
            for constraint in &cause.constraints {
                let (mut without, mut relaxed) = (asked.clone(), asked.clone());
                match constraint {
                    PathConstraint::MaxHops { .. } => without.bounds.max_hops = None,
                    PathConstraint::MaxLatency { .. } => without.bounds.max_latency = None,
                    _ => without.elements.no_links.clear(),
                }
                prop_assert!(fits(&without), "{constraint:?}");
                // What is said to be needed is enough, unless that many hops exist but are full.
                remove(constraint, &mut relaxed);
                let is_unreachable = matches!(
                    constraint,
                    PathConstraint::MaxHops { is_unreachable: true, .. }
                        | PathConstraint::MaxLatency { is_unreachable: true, .. }
                );
                prop_assert!(is_unreachable || fits(&relaxed), "{constraint:?}");
            }
        }
    }
}
