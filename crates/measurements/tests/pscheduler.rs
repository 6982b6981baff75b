//! Validation of written records by pScheduler's own validators.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that can't go on has failed

use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use drs::Limit;
use longhaul_measurements::{
    Conditions, Distribution, HistogramBin, MeasurementKind, MeasurementMethod, MeasurementRecord,
    RateInterval, TraceHop, Values, pscheduler,
};
use longhaul_proto::PublicKey;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::Value;

/// Number of records of each kind to validate.
const RECORDS: usize = 60;

/// Returns a Python interpreter with jsonschema, if there is one.
fn python() -> Option<&'static str> {
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let asked = Command::new(python)
            .args(["-c", "import jsonschema"])
            .stderr(Stdio::null())
            .status();
        asked.is_ok_and(|status| status.success())
    })
}

/// Validates runs. Returns true if all are valid, and the output.
fn validate(python: &str, runs: &[Value]) -> (bool, String) {
    let mut check = Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pscheduler/check.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: String = runs.iter().map(|run| format!("{run}\n")).collect();
    let mut stdin = check.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = check.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let reported = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), reported)
}

fn times() -> impl Strategy<Value = Distribution> {
    prop::collection::vec(1e-9f64..50.0, 1..20)
        .prop_map(|times| Distribution::from_times(&times).unwrap())
}

fn values() -> impl Strategy<Value = Values> {
    let interval = (
        0f64..1e3,
        0f64..10.0,
        0f64..1e12,
        prop::option::of(any::<u64>()),
        any::<bool>(),
    )
        .prop_map(
            |(start_s, length, rate_bps, retransmits, omitted)| RateInterval {
                start_s,
                end_s: start_s + length,
                rate_bps,
                retransmits,
                omitted,
            },
        );
    let bin = (-0.01f64..2.0, 1u64..1_000_000)
        .prop_map(|(delay_s, count)| HistogramBin { delay_s, count });
    let errors = prop::option::of("[a-z-]{1,20}|host-unreachable");
    let hop = (
        prop::option::of(any::<IpAddr>()),
        prop::option::of("\\PC{1,20}|[a-z]{1,10}\\.example"),
        prop::option::of(0f64..10.0),
        prop::option::of(any::<u32>()),
        errors,
    )
        .prop_map(|(ip, hostname, rtt_s, autonomous_system, error)| TraceHop {
            ip,
            hostname,
            rtt_s,
            autonomous_system,
            error,
        });
    (
        (
            0f64..1e13,
            times(),
            times(),
            0f64..=1.0,
            prop::option::of(0f64..1.0),
        ),
        (
            prop::option::of(any::<u64>()),
            prop::collection::vec(interval, 0..5),
            prop::collection::vec(bin, 1..9),
            prop::collection::vec(hop, 1..9),
        ),
    )
        .prop_map(
            |((rate, rtt, delay, loss, jitter_s), (retransmits, intervals, histogram, hops))| {
                Values {
                    rate_bps: Some(rate),
                    rtt: Some(rtt),
                    delay: Some(delay),
                    loss: Some(loss),
                    jitter_s,
                    retransmits,
                    intervals,
                    histogram,
                    hops,
                }
            },
        )
}

fn record(kind: MeasurementKind) -> impl Strategy<Value = MeasurementRecord> {
    let conditions = (
        prop::option::of(1u32..1000),
        prop::option::of("[a-z]{0,9}"),
        prop::option::of(prop::sample::select(Limit::ALL.to_vec())),
        1u64..1_000_000_000,
        prop::option::of(0f64..0.1),
    )
        .prop_map(
            |(streams, congestion_control, limit, packets, clock_error_s)| Conditions {
                bytes: None,
                streams,
                congestion_control,
                limit,
                packets: Some(packets),
                clock_error_s,
                tool: None,
            },
        );
    let method = prop::sample::select(vec![
        MeasurementMethod::Probe,
        MeasurementMethod::Transfer,
        MeasurementMethod::Relay,
        MeasurementMethod::Archive,
    ]);
    (
        0u64..4_000_000_000_000,
        0f64..1e6,
        method,
        conditions,
        values(),
    )
        .prop_map(move |(start_ms, duration_s, method, conditions, values)| {
            MeasurementRecord {
                from: "starlight".to_owned(),
                to: "2001:db8::7".to_owned(),
                reporter: PublicKey::from_bytes([9; 32]),
                start_ms,
                duration_s,
                kind,
                method,
                conditions,
                values,
            }
        })
}

#[test]
fn pschedulers_validators_accept_written_records() {
    let Some(python) = python() else {
        eprintln!("left out: no Python with jsonschema here (Debian: python3-jsonschema)");
        return;
    };
    let mut runner = TestRunner::deterministic();
    let mut runs = Vec::new();
    for kind in [
        MeasurementKind::Throughput,
        MeasurementKind::Rtt,
        MeasurementKind::Latency,
        MeasurementKind::Loss,
        MeasurementKind::Trace,
    ] {
        for _ in 0..RECORDS {
            let record = record(kind).new_tree(&mut runner).unwrap().current();
            runs.push(pscheduler::write(&record, |end| Some(end.to_owned())).unwrap());
        }
    }
    let (valid, reported) = validate(python, &runs);
    let faults: Vec<&str> = reported
        .lines()
        .filter(|line| !line.ends_with(": valid"))
        .collect();
    assert!(valid && faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(reported.lines().count(), 3 * runs.len());

    // The validators detect faults: each of these is refused.
    let broken = |at: usize, change: fn(&mut Value)| {
        let mut run = runs.get(at * RECORDS).unwrap().clone();
        change(&mut run);
        let (valid, reported) = validate(python, &[run]);
        assert!(!valid && !reported.contains("Traceback"), "{reported}");
    };
    broken(0, |run| run["result"]["summary"] = Value::Null);
    broken(0, |run| run["test"]["spec"]["duration"] = "1 s".into());
    broken(1, |run| run["result"]["loss"] = 1.5.into());
    broken(1, |run| run["test"]["spec"]["dest"] = 7.into());
    broken(2, |run| {
        run["result"]["histogram-latency"]["soon"] = 1.into()
    });
    broken(4, |run| {
        run["result"]["paths"][0][0]["ip"] = "nowhere".into()
    });
    broken(4, |run| run["schedule"]["start"] = "tomorrow".into());
}

#[test]
fn pschedulers_validators_accept_the_test_inputs() {
    let Some(python) = python() else {
        eprintln!("left out: no Python with jsonschema here (Debian: python3-jsonschema)");
        return;
    };
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/pscheduler");
    let runs: Vec<Value> = [
        "throughput",
        "throughput-udp",
        "rtt",
        "latency",
        "latency-wide",
        "trace",
    ]
    .iter()
    .map(|name| serde_json::from_str(&std::fs::read_to_string(corpus.join(name)).unwrap()).unwrap())
    .collect();
    let (valid, reported) = validate(python, &runs);
    assert!(valid, "{reported}");
}
