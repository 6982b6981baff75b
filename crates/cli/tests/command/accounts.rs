//! Accounts of a server and a depot, and `longhaul accounts`.

use std::path::Path;

use serde_json::Value;

use crate::stage::{Stage, errors, until};

/// Returns the records in a file. One that is being written is not complete yet.
fn records(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// Waits until a file has this many records, which are written when the last connection of a copy
/// has closed.
fn wait_for_records(file: &Path, number: usize) -> Vec<Value> {
    until("the records", || records(file).len() >= number);
    records(file)
}

/// Runs `longhaul accounts`.
fn accounts(stage: &Stage, arguments: &[&str]) -> String {
    let mut command = stage.longhaul("me");
    let output = command.arg("accounts").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The client leaves as soon as it knows that everything is in place, without waiting for what the
/// server still has to say on other streams. That is no failure of a session that it has ended.
#[test]
fn sessions_of_a_successful_copy_are_completed() {
    const STREAMS: usize = 16;
    let stage = Stage::new();
    let server = stage.serve(&["--accounts", "copies.jsonl"]);
    let depot = stage.depot_with(
        "depot",
        &[
            "--accounts",
            "sessions.jsonl",
            "--metrics",
            "127.0.0.1:0",
            "--no-quic",
        ],
    );
    let data = stage.noise("here/data", 64 << 20);
    for (number, (from, to)) in [("here/data", "up"), ("up", "here/down")]
        .iter()
        .enumerate()
    {
        let at_server = |path: &str| match path.starts_with("here") {
            true => path.to_owned(),
            false => format!("lh://{}/{path}", server.address),
        };
        let (from, to) = (at_server(from), at_server(to));
        let streams = STREAMS.to_string();
        let arguments = ["--route", &depot.address, "--streams", &streams, &from, &to];
        let copied = stage.cp(&server, &arguments);
        assert!(copied.status.success(), "{}", errors(&copied));
        let copies = wait_for_records(&stage.path("copies.jsonl"), number + 1);
        let copy = copies.last().unwrap();
        assert_eq!(copy["result"], "completed", "{copy}");
        assert_eq!(copy["bytes"], data.len(), "{copy}");
    }
    // A session ends a moment after its copy.
    wait_for_records(&stage.path("sessions.jsonl"), 2 * STREAMS);
    assert_eq!(depot.terminate(), Some(0));
    let sessions = records(&stage.path("sessions.jsonl"));
    let (completed, left): (Vec<_>, Vec<_>) = sessions
        .iter()
        .partition(|session| session["result"] == "completed");
    assert!(sessions.len() >= 2 * STREAMS, "{} sessions", sessions.len());
    assert!(completed.len() > STREAMS, "{left:?}");
    // On a busy machine, a stream may still be opening, or sending a block that has arrived over
    // another one. The client resets it if that does not end within 30 ms.
    for session in left {
        let is_given_up = session["result"] == "initiator-died" || session["result"] == "abandoned";
        assert!(is_given_up, "{session}");
    }
}

#[test]
fn records_say_who_copied_what_and_how_it_ended() {
    let stage = Stage::new();
    let key = stage.key("me");
    let server = stage.serve(&["--accounts", "acc.jsonl"]);
    std::fs::create_dir(stage.path("here/tree")).unwrap();
    stage.noise("here/tree/a", 300_000);
    stage.noise("here/tree/b", 5);
    let target = format!("lh://{}/in", server.address);
    // Each record is there before the next copy begins, so that their order is certain.
    let mut number = 0;
    let mut cp = |arguments: &[&str]| {
        number += 1;
        let code = stage.cp(&server, arguments).status.code();
        wait_for_records(&stage.path("acc.jsonl"), number);
        code
    };
    assert_eq!(cp(&["-r", "here/tree", &target]), Some(0));
    assert_eq!(cp(&["-r", &target, "here/back"]), Some(0));
    // What exists is not replaced.
    assert_eq!(cp(&["here/tree/b", &format!("{target}/a")]), Some(1));
    let found = records(&stage.path("acc.jsonl"));
    let [pushed, pulled, failed] = &found[..] else {
        panic!("{found:?}");
    };
    for (record, direction) in [(pushed, "received"), (pulled, "sent")] {
        assert_eq!(record["kind"], "copy");
        assert_eq!(record["key"], key, "{record}");
        assert_eq!(record["direction"], direction, "{record}");
        assert_eq!(record["from"][0], "127.0.0.1", "{record}");
        assert_eq!(record["routes"][0], "direct", "{record}");
        assert_eq!(record["names"][0], "/in", "{record}");
        assert_eq!(
            (&record["files"], &record["bytes"]),
            (&2.into(), &300_005.into()),
            "{record}"
        );
        assert_eq!(record["result"], "completed", "{record}");
        assert_eq!(record["receipt"].as_str().unwrap().len(), 64, "{record}");
    }
    assert_eq!(pushed["receipt"], pulled["receipt"]);
    assert_eq!(failed["result"], "some-failed", "{failed}");
    assert_eq!(failed["failed"], 1, "{failed}");

    let month = &pushed["ended"].as_str().unwrap()[..7];
    // There are two, if a month has just ended.
    let totals: Vec<Value> = accounts(&stage, &["acc.jsonl", "--json"])
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&totals[0]["key"], &totals[0]["month"]),
        (&key.as_str().into(), &month.into()),
        "{totals:?}"
    );
    let sum = |field: &str| -> u64 {
        let numbers = totals.iter().map(|total| total[field].as_u64().unwrap());
        numbers.sum()
    };
    assert_eq!((sum("copies"), sum("incomplete")), (3, 1), "{totals:?}");
    let by_direction = accounts(&stage, &["acc.jsonl", "--by", "direction,result"]);
    let rows: Vec<Vec<&str>> = by_direction
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0][..4], ["direction", "result", "copies", "sessions"]);
    assert_eq!(rows[1][..4], ["received", "completed", "1", "0"]);
    assert_eq!(rows[2][..3], ["received", "some-failed", "1"]);
    assert_eq!(rows[3][..3], ["sent", "completed", "1"]);
    assert_eq!(rows[4][..2], ["all", "3"]);
    assert_eq!(
        accounts(&stage, &["acc.jsonl", "--records"])
            .lines()
            .count(),
        3
    );
    let none = accounts(&stage, &["acc.jsonl", "--records", "--until", "1 h"]);
    assert_eq!(none, "");
}

/// A copy that runs when the server ends has a record too.
#[test]
fn copies_that_a_server_ends_are_recorded() {
    let stage = Stage::new();
    let server = stage.serve(&["--accounts", "acc.jsonl"]);
    let depot = stage.depot("slow", Some("8 Mbit/s"));
    stage.noise("here/data", 64 << 20);
    let target = format!("lh://{}/data", server.address);
    let mut copy = stage.start_cp(&server, &["--route", &depot.address, "here/data", &target]);
    copy.until_mid_copy();
    assert_eq!(server.terminate(), Some(0));
    let found = records(&stage.path("acc.jsonl"));
    let [record] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(record["result"], "stopped", "{record}");
    copy.child.kill().unwrap();
    copy.child.wait().unwrap();
}

#[test]
fn accounts_that_cannot_be_kept_are_an_error_at_the_start() {
    let stage = Stage::new();
    let key = stage.key("me");
    let mut command = stage.longhaul("server");
    command.args(["serve", "--root", "root", "--listen", "127.0.0.1:0"]);
    command.args(["--read", &key, "--accounts", "missing/acc.jsonl"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = errors(&output);
    assert!(
        said.contains("cannot keep accounts: missing/acc.jsonl: "),
        "{said}"
    );
}

/// A disk without space stops no copy.
#[test]
fn a_full_disk_does_not_stop_copies() {
    let stage = Stage::new();
    let log = stage.path("log");
    let server = stage.serve_logging_to(&log, &["--accounts", "/dev/full"]);
    std::fs::write(stage.path("here/f"), "content").unwrap();
    for copy in 0..3 {
        let target = format!("lh://{}/{copy}", server.address);
        let copied = stage.cp(&server, &["here/f", &target]);
        assert!(copied.status.success(), "{}", errors(&copied));
    }
    assert_eq!(server.terminate(), Some(0));
    let text = std::fs::read_to_string(&log).unwrap();
    assert_eq!(
        text.matches("accounts cannot be written").count(),
        1,
        "{text}"
    );
}
