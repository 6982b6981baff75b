//! Copies over depots on paths that they reserved: a controller, two depots that accept its grants,
//! and failures in the middle of a copy.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use wanbed::{Lab, Overrides, Scenario};

use crate::common::{Service, has_labs, key_of, new_key, started};
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

/// Directory of the key of a controller whose home is `control`.
const CONTROLLER: &str = "control/state/control";

struct Bed {
    // Dropped in this order: processes in the lab first.
    depots: Vec<Service>,
    servers: Vec<Service>,
    lab: Lab,
    dir: tempfile::TempDir,
    server_key: String,
}

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

impl Bed {
    /// Starts it with depots that accept the grants of this controller, or of another one.
    fn up(trusts_it: bool) -> Option<Self> {
        if !has_labs() {
            return None;
        }
        let lab = Lab::up(
            &Scenario::from_text("reserved", NETWORK),
            &Overrides::default(),
        )
        .unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        fs::write(dir.path().join("data"), crate::common::noise(BYTES, 7)).unwrap();
        for name in ["client", "server", "near", "far", CONTROLLER] {
            new_key(&dir.path().join(name));
        }
        let server_key = key_of(&dir.path().join("server"));
        let mut bed = Self {
            depots: Vec::new(),
            servers: Vec::new(),
            lab,
            dir,
            server_key,
        };
        bed.start(trusts_it);
        Some(bed)
    }

    fn home(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn key(&self, name: &str) -> String {
        key_of(&self.home(name))
    }

    fn address(&self, node: &str) -> String {
        self.lab.address(node).unwrap().to_string()
    }

    /// Returns `longhaul` on a node, with this home.
    fn longhaul(&self, node: &str, home: &str) -> Command {
        let mut command = self
            .lab
            .command(node, env!("CARGO_BIN_EXE_longhaul"))
            .unwrap();
        command
            .env("LONGHAUL_HOME", self.home(home))
            .env("LONGHAUL_STATE", self.home(home).join("state"))
            .env("TZ", "UTC")
            .stdin(Stdio::null());
        command
    }

    fn start(&mut self, trusts_it: bool) {
        let client = self.key("client");
        let controller = self.key(if trusts_it { CONTROLLER } else { "server" });
        let policy = self.home("policy.toml");
        let rule = format!(
            "controllers = [\"{controller}\"]\n[[allow]]\nprincipals = [\"{client}\"]\n\
             to = [\"10.77.0.0/16\"]\nnext_hops = [\"direct\", \"10.77.0.0/16\"]\n"
        );
        fs::write(&policy, rule).unwrap();
        for node in ["near", "far"] {
            let mut depot = self.longhaul(node, node);
            depot
                .args(["depot", "--listen", "0.0.0.0:7510", "--policy"])
                .arg(&policy);
            // It renews the grants in use.
            let url = format!("https://{}:7513", self.address("near"));
            depot.args([
                "--controller",
                &url,
                "--controller-key",
                &self.key(CONTROLLER),
            ]);
            let depot = started(quiet(depot));
            self.depots.push(depot);
        }
        let mut serve = self.longhaul("server", "server");
        serve
            .args(["serve", "--listen", "0.0.0.0:7511", "--root"])
            .arg(self.home("root"));
        serve.args(["--read", &client, "--create", &client]);
        let serve = started(quiet(serve));
        self.servers.push(serve);
        self.start_controller();
    }

    fn start_controller(&mut self) {
        let mut control = self.longhaul("near", "control");
        control.args([
            "control",
            "--listen",
            &format!("{}:7513", self.address("near")),
        ]);
        let mut child = quiet(control).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        self.servers.push(Service(child));
        let map = self.home("map.json");
        fs::write(&map, self.map().to_string()).unwrap();
        self.run("near", "control", &["map", "import", map.to_str().unwrap()]);
        for role in ["client", "reserver"] {
            self.run(
                "near",
                "control",
                &[
                    "control",
                    "grant",
                    &self.key("client"),
                    role,
                    "--name",
                    "client",
                ],
            );
        }
        for depot in ["near", "far"] {
            self.run(
                "near",
                "control",
                &["control", "grant", &self.key(depot), "depot"],
            );
        }
        let url = format!("https://{}:7513", self.address("near"));
        self.run(
            "client",
            "client",
            &["controller", "use", &url, "--accept-new"],
        );
    }

    /// Returns a map that overstates the last link, so that every request is granted.
    fn map(&self) -> Value {
        let capacity = |bps: f64| json!({"capacity": {"rate_bps": bps}});
        let link = |name: &str, from: &str, to: &str, bps: f64| {
            json!({
                "name": name, "from": from, "to": to, "forward": capacity(bps),
                "backward": capacity(bps)
            })
        };
        let depot = |node: &str, site: &str| {
            json!({
                "name": node, "key": self.key(node), "site": site,
                "addresses": [{"endpoint": format!("{}:7510", self.address(node))}]
            })
        };
        json!({
            "sites": [{"name": "west"}, {"name": "middle"}, {"name": "mountain"}, {"name": "east"}],
            "hosts": [
                {"name": "client", "site": "west", "addresses": [self.address("client")]},
                {"name": "server", "site": "east", "addresses": [self.address("server")]},
            ],
            "depots": [depot("far", "mountain"), depot("near", "middle")],
            "links": [
                link("first", "west", "middle", 1e9), link("middle", "middle", "mountain", 1e9),
                link("last", "mountain", "east", 1e9),
            ],
        })
    }

    fn run(&self, node: &str, home: &str, arguments: &[&str]) -> String {
        let output = self.longhaul(node, home).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}{complained}");
        said
    }

    fn copy(&self, options: &[&str], from: &str, to: &str) -> Copy {
        let mut cp = self.longhaul("client", "client");
        cp.args(["cp", "--json", "--host-key", &self.server_key])
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
    fn sends(&self, options: &[&str]) -> Copy {
        let there = format!("lh://{}/there", self.address("server"));
        self.copy(options, self.home("data").to_str().unwrap(), &there)
    }

    fn is_there(&self) -> bool {
        fs::read(self.home("root/there")).unwrap() == fs::read(self.home("data")).unwrap()
    }

    /// Returns the name of the reserved route over these depots, without the circuit.
    fn way(&self, depots: [&str; 2]) -> String {
        let hops = depots.map(|node| format!("{}@{}:7510", self.key(node), self.address(node)));
        format!("{} by circuit ", hops.join(","))
    }
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
    let Some(bed) = Bed::up(true) else { return };
    let there = bed.way(["near", "far"]);
    let rate = RATE_BPS.to_string();
    let mut copy = bed.sends(&["--reserve", &rate]);
    copy.until(opens(&there));
    let report = copy.report();
    assert!(bed.is_there());
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
    let mut copy = bed.copy(
        &["--reserve", &rate],
        &from,
        bed.home("fetched").to_str().unwrap(),
    );
    copy.until(opens(&there));
    let report = copy.report();
    assert_eq!(
        fs::read(bed.home("fetched")).unwrap(),
        fs::read(bed.home("data")).unwrap()
    );
    held_bytes(&report, &there);
}

#[test]
fn depots_that_refuse_the_grant_cost_nothing_and_are_named() {
    let Some(bed) = Bed::up(false) else { return };
    let copy = bed.sends(&["--reserve", &RATE_BPS.to_string()]);
    let report = copy.report();
    assert!(bed.is_there());
    let ways = report["deadline"]["ways"].as_array().unwrap();
    let error = ways[0]["error"].as_str().unwrap();
    assert!(error.contains("which this depot does not trust"), "{error}");
    let routes = report["routes"].as_array().unwrap();
    assert!(
        routes.iter().all(|route| route["route"] == "direct"),
        "{routes:?}"
    );
}

#[test]
fn a_dead_depot_loses_no_data_and_its_route_is_reported() {
    let Some(mut bed) = Bed::up(true) else { return };
    let way = bed.way(["near", "far"]);
    let mut copy = bed.sends(&["--reserve", &RATE_BPS.to_string()]);
    copy.until(opens(&way));
    // Killed, as by a machine that fails.
    drop(bed.depots.pop());
    copy.until(|event| event["event"] == "deadline" && event["state"] == "way-failed");
    let report = copy.report();
    assert!(bed.is_there());
    let ways = report["deadline"]["ways"].as_array().unwrap();
    assert!(
        ways[0]["error"].is_string() && ways[0]["failed"] == true,
        "{ways:?}"
    );
}
