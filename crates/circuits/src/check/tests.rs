//! The checker finds mistakes; and on small networks, an exact search confirms every answer.

use std::sync::Arc;

use proptest::prelude::*;

use super::{CheckVerdict, Checker};
use crate::admit::{
    Admission, AdmissionRefusal, CounterOfferMode, CounterOffers, InsufficientBandwidth,
    RefusalProof, decide, decide_without_offers,
};
use crate::ledger::{BandwidthLedger, LedgerSnapshot, ReservationId, View};
use crate::network::{CircuitNetwork, NodeId};
use crate::path::{Diversity, PathBounds, PathEnds, Preference};
use crate::policy::RequestLimits;
use crate::request::{CircuitRequest, Demand, PathElements, VolumePace};
use crate::testing::{network, request, small_networks};
use crate::time::{Volume, Window};

fn answer(
    network: &CircuitNetwork,
    ledger: &BandwidthLedger,
    request: &CircuitRequest,
) -> Admission {
    decide(
        &View::new(network, ledger),
        ledger,
        request,
        &RequestLimits::default(),
        0,
        CounterOfferMode::Offer,
    )
}

#[test]
fn wrong_answers_are_found() {
    let network = network(3, &[(0, 1, 10_000), (1, 2, 10_000), (0, 2, 5_000)]);
    let mut ledger = BandwidthLedger::new(&network);
    let mut checker = Checker::new(&network);
    let asked = request(&network, Window::new(0, 100), Demand::Rate(14_000), 2);
    let Admission::Granted(plan) = answer(&network, &ledger, &asked) else {
        panic!("14 go")
    };
    assert_eq!(
        checker.check_answer(&asked, &Admission::Granted(plan.clone())),
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
            checker
                .check_answer(&asked, &Admission::Granted(wrong.clone()))
                .is_err(),
            "{wrong:?}"
        );
    }
    let refused = |proof| {
        Admission::Refused(AdmissionRefusal::NoRoom(Box::new(InsufficientBandwidth {
            proof,
            cause: None,
            offers: CounterOffers::default(),
        })))
    };
    assert!(
        checker
            .check_answer(&asked, &refused(RefusalProof::Unknown))
            .is_err(),
        "14 go"
    );
    let few = request(&network, Window::new(0, 100), Demand::Rate(14_000), 1);
    assert_eq!(
        checker.check_answer(&few, &refused(RefusalProof::Unknown)),
        Ok(CheckVerdict::FewPaths)
    );
    ledger.take(ReservationId(0), &plan);
    checker.promise(ReservationId(0), &plan);
    let answer = answer(
        &network,
        &ledger,
        &request(&network, Window::new(50, 150), Demand::Rate(1_001), 2),
    );
    let Admission::Refused(AdmissionRefusal::NoRoom(mut none)) = answer else {
        panic!("it is full")
    };
    let later = none.offers.later.clone().unwrap();
    assert_eq!(later.request.window, Window::new(100, 200));
    let asked = request(&network, Window::new(50, 150), Demand::Rate(1_001), 2);
    let whole = |none: &InsufficientBandwidth| {
        Admission::Refused(AdmissionRefusal::NoRoom(Box::new(none.clone())))
    };
    assert_eq!(
        checker.check_answer(&asked, &whole(&none)),
        Ok(CheckVerdict::Flow)
    );
    let RefusalProof::Cut { links, until, .. } = &mut none.proof else {
        panic!("{none:?}")
    };
    assert_eq!(*until, Some(100));
    assert_eq!(
        links.iter().map(|full| full.by.clone()).collect::<Vec<_>>(),
        [[ReservationId(0)], [ReservationId(0)]]
    );
    links.pop();
    assert!(
        checker.check_answer(&asked, &whole(&none)).is_err(),
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
                    pace: if early {
                        VolumePace::Early
                    } else {
                        VolumePace::Even
                    },
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
                0 => Diversity::Links,
                1 => Diversity::Nodes,
                _ => Diversity::Any,
            },
            preference: if kind % 2 == 0 {
                Preference::MostRoom
            } else {
                Preference::LeastLatency
            },
            elements: PathElements {
                no_links: without
                    .filter(|_| kind == 7)
                    .map(crate::network::LinkId)
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
            .map(|link| crate::network::CircuitLink {
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
            let verdict = checker.check_answer(request, &answer);
            prop_assert!(verdict.is_ok(), "{}: {answer:?}", verdict.unwrap_err());
            if let Admission::Refused(AdmissionRefusal::NoRoom(none)) = &answer {
                prop_assert!(
                    !matches!(none.proof, RefusalProof::Unknown),
                    "small networks are searched through: {request:?}"
                );
                prop_assert!(
                    !matches!(none.proof, RefusalProof::Constrained { complete: false, .. }),
                    "small networks are searched through: {request:?}"
                );
                prop_assert_ne!(verdict, Ok(CheckVerdict::Open));
                for offer in [&none.offers.later, &none.offers.slower, &none.offers.volume]
                    .into_iter()
                    .flatten()
                {
                    let taken = self::answer(&network, &ledger, &offer.request);
                    prop_assert_eq!(taken, Admission::Granted(offer.plan.clone()));
                }
                if let Some(later) = &none.offers.later {
                    let bounded = checker.earlier_start(request, later);
                    prop_assert!(
                        bounded.is_none() || request.paths > 1 || !request.bounds.is_empty(),
                        "{later:?}, but free from {bounded:?}"
                    );
                }
            }
            if let Admission::Granted(plan) = answer {
                ledger.take(id, &plan);
                checker.promise(id, &plan);
            }
        }
        prop_assert_eq!(checker.overbooked(), None);
    }

    #[test]
    fn later_offers_are_the_same_and_renewed_or_dropped(
        (network, requests) in world()
    ) {
        let shared = Arc::new(network.clone());
        let mut ledger = BandwidthLedger::new(&network);
        let (mut found, mut kept) = (Vec::new(), Vec::new());
        let limits = RequestLimits::default();
        for (request, id) in requests.iter().zip((0..).map(ReservationId)) {
            let (opened, search) =
                decide_without_offers(&View::new(&network, &ledger), &ledger, request, &limits, 0);
            match (answer(&network, &ledger, request), opened, search) {
                (Admission::Granted(plan), Admission::Granted(same), None) => {
                    prop_assert_eq!(&plan, &same);
                    ledger.take(id, &plan);
                    kept.push((id, plan));
                    // Sometimes the oldest reservation leaves.
                    if kept.len() > 3 {
                        let (id, plan) = kept.remove(0);
                        ledger.free(id, &plan);
                    }
                }
                (
                    Admission::Refused(AdmissionRefusal::NoRoom(none)),
                    Admission::Refused(AdmissionRefusal::NoRoom(opened)),
                    Some(search)
                ) => {
                    prop_assert_eq!(&none.proof, &opened.proof);
                    prop_assert_eq!(&none.cause, &opened.cause);
                    prop_assert_eq!(opened.offers, CounterOffers::default());
                    found.push((search, LedgerSnapshot::new(shared.clone(), &ledger), none.offers));
                }
                (one, other, None) => prop_assert_eq!(one, other, "what can't be asked"),
                other => prop_assert!(false, "{other:?}"),
            }
        }
        let newest = LedgerSnapshot::new(shared, &ledger);
        for (search, decided, at_once) in found {
            // The ledger has changed since, but the snapshot has not.
            prop_assert_eq!(&search.find_offers(&decided, &mut || true), &at_once);
            // An interrupted search finds a subset of the same offers.
            for steps in 0..4 {
                let mut left = steps;
                let mut goes_on = || left > 0 && { left -= 1; true };
                let some = search.find_offers(&decided, &mut goes_on);
                let of_some = [some.later, some.slower, some.volume];
                let of_all = [&at_once.later, &at_once.slower, &at_once.volume];
                prop_assert!(
                    of_some.iter().zip(of_all).all(|(some, all)| some.is_none() || some == all)
                );
                prop_assert!(steps > 0 || of_some.iter().all(Option::is_none));
            }
            for offer in [at_once.later, at_once.slower, at_once.volume].into_iter().flatten() {
                match (
                    search.revalidate(&offer, &decided, &newest),
                    answer(&network, &ledger, &offer.request)
                ) {
                    (Some(renewed), Admission::Granted(plan)) => {
                        prop_assert_eq!((&renewed.request, &renewed.plan), (&offer.request, &plan));
                    }
                    (None, Admission::Refused(_)) => {}
                    other => prop_assert!(false, "{other:?}"),
                }
            }
        }
    }
}
