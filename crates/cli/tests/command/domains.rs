//! Reservations across domains by a person: three controllers in a row, each with its own key.

use std::process::Output;

use serde_json::{Value, json};

use crate::control::{Controller, ask};
use crate::stage::{Stage, errors, until};

/// Domains in a row.
const DOMAINS: [&str; 3] = ["west", "middle", "east"];

/// Starts the controllers, and joins each with its neighbours.
fn start(stage: &Stage) -> Vec<Controller> {
    let start = |name: &&str| Controller::start_as(stage, name, &["--listen", "127.0.0.1:0"]);
    let mut controllers: Vec<Controller> = DOMAINS.iter().map(start).collect();
    for (place, name) in DOMAINS.iter().enumerate() {
        let neighbours = [place.checked_sub(1), Some(place + 1)];
        let neighbours = neighbours.into_iter().flatten();
        let neighbours: Vec<usize> = neighbours.filter(|at| *at < DOMAINS.len()).collect();
        let mut config = format!("[domain]\nname = \"{name}\"\n");
        let mut links = Vec::new();
        for other in &neighbours {
            let (theirs, controller) = (DOMAINS[*other], &controllers[*other]);
            let (url, key) = (controller.url(), &controller.key);
            config.push_str(&format!(
                "[domain.edges.to-{theirs}]\npeer = \"{theirs}:to-{name}\"\n\
                 [domain.peers.{theirs}]\nurl = \"{url}\"\nkey = \"{key}\"\n"
            ));
            links.push(json!({"name": format!("l-{theirs}"), "from": "here",
                "to": format!("to-{theirs}"),
                "forward": {"capacity": {"rate_bps": 1e10}},
                "backward": {"capacity": {"rate_bps": 1e10}}}));
        }
        let sites = neighbours
            .iter()
            .map(|at| json!({"name": format!("to-{}", DOMAINS[*at])}));
        let sites: Vec<Value> = sites.chain([json!({"name": "here"})]).collect();
        let map = json!({"sites": sites, "links": links, "hosts": [{"name": "dtn", "site": "here",
            "addresses": [format!("192.0.2.{}", place + 1)]}]});
        let socket = controllers[place].socket.clone();
        let (status, answer) = ask(&socket, true, "PUT", "/map", &map.to_string()).unwrap();
        assert_eq!(status, 200, "{answer}");
        std::fs::write(socket.parent().unwrap().join("control.toml"), config).unwrap();
        for other in neighbours {
            let key = &controllers[other].key;
            let grant = ["control", "grant", key, "peer", "--name", DOMAINS[other]];
            said(&run(stage, name, &grant));
        }
    }
    controllers.iter_mut().for_each(Controller::restart);
    controllers
}

fn run(stage: &Stage, who: &str, arguments: &[&str]) -> Output {
    let mut command = stage.longhaul(who);
    command.args(arguments).env("TZ", "UTC").output().unwrap()
}

fn said(output: &Output) -> String {
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{said}{}", errors(output));
    said
}

/// Waits until a domain has so many reservations that can still be used.
fn wait_for_reservations(stage: &Stage, who: &str, count: usize) {
    let listed = || said(&run(stage, who, &["reservations", "--json"]));
    until("the reservations", || listed().lines().count() == count);
}

#[test]
fn person_reserves_across_domains_and_cancels() {
    let stage = Stage::new();
    let mut controllers = start(&stage);
    let when = ["--from", "+1h", "--for", "2h", "--show"];
    let reserve = ["reserve", "dtn", "east:dtn", "--rate", "2G"];
    // Domains that are not neighbours learn of each other within a moment.
    let mut granted = run(&stage, "west", &[&reserve[..], &when[..]].concat());
    while !granted.status.success() {
        let why = errors(&granted);
        assert!(
            why.contains("domain east has not published") || why.contains("no path over"),
            "{why}"
        );
        granted = run(&stage, "west", &[&reserve[..], &when[..]].concat());
    }
    let shown = said(&granted);
    let (first, segments) = shown.split_once('\n').unwrap();
    assert!(
        first.contains(" reserved: 2 Gbit/s from west:dtn to east:dtn, "),
        "{first}"
    );
    let number = first.split(' ').next().unwrap();
    assert_eq!(
        segments.lines().collect::<Vec<_>>(),
        [
            "    domain west: dtn - to-middle",
            "    domain middle: to-west - to-east",
            "    domain east: to-middle - dtn",
        ]
    );
    for domain in DOMAINS {
        wait_for_reservations(&stage, domain, 1);
    }
    // Nothing is lost when the controllers restart.
    controllers.iter_mut().for_each(Controller::restart);
    let details = said(&run(&stage, "west", &["reservations", number]));
    assert!(
        details.contains("domain middle: to-west - to-east"),
        "{details}"
    );
    said(&run(&stage, "west", &["reservations", number, "cancel"]));
    for domain in DOMAINS {
        wait_for_reservations(&stage, domain, 0);
    }
}

#[test]
fn options_that_do_not_apply_across_domains_are_refused() {
    let stage = Stage::new();
    let _controller = Controller::start(&stage, &[]);
    let reserve = |more: &[&str]| {
        let arguments = [&["reserve", "dtn", "east:dtn", "--for", "2h"][..], more].concat();
        errors(&run(&stage, "control", &arguments))
    };
    let several = reserve(&["--rate", "2G", "--paths", "2"]);
    assert!(several.contains("an end is in another domain"), "{several}");
    let volume = reserve(&["--bytes", "2T"]);
    assert!(volume.contains("give --rate instead"), "{volume}");
    let alone = reserve(&["--rate", "2G"]);
    assert!(alone.contains("no [domain] in its control.toml"), "{alone}");
}
