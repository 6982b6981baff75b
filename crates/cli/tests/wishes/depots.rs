//! A depot asks for a circuit in the name of the principal, as its delegation and the depot's rule
//! permit.

use std::fs;

use serde_json::json;

use crate::bed::WEB_PORT;
use crate::common::bed::{Bed, CONTROLLER};
use crate::common::{new_key, started};

const BYTES: usize = 30 << 20;

/// Starts a depot on west, whose rule reserves this much, and an off-ramp and a web server on the
/// server.
fn start(bed: &mut Bed, rule: &str) {
    for name in ["near", "exit"] {
        new_key(&bed.path(name));
    }
    let client = bed.key("client");
    let (near, exit) = (bed.path("near.toml"), bed.path("exit.toml"));
    let allow = format!("[[allow]]\nprincipals = [\"{client}\"]\n");
    let to = "to = [\"10.77.0.0/16\"]\nports = [7512]\n";
    fs::write(&near, format!("{allow}{to}{rule}\n")).unwrap();
    let servers = format!(
        "servers = [\"10.77.0.0/16\", \"{}\"]\n",
        bed.address("server")
    );
    fs::write(&exit, format!("{allow}{servers}ports = [{WEB_PORT}]\n")).unwrap();
    // The operator's map has the depot, so its addresses tell streams apart.
    let mut map = bed.map();
    map["depots"] = json!([{
        "name": "near", "key": bed.key("near"), "site": "west",
        "addresses": [{"endpoint": format!("{}:7510", bed.address("west"))}]
    }]);
    bed.import(&map);
    bed.grant("near", "depot");
    let mut depot = bed.longhaul("west", "near");
    depot
        .args(["depot", "--listen", "0.0.0.0:7510", "--policy"])
        .arg(&near);
    let controller = bed.key(CONTROLLER);
    depot.args([
        "--controller",
        &bed.controller_url(),
        "--controller-key",
        &controller,
    ]);
    depot.stderr(fs::File::create(bed.path("depot.log")).unwrap());
    bed.keep("near", started(depot));
    let mut offramp = bed.longhaul("server", "exit");
    offramp
        .args(["offramp", "--listen", "0.0.0.0:7512", "--policy"])
        .arg(&exit);
    bed.keep("exit", started(offramp));
    bed.serve_web(BYTES);
    let (west, server) = (bed.address("west"), bed.address("server"));
    let (depot, exit) = (bed.key("near"), bed.key("exit"));
    let rules = format!(
        "[[route]]\nto = [\"{server}\"]\nvia = \"{depot}@{west}:7510\"\n\
         offramp = \"{exit}@{server}:7512\"\nalways = true\nfall_back = false\ndelegate = true\n"
    );
    bed.start_onramp(&rules, &[]);
}

/// Wish of curl.
const WISH: [&str; 6] = ["--rate", "25M", "--for", "2min", "--purpose", "by a depot"];

#[test]
fn a_depot_reserves_for_a_principal() {
    let Some(mut bed) = Bed::up() else { return };
    start(&mut bed, "max_reserved_rate = \"20 Mbit/s\"");
    let curl = bed.curl(&WISH);
    bed.until("classes", || bed.has_classes("server", "client"));
    bed.is_fetched(curl);
    let all = bed.reservations();
    let [one] = &all[..] else { panic!("{all:#?}") };
    assert_eq!(one["owner"], bed.key("client"), "{one:#}");
    assert_eq!(one["delegate"]["key"], bed.key("near"), "{one:#}");
    assert_eq!(one["delegate"]["name"], "near", "{one:#}");
    assert_eq!(
        one["wish"]["rate"]["rate_bps"], 20_000_000,
        "what the rule permits: {one:#}"
    );
    assert_eq!(
        (&one["from"], &one["to"]),
        (&json!("server"), &json!("near")),
        "{one:#}"
    );
    let shown = bed.operate(&["reservations", "--all"]);
    assert!(shown.contains("client (asked by near)"), "{shown}");
    bed.until("returned", || {
        bed.reservations()[0]["state"]["life"] == "terminated"
    });
    bed.until("no classes", || bed.has_no_classes());
}

#[test]
fn a_depot_without_the_rule_reserves_nothing() {
    let Some(mut bed) = Bed::up() else { return };
    start(&mut bed, "");
    bed.is_fetched(bed.curl(&WISH));
    assert!(bed.reservations().is_empty(), "{:#?}", bed.reservations());
}
