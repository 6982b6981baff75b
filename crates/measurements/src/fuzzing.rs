//! Properties that must hold for any measurement of others; see [`longhaul_proto::fuzzing`].

#![allow(clippy::unwrap_used)] // a broken property is to panic

use longhaul_proto::PublicKey;
use longhaul_proto::fuzzing::{FuzzTarget, Seed, assert_one_line, text_seeds};

use crate::{MeasurementRecord, RecordBounds, pscheduler};

/// Fuzz targets of this crate.
pub const TARGETS: &[FuzzTarget] = &[FuzzTarget {
    name: "pscheduler",
    property: check_archive,
    seeds,
}];

/// Time as of which records are checked: a minute after those of the seeds began.
pub const NOW_MS: u64 = 1_791_990_460_000;

/// Parses any text as what pScheduler archives. The result is a record, or a one-line error. A
/// record that passes the check can be stored and reported again.
fn check_archive(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match pscheduler::read(text, PublicKey::from_bytes([7; 32])) {
        Err(error) => assert_one_line(&error),
        Ok(record) => match record.check(NOW_MS, &RecordBounds::default()) {
            Err(fault) => assert_one_line(&fault),
            Ok(()) => check_properties(&record),
        },
    }
}

/// Checks the properties of every record that passed the check.
pub fn check_properties(record: &MeasurementRecord) {
    let json = serde_json::to_string(record).unwrap();
    assert!(serde_json::from_str::<MeasurementRecord>(&json).is_ok());
    assert!(record.samples().all(|sample| sample.value.is_finite()));
    match pscheduler::write(record, |end| Some(end.to_owned())) {
        Err(error) => assert_one_line(&error),
        Ok(reported) => {
            let again = pscheduler::read(&reported.to_string(), record.reporter).unwrap();
            assert_eq!(again.kind, record.kind);
            assert_eq!((&again.from, &again.to), (&record.from, &record.to));
        }
    }
}

/// Returns a run with a test and its result.
fn run(test: &str, spec: &str, result: &str) -> String {
    format!(
        r#"{{"id": "0d7b3c1e-1c1e-4b7e-9a53-0f6d7a2f9c11",
 "schedule": {{"start": "2026-10-14T15:06:40Z", "duration": "PT20S"}},
 "test": {{"type": "{test}", "spec": {{"source": "ps-a.example", "dest": "ps-b.example"{spec}}}}},
 "tool": {{"name": "a-tool", "version": "1.0"}}, "participants": ["ps-a.example", "ps-b.example"],
 "result": {result}}}"#
    )
}

/// A result of each supported test, by name: the test, additions to its specification, and the
/// result.
pub const RUNS: [(&str, &str, &str, &str); 6] = [
    (
        "throughput",
        "throughput",
        r#", "parallel": 2, "duration": "PT10S""#,
        r#"{"schema": 1, "succeeded": true, "diags": "", "intervals": [
  {"streams": [{"stream-id": 5, "start": 0, "end": 5, "throughput-bits": 1e9, "throughput-bytes": 625000000, "retransmits": 3}],
   "summary": {"start": 0, "end": 5, "throughput-bits": 1.8e9, "throughput-bytes": 1125000000, "retransmits": 4, "omitted": true}},
  {"streams": [], "summary": {"start": 5, "end": 10.0, "throughput-bits": 2.2e9, "throughput-bytes": 1375000000, "sent": null, "jitter": null, "rtt": 88123}}],
 "summary": {"streams": [{"stream-id": 5, "throughput-bits": 1.0e9}, {"stream-id": "7", "throughput-bits": 1.0e9}],
  "summary": {"start": 0, "end": 10.0, "throughput-bits": 2.0e9, "throughput-bytes": 2500000000, "retransmits": 4}}}"#,
    ),
    (
        "throughput-udp",
        "throughput",
        r#", "udp": true, "bandwidth": 100000000, "reverse": true, "schema": 1"#,
        r#"{"schema": 1, "succeeded": true, "diags": "", "intervals": [], "summary": {"streams": [],
  "summary": {"start": 0, "end": 10, "throughput-bits": 9.9e7, "sent": 10000, "lost": 25, "jitter": 0.00021}}}"#,
    ),
    (
        "rtt",
        "rtt",
        r#", "count": 4"#,
        r#"{"schema": 1, "succeeded": true, "sent": 4, "received": 3, "lost": 1, "loss": 0.25, "min": "PT0.0881S", "mean": "PT0.0884S", "max": "PT0.0891S", "stddev": "PT0.0003S",
 "roundtrips": [{"seq": 1, "ip": "192.0.2.7", "length": 64, "ttl": 55, "rtt": "PT0.0891S"}, {"seq": 2, "rtt": "PT0.0881S"}, {"seq": 3, "error": "host-unreachable"}, {"seq": 4, "rtt": "PT0.0882S"}]}"#,
    ),
    (
        "latency",
        "latencybg",
        "",
        r#"{"schema": 1, "succeeded": true, "packets-sent": 600, "packets-received": 597, "packets-lost": 3, "packets-duplicated": 0, "packets-reordered": 0,
 "max-clock-error": 0.4, "histogram-latency": {"44.12": 590, "44.5": 6, "-0.05": 1}, "histogram-ttl": {"55": 597}}"#,
    ),
    (
        "latency-wide",
        "latency",
        r#", "bucket-width": 0.01, "packet-count": 10"#,
        r#"{"succeeded": true, "histogram-latency": {"4": 10}}"#,
    ),
    (
        "trace",
        "trace",
        "",
        r#"{"schema": 1, "succeeded": true, "paths": [[{"ip": "192.0.2.1", "rtt": "PT0.0002S"}, {},
  {"ip": "2001:db8::1", "hostname": "r1.example.", "rtt": "PT0.0119S", "as": {"number": 64500, "owner": "EXAMPLE - Somebody"}, "error": "communication-administratively-prohibited"}], []]}"#,
    ),
];

/// Returns the text of a run of [`RUNS`].
#[must_use]
pub fn run_text(name: &str) -> String {
    let (_, test, spec, result) = RUNS.iter().find(|run| run.0 == name).unwrap();
    run(test, spec, result)
}

fn seeds() -> Vec<Seed> {
    let runs: Vec<(&str, String)> = RUNS
        .iter()
        .map(|(name, test, spec, result)| (*name, run(test, spec, result)))
        .collect();
    let mut seeds: Vec<(&str, &str)> = runs
        .iter()
        .map(|(name, text)| (*name, text.as_str()))
        .collect();
    let wrapped = format!(
        r##"{{"#": "a", "data": {{}}, "result": {}, "#": "b", "attempts": 3}}"##,
        run_text("rtt")
    );
    let hosts = run_text("rtt")
        .replace(
            r#"["ps-a.example", "ps-b.example"]"#,
            r#"[{"host": "ps-a.example", "result": {}}, {"participant": "ps-b.example"}]"#,
        )
        .replace(r#""source": "ps-a.example", "dest": "ps-b.example", "#, "");
    let failed = run_text("rtt").replace(
        "\"succeeded\": true",
        "\"succeeded\": false, \"error\": \"no \\u001b\\u202e route\"",
    );
    let negative = run_text("throughput").replace("2.0e9", "-2.0e9");
    let huge = run_text("throughput").replace("2.0e9", "1e308");
    let steering = run_text("latency").replace("latencybg", "\\u202e\\u001b[2J");
    let no_time = run_text("rtt").replace("2026-10-14T15:06:40Z", "yesterday");
    let local = run_text("rtt").replace("2026-10-14T15:06:40Z", "2026-10-14T15:06:40");
    let years = run_text("rtt").replace("PT20S", "P1Y");
    let bins = run_text("latency").replace("44.12", "1e999");
    seeds.extend([
        ("wrapped", wrapped.as_str()),
        ("hosts", hosts.as_str()),
        ("failed", failed.as_str()),
        ("negative", negative.as_str()),
        ("huge", huge.as_str()),
        ("steering", steering.as_str()),
        ("no-time", no_time.as_str()),
        ("no-offset", local.as_str()),
        ("years", years.as_str()),
        ("no-bin", bins.as_str()),
        ("no-run", "{\"result\": {}}"),
        ("no-json", "\u{2028}"),
    ]);
    text_seeds(&seeds)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn the_corpora_hold() {
        longhaul_proto::fuzzing::replay_corpora(super::TARGETS);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        /// Seeds with bytes changed, removed and repeated.
        #[test]
        fn what_is_near_the_seeds_holds(
            target in any::<prop::sample::Index>(),
            seed in any::<prop::sample::Index>(),
            changes in prop::collection::vec((any::<usize>(), any::<u8>(), 0u8..4), 0..6),
        ) {
            let target = target.get(super::TARGETS);
            let seeds = (target.seeds)();
            let data = longhaul_proto::fuzzing::apply_changes(&seed.get(&seeds).1, &changes);
            (target.property)(&data);
        }
    }
}
