use proptest::prelude::*;

use super::*;

const DIRECT: DirectEstimate = DirectEstimate {
    whole: 100.0,
    restart: 1.0,
};

#[test]
fn a_copy_that_keeps_up_stays_and_a_stalled_one_leaves() {
    let guard = RouteGuard::new(&DIRECT, 0.5, 1_000_000).unwrap();
    assert_eq!(guard.check(2.4, 0), GuardVerdict::Stay);
    assert_eq!(guard.check(3.0, 0), GuardVerdict::Leave);
    assert_eq!(guard.check(50.0, 500_000), GuardVerdict::Stay);
    assert_eq!(guard.check(99.0, 900_000), GuardVerdict::Leave);
}

#[test]
fn there_is_no_guard_if_a_restart_costs_too_much() {
    let short = DirectEstimate {
        whole: 3.0,
        restart: 0.5,
    };
    assert_eq!(RouteGuard::new(&short, 0.1, 1), None);
    assert!(RouteGuard::new(&DIRECT, 0.1, 1).is_some());
    let senseless = DirectEstimate {
        whole: f64::INFINITY,
        restart: f64::NAN,
    };
    assert_eq!(RouteGuard::new(&senseless, 0.1, 1), None);
}

#[test]
fn a_late_copy_is_noticed_early_but_not_too_early() {
    use crate::Quantiles;
    use crate::route::NodeId;
    use crate::route::expected::{DominantLimit, LimitKind};

    let expected = ExpectedTime {
        time: Quantiles {
            p10: 9.0,
            p50: 10.0,
            p90: 11.0,
        },
        around: 1.0,
        limit: DominantLimit {
            kind: LimitKind::Rate,
            hop: (NodeId(0), NodeId(1)),
        },
        age: 0.0,
        samples: 10,
    };
    assert_eq!(slowdown(&expected, 1000, 1.5, 0), None);
    assert_eq!(slowdown(&expected, 1000, 2.0, 51), None);
    assert_eq!(slowdown(&expected, 1000, 2.0, 10), Some(10.0));
    assert_eq!(slowdown(&expected, 1000, 6.0, 400), None);
    // Long after it should have finished.
    assert_eq!(slowdown(&expected, 1000, 31.0, 600), Some(5.0));
}

proptest! {
    /// The bound: whatever a route carries, and whenever it stops, the copy takes no more than the
    /// allowance beyond direct.
    #[test]
    fn no_route_costs_more_than_the_allowance(
        whole in 10.0..10_000.0f64,
        restart_part in 0.0..0.02f64,
        rates in prop::collection::vec(0.0..3.0f64, 1..20),
        each in 0.01..0.5f64,
    ) {
        let direct = DirectEstimate { whole, restart: whole * restart_part };
        let interval = whole * 0.002;
        let bytes = 1_000_000_000u64;
        let guard = RouteGuard::new(&direct, interval, bytes).unwrap();
        // The route's rate, relative to direct, changes arbitrarily.
        let (mut at, mut arrived) = (0.0f64, 0.0f64);
        let took = loop {
            let phase = (at / (each * whole)) as usize;
            arrived +=
                rates[phase % rates.len()] * interval / (whole - direct.restart) * bytes as f64;
            at += interval;
            if arrived >= bytes as f64 {
                break at;
            }
            if guard.check(at, arrived as u64) == GuardVerdict::Leave {
                let left = 1.0 - arrived / bytes as f64;
                break at + direct.restart + left * (whole - direct.restart);
            }
        };
        prop_assert!(took <= whole * (1.0 + ALLOWANCE) * (1.0 + 1e-6), "{} of {whole}", took);
    }
}
