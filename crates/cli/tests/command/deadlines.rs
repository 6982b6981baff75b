//! Copies with deadlines and a real controller. The forecast of best effort is what was reported to
//! the controller, whatever this machine does. When a copy must still run while something is
//! decided, its server is stopped until then.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::control::{Controller, ask};
use crate::stage::{Running, Service, Stage, errors, signal, until};

const BYTES: usize = 6 << 20;
/// Samples of each quantity of a hop, one per second.
const SAMPLES: u64 = 50;

const MAP: &str = r#"{"sites": [{"name": "west"}, {"name": "east"}],
    "hosts": [{"name": "dtn1", "site": "west", "addresses": ["192.0.2.1"]}, {"name": "store", "site": "east", "addresses": ["127.0.0.0/8"]}],
    "links": [{"name": "w-e", "from": "west", "to": "east", "forward": {"capacity": {"rate_bps": 1e10}}, "backward": {"capacity": {"rate_bps": 1e10}}}]}"#;

/// A controller that serves other machines.
struct World {
    // Dropped before its directory.
    controller: Controller,
    server: Service,
    stage: Stage,
}

fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis() as u64
}

impl World {
    /// Creates it with the rate of best effort from here to the server, in bit/s.
    fn new(best_effort: f64, roles: &[&str]) -> Self {
        let stage = Stage::new();
        let controller = Controller::start(&stage, &["--listen", "127.0.0.1:0"]);
        let server = stage.serve(&[]);
        let world = Self {
            stage,
            controller,
            server,
        };
        let me = world.stage.key("me");
        for role in roles {
            world.run(
                "control",
                &["control", "grant", &me, role, "--name", "dtn1"],
            );
        }
        let (url, key) = (world.controller.url(), &world.controller.key);
        world.run("me", &["controller", "use", "--host-key", key, &url]);
        let (status, answer) = world.ask("PUT", "/map", MAP);
        assert_eq!(status, 200, "{answer}");
        let each = |quantity: &str, value: f64| {
            let quantity = quantity.to_owned();
            (0..SAMPLES).map(move |step| {
                json!({
                    "from": "dtn1", "to": "store", "quantity": quantity,
                    "at_ms": now_ms() - 60_000 + step * 1000, "value": value, "source": "probe"
                })
            })
        };
        let measured: Vec<Value> = each("rtt", 0.01)
            .chain(each("rate", best_effort))
            .chain(each("loss", 0.0))
            .collect();
        let (status, answer) = world.ask(
            "POST",
            "/measurements",
            &json!({"measurements": measured}).to_string(),
        );
        assert_eq!(
            (status, &answer["kept"]),
            (200, &json!(3 * SAMPLES)),
            "{answer}"
        );
        world.until_forecast();
        world
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        ask(&self.controller.socket, true, method, path, body).unwrap()
    }

    fn run(&self, who: &str, arguments: &[&str]) -> String {
        let output = self.stage.longhaul(who).args(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            errors(&output)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until the controller answers with what was reported.
    fn until_forecast(&self) {
        let question = json!({"from": "dtn1", "to": "store", "bytes": BYTES}).to_string();
        until("the forecast", || {
            let (status, answer) = self.ask("POST", "/routes/question", &question);
            assert_eq!(status, 200, "{answer}");
            answer["routes"][0]["rate_bps"].is_object()
        });
    }

    fn reservations(&self) -> Vec<Value> {
        let (status, page) = self.ask("GET", "/reservations", "");
        assert_eq!(status, 200, "{page}");
        page["items"].as_array().unwrap().clone()
    }

    /// Returns the number of reservations that can still be used.
    fn active(&self) -> usize {
        let of = self.reservations();
        of.iter()
            .filter(|one| one["state"]["life"] == "created")
            .count()
    }

    /// Starts a copy; with its server stopped, if `is_stopped`.
    fn start(&self, options: &[&str], is_stopped: bool) -> Running {
        self.stage.noise("here/data", BYTES);
        if is_stopped {
            self.server_is("STOP");
        }
        let there = format!("lh://{}/there", self.server.address);
        self.stage
            .start_cp(&self.server, &[options, &["here/data", &there]].concat())
    }

    fn server_is(&self, what: &str) {
        signal_to(self.server.process(), what);
    }
}

fn signal_to(process: u32, what: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{what}"), &process.to_string()])
        .status();
    assert!(sent.unwrap().success());
}

fn is_state(event: &Value, state: &str) -> bool {
    event["event"] == "deadline" && event["state"] == state
}

/// Returns true if the copied data is complete.
fn is_there(world: &World) -> bool {
    let read = |path: &Path| std::fs::read(path).unwrap();
    read(&world.stage.path("root/there")) == read(&world.stage.path("here/data"))
}

#[test]
fn a_deadline_that_best_effort_meets_reserves_nothing() {
    let world = World::new(1e9, &["client", "reserver"]);
    let (report, code, text) = world.start(&["--by", "+1h"], false).report();
    assert_eq!(code, Some(0), "{text}");
    let deadline = &report["deadline"];
    assert_eq!(
        (&deadline["met"], &deadline["reserved_bytes"]),
        (&json!(true), &json!(0)),
        "{report}"
    );
    assert_eq!(deadline["requests"], 0, "{report}");
    assert!(world.reservations().is_empty() && is_there(&world));
}

#[test]
fn reservations_cover_the_shortfall_and_are_returned() {
    // 6 MiB take 50 s or more.
    let world = World::new(1e6, &["client", "reserver"]);
    let mut copy = world.start(&["--by", "+40s"], true);
    copy.until(|event| is_state(event, "reserved"));
    let reserved = world.reservations();
    assert_eq!(reserved.len(), 1, "{reserved:?}");
    let one = &reserved[0];
    assert_eq!(
        (&one["from"], &one["to"]),
        (&json!("dtn1"), &json!("store"))
    );
    assert_eq!(one["state"]["provision"], "provisioned", "{one}");
    // The part that best effort is not sure to carry, which is less than everything.
    let bytes = one["wish"]["volume"]["bytes"].as_u64().unwrap();
    assert!(bytes > 1 << 20 && bytes < 6 << 20, "{one}");
    // It joins the copy with streams from the ports that identify them in the network.
    let ports = &one["pieces"][0]["paths"][0]["source_ports"];
    let way = format!("direct from ports {}-{}", ports["first"], ports["last"]);
    copy.until(|event| {
        event["event"] == "route" && event["standing"] == "joined" && event["route"] == way.as_str()
    });
    world.server_is("CONT");
    let (report, code, text) = copy.report();
    assert_eq!(code, Some(0), "{text}");
    let deadline = &report["deadline"];
    assert_eq!(deadline["returned"], true, "{report}");
    let of = |field: &str| deadline[field].as_u64().unwrap();
    assert!(
        of("reserved_bytes") > 0 && of("reserved_bytes") <= bytes,
        "{report}"
    );
    assert!(of("returned_bytes") <= of("reserved_bytes"), "{report}");
    assert_eq!(deadline["reservation"], one["id"]);
    assert_eq!(world.active(), 0, "{:?}", world.reservations());
    assert!(is_there(&world));
}

#[test]
fn missing_bandwidth_yields_offers_and_the_copy_completes() {
    let world = World::new(1e6, &["client", "reserver"]);
    // The whole reservable rate is taken for an hour.
    let taken = json!({
        "from": "dtn1", "to": "store", "wish": {"rate": {"rate_bps": 5_000_000_000_u64}},
        "end_ms": now_ms() + 3_600_000
    });
    let (status, answer) = world.ask("POST", "/reservations", &taken.to_string());
    assert_eq!(status, 201, "{answer}");
    let mut copy = world.start(&["--by", "+40s"], true);
    copy.until(|event| is_state(event, "at-risk"));
    let warned = copy.events.last().unwrap().clone();
    assert!(warned["later_ms"].is_u64(), "{warned}");
    let message = warned["message"].as_str().unwrap();
    assert!(
        message.starts_with("the deadline cannot be met: ")
            && message.contains("could be reserved by"),
        "{message}"
    );
    assert!(
        copy.events.iter().any(|event| event["event"] == "notice"),
        "{:?}",
        copy.events
    );
    world.server_is("CONT");
    let (report, code, text) = copy.report();
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(report["deadline"]["decision"], "no-room", "{report}");
    assert!(
        report["deadline"]["offers"]["later"].is_object(),
        "{report}"
    );
    assert_eq!(world.active(), 1, "the other's");
    assert!(is_there(&world));
}

#[test]
fn ended_copies_have_their_reservations_returned() {
    let world = World::new(1e6, &["client", "reserver"]);
    let until_reserved = || {
        let mut copy = world.start(&["--by", "+40s"], true);
        copy.until(|event| is_state(event, "reserved"));
        assert_eq!(world.active(), 1);
        copy
    };
    let interrupted = until_reserved();
    signal(&interrupted.child, "INT");
    let (report, code, text) = interrupted.report();
    assert_eq!(code, Some(130), "{text}");
    assert_eq!(report["deadline"]["returned"], true, "{report}");
    assert_eq!(world.active(), 0, "{:?}", world.reservations());

    let mut killed = until_reserved();
    let latest = now_ms() + 40_000;
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    // It lasts no longer than its deadline, and the next copy of any kind returns it.
    let left = world.reservations();
    let left = left
        .iter()
        .find(|one| one["state"]["life"] == "created")
        .unwrap();
    assert!(left["end_ms"].as_u64().unwrap() <= latest, "{left}");
    world.server_is("CONT");
    let (report, code, text) = world.start(&[], false).report();
    assert_eq!(
        (code, &report["deadline"]),
        (Some(0), &Value::Null),
        "{text}"
    );
    assert_eq!(world.active(), 0, "{:?}", world.reservations());
    let kept = std::fs::read_dir(world.stage.path("me/state/control/reserved")).unwrap();
    assert_eq!(kept.count(), 0);
}

#[test]
fn reserve_never_only_reports_the_missed_deadline() {
    let world = World::new(1e6, &["client", "reserver"]);
    let mut copy = world.start(&["--by", "+40s", "--reserve", "never"], true);
    copy.until(|event| is_state(event, "at-risk"));
    world.server_is("CONT");
    let (report, code, text) = copy.report();
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(report["deadline"]["reserve"], "never");
    assert!(world.reservations().is_empty());
}

#[test]
fn a_key_that_may_not_reserve_is_refused_with_the_reason() {
    let world = World::new(1e6, &["client"]);
    let mut copy = world.start(&["--by", "+40s"], true);
    copy.until(|event| is_state(event, "at-risk"));
    world.server_is("CONT");
    let (report, code, text) = copy.report();
    assert_eq!(code, Some(0), "{text}");
    let error = report["deadline"]["error"].as_str().unwrap();
    assert!(
        error.contains("no role of dtn1 may create reservations"),
        "{error}"
    );
}

#[test]
fn a_rate_is_reserved_without_a_deadline() {
    let world = World::new(1e6, &["client", "reserver"]);
    let mut copy = world.start(&["--reserve", "1G"], true);
    copy.until(|event| is_state(event, "reserved"));
    let reserved = world.reservations();
    assert_eq!(reserved[0]["wish"]["rate"]["rate_bps"], 1_000_000_000_u64);
    world.server_is("CONT");
    let (report, code, text) = copy.report();
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(
        (&report["deadline"]["by"], &report["deadline"]["reserve"]),
        (&Value::Null, &json!("rate"))
    );
    assert_eq!(world.active(), 0, "{:?}", world.reservations());
    // A fetch leaves nothing behind either.
    let from = format!("lh://{}/there", world.server.address);
    let options = ["--by", "+40s", "--reserve", "1G", &from, "here/fetched"];
    let (report, code, text) = world.stage.start_cp(&world.server, &options).report();
    assert_eq!(
        (code, &report["deadline"]["met"]),
        (Some(0), &json!(true)),
        "{text} {report}"
    );
    assert_eq!(world.active(), 0, "{:?}", world.reservations());
}

#[test]
fn invalid_deadlines_are_reported_in_a_line() {
    let stage = Stage::new();
    std::fs::write(stage.path("here/data"), "x").unwrap();
    for (options, word) in [
        (&["--by", "soon"][..], "--by soon: not a moment"),
        (&["--by", "2001-01-01"], "that is in the past"),
        (&["--reserve", "auto"], "--reserve auto needs a deadline"),
    ] {
        let output = stage
            .longhaul("me")
            .arg("cp")
            .args(options)
            .args(["here/data", "lh://127.0.0.1:1/x"])
            .output()
            .unwrap();
        let error = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {error}");
        assert!(
            error.contains(word) && error.trim_end().lines().count() == 1,
            "{error}"
        );
    }
    let local = stage
        .longhaul("me")
        .args(["cp", "--by", "+1h", "here/data", "here/other"])
        .output()
        .unwrap();
    assert!(
        errors(&local).contains("for lh:// only"),
        "{}",
        errors(&local)
    );
}
