//! Loose hops: copies over routes to which depots add others, and `longhaul trace`, which shows
//! them.

use std::fs::{read, read_to_string};

use serde_json::Value;

use crate::common::ClosedPort;
use crate::stage::{Service, Stage};

/// Depots between `me` and a server. The first adds the second before the third.
struct Chain {
    stage: Stage,
    server: Service,
    first: Service,
    second: Service,
    third: Service,
}

impl Chain {
    fn new() -> Self {
        let stage = Stage::new();
        let server = stage.serve(&[]);
        let (second, third) = (stage.depot("second", None), stage.depot("third", None));
        let first = stage.adding_depot("first", &keyed(&second));
        Self {
            stage,
            server,
            first,
            second,
            third,
        }
    }

    /// Runs `longhaul trace --json` as `who`. Returns the exit code and the object.
    fn trace(&self, who: &str, path: &str) -> (Option<i32>, Value) {
        let mut command = self.stage.longhaul(who);
        command.args(["trace", "--json", "--host-key", &self.server.key, path]);
        let output = command.output().unwrap();
        let object = serde_json::from_slice(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        (
            output.status.code(),
            object.unwrap_or_else(|_| panic!("{said}")),
        )
    }
}

fn keyed(depot: &Service) -> String {
    format!("{}@{}", depot.key, depot.address)
}

/// LH-ROUTE-3, LH-ROUTE-9.
#[test]
fn a_copy_passes_the_depot_that_a_table_adds() {
    let chain = Chain::new();
    let (stage, first) = (&chain.stage, &chain.first);
    let data = stage.noise("here/data", 300_000);
    let target = format!("lh://{}/data", chain.server.address);
    let route = format!("{},~{}", first.address, chain.third.address);
    let output = stage.cp(&chain.server, &["here/data", &target, "--route", &route]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(read(stage.path("root/data")).unwrap() == data);
    // A depot that ends logs its sessions first.
    assert_eq!(chain.first.terminate(), Some(0));
    let log = read_to_string(chain.stage.path("first.log")).unwrap();
    let added = format!("added={}", keyed(&chain.second));
    assert!(log.contains(&added), "{added}: {log}");
}

#[test]
fn a_trace_shows_each_hop_and_who_chose_it() {
    let chain = Chain::new();
    let (first, second, third) = (&chain.first, &chain.second, &chain.third);
    let route = format!("{},~{}", keyed(first), keyed(third));
    let path = format!("{route},{}", chain.server.address);
    let (code, object) = chain.trace("me", &path);
    assert_eq!((code, &object["error"]), (Some(0), &Value::Null));
    assert_eq!(object["route"], route);
    let hops = object["hops"].as_array().unwrap();
    let table = format!("forwarding table of {}", first.key);
    let expected = [
        (first, "you"),
        (second, table.as_str()),
        (third, "you"),
        (&chain.server, "you"),
    ];
    assert_eq!(hops.len(), expected.len());
    for (hop, (service, chooser)) in hops.iter().zip(expected) {
        assert_eq!(hop["endpoint"], service.address.as_str(), "{hop}");
        assert_eq!(hop["key"], service.key.as_str(), "{hop}");
        assert_eq!(hop["chosen_by"], chooser, "{hop}");
        assert_eq!(hop["transport"], "tcp", "{hop}");
        assert_eq!(hop["verdict"], "allowed", "{hop}");
        assert!(hop["key_proven"].as_bool().unwrap(), "{hop}");
        // The replacements for calls of Linux know nothing of a connection.
        let is_measured = longhaul_platform::IS_LINUX;
        assert_eq!(hop["congestion"].is_string(), is_measured, "{hop}");
        assert!(hop["set_up_seconds"].as_f64() >= Some(0.0), "{hop}");
        let has_round_trip = hop["rtt_seconds"].as_f64() > Some(0.0);
        assert_eq!(has_round_trip, is_measured, "{hop}");
    }
    let mut command = chain.stage.longhaul("me");
    command.args(["trace", "--host-key", &chain.server.key, &path]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(text.starts_with("hop  endpoint "), "{text}");
}

#[test]
fn a_trace_ends_at_the_hop_that_fails() {
    let chain = Chain::new();
    let first = keyed(&chain.first);
    let (code, object) = chain.trace("stranger", &format!("{first},{}", chain.server.address));
    assert_eq!(code, Some(4));
    assert_eq!(object["hops"].as_array().map(Vec::len), Some(1));
    assert_eq!(object["hops"][0]["verdict"], "unauthorised");
    let closed = ClosedPort::new();
    let nowhere = &closed.address.to_string();
    let (code, object) = chain.trace("me", &format!("{first},{nowhere}"));
    assert_eq!(code, Some(3));
    assert_eq!(object["hops"][0]["verdict"], "dial refused");
    assert!(object["error"].as_str().unwrap().contains(nowhere));
    let (code, object) = chain.trace("me", nowhere);
    assert_eq!(code, Some(3));
    assert_eq!(object["hops"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_forwarding_table_with_a_mistake_names_its_line() {
    let stage = Stage::new();
    std::fs::write(stage.path("policy.toml"), "").unwrap();
    let table = "[[forward]]\nto = [\"*\"]\nnext_hops = []\n";
    std::fs::write(stage.path("forwarding.toml"), table).unwrap();
    let mut command = stage.longhaul("me");
    command.args([
        "depot",
        "--listen",
        "127.0.0.1:0",
        "--policy",
        "policy.toml",
    ]);
    let output = command
        .args(["--forwarding", "forwarding.toml"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = "forwarding.toml:3: forward[1].next_hops: is empty: write [\"direct\"]";
    assert!(said.contains(expected), "{said}");
}
