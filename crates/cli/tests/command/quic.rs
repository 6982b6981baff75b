//! Copies and measurements over QUIC hops.

use std::net::UdpSocket;
use std::process::Output;

use serde_json::Value;

use crate::stage::*;

const LEN: usize = 3_000_000;

fn report(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|_| panic!("no report; {}", errors(output)))
}

/// Copies a file there and back with these options, and returns the report of the way there.
fn copies(stage: &Stage, server: &Service, options: &[&str]) -> Value {
    let data = stage.noise("here/f", LEN);
    let there = format!("lh://{}/f", server.address);
    let copy = |from: &str, to: &str| {
        let mut arguments = vec!["--json", "--overwrite"];
        arguments.extend(options);
        arguments.extend([from, to]);
        let output = stage.cp(server, &arguments);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        report(&output)
    };
    let report = copy("here/f", &there);
    copy(&there, "here/back");
    for arrived in ["root/f", "here/back"] {
        assert!(
            std::fs::read(stage.path(arrived)).unwrap() == data,
            "{arrived}"
        );
        std::fs::remove_file(stage.path(arrived)).unwrap();
    }
    report
}

#[test]
fn each_hop_can_be_dialled_by_quic() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let (first, second) = (stage.depot("d1", None), stage.depot("d2", None));
    copies(&stage, &server, &["--transport", "quic"]);
    let all = format!("quic:{},quic:{}", first.address, second.address);
    let keyed = format!("quic:{}@{}", first.key, first.address);
    for (route, transport) in [(&all, "quic"), (&all, "tcp"), (&keyed, "tcp")] {
        let report = copies(
            &stage,
            &server,
            &["--route", route, "--transport", transport, "--streams", "1"],
        );
        assert_eq!(report["streams"][0]["bytes"], LEN);
    }
}

#[test]
fn a_hop_with_another_key_is_refused() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let depot = stage.depot("d1", None);
    stage.noise("here/f", 1000);
    let route = format!("quic:{}@{}", server.key, depot.address);
    let there = format!("lh://{}/f", server.address);
    let output = stage.cp(
        &server,
        &["--patience", "1 s", "--route", &route, "here/f", &there],
    );
    assert_eq!(output.status.code(), Some(3), "{}", errors(&output));
    assert!(!stage.path("root/f").exists());
}

/// A depot that is told to prefer QUIC uses TCP where UDP does not get through. A route that names
/// QUIC is not carried by anything else.
#[test]
fn without_udp_a_preference_gives_way_and_a_route_does_not() {
    let stage = Stage::new();
    // Takes the server's datagrams and answers none. Another process may have the port for UDP.
    let (server, _silent) = loop {
        let server = stage.serve(&["--no-quic"]);
        if let Ok(silent) = UdpSocket::bind(&server.address) {
            break (server, silent);
        }
    };
    let key = stage.key("me");
    let policy =
        format!("[[allow]]\nprincipals = [\"{key}\"]\nto = [\"127.0.0.0/8\"]\nports = [\"any\"]\n");
    std::fs::write(stage.path("d.toml"), policy).unwrap();
    let mut command = stage.longhaul("d");
    command.args(["depot", "--listen", "127.0.0.1:0", "--policy", "d.toml"]);
    command.args(["--next-transport", "*=quic"]);
    let depot = stage.service(command, "addresses");
    copies(&stage, &server, &["--route", &depot.address]);

    let there = format!("lh://{}/f", server.address);
    let output = stage.cp(
        &server,
        &["--patience", "1 s", "--transport", "quic", "here/f", &there],
    );
    assert_eq!(output.status.code(), Some(3), "{}", errors(&output));
    assert!(errors(&output).contains("UDP"), "{}", errors(&output));
}

#[test]
fn perf_measures_a_quic_hop() {
    let stage = Stage::new();
    let server = stage.perf(&[]);
    let output = stage
        .longhaul("me")
        .args(["perf", &server.address, "--host-key", &server.key])
        .args(["--transport", "quic", "--json", "-n", "4M"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let measured: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(measured["end"]["sum_received"]["bytes"], 4 << 20, "{text}");
}
