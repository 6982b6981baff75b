//! Reports of refusals, and requests that may not be made.

use std::collections::BTreeSet;

use super::{AdmissionRefusal, Shortfall, decide};
use crate::ledger::{BandwidthLedger, ReservationId, View};
use crate::network::{CircuitNetwork, LinkId, LinkShare, NodeId};
use crate::policy::{PolicyRefusal, RequestLimits};
use crate::proof::Proof;
use crate::request::{CircuitRequest, Demand, Pace, RequestFault, ReservationPlan};
use crate::testing::{network, offers, request};
use crate::time::{MomentMs, Window};

const NOW: MomentMs = 0;

fn asked(
    network: &CircuitNetwork,
    ledger: &BandwidthLedger,
    request: &CircuitRequest,
    limits: &RequestLimits,
) -> Result<ReservationPlan, AdmissionRefusal> {
    decide(&View::new(network, ledger), ledger, request, limits, NOW)
}

fn refused(answer: Result<ReservationPlan, AdmissionRefusal>) -> Shortfall {
    match answer {
        Err(AdmissionRefusal::Shortfall(short)) => *short,
        other => panic!("{other:?}"),
    }
}

/// Returns two paths between the ends with bookings: one until 100 s, the other until 60 s.
fn world() -> (CircuitNetwork, BandwidthLedger) {
    let network = network(4, &[(0, 1, 10), (1, 3, 10), (0, 2, 6), (2, 3, 6)]);
    let mut ledger = BandwidthLedger::new(&network);
    for (id, end, rate, without) in [(0, 100_000, 10, 4), (1, 60_000, 6, 0)] {
        let mut whole = request(&network, Window::new(0, end), Demand::Rate(rate), 1);
        whole.elements.no_links = BTreeSet::from([LinkId(without)]);
        let plan = asked(&network, &ledger, &whole, &RequestLimits::default()).unwrap();
        ledger.take(ReservationId(id), &plan);
    }
    (network, ledger)
}

#[test]
fn a_refusal_names_holders_time_and_counter_offers() {
    let (network, ledger) = world();
    let window = Window::new(50_000, 120_000);
    let wanted = request(&network, window, Demand::Rate(8), 2);
    let short = refused(asked(&network, &ledger, &wanted, &RequestLimits::default()));
    let found = offers(&network, &ledger, &short);
    let Proof::Cut { links, rate, until } = &short.proof else {
        panic!("{:?}", short.proof)
    };
    assert_eq!((*rate, *until), (0, Some(100_000)));
    let by: BTreeSet<ReservationId> = links.iter().flat_map(|full| full.by.clone()).collect();
    assert_eq!(by, BTreeSet::from([ReservationId(0), ReservationId(1)]));
    assert_eq!(
        found.later.unwrap().request.window,
        Window::new(100_000, 170_000)
    );
    assert_eq!(found.slower, None, "nothing goes from the first moment on");
    // 6 bit/s from 60 s, and 10 more from 100 s: 560 bits.
    let Demand::Volume { bytes, .. } = found.volume.unwrap().request.wish else {
        panic!()
    };
    assert_eq!(bytes, 70);
}

#[test]
fn a_volume_uses_free_times_and_paths() {
    let (network, ledger) = world();
    let volume = |bytes, pace| Demand::Volume {
        bytes,
        most: None,
        pace,
    };
    let window = Window::new(50_000, 120_000);
    for pace in [Pace::Early, Pace::Even] {
        let wanted = request(&network, window, volume(70, pace), 2);
        let plan = asked(&network, &ledger, &wanted, &RequestLimits::default()).unwrap();
        let pieces: Vec<(Window, usize)> = plan
            .0
            .iter()
            .map(|piece| (piece.window, piece.routes.len()))
            .collect();
        assert_eq!(
            pieces,
            [
                (Window::new(60_000, 100_000), 1),
                (Window::new(100_000, 120_000), 2)
            ]
        );
    }
    let short = refused(asked(
        &network,
        &ledger,
        &request(&network, window, volume(71, Pace::Early), 2),
        &RequestLimits::default(),
    ));
    assert!(
        matches!(short.proof, Proof::Volume { .. } | Proof::Stretches { .. }),
        "{:?}",
        short.proof
    );
    let found = offers(&network, &ledger, &short);
    assert_eq!(found.later.unwrap().request.window.end, 120_500);
    // An even pace behind the bookings is one piece, which ends with the window.
    let free = request(
        &network,
        Window::new(100_000, 140_000),
        volume(20, Pace::Even),
        2,
    );
    let plan = asked(&network, &ledger, &free, &RequestLimits::default()).unwrap();
    assert_eq!((plan.0.len(), plan.window()), (1, free.window));
}

#[test]
fn invalid_and_forbidden_requests_name_the_reason() {
    let (network, ledger) = world();
    let good = request(&network, Window::new(200_000, 300_000), Demand::Rate(10), 1);
    let ask = |request: &CircuitRequest, limits: &RequestLimits| {
        asked(&network, &ledger, request, limits)
    };
    let none = RequestLimits::default();
    assert!(ask(&good, &none).is_ok());
    let policy = |limits: RequestLimits| match ask(&good, &limits) {
        Err(AdmissionRefusal::Policy(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    let rate = policy(RequestLimits {
        rate: Some(9),
        ..none
    });
    assert_eq!(rate, PolicyRefusal::Rate { asked: 10, most: 9 });
    let duration = policy(RequestLimits {
        duration: Some(99_999),
        ..none
    });
    assert!(matches!(duration, PolicyRefusal::Duration { .. }));
    let ahead = policy(RequestLimits {
        ahead: Some(299_999),
        ..none
    });
    assert!(matches!(ahead, PolicyRefusal::Ahead { .. }));
    let paths = policy(RequestLimits {
        paths: Some(0),
        ..none
    });
    assert!(matches!(paths, PolicyRefusal::Paths { .. }));
    // A share of half leaves 5 of 10.
    let half = RequestLimits {
        share: Some(LinkShare::HALF),
        ..none
    };
    let short = refused(ask(&good, &half));
    let slower = offers(&network, &ledger, &short).slower.unwrap();
    assert_eq!(slower.request.wish, Demand::Rate(5));

    let fault = |change: &dyn Fn(&mut CircuitRequest)| {
        let mut request = good.clone();
        change(&mut request);
        match ask(&request, &none) {
            Err(AdmissionRefusal::Fault(fault)) => fault,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        fault(&|request| request.ends.to = NodeId(9)),
        RequestFault::NoNode(NodeId(9))
    );
    assert_eq!(
        fault(&|request| request.ends.to = NodeId(0)),
        RequestFault::OneEnd(NodeId(0))
    );
    assert_eq!(fault(&|request| request.paths = 0), RequestFault::Paths(0));
    assert_eq!(
        fault(&|request| request.wish = Demand::Rate(0)),
        RequestFault::Rate(0)
    );
    let past = fault(&|request| request.window.start = -1);
    assert_eq!(
        past,
        RequestFault::Past {
            start: -1,
            now: NOW
        }
    );
    let empty = fault(&|request| request.window.end = request.window.start);
    assert!(matches!(empty, RequestFault::Window(_)));
    let far = fault(&|request| request.window.end = MomentMs::MAX);
    assert!(matches!(far, RequestFault::Window(_)));
}
