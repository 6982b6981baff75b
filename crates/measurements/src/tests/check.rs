//! Invalid records.

use std::time::Duration;

use super::{NOW_MS, copy};
use crate::{
    Distribution, MeasurementKind, MeasurementRecord, RateInterval, RecordBounds, RecordFault,
    TraceHop,
};

fn fault(change: impl Fn(&mut MeasurementRecord)) -> RecordFault {
    let mut record = copy();
    change(&mut record);
    record.check(NOW_MS, &RecordBounds::default()).unwrap_err()
}

#[test]
fn a_valid_record_passes_the_check() {
    assert_eq!(copy().check(NOW_MS, &RecordBounds::default()), Ok(()));
    crate::fuzzing::check_properties(&copy());
}

#[test]
fn times_are_checked_against_the_bounds() {
    let bounds = RecordBounds::default();
    let at = |now_ms| copy().check(now_ms, &bounds);
    assert_eq!(at(NOW_MS - 30_000), Ok(()));
    assert_eq!(
        at(NOW_MS - 31_000),
        Err(RecordFault::Future { ahead_s: 31.0 })
    );
    let week = 7 * 86_400_000;
    assert_eq!(at(NOW_MS + week), Ok(()));
    assert!(matches!(
        at(NOW_MS + week + 1_000),
        Err(RecordFault::Old { .. })
    ));
    let strict = RecordBounds {
        max_clock_ahead: Duration::ZERO,
        ..bounds
    };
    assert!(copy().check(NOW_MS - 1, &strict).is_err());
}

#[test]
fn impossible_values_are_refused() {
    let value = |change: fn(&mut MeasurementRecord)| match fault(change) {
        RecordFault::Value { field, .. } => field,
        other => panic!("{other}"),
    };
    for rate in [-1.0, f64::NAN, f64::INFINITY, 1e14] {
        assert!(
            matches!(
                fault(|of| of.values.rate_bps = Some(rate)),
                RecordFault::Value { .. }
            ),
            "{rate}"
        );
    }
    assert_eq!(value(|of| of.values.loss = Some(1.1)), "values.loss");
    assert_eq!(value(|of| of.duration_s = f64::NAN), "duration_s");
    assert_eq!(
        value(|of| of.conditions.streams = Some(0)),
        "conditions.streams"
    );
    assert_eq!(
        value(|of| of.values.rtt = Distribution::from_times(&[61.0])),
        "values.rtt"
    );
    let backwards = |of: &mut MeasurementRecord| {
        of.values.intervals = vec![RateInterval {
            start_s: 2.0,
            end_s: 1.0,
            rate_bps: 1.0,
            retransmits: None,
            omitted: false,
        }];
    };
    assert_eq!(value(backwards), "values.intervals.end_s");
    assert_eq!(fault(|of| of.to = of.from.clone()), RecordFault::NoPath);
    assert_eq!(
        fault(|of| of.from = "a b".to_owned()),
        RecordFault::End { field: "from" }
    );
    assert_eq!(
        fault(|of| of.to = "\u{202e}".to_owned()),
        RecordFault::End { field: "to" }
    );
    assert_eq!(
        fault(|of| of.kind = MeasurementKind::Latency),
        RecordFault::Missing {
            field: "values.delay"
        }
    );
    assert_eq!(
        fault(|of| of.kind = MeasurementKind::Trace),
        RecordFault::Missing {
            field: "values.hops"
        }
    );
    assert!(matches!(
        fault(|of| of.values.hops = vec![TraceHop::default(); 256]),
        RecordFault::TooMany { .. }
    ));
    assert!(matches!(
        fault(|of| of.conditions.tool = Some("\n".to_owned())),
        RecordFault::Text { .. }
    ));
    let no_order = |of: &mut MeasurementRecord| {
        of.values.rtt = Some(Distribution {
            min_s: 0.1,
            mean_s: 0.05,
            max_s: 0.2,
            ..Distribution::default()
        });
    };
    assert_eq!(
        fault(no_order),
        RecordFault::Order {
            field: "values.rtt"
        }
    );
}
