//! Measurements on loopback, and their failures.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::common::ClosedPort;
use crate::stage::{Service, Stage, errors, signal};

/// Runs `longhaul perf` as `me`, and returns its JSON.
fn measured(stage: &Stage, server: &Service, arguments: &[&str]) -> Value {
    let output = perf(stage, server, &[&["--json"], arguments].concat());
    assert!(output.status.success(), "{}", errors(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn perf(stage: &Stage, server: &Service, arguments: &[&str]) -> Output {
    stage
        .longhaul("me")
        .args(["perf", "--host-key", &server.key, &server.address])
        .args(arguments)
        .output()
        .unwrap()
}

fn refused(output: &Output, code: i32, why: &str) {
    let said = errors(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(
        said.contains(why) && said.trim_end().lines().count() == 1,
        "{said}"
    );
}

#[test]
fn both_ends_count_the_same_bytes() {
    let stage = Stage::new();
    let server = stage.perf(&[]);
    for (arguments, sums) in [
        (
            &["-n", "3M", "-P", "2"][..],
            &["sum_sent", "sum_received"][..],
        ),
        (&["-n", "3M", "-R"], &["sum_sent", "sum_received"]),
        (
            &["-n", "3M", "--no-encryption"],
            &["sum_sent", "sum_received"],
        ),
        (
            &["-n", "3M", "-R", "--no-encryption", "-P", "3"],
            &["sum_sent"],
        ),
        (
            &["-n", "3M", "--both"],
            &["sum_received", "sum_received_bidir_reverse"],
        ),
    ] {
        let json = measured(&stage, &server, arguments);
        for sum in sums {
            assert_eq!(
                json["end"][sum]["bytes"],
                3 << 20,
                "{arguments:?} {sum}: {json}"
            );
            assert!(json["end"][sum]["bits_per_second"].as_f64() > Some(0.0));
        }
    }
}

#[test]
fn a_timed_measurement_leaves_out_its_beginning() {
    let stage = Stage::new();
    let server = stage.perf(&[]);
    let json = measured(&stage, &server, &["-t", "5s", "-O", "1s", "-i", "100ms"]);
    let intervals = json["intervals"].as_array().unwrap();
    let omitted = |interval: &Value| interval["sum"]["omitted"].as_bool().unwrap();
    assert!(omitted(&intervals[0]) && !omitted(intervals.last().unwrap()));
    let moved = |omit: bool| -> u64 {
        let counted = intervals
            .iter()
            .filter(|interval| omitted(interval) == omit);
        counted
            .map(|interval| interval["sum"]["bytes"].as_u64().unwrap())
            .sum()
    };
    let sent = json["end"]["sum_sent"]["bytes"].as_u64().unwrap();
    assert!(
        sent > 0 && sent >= moved(false) && moved(true) > 0,
        "{json}"
    );
    let seconds = json["end"]["sum_sent"]["seconds"].as_f64().unwrap();
    assert!(seconds > 0.2, "{seconds}");
}

#[test]
fn a_route_through_a_depot_is_measured() {
    let stage = Stage::new();
    let server = stage.perf(&[]);
    let depot = stage.depot("depot", None);
    let json = measured(
        &stage,
        &server,
        &["-n", "2M", "--both", "-P", "2", "--route", &depot.address],
    );
    assert_eq!(json["end"]["sum_received"]["bytes"], 2 << 20);
    assert_eq!(json["end"]["sum_received_bidir_reverse"]["bytes"], 2 << 20);
    assert_eq!(json["longhaul"]["route"], depot.address.as_str());
    let first_hop = json["start"]["connected"][0]["remote_port"]
        .as_u64()
        .unwrap();
    assert!(depot.address.ends_with(&format!(":{first_hop}")));
}

#[test]
fn a_file_server_measures_when_asked_to() {
    let stage = Stage::new();
    let without = stage.serve(&[]);
    refused(
        &perf(&stage, &without, &["-n", "1M"]),
        1,
        "start it with --perf",
    );
    let with = stage.serve(&["--perf"]);
    let json = measured(&stage, &with, &["-n", "1M"]);
    assert_eq!(json["end"]["sum_received"]["bytes"], 1 << 20);
    stage.noise("file", 1000);
    assert!(
        stage
            .cp(&with, &["file", &format!("lh://{}/", with.address)])
            .status
            .success()
    );
}

#[test]
fn each_refusal_has_its_exit_code() {
    let stage = Stage::new();
    let server = stage.perf(&["--max-streams", "2", "--max-time", "5s"]);
    refused(&perf(&stage, &server, &["-P", "3"]), 1, "1 to 2 streams");
    refused(&perf(&stage, &server, &["-t", "6s"]), 1, "up to 5 s");
    let stranger = stage
        .longhaul("stranger")
        .args(["perf", "--host-key", &server.key, &server.address])
        .output()
        .unwrap();
    assert_eq!(stranger.status.code(), Some(4), "{}", errors(&stranger));
    let other = stage.key("stranger");
    let mistaken = stage
        .longhaul("me")
        .args(["perf", "--host-key", &other, &server.address])
        .output()
        .unwrap();
    assert_eq!(mistaken.status.code(), Some(4), "{}", errors(&mistaken));
    let unknown = stage
        .longhaul("me")
        .args(["perf", &server.address])
        .output()
        .unwrap();
    refused(&unknown, 4, "--accept-new");
    let closed = ClosedPort::new();
    let gone = stage
        .longhaul("me")
        .args(["perf", "--json", "--host-key", &other])
        .arg(closed.address.to_string())
        .output()
        .unwrap();
    assert_eq!(gone.status.code(), Some(3), "{}", errors(&gone));
    let json: Value = serde_json::from_slice(&gone.stdout).unwrap();
    assert!(json["error"].is_string() && json["end"].is_null());
    for wrong in [
        &["perf"][..],
        &["perf", "--plan"],
        &["perf", "--serve"],
        &["perf", "--serve", "h"],
        &["perf", "h", "-t", "soon"],
        &["perf", "h", "--distance", "5"],
        &["perf", "h", "-i", "1us"],
        &[
            "perf", "--plan", "--rate", "1G", "--rtt", "1ms", "--mtu", "12",
        ],
    ] {
        let output = stage.longhaul("me").args(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_key_that_asks_too_often_waits() {
    let stage = Stage::new();
    let server = stage.perf(&["--max-per-minute", "2"]);
    measured(&stage, &server, &["-n", "1K"]);
    measured(&stage, &server, &["-n", "1K"]);
    refused(&perf(&stage, &server, &["-n", "1K"]), 1, "within a minute");
}

/// Starts a long measurement as `who`, and waits until bytes move.
pub fn under_way(
    stage: &Stage,
    who: &str,
    server: &Service,
    more: &[&str],
) -> (Child, impl BufRead + use<>) {
    let mut child = stage
        .longhaul(who)
        .args(["perf", "--host-key", &server.key, &server.address])
        .args(["-t", "10min", "-i", "10ms"])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("bit/s") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended early");
    }
    (child, lines)
}

#[test]
fn a_peer_that_dies_is_an_error_and_not_a_result() {
    for (more, through_depot) in [
        (&[][..], false),
        (&["--reverse"], false),
        (&["--both", "-P", "2"], true),
        (&["--no-encryption", "--reverse"], false),
    ] {
        let stage = Stage::new();
        let mut server = stage.perf(&[]);
        let depot = stage.depot("depot", None);
        let route = if through_depot {
            &depot.address
        } else {
            "direct"
        };
        let (mut child, mut lines) =
            under_way(&stage, "me", &server, &[more, &["--route", route]].concat());
        server.kill();
        // Read to the end, so that it does not wait for a reader.
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        let code = child.wait().unwrap().code();
        let mut said = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert_eq!(code, Some(5), "{more:?}: {said}");
        assert!(
            said.contains("broke off") && !rest.contains("received"),
            "{said}"
        );
    }
}

#[test]
fn a_client_that_dies_leaves_the_server_serving() {
    let stage = Stage::new();
    let server = stage.perf(&["--max-tests", "1"]);
    let (mut child, _lines) = under_way(&stage, "me", &server, &["--reverse"]);
    refused(
        &perf(&stage, &server, &["-n", "1K"]),
        1,
        "already runs 1 measurements",
    );
    child.kill().unwrap();
    child.wait().unwrap();
    // Its permit is free once the server has seen the end.
    while !perf(&stage, &server, &["-n", "1K"]).status.success() {}
    assert_eq!(server.terminate(), Some(0));
}

/// Waits until a measurement ends, and asserts that the server has ended it for lack of rights.
pub fn assert_withdrawn(child: Child, mut lines: impl BufRead) {
    // Read to the end, so that it does not wait for a reader.
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    refused(&output, 1, "may not measure any more");
    assert!(!rest.contains("received"), "{rest}");
}

#[test]
fn measurement_ends_when_its_grant_is_withdrawn() {
    let stage = Stage::new();
    let (ana, bo) = (stage.key("ana"), stage.key("bo"));
    let grants = stage.path("grants.toml");
    let grant_to = |key: &str| {
        let text = format!("[[grant]]\nkey = \"{key}\"\nread = [\"/\"]\n");
        std::fs::write(&grants, text).unwrap();
    };
    for more in [&["--reverse"][..], &["--both", "-P", "2"]] {
        grant_to(&ana);
        let server = stage.serve(&["--perf", "--grants", grants.to_str().unwrap()]);
        let (child, lines) = under_way(&stage, "ana", &server, more);
        grant_to(&bo);
        server.hang_up();
        assert_withdrawn(child, lines);
    }
}

#[test]
fn an_interrupt_ends_a_measurement() {
    let stage = Stage::new();
    let server = stage.perf(&[]);
    let (mut child, mut lines) = under_way(&stage, "me", &server, &[]);
    signal(&child, "INT");
    // Read to the end, so that it does not wait for a reader.
    std::io::copy(&mut lines, &mut std::io::sink()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn the_contests_rules_are_applied() {
    let stage = Stage::new();
    let server = stage.perf(&[]);
    let course = ["--distance", "10037", "--hops", "4"];
    let json = measured(&stage, &server, &[&["-n", "96M"][..], &course].concat());
    let record = &json["longhaul"]["land_speed_record"];
    assert_eq!(record["valid"], true);
    let rate = json["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .unwrap();
    let metres = record["terabit_metres_per_second"].as_f64().unwrap();
    assert!((metres / (rate * 10_037e3 / 1e12) - 1.0).abs() < 1e-9);
    assert_eq!(record["class"]["streams"], "single");
    let small = perf(
        &stage,
        &server,
        &[&["-n", "1M", "-P", "2"][..], &course].concat(),
    );
    let said = String::from_utf8(small.stdout).unwrap();
    assert!(said.contains("multiple streams"), "{said}");
    assert!(
        said.contains("not valid") && said.contains("less than 100,000,000 bytes"),
        "{said}"
    );
}

#[test]
fn a_plan_is_printed_without_any_network() {
    let stage = Stage::new();
    let plan = |more: &[&str]| {
        let output = stage
            .longhaul("me")
            .args([
                "perf",
                "--plan",
                "--rate",
                "2.4Gbit/s",
                "--rtt",
                "180ms",
                "--mtu",
                "9000",
            ])
            .args(more)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = plan(&[]);
    assert!(
        text.contains("51.5 MiB") && text.contains("9.052 min"),
        "{text}"
    );
    let json: Value =
        serde_json::from_str(&plan(&["--json", "--window", "4M", "--loss", "1e-6"])).unwrap();
    assert_eq!(json["window_bytes"], 54_000_000);
    assert_eq!(json["held_by"], "window");
    assert!(json["remedy"]["streams"].as_u64() > Some(1));
}

/// Collects every path in a JSON value with the kind of its value; list elements share one path.
fn shape(value: &Value, at: &str, into: &mut BTreeMap<String, &'static str>) {
    match value {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(name, field)| shape(field, &format!("{at}.{name}"), into)),
        Value::Array(elements) => elements
            .iter()
            .for_each(|element| shape(element, &format!("{at}[]"), into)),
        other => {
            let kind = match other {
                Value::Bool(_) => "bool",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                _ => "null",
            };
            into.insert(at.to_owned(), kind);
        }
    }
}

/// Returns the JSON of a real iperf3, or `None` if it is missing.
fn iperf3(arguments: &[&str]) -> Option<Value> {
    Command::new("iperf3").arg("--version").output().ok()?;
    // iperf3 cannot use a port chosen by the system, so one is borrowed; another process may take
    // it in between.
    for _ in 0..10 {
        let borrowed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = borrowed.local_addr().unwrap().port().to_string();
        drop(borrowed);
        let mut server = Command::new("iperf3")
            .args(["-s", "-1", "--forceflush", "-B", "127.0.0.1", "-p", &port])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap());
        let mut line = String::new();
        while lines.read_line(&mut line).unwrap() > 0 && !line.contains("listening on") {}
        let client = Command::new("iperf3")
            .args(["-c", "127.0.0.1", "-p", &port, "-J"])
            .args(arguments)
            .output()
            .unwrap();
        if !client.status.success() {
            let _ = server.kill();
        }
        server.wait().unwrap();
        if client.status.success() {
            return Some(serde_json::from_slice(&client.stdout).unwrap());
        }
    }
    panic!("iperf3 is installed, and does not run");
}

/// Fields of iperf3 that `longhaul perf` leaves out: options that it lacks, and a cookie.
const LEFT_OUT: [&str; 9] = [
    ".start.cookie",
    ".start.timestamp.time",
    ".start.target_bitrate",
    ".start.sock_bufsize",
    ".start.test_start.blocks",
    ".start.test_start.tos",
    ".start.test_start.target_bitrate",
    ".start.test_start.bidir",
    ".start.test_start.fqrate",
];

#[test]
fn json_has_the_keys_of_iperf3() {
    if !longhaul_platform::IS_LINUX {
        eprintln!("left out: without TCP_INFO, the JSON has no keys for it");
        return;
    }
    let stage = Stage::new();
    let server = stage.perf(&[]);
    for arguments in [
        &["-n", "4M"][..],
        &["-n", "4M", "-R"],
        &["-n", "4M", "-P", "2"],
        &["-n", "4M", "--bidir"],
    ] {
        let Some(theirs) = iperf3(arguments) else {
            eprintln!("left out: there is no iperf3 here to compare the JSON with");
            return;
        };
        let ours = measured(&stage, &server, arguments);
        let (mut here, mut there) = (BTreeMap::new(), BTreeMap::new());
        shape(&ours, "", &mut here);
        shape(&theirs, "", &mut there);
        here.retain(|at, _| !at.starts_with(".longhaul") && !at.ends_with(".limit"));
        for left_out in LEFT_OUT {
            here.remove(left_out);
            there.remove(left_out);
        }
        assert_eq!(here, there, "{arguments:?}");
    }
}
