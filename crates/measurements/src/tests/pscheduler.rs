//! Reading and writing of pScheduler's JSON.

use std::path::Path;

use longhaul_proto::PublicKey;
use proptest::prelude::*;

use crate::fuzzing::{check_properties, run_text};
use crate::pscheduler::{ReadError, WriteError, read, read_duration, write, write_duration};
use crate::{
    MeasurementKind, MeasurementMethod, MeasurementRecord, RecordBounds, ValueBound, fuzzing,
};

fn reporter() -> PublicKey {
    PublicKey::from_bytes([3; 32])
}

fn record(name: &str) -> MeasurementRecord {
    let record = read(&run_text(name), reporter()).unwrap();
    record
        .check(fuzzing::NOW_MS, &RecordBounds::default())
        .unwrap();
    check_properties(&record);
    record
}

#[test]
fn throughput_is_read_with_its_intervals() {
    let record = record("throughput");
    assert_eq!(
        (record.from.as_str(), record.to.as_str()),
        ("ps-a.example", "ps-b.example")
    );
    assert_eq!(
        (record.kind, record.method, record.reporter),
        (
            MeasurementKind::Throughput,
            MeasurementMethod::Archive,
            reporter()
        )
    );
    assert_eq!(
        (record.start_ms, record.duration_s),
        (1_791_990_400_000, 10.0)
    );
    assert_eq!(
        (record.values.rate_bps, record.values.retransmits),
        (Some(2e9), Some(4))
    );
    assert_eq!(
        (record.conditions.streams, record.conditions.tool.as_deref()),
        (Some(2), Some("a-tool"))
    );
    let [first, second] = record.values.intervals.as_slice() else {
        panic!("two intervals")
    };
    assert_eq!(
        (first.rate_bps, first.omitted, first.retransmits),
        (1.8e9, true, Some(4))
    );
    assert_eq!(
        (second.start_s, second.end_s, second.retransmits),
        (5.0, 10.0, None)
    );
    assert_eq!(record.rate_bound(), ValueBound::Exact);
}

#[test]
fn prescribed_rates_are_lower_bounds_and_reverse_swaps_ends() {
    let record = record("throughput-udp");
    assert_eq!(
        (record.from.as_str(), record.to.as_str()),
        ("ps-b.example", "ps-a.example")
    );
    assert_eq!(record.rate_bound(), ValueBound::AtLeast);
    assert_eq!(
        (record.values.loss, record.values.jitter_s),
        (Some(0.0025), Some(0.00021))
    );
}

#[test]
fn round_trips_and_delays_are_read() {
    let rtt = record("rtt");
    let times = rtt.values.rtt.unwrap();
    assert_eq!(
        (times.min_s, times.p50_s, times.max_s, times.count),
        (0.0881, Some(0.0882), 0.0891, Some(3))
    );
    assert_eq!(
        (rtt.values.loss, rtt.conditions.packets),
        (Some(0.25), Some(4))
    );

    let latency = record("latency");
    let times = latency.values.delay.unwrap();
    assert!(
        (times.p50_s.unwrap() - 0.04412).abs() < 1e-9 && (times.min_s + 0.00005).abs() < 1e-9,
        "{times:?}"
    );
    assert_eq!((times.count, latency.values.loss), (Some(597), Some(0.005)));
    assert!((latency.conditions.clock_error_s.unwrap() - 0.0004).abs() < 1e-12);
    // Ten times as wide.
    let wide = record("latency-wide").values.delay.unwrap();
    assert!((wide.max_s - 0.04).abs() < 1e-12);
}

#[test]
fn traces_are_read() {
    let trace = record("trace");
    let [first, silent, last] = trace.values.hops.as_slice() else {
        panic!("three hops")
    };
    assert_eq!(first.rtt_s, Some(0.0002));
    assert_eq!(*silent, crate::TraceHop::default());
    assert_eq!(
        (last.autonomous_system, last.hostname.as_deref()),
        (Some(64500), Some("r1.example"))
    );
    // Example from pScheduler.
    let example = data("trace-result.json");
    let run = run_text("trace");
    let begin = run.find("\"result\": {\"schema\"").unwrap();
    let real = format!("{}\"result\": {example}}}", &run[..begin]);
    let record = read(&real, reporter()).unwrap();
    check_properties(&record);
    assert_eq!(record.values.hops.len(), 10);
}

fn data(name: &str) -> String {
    std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/pscheduler")
            .join(name),
    )
    .unwrap()
}

#[test]
fn wrapped_archiver_input_is_unwrapped() {
    // Example from pScheduler, of a test that measures nothing.
    let error = read(&data("archiver-input.json"), reporter()).unwrap_err();
    assert_eq!(error, ReadError::Type("simplestream".to_owned()));
    let rtt = run_text("rtt");
    let wrapped = format!("{{\"data\": {{}}, \"result\": {rtt}, \"attempts\": 3}}");
    assert_eq!(read(&wrapped, reporter()), read(&rtt, reporter()));
    let spec = "\"source\": \"ps-a.example\", \"dest\": \"ps-b.example\", ";
    let bare = rtt.replace(spec, "");
    assert_eq!(read(&bare, reporter()), read(&rtt, reporter()));
    let example = bare.replace(
        "[\"ps-a.example\", \"ps-b.example\"]",
        "[{\"host\": \"ps-a.example\", \"result\": 1}, {\"host\": \"ps-b.example\"}]",
    );
    assert_eq!(read(&example, reporter()), read(&rtt, reporter()));
    let nobody = bare.replace("[\"ps-a.example\", \"ps-b.example\"]", "[]");
    assert!(matches!(
        read(&nobody, reporter()),
        Err(ReadError::Field {
            field: "test.spec.source",
            ..
        })
    ));
}

#[test]
fn a_moment_without_an_offset_is_in_utc() {
    let at = |moment: &str| {
        read(
            &run_text("rtt").replace("2026-10-14T15:06:40Z", moment),
            reporter(),
        )
        .map(|record| record.start_ms)
    };
    for moment in [
        "2026-10-14T15:06:40",
        "2026-10-14T11:06:40-04:00",
        "2026-10-14T17:06:40.000+02:00",
    ] {
        assert_eq!(at(moment), Ok(1_791_990_400_000), "{moment}");
    }
    assert!(at("2026-13-14T15:06:40Z").is_err());
    assert!(at("1600-01-01T00:00:00Z").is_err());
}

#[test]
fn failed_runs_are_no_measurements() {
    let failed = run_text("rtt").replace(
        "\"succeeded\": true",
        "\"succeeded\": false, \"error\": \"no route\"",
    );
    assert_eq!(
        read(&failed, reporter()),
        Err(ReadError::Failed("no route".to_owned()))
    );
}

#[test]
fn durations_are_read_and_written() {
    for (text, seconds) in [
        ("PT31S", 31.0),
        ("PT0.0002S", 0.0002),
        ("P1DT2H", 93_600.0),
        ("P1W", 604_800.0),
        ("PT1M30.5S", 90.5),
        ("PT0S", 0.0),
    ] {
        assert_eq!(read_duration(text), Some(seconds), "{text}");
    }
    for text in [
        "",
        "P",
        "PT",
        "31",
        "P1Y",
        "P1M",
        "-PT1S",
        "1 s",
        "PT1e3S",
        "PT99999999999999999999S",
    ] {
        assert_eq!(read_duration(text), None, "{text}");
    }
    assert_eq!(write_duration(0.0002), "PT0.0002S");
    assert_eq!(write_duration(31.0), "PT31S");
    assert_eq!(write_duration(f64::NAN), "PT0S");
}

proptest! {
    #[test]
    fn durations_round_trip(seconds in 0f64..1e9) {
        let back = read_duration(&write_duration(seconds)).unwrap();
        prop_assert!((back - seconds).abs() <= 1e-9 + seconds * 1e-15);
    }
}

#[test]
fn written_records_are_read_back_unchanged() {
    for name in ["throughput", "rtt", "latency", "latency-wide", "trace"] {
        let record = record(name);
        let reported = write(&record, |end| Some(end.to_owned())).unwrap();
        assert_eq!(reported["schedule"]["start"], "2026-10-14T15:06:40Z");
        assert_eq!(
            reported["id"],
            write(&record, |end| Some(end.to_owned())).unwrap()["id"]
        );
        let back = read(&reported.to_string(), reporter()).unwrap();
        assert_eq!(
            (back.start_ms, back.duration_s, back.kind),
            (record.start_ms, record.duration_s, record.kind),
            "{name}"
        );
        assert_eq!(back.values.rate_bps, record.values.rate_bps);
        assert_eq!(back.values.hops, record.values.hops);
        assert_eq!(back.values.intervals, record.values.intervals);
        let least = |record: &MeasurementRecord| {
            record
                .values
                .rtt
                .or(record.values.delay)
                .map(|times| (times.min_s * 1e5).round())
        };
        assert_eq!(least(&back), least(&record), "{name}");
    }
}

#[test]
fn the_limit_of_a_copy_is_preserved() {
    let mut copy = super::copy();
    copy.conditions.limit = Some(drs::Limit::SendBuffer);
    let reported = write(&copy, |end| Some(format!("{end}.example"))).unwrap();
    let uuid = reported["id"].as_str().unwrap();
    assert_eq!((uuid.len(), &uuid[14..15]), (36, "8"));
    let back = read(&reported.to_string(), reporter()).unwrap();
    assert_eq!(
        (back.from.as_str(), back.conditions.limit),
        ("campus.example", copy.conditions.limit)
    );
    assert_eq!(back.reporter, reporter());
    assert_eq!(
        write(&copy, |_| None),
        Err(WriteError::NoHost("campus".to_owned()))
    );
    assert_eq!(
        write(&copy, |_| Some("a b".to_owned())),
        Err(WriteError::NoHost("campus".to_owned()))
    );
    copy.kind = MeasurementKind::Latency;
    assert_eq!(
        write(&copy, |end| Some(end.to_owned())),
        Err(WriteError::NoHistogram)
    );
}
