//! Local sides that end before their copy does.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::hosts::{Hosts, noise};

/// Time within which a far side must end after its local side: many times its own limit.
const END_TIME_LIMIT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[test]
fn a_far_side_ends_with_the_client_and_shows_no_key() {
    let Some(hosts) = Hosts::up(&["alpha", "beta"]) else {
        return;
    };
    noise(&hosts.path("here/big"), 96 << 20);
    noise(&hosts.home("alpha").join("big"), 96 << 20);
    // The link to beta takes some sixteen seconds for this.
    for paths in [["here/big", "beta:one"], ["alpha:big", "beta:two"]] {
        let mut command = hosts.longhaul();
        command.args(["cp", "-F", "config", "--json"]).args(paths);
        let mut near = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(near.stdout.take().unwrap()).lines();
        let moving = |line: &str| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_ne!(event["event"], "report", "over already: {event}");
            event["event"] == "progress" && event["bytes"].as_u64() > Some(0)
        };
        assert!(lines.by_ref().any(|line| moving(&line.unwrap())));
        let running = hosts.command_lines();
        assert!(!running.is_empty());
        assert!(
            running.iter().all(|line| !line.contains("lhk1:")),
            "{running:?}"
        );
        // kill -9.
        near.kill().unwrap();
        near.wait().unwrap();
        let deadline = Instant::now() + END_TIME_LIMIT;
        while !hosts.command_lines().is_empty() {
            assert!(Instant::now() < deadline, "{:?}", hosts.command_lines());
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
