//! Copies over a long path with a table of routes but without a controller: routes that are right,
//! and routes that lead nowhere.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use wanbed::Overrides;

use crate::common::noise;
use crate::path::LongPath;

const BYTES: usize = 24 << 20;

/// The path, so slow at its end that a file takes ten seconds over any route. A route joins the
/// running copy, and is judged by some round trips, even if this machine is slow to open it.
fn narrow_path() -> Option<LongPath> {
    LongPath::with(&Overrides::default().set("links.last.rate", "20 Mbit/s"))
}

/// Returns a new table that sends everything over this route.
fn table(route: &str) -> Value {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis() as u64;
    let spread = |p50: f64| json!({ "p10": p50 / 2.0, "p50": p50, "p90": p50 * 2.0 });
    let option = json!({
        "via": [], "route": route, "seconds": spread(1.0), "rate_bps": spread(1e8), "share": 1.0
    });
    let sizes = json!([{ "at_least_bytes": 0, "routes": [option] }]);
    json!({
        "from": "client", "receives": true, "map_version": 1, "made_ms": now,
        "valid_until_ms": now + 600_000, "next": null,
        "destinations": [{ "to": "server", "addresses": ["10.77.0.0/16"], "sizes": sizes }],
    })
}

/// Returns a new table that sends everything directly, with this fallback route.
fn with_fall_back(route: &str) -> Value {
    let mut table = table("direct");
    let class = &mut table["destinations"][0]["sizes"][0];
    class["fall_back"] =
        json!([{ "via": [], "route": route, "seconds": null, "rate_bps": null, "share": 0.0 }]);
    table
}

/// Serves a file of this many bytes, and stores such a table on the client. Returns the fallback
/// route, over both depots.
fn served_with_fall_back(path: &LongPath, bytes: usize) -> String {
    std::fs::write(path.root().join("file"), noise(bytes, 7)).unwrap();
    let around = path.route(&["near", "far"]);
    path.keep_table(Some(&with_fall_back(&around)));
    around
}

/// The bytes that this route carried, by any transport.
fn bytes_by(report: &Value, route: &str) -> u64 {
    let routes = report["routes"].as_array().unwrap();
    let is_route = |name: &str| name.strip_suffix(" by quic").unwrap_or(name) == route;
    let carried = routes
        .iter()
        .filter(|sum| is_route(sum["route"].as_str().unwrap()));
    carried.map(|sum| sum["bytes"].as_u64().unwrap()).sum()
}

/// Asserts which route carried the bytes. Durations are only printed, since machines differ.
#[test]
fn a_right_table_is_used_and_a_wrong_one_loses_no_data() {
    let Some(path) = narrow_path() else { return };
    std::fs::write(path.root().join("file"), noise(BYTES, 7)).unwrap();
    path.keep_table(None);
    let direct = path.fetched("file", &[]);
    assert!(bytes_by(&direct, "direct") >= BYTES as u64);
    let seconds = |report: &Value| report["seconds"].as_f64().unwrap();
    let right = path.route(&["near", "far"]);
    path.keep_table(Some(&table(&right)));
    let routed = path.fetched("file", &[]);
    assert_eq!(routed["routing"]["by"], "cache");
    assert!(bytes_by(&routed, &right) > 0, "{}", routed["routing"]);
    eprintln!(
        "direct {:.2} s, with depots {:.2} s",
        seconds(&direct),
        seconds(&routed)
    );
    // A port without a listener; an address that does not answer.
    let closed = path.route(&["near"]).replace(":7510", ":7599");
    for nowhere in [closed, "10.99.99.99:7510".to_owned()] {
        path.keep_table(Some(&table(&nowhere)));
        let lied = path.fetched("file", &[]);
        assert_eq!(lied["routing"]["by"], "cache");
        // A block may be sent twice: late ones are retransmitted at the end.
        assert!(
            bytes_by(&lied, "direct") >= BYTES as u64,
            "{}",
            lied["routing"]
        );
        assert_eq!(bytes_by(&lied, &nowhere), 0, "{}", lied["routing"]);
        eprintln!("by way of {nowhere} {:.2} s", seconds(&lied));
    }
}

/// The network drops everything direct, and the table prefers the direct route. The copy, otherwise
/// too small for depots, uses the table's fallback route.
#[test]
fn a_silent_direct_route_is_replaced_even_for_small_copies() {
    let Some(path) = LongPath::up() else { return };
    let small = 100 << 10;
    let around = served_with_fall_back(&path, small);
    path.drop_what_goes_directly(true);
    let report = path.fetched("file", &[]);
    assert!(bytes_by(&report, &around) >= small as u64, "{report}");
    assert_eq!(bytes_by(&report, "direct"), 0, "{report}");
    let why = &report["routing"]["why"];
    assert!(
        why[0]
            .as_str()
            .unwrap()
            .contains("direct route was not open"),
        "{why}"
    );
}

/// The same if the network refuses the connection at once, and if there is no fallback route.
#[test]
fn a_refused_direct_route_is_replaced_by_another() {
    let Some(path) = LongPath::up() else { return };
    let small = 100 << 10;
    let around = served_with_fall_back(&path, small);
    path.refuse_what_goes_directly();
    let report = path.fetched("file", &[]);
    assert!(bytes_by(&report, &around) >= small as u64, "{report}");
    let why = &report["routing"]["why"];
    assert!(
        why[0].as_str().unwrap().contains("could not be opened"),
        "{why}"
    );
    path.keep_table(Some(&table("direct")));
    let error = path.refused("server", &[]);
    assert!(error.contains("route direct"), "{error}");
}

/// The same if the direct route falls silent in the middle of a copy that is too short for opening
/// another route.
#[test]
fn a_copy_moves_to_another_route_if_direct_falls_silent() {
    let overrides = Overrides::default().set("links.last.rate", "2 Mbit/s");
    let Some(path) = LongPath::with(&overrides) else {
        return;
    };
    let bytes = 2 << 20;
    let around = served_with_fall_back(&path, bytes);
    for arguments in [&[][..], &["--streams", "2"]] {
        let mut is_open = false;
        let report = path.fetched_hearing("file", arguments, |event| {
            if event["event"] == "stream_opened" && !std::mem::replace(&mut is_open, true) {
                path.drop_what_goes_directly(true);
            }
        });
        assert!(bytes_by(&report, &around) > 0, "{report}");
        let why = &report["routing"]["why"];
        assert!(
            why[0].as_str().unwrap().contains("nothing had moved"),
            "{why}"
        );
        path.drop_what_goes_directly(false);
    }
}

/// A depot that accepts sessions and then moves nothing: it is stopped once a stream is
/// established, as on a machine that hangs.
#[test]
fn blocks_at_a_hanging_depot_are_sent_elsewhere() {
    let Some(path) = narrow_path() else { return };
    std::fs::write(path.root().join("file"), noise(BYTES, 7)).unwrap();
    let route = path.route(&["near"]);
    path.keep_table(Some(&table(&route)));
    let depot = path.first_depot().id().to_string();
    let signal = |name: &str| {
        let sent = std::process::Command::new("kill")
            .args([name, &depot])
            .status();
        assert!(sent.unwrap().success());
    };
    let mut stopped = false;
    let report = path.fetched_hearing("file", &[], |event| {
        if !stopped && event["event"] == "stream_opened" && event["route"] == route.as_str() {
            signal("-STOP");
            stopped = true;
        }
    });
    signal("-CONT");
    assert!(stopped, "{}", report["routing"]);
    let judged = report["routing"]["judged"].as_array().unwrap();
    let bad = judged
        .iter()
        .any(|one| one["standing"] == "stalled" || one["standing"] == "late");
    assert!(bad, "{judged:?}");
    eprintln!(
        "by a depot that hangs {:.2} s",
        report["seconds"].as_f64().unwrap()
    );
}
