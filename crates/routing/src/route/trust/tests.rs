use proptest::prelude::*;

use super::*;
use crate::route::Transfer;
use crate::route::choice::{Choice, Chooser, Policy, RouteRequest};
use crate::route::explore::ExplorationAccount;
use crate::route::map::{Node, RouteMap};
use crate::route::testing::exact;

#[test]
fn only_ends_report_and_the_worse_report_counts() {
    let mut reports = HopReports::default();
    let (a, b, c) = (NodeId(0), NodeId(1), NodeId(2));
    let honest = exact(50.0, 1e-4, 100.0);
    let lie = exact(1.0, 0.0, 10_000.0);
    assert_eq!(reports.take(c, a, b, lie), Err(ReportRejection::NotAnEnd));
    assert_eq!(reports.take(a, a, a, lie), Err(ReportRejection::NotAnEnd));
    // A report of one end alone counts for little.
    assert_eq!(
        reports.take(a, a, b, honest).unwrap().samples,
        MAX_LONE_SAMPLES
    );
    assert_eq!(reports.take(b, a, b, lie).unwrap(), honest);
    let gloomy = reports.take(b, a, b, exact(80.0, 1e-5, 200.0)).unwrap();
    assert_eq!(gloomy, exact(80.0, 1e-4, 100.0));
    let older = HopForecast { at: -1.0, ..honest };
    assert_eq!(reports.take(a, a, b, older), Err(ReportRejection::Older));
    assert_eq!(
        reports.take(a, a, b, exact(50.0, 2.0, 100.0)),
        Err(ReportRejection::Unsound)
    );
}

#[test]
fn reports_of_both_ends_are_kept_apart() {
    let (a, b) = (NodeId(0), NodeId(1));
    let mut reports = HopReports::default();
    reports.take(a, a, b, exact(50.0, 1e-4, 100.0)).unwrap();
    assert!(reports.both_reports(a, b).is_none() && reports.both_reports(b, a).is_none());
    let later = HopForecast {
        at: 7.0,
        samples: 3,
        ..exact(80.0, 1e-5, 200.0)
    };
    reports.take(b, a, b, later).unwrap();
    let (one, other) = reports.both_reports(a, b).unwrap();
    let kinder = better_of(one, other);
    assert_eq!(
        kinder,
        HopForecast {
            samples: 3,
            ..exact(50.0, 1e-5, 200.0)
        }
    );
}

const MESH: u32 = 6;
const LIAR: NodeId = NodeId(3);

/// Returns the choice for a transfer after all reports are in.
fn chosen(
    reports: &[(NodeId, NodeId, NodeId, HopForecast)],
    outcomes: &TransferOutcomes,
    bytes: u64,
) -> Choice {
    let pairs: Vec<(NodeId, NodeId)> = (0..MESH)
        .flat_map(|a| (0..MESH).map(move |b| (NodeId(a), NodeId(b))))
        .filter(|(a, b)| a != b)
        .collect();
    let mut map = RouteMap::new(vec![Node::DEPOT; MESH as usize], &pairs);
    let mut taken = HopReports::default();
    for (reporter, from, to, said) in reports {
        if let Ok(known) = taken.take(*reporter, *from, *to, *said) {
            let hop = map.hop(*from, *to).unwrap();
            map.update(hop, &known);
        }
    }
    let policy = Policy::default();
    let transfer = Transfer { bytes, streams: 2 };
    let request = RouteRequest {
        from: NodeId(0),
        to: NodeId(5),
        transfer,
        urgent: true,
        now: 0.0,
        seed: 0,
    };
    Chooser::new(&map, outcomes, &policy).choose(&request, None, &ExplorationAccount::default())
}

fn forecasts() -> impl Strategy<Value = HopForecast> {
    (
        1.0..200.0f64,
        prop_oneof![Just(0.0), 1e-6..1e-2f64],
        1.0..1000.0f64,
    )
        .prop_map(|(rtt, loss, rate)| exact(rtt, loss, rate))
}

/// Generates honest reports of all nodes on all hops.
fn honest() -> impl Strategy<Value = Vec<(NodeId, NodeId, NodeId, HopForecast)>> {
    prop::collection::vec(forecasts(), (MESH * MESH) as usize).prop_map(|known| {
        let pairs = (0..MESH).flat_map(|a| (0..MESH).map(move |b| (NodeId(a), NodeId(b))));
        pairs
            .zip(known)
            .filter(|((a, b), _)| a != b)
            .flat_map(|((a, b), known)| [(a, a, b, known), (b, a, b, known)])
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever a depot reports on any hop, a choice between other ends is the same as without the
    /// depot, or passes the depot. It never moves to another route that does not pass it.
    #[test]
    fn a_liar_cannot_affect_routes_that_avoid_it(
        honest in honest(), bytes in 1u64 << 19..1 << 32,
        lies in prop::collection::vec((0..MESH, 0..MESH, forecasts()), 0..40),
    ) {
        let without: Vec<_> = honest
            .iter()
            .filter(|(_, from, to, _)| *from != LIAR && *to != LIAR)
            .copied()
            .collect();
        let mut lied: Vec<_> = honest
            .iter()
            .filter(|(reporter, ..)| *reporter != LIAR)
            .copied()
            .collect();
        lied.extend(lies.iter().map(|(from, to, said)| (LIAR, NodeId(*from), NodeId(*to), *said)));
        let outcomes = TransferOutcomes::default();
        let found = chosen(&lied, &outcomes, bytes);
        if !found.via.passes(LIAR) {
            let alone = chosen(&without, &outcomes, bytes);
            prop_assert_eq!(found.via, alone.via);
            prop_assert_eq!(found.expected, alone.expected);
        }
    }

    /// A depot that praises its hops, whose other ends report too, attracts nothing.
    #[test]
    fn praising_its_own_hops_attracts_no_transfer(
        honest in honest(),
        bytes in 1u64 << 19..1 << 32,
        by in 1.0..1000.0f64,
    ) {
        let praised: Vec<_> = honest
            .iter()
            .map(|(reporter, from, to, known)| {
                let (rtt, loss, rate) =
                    (known.rtt.p50 * 1e3 / by, known.loss.p50 / by, known.rate.p50 / 1e6 * by);
                (
                    *reporter,
                    *from,
                    *to,
                    if *reporter == LIAR { exact(rtt, loss, rate) } else { *known }
                )
            })
            .collect();
        let outcomes = TransferOutcomes::default();
        prop_assert_eq!(chosen(&praised, &outcomes, bytes), chosen(&honest, &outcomes, bytes));
    }

    /// Outcomes that are reported by a node that is not an end of the transfer are rejected, so
    /// they have no effect.
    #[test]
    fn outcomes_from_other_nodes_are_rejected(reporter in 1..5u32, took in 0.1..1e6f64) {
        let mut outcomes = TransferOutcomes::default();
        let outcome = TransferOutcome { expected: 1.0, direct: 1.0, took };
        let said = outcomes
            .take(NodeId(reporter), NodeId(0), NodeId(5), &RouteDepots::DIRECT, &outcome, 0.0);
        prop_assert_eq!(said, Err(ReportRejection::NotAnEnd));
        prop_assert_eq!(
            outcomes.record_failure(
                NodeId(reporter),
                NodeId(0),
                NodeId(5),
                &RouteDepots::DIRECT,
                0.0,
            ),
            Err(ReportRejection::NotAnEnd)
        );
        prop_assert_eq!(
            outcomes.factor(NodeId(0), NodeId(5), &RouteDepots::DIRECT, 0.0),
            Some(1.0)
        );
    }
}

/// Bound on the cost of a depot that measures well and carries badly: the transfers over it in a
/// year, at one an hour.
#[test]
fn a_slow_depot_is_left_after_a_bounded_number_of_transfers() {
    let mut outcomes = TransferOutcomes::default();
    let (from, to) = (NodeId(0), NodeId(5));
    let via = RouteDepots::new(&[LIAR]).unwrap();
    let bad = TransferOutcome {
        expected: 0.001,
        direct: 10.0,
        took: 1e9,
    };
    let mut over = Vec::new();
    for hour in 0..24 * 365 {
        let now = f64::from(hour) * 3600.0;
        if outcomes.factor(from, to, &via, now).is_some() {
            over.push(hour);
            outcomes.take(from, from, to, &via, &bad, now).unwrap();
        }
    }
    assert_eq!(over[..2], [0, 1]);
    // Two at first; ten doublings from ten minutes to a week; then one a week.
    assert!(over.len() <= 2 + 10 + 53, "{}: {over:?}", over.len());
    assert!(
        over.iter().filter(|hour| **hour < 24).count() <= 8,
        "{over:?}"
    );
}

#[test]
fn outcomes_correct_expected_times_within_bounds() {
    let mut outcomes = TransferOutcomes::default();
    let (from, to) = (NodeId(0), NodeId(5));
    let via = RouteDepots::new(&[NodeId(1)]).unwrap();
    for _ in 0..100 {
        outcomes
            .take(
                to,
                from,
                to,
                &via,
                &TransferOutcome {
                    expected: 10.0,
                    direct: 1e6,
                    took: 15.0,
                },
                0.0,
            )
            .unwrap();
    }
    assert!((outcomes.factor(from, to, &via, 0.0).unwrap() - 1.5).abs() < 1e-6);
    // No report makes a route look better than its hops do, or worse than four times that.
    for took in [1e-9, 1e9] {
        for _ in 0..100 {
            outcomes
                .take(
                    to,
                    from,
                    to,
                    &via,
                    &TransferOutcome {
                        expected: 10.0,
                        direct: 1e12,
                        took,
                    },
                    0.0,
                )
                .unwrap();
        }
        let factor = outcomes.factor(from, to, &via, 0.0).unwrap();
        assert!(
            (1.0..=MAX_OUTCOME_FACTOR + 1e-9).contains(&factor),
            "{factor}"
        );
    }
    // A failure holds the route back at once, for these two ends alone.
    outcomes.record_failure(from, from, to, &via, 0.0).unwrap();
    assert!(outcomes.is_held(from, to, &via, 1.0) && !outcomes.is_held(to, from, &via, 1.0));
    assert!(
        !outcomes.may_be_tried_again(from, to, &via, 599.0)
            && outcomes.may_be_tried_again(from, to, &via, 600.0)
    );
}

#[test]
fn one_reporter_alone_cannot_declare_a_depot_dead() {
    let mut deaths = DepotFailures::default();
    let (a, b, depot) = (NodeId(0), NodeId(1), NodeId(2));
    for _ in 0..10 {
        assert_eq!(deaths.take(a, a, depot, 0.0), Ok(DeathScope::Hop));
    }
    assert_eq!(
        deaths.take(a, b, depot, 0.0),
        Err(ReportRejection::NotAnEnd)
    );
    assert_eq!(deaths.take(b, b, depot, 60.0), Ok(DeathScope::Depot));
    // Much later it is another failure.
    assert_eq!(deaths.take(a, a, depot, 1000.0), Ok(DeathScope::Hop));
}
