//! Reservations by a person, and their survival of the controller.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::control::{Controller, ask};
use crate::postgres::Postgres;
use crate::stage::{Stage, errors};

/// Simultaneous requesters.
const ASKERS: usize = 4;
/// Acknowledged reservations before the controller is killed.
const ACKNOWLEDGED: usize = 20;
/// Time limit for these: far more than they take.
const ACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(120);
/// Number of kills.
const ROUNDS: usize = 3;
/// A moment far ahead, in milliseconds: 2100.
const FAR_MS: u64 = 4_102_444_800_000;

const MAP: &str = r#"{"sites": [{"name": "west"}, {"name": "east"}, {"name": "south"}],
    "hosts": [{"name": "dtn1", "site": "west", "addresses": ["192.0.2.1"]}, {"name": "store", "site": "east", "addresses": ["192.0.2.2"]}],
    "links": [
        {"name": "w-e", "from": "west", "to": "east", "forward": {"capacity": {"rate_bps": 1e10}}},
        {"name": "w-s", "from": "west", "to": "south", "forward": {"capacity": {"rate_bps": 4e9}}},
        {"name": "s-e", "from": "south", "to": "east", "forward": {"capacity": {"rate_bps": 4e9}}}]}"#;

/// Starts a controller with a map.
fn controller(stage: &Stage, more: &[&str]) -> Controller {
    let controller = Controller::start(stage, more);
    let (status, answer) = ask(&controller.socket, true, "PUT", "/map", MAP).unwrap();
    assert_eq!(status, 200, "{answer}");
    // The previous one may have been killed, which the store notices in a moment.
    let leads = || {
        ask(&controller.socket, true, "GET", "/controller", "")
            .unwrap()
            .1["leads"]
            == true
    };
    while !leads() {
        thread::yield_now();
    }
    controller
}

/// Runs a command as the controller's user.
fn run(stage: &Stage, arguments: &[&str]) -> Output {
    let mut command = stage.longhaul("control");
    command.args(arguments).env("TZ", "UTC").output().unwrap()
}

fn said(output: &Output) -> String {
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{said}{}", errors(output));
    said
}

#[test]
fn bandwidth_is_reserved_shown_and_given_back() {
    let stage = Stage::new();
    let _controller = controller(&stage, &[]);
    let reserve = [
        "reserve",
        "dtn1",
        "store",
        "--rate",
        "6G",
        "--paths",
        "2",
        "--disjoint",
    ];
    let when = [
        "--from",
        "2100-01-04 18:00",
        "--for",
        "2h",
        "--description",
        "a move",
    ];
    let shown = said(&run(&stage, &[&reserve[..], &when[..]].concat()));
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(
        lines,
        [
            "1 reserved: 6 Gbit/s from dtn1 to store, Mon  4 Jan 2100 18:00 - 20:00",
            "  5 Gbit/s  west - east, source ports 10240-10303",
            "  1 Gbit/s  west - south - east, source ports 10304-10367",
            "  for: a move",
        ]
    );
    let calendar = said(&run(&stage, &["reservations"]));
    assert!(
        calendar.starts_with("Mon  4 Jan 2100\n     1  ..................##....  reserved"),
        "{calendar}"
    );
    let one: Value =
        serde_json::from_str(&said(&run(&stage, &["reservations", "1", "--json"]))).unwrap();
    assert_eq!(
        (&one["id"], &one["disjoint"], &one["owner"]),
        (&json!(1), &json!("links"), &json!("operator"))
    );
    let held = said(&run(
        &stage,
        &[
            "reserve",
            "dtn1",
            "store",
            "--rate",
            "1G",
            "--until",
            "2100-01-01",
            "--hold",
        ],
    ));
    assert!(
        held.contains("2 held: 1 Gbit/s") && held.contains("longhaul reservations 2 commit"),
        "{held}"
    );
    assert!(said(&run(&stage, &["reservations", "2", "commit"])).starts_with("2 reserved"));
    let cancelled = said(&run(&stage, &["reservations", "cancel", "1"]));
    assert!(cancelled.starts_with("1 cancelled"), "{cancelled}");
    assert!(!said(&run(&stage, &["reservations"])).contains("a move"));
    let all = said(&run(&stage, &["reservations", "--all", "--json"]));
    assert_eq!(all.lines().count(), 2);
    let weekly = [
        "reserve",
        "dtn1",
        "store",
        "--rate",
        "1G",
        "--from",
        "2100-01-05 9:00",
        "--for",
        "1h",
    ];
    let weekly = said(&run(
        &stage,
        &[&weekly[..], &["--every", "FREQ=WEEKLY;COUNT=3"]].concat(),
    ));
    assert_eq!(
        weekly
            .lines()
            .filter(|line| line.contains("reserved"))
            .count(),
        3,
        "{weekly}"
    );
    let ended = said(&run(&stage, &["reservations", "3", "cancel", "--series"]));
    assert_eq!(
        ended
            .lines()
            .filter(|line| line.contains("cancelled"))
            .count(),
        3,
        "{ended}"
    );
}

#[test]
fn refusals_come_with_options_that_are_granted() {
    let stage = Stage::new();
    let _controller = controller(&stage, &[]);
    let window = ["--from", "2100-01-04 18:00", "--until", "2100-01-04 20:00"];
    let reserve =
        |options: &[&str]| run(&stage, &[&["reserve", "dtn1", "store"], options].concat());
    said(&reserve(&[&["--rate", "5G"], &window[..]].concat()));
    let refused = reserve(&[&["--rate", "3G"], &window[..]].concat());
    assert_eq!(refused.status.code(), Some(1));
    let error = errors(&refused);
    assert!(
        error.starts_with("longhaul: not enough bandwidth: ")
            && error.trim_end().lines().count() == 1,
        "{error}"
    );
    let lines = String::from_utf8(refused.stdout).unwrap();
    assert!(
        lines.contains("taken by reservation 1")
            && lines.contains("full until Mon  4 Jan 2100 20:00"),
        "{lines}"
    );
    // Each offer consists of options that are granted.
    let mut offers = 0;
    for line in lines
        .lines()
        .filter_map(|line| line.strip_prefix("offer, "))
    {
        let (_, offer) = line.split_once(": ").unwrap();
        let (options, _) = offer.rsplit_once(", ").unwrap();
        let words = options.split_whitespace().collect::<Vec<_>>();
        // The text in brackets is for people.
        let mut taken: Vec<&str> = Vec::new();
        let mut within = false;
        for word in words {
            within |= word.starts_with('(');
            if !within {
                taken.push(word);
            }
            within &= !word.ends_with(')');
        }
        let done = said(&run(
            &stage,
            &[&["reserve", "dtn1", "store", "--json"], &taken[..]].concat(),
        ));
        let done: Value = serde_json::from_str(&done).unwrap();
        let id = done["reservations"][0]["id"].to_string();
        said(&run(&stage, &["reservations", &id, "cancel"]));
        offers += 1;
    }
    assert_eq!(offers, 3, "{lines}");
    let refused = reserve(&[&["--rate", "3G", "--json"], &window[..]].concat());
    let refused: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(refused["refusal"]["proof"]["kind"], "cut");
}

#[test]
fn errors_of_reserve_are_one_line() {
    let stage = Stage::new();
    let assert_fails = |arguments: &[&str], code: i32, word: &str| {
        let output = run(&stage, arguments);
        let error = errors(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(word), "{arguments:?}: {error}");
        assert!(
            !word.starts_with("longhaul") || error.trim_end().lines().count() == 1,
            "{error}"
        );
    };
    let base = ["reserve", "dtn1", "store"];
    let with = |options: &[&'static str]| [&base[..], options].concat();
    assert_fails(
        &with(&["--rate", "1G", "--for", "1h"]),
        2,
        "longhaul: no controller is configured: name one with",
    );
    let _controller = controller(&stage, &[]);
    assert_fails(
        &with(&["--rate", "1G", "--until", "soon"]),
        2,
        "longhaul: --until soon: not a moment: write 18:00",
    );
    assert_fails(
        &with(&["--rate", "1G", "--until", "2001-01-01"]),
        2,
        "longhaul: --until: it ends before it begins",
    );
    assert_fails(&with(&["--rate", "1G"]), 2, "--until");
    assert_fails(&with(&["--until", "18:00"]), 2, "--rate");
    assert_fails(
        &with(&["--bytes", "1T", "--rate", "1G", "--for", "1h"]),
        2,
        "cannot be used with",
    );
    assert_fails(
        &with(&["--rate", "1G", "--for", "1h", "--paths", "9"]),
        2,
        "--paths",
    );
    let every = ["--rate", "1G", "--for", "1h", "--every", "daily"];
    assert_fails(&with(&every), 1, "longhaul: recurrence: ");
    assert_fails(
        &["reserve", "dtn1", "nowhere", "--rate", "1G", "--for", "1h"],
        1,
        "longhaul: to: no host, depot or site",
    );
    assert_fails(
        &["reservations", "7"],
        1,
        "longhaul: there is no reservation 7 that you may see",
    );
    assert_fails(
        &["reservations", "7", "commit"],
        1,
        "longhaul: there is no reservation 7 that you may see",
    );
    assert_fails(
        &["reservations", "cancel"],
        2,
        "longhaul: name a reservation: longhaul reservations ACTION ID",
    );
}

/// Returns how often each description is stored.
fn kept(socket: &Path) -> BTreeMap<String, usize> {
    let (mut found, mut after) = (BTreeMap::new(), String::new());
    loop {
        let path = format!("/reservations?limit=1000{after}");
        let (status, page) = ask(socket, true, "GET", &path, "").unwrap();
        // The store's process may have just started, and its old connections are dead.
        if status >= 500 {
            thread::yield_now();
            continue;
        }
        assert_eq!(status, 200, "{page}");
        for item in page["items"].as_array().unwrap() {
            assert_eq!(
                item["state"]["provision"], "released",
                "as a whole, or not at all: {item}"
            );
            *found
                .entry(item["description"].as_str().unwrap().to_owned())
                .or_default() += 1;
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return found,
        }
    }
}

/// Reserves from several threads, and calls `blow` meanwhile. A controller that is too busy, or
/// whose store does not answer, is asked again. Returns what was acknowledged.
fn acknowledged_until(socket: &Path, round: usize, blow: impl FnOnce()) -> Vec<String> {
    let (count, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let asking: Vec<_> = (0..ASKERS)
            .map(|asker| {
                let (count, is_over) = (&count, &is_over);
                scope.spawn(move || {
                    let mut acknowledged = Vec::new();
                    for number in 0.. {
                        if is_over.load(Ordering::SeqCst) {
                            break;
                        }
                        let name = format!("{round}-{asker}-{number}");
                        let body = json!({
                            "from": "dtn1", "to": "store", "wish": {"rate": {"rate_bps": 1}},
                            "start_ms": FAR_MS, "end_ms": FAR_MS + 1000, "description": name
                        });
                        match ask(socket, false, "POST", "/reservations", &body.to_string()) {
                            Some((201, _)) => acknowledged.push(name),
                            Some((status, _)) if status >= 500 || status == 429 => continue,
                            _ => break,
                        }
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                    acknowledged
                })
            })
            .collect();
        let deadline = Instant::now() + ACKNOWLEDGED_TIMEOUT;
        while count.load(Ordering::SeqCst) < ACKNOWLEDGED
            && Instant::now() < deadline
            && asking.iter().any(|asking| !asking.is_finished())
        {
            thread::yield_now();
        }
        blow();
        is_over.store(true, Ordering::SeqCst);
        asking
            .into_iter()
            .flat_map(|asking| asking.join().unwrap())
            .collect()
    })
}

fn nothing_is_lost_or_doubled_on_kill(more: &[&str]) {
    let stage = Stage::new();
    let mut acknowledged = Vec::new();
    for round in 0..ROUNDS {
        let mut controller = controller(&stage, more);
        let socket = controller.socket.clone();
        acknowledged.extend(acknowledged_until(&socket, round, || controller.kill()));
        assert!(acknowledged.len() >= ACKNOWLEDGED * (round + 1));
        let again = Controller::start(&stage, more);
        let kept = kept(&again.socket);
        assert!(
            acknowledged.iter().all(|name| kept.get(name) == Some(&1)),
            "round {round}"
        );
        assert!(kept.values().all(|count| *count == 1));
    }
}

#[test]
fn reservations_in_sqlite_survive_kill_9() {
    nothing_is_lost_or_doubled_on_kill(&[]);
}

#[test]
fn reservations_in_postgresql_survive_kill_9() {
    let server = Postgres::start();
    server.create_database("control");
    nothing_is_lost_or_doubled_on_kill(&["--store", &server.url_of("control")]);
}

/// The database is killed under load and restarted. The same controller continues with the promised
/// reservations.
#[test]
fn reservations_survive_the_death_of_postgresql() {
    let stage = Stage::new();
    let mut server = Postgres::start();
    server.create_database("control");
    let controller = controller(&stage, &["--store", &server.url_of("control")]);
    let acknowledged = acknowledged_until(&controller.socket, 0, || server.crash_and_restart());
    // The first request may use a dead connection.
    let body = json!({
        "from": "dtn1", "to": "store", "wish": {"rate": {"rate_bps": 1}}, "start_ms": FAR_MS,
        "end_ms": FAR_MS + 1000, "description": "after"
    });
    while ask(
        &controller.socket,
        true,
        "POST",
        "/reservations",
        &body.to_string(),
    )
    .unwrap()
    .0 != 201
    {
        thread::yield_now();
    }
    let kept = kept(&controller.socket);
    assert!(acknowledged.iter().all(|name| kept.get(name) == Some(&1)));
}
