//! `cp --no-encrypt`, with and without the server's permission.

use serde_json::Value;

use crate::stage::*;

/// Parses the output of a copy with `--json`: its notices, and its report.
fn said(output: &std::process::Output) -> (Vec<String>, Value) {
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let notices = lines.iter().filter(|line| line["event"] == "notice");
    let notices = notices.map(|line| line["message"].as_str().unwrap().to_owned());
    (notices.collect(), lines.last().unwrap().clone())
}

#[test]
fn content_is_plaintext_only_if_both_ends_agree() {
    let stage = Stage::new();
    let (allows, refuses) = (stage.serve(&["--allow-no-encrypt"]), stage.serve(&[]));
    let depot = stage.depot("d", None);
    // In blocks of 64 KiB, several of them at once.
    let data = stage.noise("root/big", 12_000_000);
    let mut number = 0;
    let mut pull = |server: &Service, more: &[&str]| {
        number += 1;
        let (from, to) = (
            format!("lh://{}/big", server.address),
            format!("here/{number}"),
        );
        let arguments = [&["--json"], more, &[&from, &to]].concat();
        let output = stage.cp(server, &arguments);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        assert!(std::fs::read(stage.path(&to)).unwrap() == data);
        said(&output)
    };
    let (notices, report) = pull(&allows, &["--no-encrypt"]);
    assert_eq!(
        (report["encrypted"].clone(), notices.len()),
        (false.into(), 0),
        "{notices:?}"
    );
    let (notices, report) = pull(
        &allows,
        &["--no-encrypt", "--route", &depot.address, "--streams", "3"],
    );
    assert_eq!(
        (report["encrypted"].clone(), notices.len()),
        (false.into(), 0),
        "{notices:?}"
    );
    let (_, report) = pull(&allows, &[]);
    assert_eq!(report["encrypted"], true);
    let (notices, report) = pull(&refuses, &["--no-encrypt"]);
    assert_eq!(report["encrypted"], true);
    assert!(notices[0].contains("--allow-no-encrypt"), "{notices:?}");
    // In the other direction, data is plaintext once the server's answer has arrived; how much that
    // is depends on the machine.
    let there = format!("lh://{}/there", allows.address);
    let output = stage.cp(&allows, &["--json", "--no-encrypt", "here/1", &there]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(std::fs::read(stage.path("root/there")).unwrap() == data);
    assert!(no_temps(stage.tmp.path()));
}
