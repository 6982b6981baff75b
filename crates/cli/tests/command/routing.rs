//! Copies whose routes a controller chooses: one that is dead, slow, lying, or outdated. Each copy
//! completes with the right bytes, over the direct route if another leads nowhere. No assertion
//! depends on time: a copy that waited in vain would never end.

mod real;
mod scripted;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::common::ClosedPort;
use crate::stage::{Service, Stage, errors};
use scripted::Scripted;

/// Enough for streams over every route.
const BYTES: usize = 6 << 20;
const DAY_MS: u64 = 86_400_000;
/// Time limit of every wait: far more than anything takes.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

/// Waits until something is true.
fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !is_true() {
        assert!(Instant::now() < deadline, "{what}: in vain");
        std::thread::yield_now();
    }
}

fn use_controller(stage: &Stage, url: &str) {
    std::fs::create_dir_all(stage.path("me")).unwrap();
    std::fs::write(
        stage.path("me/controller.toml"),
        format!("url = \"{url}\"\n"),
    )
    .unwrap();
}

fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis() as u64
}

fn spread(p50: f64) -> Value {
    json!({ "p10": p50 / 2.0, "p50": p50, "p90": p50 * 2.0 })
}

/// Returns a route over one depot, or the direct one.
fn option(depot: Option<&str>) -> Value {
    let via: Vec<Value> = depot
        .iter()
        .map(|address| json!({ "depot": "the-depot", "address": address }))
        .collect();
    json!({
        "via": via, "route": depot.unwrap_or("direct"), "seconds": spread(1.0),
        "rate_bps": spread(1e8), "share": 1.0,
    })
}

fn table(depot: &str, made_ms: u64) -> Value {
    json!({
        "from": "me", "map_version": 1, "made_ms": made_ms, "valid_until_ms": made_ms + 600_000,
        "next": null,
        "destinations": [{
            "to": "store", "addresses": ["127.0.0.0/8"],
            "sizes": [{ "at_least_bytes": 0, "routes": [option(Some(depot))] }],
        }],
    })
}

fn answer_of(depot: &str) -> Value {
    json!({
        "routes": [option(Some(depot))], "others": [], "fall_back": [option(None)],
        "seconds": spread(1.0), "why": ["one", "two", "three", "four", "five"],
        "map_version": 1, "made_ms": now_ms(), "valid_until_ms": now_ms() + 60_000,
    })
}

/// Stores a table for sending in the cache, as from the controller at the socket `controller`.
fn keep(stage: &Stage, content: &[u8]) {
    keep_as(stage, "routes.json", content);
}

fn keep_as(stage: &Stage, name: &str, content: &[u8]) {
    let dir = stage.path("me/state/control");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join(name), content).unwrap();
}

fn kept(stage: &Stage, table: &Value) -> Vec<u8> {
    let controller = format!("unix:{}", stage.path("controller").display());
    json!({ "format": 1, "controller": controller, "table": table })
        .to_string()
        .into_bytes()
}

/// Configures a controller that does not run.
fn dead(stage: &Stage) {
    use_controller(
        stage,
        &format!("unix:{}", stage.path("controller").display()),
    );
}

/// Copies this many bytes to the server, and returns the report and the events.
fn copied(stage: &Stage, server: &Service, name: &str) -> (Value, Vec<Value>) {
    let data = stage.noise("here/data", BYTES);
    let there = format!("lh://{}/{name}", server.address);
    let (report, code, text) = {
        let mut running = stage.start_cp(server, &["here/data", &there]);
        running.until(|event| event["event"] == "report");
        let report = running.events.last().unwrap().clone();
        let events = running.events.clone();
        let code = running.child.wait().unwrap().code();
        let mut text = String::new();
        running
            .child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        ((report, events), code, text)
    };
    assert_eq!(code, Some(0), "{text}");
    assert!(
        std::fs::read(stage.path("root").join(name)).unwrap() == data,
        "the right bytes"
    );
    report
}

/// Returns the bytes that each route carried.
fn carried(report: &Value) -> BTreeMap<String, u64> {
    let routes = report["routes"].as_array().unwrap();
    let of = routes.iter().map(|sum| {
        (
            sum["route"].as_str().unwrap().to_owned(),
            sum["bytes"].as_u64().unwrap(),
        )
    });
    of.collect()
}

#[test]
fn a_missing_controller_changes_nothing() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    dead(&stage);
    for name in ["one", "two"] {
        let (report, _) = copied(&stage, &server, name);
        assert_eq!(report["routing"]["by"], "nobody", "{report}");
        assert_eq!(carried(&report).keys().collect::<Vec<_>>(), ["direct"]);
    }
    // Reports to it wait in a bounded directory.
    let waiting = std::fs::read_dir(stage.path("me/state/control/reports")).unwrap();
    assert!((2..=4).contains(&waiting.count()));
}

#[test]
fn a_controller_that_never_answers_is_not_waited_for() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    dead(&stage);
    // It accepts, and stays silent during the whole test.
    let listener = UnixListener::bind(stage.path("controller")).unwrap();
    let held: Arc<Mutex<Vec<UnixStream>>> = Arc::default();
    let holding = held.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            holding.lock().unwrap().push(stream);
        }
    });
    let (report, _) = copied(&stage, &server, "one");
    assert_eq!(report["routing"]["by"], "nobody");
    // It may be asked only after the copy is over.
    wait_until("it is asked", || !held.lock().unwrap().is_empty());
    let explained = stage
        .longhaul("me")
        .args(["route", "127.0.0.1:1", "--size", "1G"])
        .output()
        .unwrap();
    let text = String::from_utf8(explained.stdout).unwrap();
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(
        text.contains("route: direct") && text.contains("did not answer within"),
        "{text}"
    );
}

#[test]
fn a_dead_route_loses_no_data_and_is_avoided_afterwards() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let closed = ClosedPort::new();
    // Accepts, and stays silent.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    // A depot that only admits another key.
    let refusing = {
        let policy = format!(
            "[[allow]]\nprincipals = [\"{}\"]\nto = [\"127.0.0.0/8\"]\nports = [\"any\"]\n",
            stage.key("other")
        );
        std::fs::write(stage.path("policy"), policy).unwrap();
        let mut command = stage.longhaul("depot");
        command.args(["depot", "--listen", "127.0.0.1:0", "--policy", "policy"]);
        stage.service(command, "addresses")
    };
    for (name, depot) in [
        ("closed", closed.address.to_string()),
        ("silent", silent.local_addr().unwrap().to_string()),
        ("refusing", refusing.address.clone()),
        ("itself", server.address.clone()),
    ] {
        dead(&stage);
        keep(&stage, &kept(&stage, &table(&depot, now_ms())));
        let (report, events) = copied(&stage, &server, name);
        let carried = carried(&report);
        let sum = |is_direct: bool| -> u64 {
            let mut routes = carried.clone();
            routes.retain(|route, _| route.starts_with("direct") == is_direct);
            routes.into_values().sum()
        };
        // More if one stream repeats blocks that were long in flight on another.
        assert!(
            sum(true) >= BYTES as u64 && sum(false) == 0,
            "{name}: {carried:?}"
        );
        if name == "itself" {
            // A route through the server itself makes no sense, and is not even tried.
            assert_eq!(report["routing"]["by"], "nobody", "{report}");
            continue;
        }
        assert_eq!(report["routing"]["by"], "cache", "{name}: {report}");
        assert!(
            events
                .iter()
                .any(|event| event["event"] == "route" && event["standing"] == "joined")
        );
        // It is remembered if it showed before the copy was complete.
        let judged = report["routing"]["judged"].as_array().unwrap();
        let bad = judged
            .iter()
            .any(|one| one["standing"] == "gone" || one["standing"] == "late");
        let held =
            std::fs::read_to_string(stage.path("me/state/control/held.json")).unwrap_or_default();
        assert_eq!(held.contains(&depot), bad, "{name}: {judged:?} {held}");
        if bad {
            let (again, _) = copied(&stage, &server, &format!("{name}-again"));
            assert_eq!(again["routing"]["by"], "nobody", "{again}");
        }
    }
}

#[test]
fn outdated_and_broken_tables_are_ignored() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let depot = stage.depot("depot", None);
    dead(&stage);
    let old = kept(&stage, &table(&depot.address, now_ms() - 7 * DAY_MS));
    let whole = kept(&stage, &table(&depot.address, now_ms()));
    let mut other = whole.clone();
    other[..30].fill(b'x');
    for (name, content) in [
        ("old", old),
        ("cut", whole[..whole.len() / 2].to_vec()),
        ("overwritten", other),
        ("empty", Vec::new()),
        ("not-text", vec![0xff; 5000]),
    ] {
        keep(&stage, &content);
        let (report, _) = copied(&stage, &server, name);
        assert_eq!(report["routing"]["by"], "nobody", "{name}: {report}");
        assert_eq!(carried(&report).len(), 1);
    }
    // Yesterday's table is used with doubt, in addition to the direct route.
    keep(
        &stage,
        &kept(&stage, &table(&depot.address, now_ms() - DAY_MS / 2)),
    );
    let (report, _) = copied(&stage, &server, "yesterday");
    assert_eq!(report["routing"]["by"], "cache");
    assert_eq!(report["routing"]["promised_seconds"], Value::Null);
}

#[test]
fn the_controllers_routes_are_used_and_reported() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let depot = stage.depot("depot", None);
    let answers = BTreeMap::from([
        ("POST /api/v1/routes/question", answer_of(&depot.address)),
        ("GET /api/v1/routes/table", table(&depot.address, now_ms())),
        ("POST /api/v1/transfers", json!({ "is_new": true })),
        (
            "POST /api/v1/measurements",
            json!({ "kept": 1, "duplicates": 0 }),
        ),
    ]);
    let scripted = Scripted::start(&stage, answers);
    let explain = |more: &[&str]| {
        let output = stage
            .longhaul("me")
            .args(["route", &server.address])
            .args(more)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(explain(&[]), "one\ntwo\nthree\nfour\nfive\n");
    let reported: Value = serde_json::from_str(&explain(&["--json", "--size", "1G"])).unwrap();
    assert_eq!(
        (&reported["by"], &reported["routes"][0]["depots"][0]),
        (&json!("controller"), &json!("the-depot"))
    );

    keep(&stage, &kept(&stage, &table(&depot.address, now_ms())));
    let (report, events) = copied(&stage, &server, "one");
    let joined = |event: &Value| event["event"] == "route" && event["standing"] == "joined";
    assert!(events.iter().any(joined), "{events:?}");
    assert_eq!(report["routing"]["chosen"], json!(["the-depot"]));
    // More if one route repeats blocks that were long in flight on the other.
    assert!(carried(&report).values().sum::<u64>() >= BYTES as u64);
    // It may be asked only after the copy is over. A later copy reports what this one could not.
    let mut more = 0..100;
    let has_received = |what| !scripted.received(what).is_empty();
    while !(has_received("POST /api/v1/transfers") && has_received("POST /api/v1/measurements")) {
        let copy = more
            .next()
            .expect("of a hundred copies at least one reports");
        copied(&stage, &server, &format!("more-{copy}"));
    }
    let question = &scripted.received("POST /api/v1/routes/question")[0];
    assert_eq!(question["to"], "127.0.0.1");
    let reports = scripted.received("POST /api/v1/transfers");
    let report = reports
        .iter()
        .find(|report| report["bytes"] == BYTES as u64);
    let report = report.unwrap_or_else(|| panic!("{reports:?}"));
    assert_eq!(
        (&report["to"], &report["outcome"]),
        (&json!("127.0.0.1"), &json!("done"))
    );
    assert_eq!(report["promised"], spread(1.0));
    let batches = scripted.received("POST /api/v1/measurements");
    let measured = batches[0]["measurements"].as_array().unwrap();
    assert!(
        measured
            .iter()
            .all(|one| one["from"] == stage.key("me").as_str()),
        "{measured:?}"
    );
    // The replacements for calls of Linux know no round trip.
    let has_round_trip = measured.iter().any(|one| one["quantity"] == "rtt");
    assert_eq!(has_round_trip, longhaul_platform::IS_LINUX, "{measured:?}");
}

/// A background process reports an ended copy to the controller, and fetches the table for the next
/// copy.
#[test]
fn an_ended_copy_is_reported_and_a_table_is_fetched() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let depot = stage.depot("depot", None);
    let scripted = Scripted::start(
        &stage,
        BTreeMap::from([
            ("POST /api/v1/routes/question", answer_of(&depot.address)),
            ("GET /api/v1/routes/table", table(&depot.address, now_ms())),
            ("POST /api/v1/transfers", json!({ "is_new": true })),
            (
                "POST /api/v1/measurements",
                json!({ "kept": 1, "duplicates": 0 }),
            ),
        ]),
    );
    copied(&stage, &server, "one");
    scripted.wait_for("POST /api/v1/transfers");
    scripted.wait_for("GET /api/v1/routes/table?receives=true");
    // By hand it does the same, one at a time.
    let sync = || {
        let output = stage
            .longhaul("me")
            .args(["controller", "sync"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let lock = std::fs::File::create(stage.path("me/state/control/sync.lock")).unwrap();
    lock.lock().unwrap();
    assert_eq!(sync(), "another sync is running\n");
    lock.unlock().unwrap();
    assert_eq!(sync(), "0 reports were sent\n");
    let waiting = std::fs::read_dir(stage.path("me/state/control/reports")).unwrap();
    assert_eq!(waiting.count(), 0, "all is reported");
    assert!(stage.path("me/state/control/routes.json").exists());
}

/// A table has the times of the direct route, so a copy promises a duration at its start, and a
/// small copy asks nobody.
#[test]
fn a_copy_promises_a_duration_from_the_table() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let scripted = Scripted::start(&stage, BTreeMap::new());
    for receives in [false, true] {
        let mut table = table("127.0.0.1:1", now_ms());
        table["receives"] = json!(receives);
        let store = &mut table["destinations"][0];
        store["sizes"] = json!([]);
        store["direct"] = json!([
            { "bytes": 1 << 17, "seconds": spread(1.0) },
            { "bytes": 1 << 30, "seconds": spread(9.0) }
        ]);
        keep_as(
            &stage,
            ["routes.json", "fetching.json"][usize::from(receives)],
            &kept(&stage, &table),
        );
    }
    stage.noise("here/small", 100_000);
    stage.noise("root/small", 100_000);
    let there = |name: &str| format!("lh://{}/{name}", server.address);
    for paths in [
        ["here/small", &there("sent")],
        [&there("small"), "here/fetched"],
    ] {
        let (report, code, text) = stage.start_cp(&server, &paths).report();
        assert_eq!(code, Some(0), "{text}");
        let routing = &report["routing"];
        assert_eq!(
            (&routing["by"], &routing["promised_seconds"]),
            (&json!("cache"), &spread(1.0)),
            "{report}"
        );
        assert!(routing["promised_after_seconds"].as_f64() < report["seconds"].as_f64());
        let kept = routing["kept_promise"].as_bool().unwrap();
        let seconds = report["seconds"].as_f64().unwrap();
        assert_eq!(kept, (0.5..=2.0).contains(&seconds));
    }
    assert!(scripted.received("POST /api/v1/routes/question").is_empty());
}

#[test]
fn routes_of_the_command_line_and_the_file_take_precedence() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let (depot, other) = (stage.depot("depot", None), stage.depot("other", None));
    dead(&stage);
    keep(&stage, &kept(&stage, &table(&depot.address, now_ms())));
    let data = stage.noise("here/data", 100_000);
    let there = |name: &str| format!("lh://{}/{name}", server.address);
    let via = |name: &str, more: &[&str]| {
        let destination = there(name);
        let (report, code, text) = stage
            .start_cp(&server, &[more, &["here/data", &destination]].concat())
            .report();
        assert_eq!(code, Some(0), "{text}");
        assert!(std::fs::read(stage.path("root").join(name)).unwrap() == data);
        report
    };
    let named = via("named", &["--route", &other.address]);
    assert_eq!(carried(&named).keys().collect::<Vec<_>>(), [&other.address]);
    assert_eq!(named["routing"], Value::Null);
    let rule = format!(
        "[[route]]\nto = [\"127.0.0.1\"]\nacceptor = true\nvia = \"{}\"\n",
        other.address
    );
    std::fs::write(stage.path("me/routes.toml"), rule).unwrap();
    let by_file = via("by-file", &[]);
    assert_eq!(
        carried(&by_file).keys().collect::<Vec<_>>(),
        [&other.address]
    );
    assert_eq!(by_file["routing"]["by"], "file");
    std::fs::write(stage.path("me/routes.toml"), "[[rout]]\n").unwrap();
    let broken = via("broken", &[]);
    assert_eq!(carried(&broken).keys().collect::<Vec<_>>(), ["direct"]);
}

#[test]
fn the_chosen_controller_is_stored_with_its_key() {
    let stage = Stage::new();
    let run = |arguments: &[&str]| {
        stage
            .longhaul("me")
            .arg("controller")
            .args(arguments)
            .output()
            .unwrap()
    };
    let none = run(&[]);
    assert_eq!(none.status.code(), Some(2));
    assert!(
        errors(&none).contains("no controller is configured"),
        "{}",
        errors(&none)
    );
    assert_eq!(run(&["use", "http://h"]).status.code(), Some(2));
    let nobody = run(&["use", "unix:/nobody/there"]);
    assert_eq!(nobody.status.code(), Some(3), "{}", errors(&nobody));
    let _scripted = Scripted::start(&stage, BTreeMap::new());
    std::fs::remove_file(stage.path("me/controller.toml")).unwrap();
    let socket = format!("unix:{}", stage.path("controller").display());
    let used = run(&["use", &socket]);
    assert!(used.status.success(), "{}", errors(&used));
    let shown = String::from_utf8(run(&[]).stdout).unwrap();
    assert!(shown.contains(&socket), "{shown}");
    assert!(run(&["forget"]).status.success());
    assert_eq!(run(&[]).status.code(), Some(2));
}
