//! Copies between hosts and a server elsewhere, which pass through the client.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Stdio};

use serde_json::Value;

use crate::common::Service;
use crate::hosts::{Hosts, PORTS, noise, same};
use crate::sftp::Running;

/// A server of `root`.
struct Server {
    address: String,
    key: String,
    _service: Service,
    // Kept open so that the service's writes do not fail.
    _out: BufReader<ChildStdout>,
}

/// Starts a server at a node that lets the client read and write.
fn serve(hosts: &Hosts, node: &str) -> Server {
    let made = hosts.longhaul().args(["keys", "new"]).output().unwrap();
    assert!(made.status.success());
    let key = hosts.longhaul().args(["keys", "show"]).output().unwrap();
    let key = String::from_utf8(key.stdout).unwrap().trim().to_owned();
    fs::create_dir(hosts.path("root")).unwrap();
    let listen = format!("{}:0", hosts.lab.address(node).unwrap());
    let program = env!("CARGO_BIN_EXE_longhaul");
    let mut command = hosts.lab.command(node, program).unwrap();
    command
        .args(["serve", "--json", "--root", "root", "--listen", &listen])
        .args(["--read", &key, "--write", &key])
        .env("LONGHAUL_HOME", hosts.path("server-settings"))
        .current_dir(hosts.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let reported: Value = serde_json::from_str(&line).unwrap();
    let text = |field: &str| reported[field].as_str().unwrap().to_owned();
    Server {
        address: text("address"),
        key: text("key"),
        _service: Service(child),
        _out: out,
    }
}

#[test]
fn hosts_and_servers_copy_through_the_client() {
    let Some(hosts) = Hosts::up(&["alpha"]) else {
        return;
    };
    let server = serve(&hosts, "hub");
    let there = |path: &str| format!("lh://{}/{path}", server.address);
    let home = hosts.home("alpha");
    fs::create_dir(home.join("tree")).unwrap();
    for number in 0..200 {
        noise(&home.join(format!("tree/f{number}")), number * 50);
    }
    noise(&home.join("tree/big"), 12 << 20);
    let options = ["--host-key", &server.key, "-r"];
    let up = hosts.cp(&[&options[..], &["alpha:tree", &there("copy")]].concat());
    up.assert_done();
    assert_eq!(up.report["verification"]["verified"], true);
    assert!(same(&home.join("tree"), &hosts.path("root/copy")));

    // The data enters the host at a port, or inside ssh if both are blocked.
    let down = hosts.cp(&[&options[..], &[&there("copy/."), "ana@alpha:back"]].concat());
    down.assert_done();
    assert_eq!(down.report["verification"]["verified"], true);
    assert!(same(&home.join("tree"), &home.join("back")));
    hosts.block_data_ports_of("alpha");
    hosts.block_data_ports_of("client");
    let ports = ["--port-range", PORTS];
    let paths = [&there("copy/big"), "alpha:inside"];
    let inside = hosts.cp(&[&options[..], &ports, &paths].concat());
    inside.assert_done();
    assert!(same(&home.join("tree/big"), &home.join("inside")));
}

#[test]
fn relay_from_a_login_that_is_lost_resumes() {
    let Some(hosts) = Hosts::up(&["alpha"]) else {
        return;
    };
    // The link to beta takes some ten seconds for this.
    let server = serve(&hosts, "beta");
    let file = hosts.home("alpha").join("big");
    noise(&file, 60 << 20);
    let there = format!("lh://{}/big", server.address);
    let paths = ["--host-key", server.key.as_str(), "alpha:big", &there];
    let mut copy = Running::start(&hosts, &paths);
    copy.wait_for(24 << 20);
    hosts.signal_far_sides("KILL");
    let lost = copy.result();
    assert_eq!(lost.code, Some(5), "{}", lost.report);
    assert!(lost.error().contains("ended early"), "{}", lost.error());
    assert!(!hosts.path("root/big").exists());
    let resumed = hosts.cp(&paths);
    resumed.assert_done();
    let bytes = resumed.report["resumed_bytes"].as_u64().unwrap();
    assert!(bytes > 1 << 20, "{}", resumed.report);
    assert!(same(&file, &hosts.path("root/big")));
}
