//! Copies that are killed repeatedly, at either end or both: the same command resumes until all is
//! copied.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::stage::*;

/// Rate of a depot on the route, so that a copy lasts long enough to be killed.
const RATE: &str = "24 Mbit/s";
const BYTES_PER_SECOND: u64 = 24_000_000 / 8;
const SIZE: usize = 40_000_000;
/// Bytes between two kills, at the least.
const MIN_MORE: u64 = 5_250_000;
/// Bytes that one kill may cost. These are the bytes of the last seconds that were not yet durable,
/// as a flush waits for the writes of other tests, and the bytes in flight. In addition, the sender
/// begins before it knows what has arrived.
const MAX_REPEATED: u64 = 5 * BYTES_PER_SECOND + 8 * 1024 * 1024;

/// Returns the bytes that had arrived when this copy began, and at its last event.
fn seen(events: &[Value]) -> (u64, u64) {
    let resumed = events.iter().filter(|event| event["event"] == "resumed");
    let there = resumed.filter_map(|event| event["bytes"].as_u64()).sum();
    let progress = events.iter().filter(|event| event["event"] == "progress");
    let done = progress.filter_map(|event| event["bytes"].as_u64()).max();
    (there, done.unwrap_or(0))
}

/// Returns the bytes that had arrived when the copy of this report began. The server may complete a
/// file after its client is gone, and the next copy then finds it unchanged.
fn was_there(report: &Value) -> u64 {
    let number = |key: &str| report[key].as_u64().unwrap();
    number("resumed_bytes") + number("unchanged_bytes")
}

/// Kills the client, the server or both after each further number of bytes, until the copy is done.
fn killed_until_done(push: bool, kills_client: bool, kills_server: bool) {
    let stage = Stage::new();
    let data = stage.noise(if push { "here/f" } else { "root/f" }, SIZE);
    let depot = stage.depot("d", Some(RATE));
    let mut server = stage.serve(&[]);
    let target = stage.path(if push { "root/f" } else { "here/f" });
    let (mut kept, mut kills) = (0, 0);
    loop {
        let there = format!("lh://{}/f", server.address);
        let paths = if push {
            ["here/f", &there]
        } else {
            [&there, "here/f"]
        };
        let mut copy = stage.start_cp(&server, &["--route", &depot.address, paths[0], paths[1]]);
        // It was killed when its file was already committed. The journal may be left.
        if kills > 0 && target.exists() {
            let (report, code, _) = copy.report();
            assert_eq!(code, Some(0), "{report}");
            let folder = target.parent().unwrap();
            let mut leftovers = stage.longhaul("client");
            leftovers.args(["leftovers", "--remove", "--older-than", "0 s"]);
            assert!(leftovers.arg(folder).status().unwrap().success());
            break;
        }
        // At a different phase of a flush each time.
        let more = MIN_MORE + BYTES_PER_SECOND * (kills as u64 % 3) / 3;
        let is_over = |event: &Value| event["event"] == "report";
        copy.until(|event| is_over(event) || event["bytes"].as_u64() > Some(kept + more));
        if let Some(report) = copy.events.iter().find(|event| is_over(event)) {
            assert_eq!(report["exit_code"], 0, "{report}");
            assert!(
                was_there(report) + MAX_REPEATED >= kept,
                "{kept} were there: {report}"
            );
            copy.child.wait().unwrap();
            break;
        }
        kills += 1;
        if kills_client {
            copy.child.kill().unwrap();
        }
        if kills_server {
            server.kill();
        }
        if !kills_client {
            let (report, code, _) = copy.report();
            if code == Some(0) {
                // It ended before it noticed that the server is gone.
                break;
            }
            assert_eq!(code, Some(5), "{report}");
            let done = report["bytes"].as_u64().unwrap();
            assert!(
                was_there(&report) + MAX_REPEATED >= kept,
                "{kept} were there: {report}"
            );
            kept = done;
        } else {
            copy.child.wait().unwrap();
            let (resumed, done) = seen(&copy.events);
            assert!(
                resumed + MAX_REPEATED >= kept,
                "{resumed} of {kept} were there"
            );
            kept = done;
        }
        if kills_server {
            server = stage.serve(&[]);
        }
    }
    assert!(kills > 0);
    assert!(std::fs::read(&target).unwrap() == data);
    // A data file may remain from a program that was killed before its first record.
    for folder in ["root", "here"] {
        for entry in std::fs::read_dir(stage.path(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(!name.ends_with(".journal"), "{name}");
        }
    }
}

#[test]
fn a_push_resumes_after_its_client_is_killed() {
    killed_until_done(true, true, false);
}

#[test]
fn a_push_resumes_after_its_server_is_killed() {
    killed_until_done(true, false, true);
}

#[test]
fn a_push_resumes_after_both_ends_are_killed() {
    killed_until_done(true, true, true);
}

#[test]
fn a_pull_resumes_after_its_client_is_killed() {
    killed_until_done(false, true, false);
}

#[test]
fn a_pull_resumes_after_both_ends_are_killed() {
    killed_until_done(false, true, true);
}

/// Returns true if the directory has the journal of a copy. It is made with its first record.
pub fn has_journal(dir: &Path) -> bool {
    let mut entries = std::fs::read_dir(dir).unwrap().flatten();
    entries.any(|entry| entry.file_name().to_string_lossy().ends_with(".journal"))
}

/// A server that is back at the same address before its client gives up.
#[test]
fn push_resumes_by_itself_when_its_server_is_started_again() {
    let stage = Stage::new();
    let data = stage.noise("here/f", SIZE);
    let depot = stage.depot("d", Some(RATE));
    let mut server = stage.serve(&[]);
    let address = server.address.clone();
    let there = format!("lh://{address}/f");
    let arguments = ["--route", &depot.address, "here/f", &there];
    let mut command = stage.longhaul("me");
    command
        .args(["cp", "--json", "--host-key", &server.key])
        // The server may take long to start.
        .args(["--patience", "5 min"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut copy = Running::new(command);
    copy.until(|event| {
        event["event"] == "progress"
            && event["bytes"].as_u64() > Some(MIN_MORE)
            && has_journal(&stage.path("root"))
    });
    server.kill();
    let _server = stage.serve_at(&address);
    copy.until(|event| event["event"] == "begun_again");
    copy.until(|event| event["event"] == "resumed");
    let (report, code, reported) = copy.report();
    assert_eq!(code, Some(0), "{report} {reported}");
    assert_eq!(
        (&report["files"], &report["bytes"]),
        (&1.into(), &SIZE.into()),
        "{report}"
    );
    assert!(std::fs::read(stage.path("root/f")).unwrap() == data);
}
