//! `longhaul leftovers`: what copies left, locally and at a server.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::stage::*;

/// Stops a copy to `root/runs/f` at a server in its middle, and gives the leftover this age.
fn leave(stage: &Stage, age: Duration) {
    let server = stage.serve(&[]);
    std::fs::create_dir_all(stage.path("root/runs")).unwrap();
    stage.noise("here/f", 20_000_000);
    let depot = stage.depot("d", Some("8 Mbit/s"));
    let there = format!("lh://{}/runs/f", server.address);
    let mut copy = stage.start_cp(&server, &["--route", &depot.address, "here/f", &there]);
    copy.until(|event| event["event"] == "progress" && event["bytes"].as_u64() > Some(2 << 20));
    signal(&copy.child, "INT");
    let (_, code, reported) = copy.report();
    assert_eq!(code, Some(130), "{reported}");
    // It makes the unfinished file durable.
    assert_eq!(server.terminate(), Some(0));
    for entry in std::fs::read_dir(stage.path("root/runs")).unwrap() {
        let file = std::fs::File::options()
            .write(true)
            .open(entry.unwrap().path())
            .unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }
}

fn leftovers(stage: &Stage, arguments: &[&str]) -> (Vec<Value>, Option<i32>, String) {
    let output = stage
        .longhaul("me")
        .arg("leftovers")
        .arg("--json")
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (lines.collect(), output.status.code(), errors(&output))
}

#[test]
fn leftovers_are_reported_and_removed_once_old() {
    let stage = Stage::new();
    leave(&stage, Duration::from_secs(3 * 86_400));
    let server = stage.serve(&[]);
    let there = format!("lh://{}/", server.address);
    let at_server = ["--host-key", &server.key, &there];
    for place in [
        &["-r", "root"][..],
        &["root/runs"],
        &[&["-r"], &at_server[..]].concat(),
    ] {
        let (found, code, reported) = leftovers(&stage, place);
        assert_eq!((found.len(), code), (1, Some(0)), "{place:?}: {reported}");
        assert_eq!(
            (&found[0]["target"], &found[0]["size"]),
            (&"f".into(), &20_000_000.into())
        );
        assert!(
            found[0]["durable_bytes"].as_u64().unwrap() > 0,
            "{}",
            found[0]
        );
        assert!(found[0]["age_seconds"].as_u64().unwrap() >= 3 * 86_400 - 5);
    }
    let text = stage
        .longhaul("me")
        .args(["leftovers", "root/runs"])
        .output()
        .unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.contains("root/runs/f: ") && text.contains("MiB can be resumed"),
        "{text}"
    );
    // Not beneath it without -r, and not yet old enough.
    assert_eq!(leftovers(&stage, &["root"]).0.len(), 0);
    let (kept, ..) = leftovers(&stage, &["-r", "--remove", "root"]);
    assert_eq!(kept[0]["outcome"], "kept");
    let (removed, code, reported) = leftovers(
        &stage,
        &[&["-r", "--remove", "--older-than", "2 d"], &at_server[..]].concat(),
    );
    assert_eq!(
        (&removed[0]["outcome"], code),
        (&"removed".into(), Some(0)),
        "{reported}"
    );
    assert_eq!(
        std::fs::read_dir(stage.path("root/runs")).unwrap().count(),
        0
    );
}

#[test]
fn files_being_written_are_never_leftovers() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    stage.noise("here/f", 20_000_000);
    let depot = stage.depot("d", Some("8 Mbit/s"));
    let there = format!("lh://{}/f", server.address);
    let mut copy = stage.start_cp(&server, &["--route", &depot.address, "here/f", &there]);
    copy.until_mid_copy();
    let (found, ..) = leftovers(&stage, &["--remove", "--older-than", "0", "root"]);
    assert!(
        found
            .iter()
            .all(|leftover| leftover["usage"] == "in_use" && leftover["outcome"] == "kept"),
        "{found:?}"
    );
    stage.set_depot_rate("d", &depot, None);
    let (report, code, reported) = copy.report();
    assert_eq!(code, Some(0), "{report} {reported}");
}
