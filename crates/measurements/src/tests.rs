//! Records, and samples that are made of them.

mod check;
mod pscheduler;

use longhaul_proto::PublicKey;

use crate::{
    Conditions, Distribution, MeasuredQuantity, MeasurementKind, MeasurementMethod,
    MeasurementRecord, MeasurementSample, ValueBound, Values,
};

/// Current time in the tests.
const NOW_MS: u64 = 1_800_000_000_000;

/// Returns a copy of 10 s at 1 Gbit/s that ended just now.
fn copy() -> MeasurementRecord {
    MeasurementRecord {
        from: "campus".to_owned(),
        to: "archive".to_owned(),
        reporter: PublicKey::from_bytes([1; 32]),
        start_ms: NOW_MS - 10_000,
        duration_s: 10.0,
        kind: MeasurementKind::Throughput,
        method: MeasurementMethod::Transfer,
        conditions: Conditions {
            bytes: Some(1_250_000_000),
            streams: Some(4),
            limit: Some(drs::Limit::Path),
            ..Conditions::default()
        },
        values: Values {
            rate_bps: Some(1e9),
            rtt: Distribution::from_times(&[0.09, 0.088, 0.12]),
            loss: Some(1e-6),
            ..Values::default()
        },
    }
}

fn sample(at_ms: u64, value: f64) -> MeasurementSample {
    MeasurementSample {
        quantity: MeasuredQuantity::Rate,
        at_ms,
        value,
        bound: ValueBound::Exact,
    }
}

#[test]
fn a_record_is_reported_value_by_value() {
    let samples: Vec<MeasurementSample> = copy().samples().collect();
    let middle = NOW_MS - 5_000;
    let [rate, rtt, loss] = samples.as_slice() else {
        panic!("{samples:?}")
    };
    assert_eq!(*rate, sample(middle, 1e9));
    // For a copy it is the minimum round trip: the others waited in the copy's own queue.
    assert_eq!((rtt.quantity, rtt.value), (MeasuredQuantity::Rtt, 0.088));
    assert_eq!((loss.quantity, loss.value), (MeasuredQuantity::Loss, 1e-6));
}

#[test]
fn a_rate_limited_by_something_else_is_a_lower_bound() {
    use drs::Limit;
    let bound = |method, limit| {
        let mut record = copy();
        (record.method, record.conditions.limit) = (method, limit);
        record.rate_bound()
    };
    for limit in Limit::ALL {
        let exact = matches!(limit, Limit::Path | Limit::Loss);
        let expected = if exact {
            ValueBound::Exact
        } else {
            ValueBound::AtLeast
        };
        assert_eq!(
            bound(MeasurementMethod::Transfer, Some(limit)),
            expected,
            "{limit}"
        );
        assert_eq!(
            bound(MeasurementMethod::Archive, Some(limit)),
            expected,
            "{limit}"
        );
    }
    assert_eq!(bound(MeasurementMethod::Relay, None), ValueBound::AtLeast);
    assert_eq!(bound(MeasurementMethod::Archive, None), ValueBound::Exact);
}

#[test]
fn json_omits_unknown_values_and_round_trips() {
    let record = copy();
    let json = serde_json::to_value(&record).unwrap();
    assert_eq!(json["conditions"]["limit"], "path");
    assert_eq!(json["method"], "transfer");
    assert!(json["values"].get("delay").is_none() && json["values"].get("hops").is_none());
    assert_eq!(
        serde_json::from_value::<MeasurementRecord>(json.clone()).unwrap(),
        record
    );
    let mut wrong = json;
    wrong["conditions"]["limit"] = "weather".into();
    assert!(serde_json::from_value::<MeasurementRecord>(wrong).is_err());
}

#[test]
fn distributions_summarize_their_times() {
    let times = Distribution::from_times(&[0.3, 0.1, 0.2, 0.4]).unwrap();
    assert_eq!(
        (
            times.min_s,
            times.max_s,
            times.p50_s,
            times.p95_s,
            times.count
        ),
        (0.1, 0.4, Some(0.2), Some(0.4), Some(4))
    );
    assert!(
        (times.mean_s - 0.25).abs() < 1e-12
            && (times.stddev_s.unwrap() - 0.0125f64.sqrt()).abs() < 1e-12
    );
    assert_eq!(Distribution::from_times(&[]), None);
}
