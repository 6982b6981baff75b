//! The real controller with depots, on-ramps and copies.

use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

use super::{BYTES, copied, wait_until};
use crate::control::{Controller, ask};
use crate::stage::{Stage, errors};

/// The real controller, over TLS, with keys that were granted a role.
#[test]
fn depots_register_and_copies_report_to_a_controller() {
    let stage = Stage::new();
    let controller = Controller::start(&stage, &["--listen", "127.0.0.1:0"]);
    let (url, key) = (controller.url(), &controller.key);
    let run = |who: &str, arguments: &[&str]| {
        let output = stage.longhaul(who).args(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            errors(&output)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    for (who, role) in [("depot", "depot"), ("me", "client")] {
        run("control", &["control", "grant", &stage.key(who), role]);
    }
    // Depots and copies work without it, and find it once it runs.
    let policy = format!(
        "[[allow]]\nprincipals = [\"{}\"]\nto = [\"127.0.0.0/8\"]\nports = [\"any\"]\n",
        stage.key("me")
    );
    std::fs::write(stage.path("policy"), policy).unwrap();
    let mut command = stage.longhaul("depot");
    command.args([
        "depot",
        "--listen",
        "127.0.0.1:0",
        "--policy",
        "policy",
        "--register",
        "the-depot",
    ]);
    command.args(["--controller", &url, "--controller-key", key]);
    let depot = stage.service(command, "addresses");
    let known = || run("control", &["map", "--json"]);
    wait_until("the depot registers", || known().contains("the-depot"));

    let wrong = stage
        .longhaul("me")
        .args(["controller", "use", "--host-key", &stage.key("other"), &url])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(4), "{}", errors(&wrong));
    run("me", &["controller", "use", "--host-key", key, &url]);
    let map = "[[site]]\nname = \"far\"\n[[host]]\nname = \"store\"\nsite = \"far\"\n\
        addresses = [\"192.0.2.7\"]\n";
    std::fs::write(stage.path("map.toml"), map).unwrap();
    run("control", &["map", "import", "map.toml"]);
    follows(&stage, &run("me", &["controller", "routes"]));
    let lines = run("me", &["route", "127.0.0.1:1", "--size", "10G"]);
    assert_eq!(lines.lines().count(), 5, "{lines}");
    let server = stage.serve(&[]);
    // A later copy reports what this one could not.
    let first = (0..100).find_map(|copy| {
        copied(&stage, &server, &format!("copy-{copy}"));
        let (_, page) = ask(&controller.socket, true, "GET", "/transfers", "").unwrap();
        page["items"].get(0).cloned()
    });
    let first = first.expect("of a hundred copies at least one reports");
    assert_eq!(
        (&first["bytes"], &first["reporter"]),
        (&json!(BYTES), &json!(stage.key("me"))),
        "{first}"
    );
    // A depot announces its end.
    assert_eq!(depot.terminate(), Some(0));
    wait_until("the depot is gone", || !known().contains("the-depot"));
}

/// Asserts that an on-ramp of `me` uses the controller's rules for it.
fn follows(stage: &Stage, rules: &str) {
    assert!(rules.contains("192.0.2.7"), "{rules}");
    let socket = stage.path("programs/socket");
    let mut child = stage
        .longhaul("me")
        .args(["onramp", "--json", "--follow-controller", "--socket"])
        .arg(&socket)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let _ended = Ended(child);
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.contains("ready"), "{line}");
    let status = stage
        .longhaul("me")
        .args(["onramp", "status", "--json", "--socket"])
        .arg(&socket)
        .output()
        .unwrap();
    let status: Value =
        serde_json::from_slice(&status.stdout).unwrap_or_else(|_| panic!("{}", errors(&status)));
    let kept = std::fs::read_to_string(status["routes"]["file"].as_str().unwrap()).unwrap();
    assert_eq!(kept.trim_end(), rules.trim_end());
    assert_eq!(status["routes"]["rules"], kept.matches("[[route]]").count());
}

/// A process that is ended with the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
