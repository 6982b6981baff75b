//! An agent on one machine, and commands on another.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;
use wanbed::{Lab, Overrides, Scenario};

use crate::common::{has_labs, new_key};

/// A laptop 50 ms away from a data-transfer node.
const PATH: &str = r#"
title = "a laptop and a data-transfer node"
[nodes.laptop]
[nodes.dtn]
[links.path]
ends = ["laptop", "dtn"]
delay = "25 ms"
rate = "1 Gbit/s"
queue = "1 bdp of 50 ms"
"#;

#[test]
fn jobs_of_a_remote_agent_are_submitted_and_followed() {
    if !has_labs() {
        return;
    }
    let lab = Lab::up(&Scenario::from_text("agent", PATH), &Overrides::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let longhaul = |node: &str| -> Command {
        let mut command = lab.command(node, env!("CARGO_BIN_EXE_longhaul")).unwrap();
        command
            .env("LONGHAUL_HOME", dir.path().join(node))
            .stdin(Stdio::null());
        command
    };
    let key = new_key(&dir.path().join("laptop"));
    let keys = dir.path().join("keys");
    std::fs::write(&keys, format!("{key} ana all\n")).unwrap();
    let mut agent = longhaul("dtn");
    agent.args([
        "agent",
        "--json",
        "--listen",
        "0.0.0.0:7512",
        "--server-name",
        "dtn.example",
    ]);
    let mut agent = agent
        .arg("--authorized-keys")
        .arg(&keys)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let mut out = BufReader::new(agent.stdout.take().unwrap());
    out.read_line(&mut ready).unwrap();
    let ready: Value = serde_json::from_str(&ready).unwrap();

    let url = format!("https://{}:7512", lab.address("dtn").unwrap());
    let ask = |arguments: &[&str]| {
        let mut command = longhaul("laptop");
        command.args(arguments).args(["--json", "--agent", &url]);
        let output = command.output().unwrap();
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = String::from_utf8_lossy(&output.stdout)
            .lines()
            .last()
            .map(str::to_owned);
        let value = last.map_or(Value::Null, |last| serde_json::from_str(&last).unwrap());
        (output.status.code(), value, reported)
    };
    let (code, _, reported) = ask(&["jobs", "--host-key", ready["key"].as_str().unwrap()]);
    assert_eq!(code, Some(0), "{reported}");
    let (code, _, reported) = ask(&["jobs", "--accept-new"]);
    assert_eq!(code, Some(0), "{reported}");
    let data = vec![7; 200_000];
    let (source, destination) = (dir.path().join("data"), dir.path().join("copy"));
    std::fs::write(&source, &data).unwrap();
    let (code, job, reported) = ask(&[
        "submit",
        source.to_str().unwrap(),
        destination.to_str().unwrap(),
    ]);
    assert_eq!(code, Some(0), "{reported}");
    assert_eq!(job["user"], "ana");
    let (code, job, reported) = ask(&["job", "1", "--follow"]);
    assert_eq!(
        (code, job["state"].as_str()),
        (Some(0), Some("done")),
        "{reported}"
    );
    assert_eq!(job["agent"], ready["name"]);
    assert_eq!(std::fs::read(destination).unwrap(), data);
    agent.kill().unwrap();
    agent.wait().unwrap();
}
