//! The checker finds mistakes; and on small networks, an exact search confirms every answer.

use std::sync::Arc;

use proptest::prelude::*;

use super::{CheckVerdict, Checker};
use longhaul_circuits::admit::{AdmissionRefusal, decide};
use longhaul_circuits::ledger::{BandwidthLedger, LedgerSnapshot, ReservationId, View};
use longhaul_circuits::network::{CircuitNetwork, NodeId};
use longhaul_circuits::path::{Disjoint, PathBounds, PathEnds, Preference};
use longhaul_circuits::policy::RequestLimits;
use longhaul_circuits::proof::Proof;
use longhaul_circuits::request::{CircuitRequest, Demand, Pace, PathElements, ReservationPlan};
use longhaul_circuits::testing::{network, offers, request, small_networks};
use longhaul_circuits::time::{Volume, Window};

fn answer(
    network: &CircuitNetwork,
    ledger: &BandwidthLedger,
    request: &CircuitRequest,
) -> Result<ReservationPlan, AdmissionRefusal> {
    let view = View::new(network, ledger);
    decide(&view, ledger, request, &RequestLimits::default(), 0)
}

#[test]
fn wrong_answers_are_found() {
    let network = network(3, &[(0, 1, 10_000), (1, 2, 10_000), (0, 2, 5_000)]);
    let mut ledger = BandwidthLedger::new(&network);
    let mut checker = Checker::new(&network);
    let asked = request(&network, Window::new(0, 100), Demand::Rate(14_000), 2);
    let plan = answer(&network, &ledger, &asked).unwrap();
    assert_eq!(
        checker.check_answer(&asked, Ok(&plan)),
        Ok(CheckVerdict::Granted)
    );
    for wrong in [
        {
            let mut plan = plan.clone();
            plan.0[0].routes[0].rate += 1;
            plan
        },
        {
            let mut plan = plan.clone();
            plan.0[0].window.end -= 1;
            plan
        },
        {
            let mut plan = plan.clone();
            plan.0[0].routes[0].path.0.pop();
            plan
        },
        {
            let mut plan = plan.clone();
            plan.0[0].routes.pop();
            plan
        },
        {
            let mut plan = plan.clone();
            let piece = plan.0[0].clone();
            plan.0.push(piece);
            plan
        },
    ] {
        assert!(
            checker.check_answer(&asked, Ok(&wrong)).is_err(),
            "{wrong:?}"
        );
    }
    assert!(
        checker.check_refusal(&asked, &Proof::Unknown).is_err(),
        "14 go"
    );
    let few = request(&network, Window::new(0, 100), Demand::Rate(14_000), 1);
    assert_eq!(
        checker.check_refusal(&few, &Proof::Unknown),
        Ok(CheckVerdict::FewPaths)
    );
    ledger.take(ReservationId(0), &plan);
    checker.promise(ReservationId(0), &plan);
    let asked = request(&network, Window::new(50, 150), Demand::Rate(1_001), 2);
    let Err(AdmissionRefusal::Shortfall(mut short)) = answer(&network, &ledger, &asked) else {
        panic!("it is full")
    };
    let later = offers(&network, &ledger, &short).later.unwrap();
    assert_eq!(later.request.window, Window::new(100, 200));
    assert_eq!(checker.check_offer(&asked, &later), Ok(()));
    assert_eq!(
        checker.check_refusal(&asked, &short.proof),
        Ok(CheckVerdict::Flow)
    );
    let Proof::Cut { links, until, .. } = &mut short.proof else {
        panic!("{short:?}")
    };
    assert_eq!(*until, Some(100));
    assert_eq!(
        links.iter().map(|full| full.by.clone()).collect::<Vec<_>>(),
        [[ReservationId(0)], [ReservationId(0)]]
    );
    links.pop();
    assert!(
        checker.check_refusal(&asked, &short.proof).is_err(),
        "half a cut is none"
    );
    checker.promise(ReservationId(1), &plan);
    assert!(checker.overbooked().is_some());
}

/// Generates requests for small networks: times in steps of ten, rates of a few units.
fn asked(network: &CircuitNetwork) -> impl Strategy<Value = CircuitRequest> + use<> {
    let nodes = network.nodes();
    let links = u32::try_from(network.links().len()).unwrap();
    let wish = prop_oneof![
        (1..14_u64).prop_map(|rate| Demand::Rate(rate * 5_040)),
        (1..600_u64, prop::option::of(1..9_u64), any::<bool>()).prop_map(
            |(amount, most, early)| {
                Demand::Volume {
                    bytes: Volume::carried(5_040, amount).bytes().max(1),
                    most: most.map(|most| most * 5_040),
                    pace: if early { Pace::Early } else { Pace::Even },
                }
            }
        ),
    ];
    let what = (
        0..nodes,
        1..nodes,
        0..10_i64,
        1..8_i64,
        wish,
        1..4_usize,
        0..8_u8,
        prop::option::of(0..links),
        bounds(nodes),
    );
    what.prop_map(
        move |(from, on, start, length, wish, paths, kind, without, bounds)| CircuitRequest {
            ends: PathEnds {
                from: NodeId(from),
                to: NodeId((from + on) % nodes),
            },
            window: Window::new(10 * start, 10 * (start + length)),
            wish,
            paths,
            diversity: match kind {
                0 => Disjoint::Links,
                1 => Disjoint::Sites,
                _ => Disjoint::No,
            },
            preference: if kind % 2 == 0 {
                Preference::MostRoom
            } else {
                Preference::LeastLatency
            },
            elements: PathElements {
                no_links: without
                    .filter(|_| kind == 7)
                    .map(longhaul_circuits::network::LinkId)
                    .into_iter()
                    .collect(),
                ..PathElements::default()
            },
            bounds,
        },
    )
}

/// Generates constraints on each path, and mostly none.
fn bounds(nodes: u32) -> impl Strategy<Value = PathBounds> {
    let via = prop::collection::btree_set((0..nodes).prop_map(NodeId), 1..3);
    let some = (
        prop::option::weighted(0.4, via.prop_map(|via| via.into_iter().collect())),
        prop::option::of(1..5_u32),
        prop::option::of(1..12_u64),
    );
    let some = some.prop_map(|(via, max_hops, max_latency)| PathBounds {
        via: via.unwrap_or_default(),
        max_hops,
        max_latency,
        explicit: Vec::new(),
    });
    prop_oneof![Just(PathBounds::default()), some]
}

fn world() -> impl Strategy<Value = (CircuitNetwork, Vec<CircuitRequest>)> {
    let larger = small_networks().prop_map(|network| {
        let links = network
            .links()
            .iter()
            .map(|link| longhaul_circuits::network::CircuitLink {
                capacity: link.capacity * 5_040,
                ..*link
            });
        CircuitNetwork::new(network.nodes(), links.collect()).unwrap()
    });
    larger.prop_flat_map(|network| {
        let requests = prop::collection::vec(asked(&network), 1..25);
        (Just(network), requests)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_answer_is_right((network, requests) in world()) {
        let mut ledger = BandwidthLedger::new(&network);
        let mut checker = Checker::new(&network);
        for (request, id) in requests.iter().zip((0..).map(ReservationId)) {
            let answer = answer(&network, &ledger, request);
            let verdict = checker.check_answer(request, answer.as_ref());
            prop_assert!(verdict.is_ok(), "{}: {answer:?}", verdict.unwrap_err());
            if let Err(AdmissionRefusal::Shortfall(short)) = &answer {
                prop_assert!(
                    !matches!(
                        short.proof,
                        Proof::Unknown | Proof::Constrained { complete: false, .. }
                    ),
                    "small networks are searched through: {request:?}"
                );
                prop_assert_ne!(verdict, Ok(CheckVerdict::Open));
                let offers = offers(&network, &ledger, short);
                for offer in offers.iter() {
                    prop_assert_eq!(checker.check_offer(request, offer), Ok(()));
                    let taken = self::answer(&network, &ledger, &offer.request);
                    prop_assert_eq!(taken.ok(), Some(offer.plan.clone()));
                }
                if let Some(later) = &offers.later {
                    let bounded = checker.earlier_start(request, later);
                    prop_assert!(
                        bounded.is_none() || request.paths > 1 || !request.bounds.is_empty(),
                        "{later:?}, but free from {bounded:?}"
                    );
                }
            }
            if let Ok(plan) = answer {
                ledger.take(id, &plan);
                checker.promise(id, &plan);
            }
        }
        prop_assert_eq!(checker.overbooked(), None);
    }

    #[test]
    fn offers_are_renewed_or_dropped_when_the_book_changes(
        (network, requests) in world()
    ) {
        let shared = Arc::new(network.clone());
        let mut ledger = BandwidthLedger::new(&network);
        let (mut found, mut kept) = (Vec::new(), Vec::new());
        for (request, id) in requests.iter().zip((0..).map(ReservationId)) {
            match answer(&network, &ledger, request) {
                Ok(plan) => {
                    ledger.take(id, &plan);
                    kept.push((id, plan));
                    // Sometimes the oldest reservation leaves.
                    if kept.len() > 3 {
                        let (id, plan) = kept.remove(0);
                        ledger.free(id, &plan);
                    }
                }
                Err(AdmissionRefusal::Shortfall(short)) => {
                    let at_once = offers(&network, &ledger, &short);
                    found.push((short, LedgerSnapshot::new(shared.clone(), &ledger), at_once));
                }
                Err(_) => {}
            }
        }
        let newest = LedgerSnapshot::new(shared, &ledger);
        for (short, decided, at_once) in found {
            // The ledger has changed since, but the snapshot has not.
            prop_assert_eq!(&short.find_offers(&decided, &mut || true), &at_once);
            // An interrupted search finds a subset of the same offers.
            for steps in 0..4 {
                let mut left = steps;
                let mut goes_on = || left > 0 && { left -= 1; true };
                let some = short.find_offers(&decided, &mut goes_on);
                let of_some = [some.later, some.slower, some.volume];
                let of_all = [&at_once.later, &at_once.slower, &at_once.volume];
                prop_assert!(
                    of_some.iter().zip(of_all).all(|(some, all)| some.is_none() || some == all)
                );
                prop_assert!(steps > 0 || of_some.iter().all(Option::is_none));
            }
            for offer in at_once.iter() {
                match (
                    short.revalidate(offer, &decided, &newest),
                    answer(&network, &ledger, &offer.request)
                ) {
                    (Some(renewed), Ok(plan)) => {
                        prop_assert_eq!((&renewed.request, &renewed.plan), (&offer.request, &plan));
                    }
                    (None, Err(_)) => {}
                    other => prop_assert!(false, "{other:?}"),
                }
            }
        }
    }
}
