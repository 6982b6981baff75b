//! Copies over depots on paths that they reserved: a controller, two depots that accept its grants,
//! and failures in the middle of a copy.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::common::bed::{Bed, CONTROLLER};
use crate::common::{new_key, noise, started};
use crate::path::quiet;

/// client - near - far - server. The last link is so slow that a copy takes some ten seconds over
/// any route, so that routes join and leave meanwhile.
const NETWORK: &str = r#"
title = "two depots on the way"
[nodes.client]
[nodes.near]
[nodes.far]
[nodes.server]
[links.first]
ends = ["client", "near"]
delay = "2 ms"
rate = "1 Gbit/s"
[links.middle]
ends = ["near", "far"]
delay = "5 ms"
rate = "1 Gbit/s"
[links.last]
ends = ["far", "server"]
delay = "2 ms"
rate = "20 Mbit/s"
"#;

const BYTES: usize = 24 << 20;
/// Reserved rate, in bit/s.
const RATE_BPS: u64 = 4_000_000;
/// Bytes that a depot may carry beyond its rate: its bucket's depth, and data in flight.
const BURST: u64 = 1 << 20;

/// A running copy.
struct Copy {
    child: Child,
    events: Vec<Value>,
    lines: BufReader<std::process::ChildStdout>,
}

impl Copy {
    fn until(&mut self, pleases: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).unwrap();
            assert!(read > 0, "over without it: {}", self.reported());
            let event: Value = serde_json::from_str(&line).unwrap();
            self.events.push(event.clone());
            if pleases(&event) {
                return event;
            }
        }
    }

    /// Returns the lines about its routes.
    fn reported(&self) -> String {
        let kinds = ["deadline", "route", "stream_opened", "stream_lost"];
        let is_reported = |event: &&Value| kinds.iter().any(|kind| event["event"] == *kind);
        let lines = self.events.iter().filter(is_reported).map(Value::to_string);
        let last = self
            .events
            .last()
            .map(|report| report["deadline"].to_string());
        lines.chain(last).collect::<Vec<_>>().join("\n")
    }

    fn report(mut self) -> Value {
        let report = self.until(|event| event["event"] == "report");
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{report:#}");
        assert_eq!(report["deadline"]["returned"], true, "{report:#}");
        report
    }
}

/// Starts depots that accept the grants of the controller, or of another one.
fn start(trusts_it: bool) -> Option<Bed> {
    let mut bed = Bed::start(NETWORK, Some("near"))?;
    fs::create_dir(bed.path("root")).unwrap();
    fs::write(bed.path("data"), noise(BYTES, 7)).unwrap();
    for name in ["client", "server", "near", "far", CONTROLLER] {
        new_key(&bed.path(name));
    }
    let client = bed.key("client");
    let trusted = bed.key(if trusts_it { CONTROLLER } else { "server" });
    let policy = bed.path("policy.toml");
    let rule = format!(
        "controllers = [\"{trusted}\"]\n[[allow]]\nprincipals = [\"{client}\"]\n\
         to = [\"10.77.0.0/16\"]\nnext_hops = [\"direct\", \"10.77.0.0/16\"]\n"
    );
    fs::write(&policy, rule).unwrap();
    let (url, controller) = (bed.controller_url(), bed.key(CONTROLLER));
    for node in ["near", "far"] {
        let mut depot = bed.longhaul(node, node);
        depot
            .args(["depot", "--listen", "0.0.0.0:7510", "--policy"])
            .arg(&policy);
        // It renews the grants in use.
        depot.args(["--controller", &url, "--controller-key", &controller]);
        bed.keep(node, started(quiet(depot)));
    }
    let mut serve = bed.longhaul("server", "server");
    serve
        .args(["serve", "--listen", "0.0.0.0:7511", "--root"])
        .arg(bed.path("root"))
        .args(["--read", &client, "--create", &client]);
    bed.keep("server", started(quiet(serve)));
    bed.start_controller("");
    bed.import(&map(&bed));
    for role in ["client", "reserver"] {
        bed.grant("client", role);
    }
    for depot in ["near", "far"] {
        bed.grant(depot, "depot");
    }
    bed.run(
        "client",
        "client",
        &["controller", "use", &url, "--accept-new"],
    );
    Some(bed)
}

/// Returns a map that overstates the last link, so that every request is granted.
fn map(bed: &Bed) -> Value {
    let capacity = json!({"capacity": {"rate_bps": 1e9}});
    let link = |name: &str, from: &str, to: &str| {
        json!({
            "name": name, "from": from, "to": to, "forward": capacity, "backward": capacity
        })
    };
    let depot = |node: &str, site: &str| {
        json!({
            "name": node, "key": bed.key(node), "site": site,
            "addresses": [{"endpoint": format!("{}:7510", bed.address(node))}]
        })
    };
    json!({
        "sites": [{"name": "west"}, {"name": "middle"}, {"name": "mountain"}, {"name": "east"}],
        "hosts": [
            {"name": "client", "site": "west", "addresses": [bed.address("client")]},
            {"name": "server", "site": "east", "addresses": [bed.address("server")]},
        ],
        "depots": [depot("far", "mountain"), depot("near", "middle")],
        "links": [
            link("first", "west", "middle"), link("middle", "middle", "mountain"),
            link("last", "mountain", "east"),
        ],
    })
}

fn start_copy(bed: &Bed, options: &[&str], from: &str, to: &str) -> Copy {
    let mut cp = bed.longhaul("client", "client");
    cp.args(["cp", "--json", "--host-key", &bed.key("server")])
        .args(options)
        .args([from, to]);
    let mut child = cp.stdout(Stdio::piped()).spawn().unwrap();
    Copy {
        lines: BufReader::new(child.stdout.take().unwrap()),
        child,
        events: Vec::new(),
    }
}

/// Starts a copy that sends the data.
fn send(bed: &Bed, options: &[&str]) -> Copy {
    let there = format!("lh://{}/there", bed.address("server"));
    start_copy(bed, options, bed.path("data").to_str().unwrap(), &there)
}

fn is_there(bed: &Bed) -> bool {
    fs::read(bed.path("root/there")).unwrap() == fs::read(bed.path("data")).unwrap()
}

/// Returns the name of the reserved route over both depots, without the circuit.
fn reserved_route(bed: &Bed) -> String {
    let hops = ["near", "far"].map(|node| format!("{}@{}:7510", bed.key(node), bed.address(node)));
    format!("{} by circuit ", hops.join(","))
}

fn is_on(way: &str) -> impl Fn(&Value) -> bool {
    let way = way.to_owned();
    move |of: &Value| {
        of["route"]
            .as_str()
            .is_some_and(|route| route.starts_with(&way))
    }
}

fn opens(way: &str) -> impl Fn(&Value) -> bool {
    let is_on = is_on(way);
    move |event: &Value| event["event"] == "stream_opened" && is_on(event)
}

/// Returns the bytes that a reserved route carried. Its depots limit these to the reservation on
/// any machine.
fn held_bytes(report: &Value, way: &str) -> u64 {
    let is_on = is_on(way);
    let routes = report["routes"].as_array().unwrap();
    let bytes: u64 = routes
        .iter()
        .filter(|route| is_on(route))
        .map(|route| route["bytes"].as_u64().unwrap())
        .sum();
    let most = report["seconds"].as_f64().unwrap() * RATE_BPS as f64 / 8.0;
    assert!(
        bytes > 0 && bytes <= most as u64 + BURST,
        "{bytes} of {most}: {report:#}"
    );
    bytes
}

#[test]
fn a_copy_uses_the_depots_on_its_reserved_path() {
    let Some(bed) = start(true) else { return };
    let there = reserved_route(&bed);
    let rate = RATE_BPS.to_string();
    let mut copy = send(&bed, &["--reserve", &rate]);
    copy.until(opens(&there));
    let report = copy.report();
    assert!(is_there(&bed));
    held_bytes(&report, &there);
    let ways = report["deadline"]["ways"].as_array().unwrap();
    assert_eq!(ways.len(), 1, "{ways:?}");
    assert_eq!(
        (&ways[0]["rate_bps"], &ways[0]["error"]),
        (&json!(RATE_BPS as f64), &Value::Null),
        "{ways:?}"
    );
    // A fetch uses them as well, starting from this end.
    let from = format!("lh://{}/there", bed.address("server"));
    let mut copy = start_copy(
        &bed,
        &["--reserve", &rate],
        &from,
        bed.path("fetched").to_str().unwrap(),
    );
    copy.until(opens(&there));
    let report = copy.report();
    assert_eq!(
        fs::read(bed.path("fetched")).unwrap(),
        fs::read(bed.path("data")).unwrap()
    );
    held_bytes(&report, &there);
}

#[test]
fn depots_that_refuse_the_grant_cost_nothing_and_are_named() {
    let Some(bed) = start(false) else { return };
    let copy = send(&bed, &["--reserve", &RATE_BPS.to_string()]);
    let report = copy.report();
    assert!(is_there(&bed));
    let ways = report["deadline"]["ways"].as_array().unwrap();
    let error = ways[0]["error"].as_str().unwrap();
    assert!(error.contains("which this depot does not trust"), "{error}");
    let routes = report["routes"].as_array().unwrap();
    assert!(
        routes
            .iter()
            .all(|route| ["direct", "direct by quic"].contains(&route["route"].as_str().unwrap())),
        "{routes:?}"
    );
}

#[test]
fn a_dead_depot_loses_no_data_and_its_route_is_reported() {
    let Some(mut bed) = start(true) else { return };
    let way = reserved_route(&bed);
    let mut copy = send(&bed, &["--reserve", &RATE_BPS.to_string()]);
    copy.until(opens(&way));
    // Killed, as by a machine that fails.
    drop(bed.services.remove("far"));
    copy.until(|event| event["event"] == "deadline" && event["state"] == "way-failed");
    let report = copy.report();
    assert!(is_there(&bed));
    let ways = report["deadline"]["ways"].as_array().unwrap();
    assert!(
        ways[0]["error"].is_string() && ways[0]["failed"] == true,
        "{ways:?}"
    );
}
