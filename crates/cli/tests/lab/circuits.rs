//! Reservations that take effect: a controller, two `longhaul router` agents on Linux nodes, and a
//! person who reserves.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::common::bed::{Bed, until};

/// A reservation that ends soon, in seconds: long enough to be inspected.
const SHORT_WINDOW_S: u64 = 60;

const NETWORK: &str = r#"
title = "a client, two routers, a server"
[nodes.client]
[nodes.west]
[nodes.middle]
[nodes.server]
[links.access]
ends = ["client", "west"]
delay = "1 ms"
rate = "1 Gbit/s"
[links.wide]
ends = ["west", "middle"]
delay = "1 ms"
rate = "1 Gbit/s"
[links.last]
ends = ["middle", "server"]
delay = "1 ms"
rate = "1 Gbit/s"
"#;

/// Starts the lab, with a router on `west` and one on `middle`.
fn start() -> Option<Bed> {
    let mut bed = Bed::start(NETWORK, None)?;
    for (node, link, to) in [("west", "wide", "middle"), ("middle", "last", "server")] {
        let settings = json!({link: bed.link_towards(node, to)});
        bed.start_router(node, &settings);
    }
    Some(bed)
}

/// Starts the controller, which knows both nodes and uses them as `settings` say.
fn start_controller(bed: &mut Bed, settings: &str) {
    bed.start_controller(settings);
    let link = |name: &str, from: &str, to: &str| {
        json!({
            "name": name, "from": from, "to": to, "forward": {"capacity": {"rate_bps": 8e8}}
        })
    };
    bed.import(&json!({
        "sites": [{"name": "west"}, {"name": "middle"}, {"name": "east"}],
        "hosts": [
            {"name": "client", "site": "west", "addresses": [bed.address("client")]},
            {"name": "server", "site": "east", "addresses": [bed.address("server")]},
        ],
        "links": [link("wide", "west", "middle"), link("last", "middle", "east")],
    }));
}

/// Reserves and provisions 100 Mbit/s now, for this many seconds. Returns the number.
fn reserve(bed: &Bed, for_s: u64) -> String {
    let time = format!("{for_s} s");
    let reserved = bed.reserve(&["--rate", "100M", "--provision", "--for", &time]);
    reserved.unwrap()["id"].to_string()
}

/// Returns true if the class of a circuit of 100 Mbit/s exists.
fn is_there(bed: &Bed, node: &str) -> bool {
    let classes = bed.classes(node, "server");
    let mut htb = classes.lines().filter(|line| line.starts_with("class htb"));
    htb.any(|line| line.contains("rate 100Mbit ceil 100Mbit"))
}

fn wait_until_gone(bed: &Bed) {
    until("no classes", || {
        match ["west", "middle"].iter().find(|node| is_there(bed, node)) {
            Some(node) => Err(Value::String(bed.classes(node, "server"))),
            None => Ok(()),
        }
    });
}

fn is_set_up(reservation: &Value) -> bool {
    reservation["state"]["provision"] == "provisioned"
        && reservation["circuit"]["standing"] == "set-up"
}

#[test]
fn a_reservation_is_provisioned_in_its_time_despite_kills() {
    let Some(mut bed) = start() else { return };
    let agents = bed.agents(&["west", "middle"]);
    start_controller(&mut bed, &agents);
    let id = reserve(&bed, SHORT_WINDOW_S);
    bed.becomes(&id, "set up", is_set_up);
    for node in ["west", "middle"] {
        assert!(is_there(&bed, node), "{}", bed.classes(node, "server"));
    }
    // Packets over it are counted. Three connection attempts that are not answered: one packet
    // each.
    let knock = format!(
        "for i in 1 2 3; do : </dev/tcp/{}/9; done; true",
        bed.address("server")
    );
    let mut bash = bed.command("client", "bash");
    assert!(
        bash.args(["-c", &knock])
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    let counted = bed.becomes(&id, "counted", |now| {
        now["pieces"][0]["paths"][0]["carried"]["packets"].as_u64() >= Some(3)
    });
    let said = bed.operate(&["reservations", &id]);
    assert!(
        said.contains("circuit: set up") && said.contains("went over it"),
        "{said} {counted}"
    );
    // Killed and restarted within the reserved time: the circuit exists as before, and is torn down
    // at its end.
    let killed = bed.services.remove("controller").unwrap();
    killed.signal("KILL");
    drop(killed);
    assert!(is_there(&bed, "west"));
    start_controller(&mut bed, &agents);
    bed.becomes(&id, "over", |now| now["state"]["life"] == "passed-end-time");
    wait_until_gone(&bed);
}

#[test]
fn released_and_unknown_circuits_are_torn_down() {
    let Some(mut bed) = start() else { return };
    let agents = bed.agents(&["west", "middle"]);
    start_controller(&mut bed, &agents);
    let id = reserve(&bed, 600);
    bed.becomes(&id, "set up", is_set_up);
    let released = bed.operate(&["reservations", &id, "release"]);
    assert!(released.contains("releas"), "{released}");
    bed.becomes(&id, "released", |now| {
        now["state"]["provision"] == "released"
    });
    wait_until_gone(&bed);
    bed.operate(&["reservations", &id, "provision"]);
    bed.becomes(&id, "set up again", is_set_up);
    assert!(is_there(&bed, "west"));
    // A controller without any record takes over, as after the loss of its store.
    drop(bed.services.remove("controller"));
    fs::remove_dir_all(bed.path("control/state")).unwrap();
    start_controller(&mut bed, &agents);
    wait_until_gone(&bed);
}

#[test]
fn a_refusing_driver_ends_the_reservation() {
    let Some(mut bed) = start() else { return };
    let script = bed.path("refuse.sh");
    fs::write(&script, REFUSES).unwrap();
    let setup = format!(
        "[setup.nodes.west]\nagent = \"unix:{}\"\n[setup.nodes.middle]\n\
         program = [\"/bin/sh\", \"{}\"]\n",
        bed.socket("west").display(),
        script.display()
    );
    start_controller(&mut bed, &setup);
    let half = ["--rate", "400M", "--for", "10 min"];
    let reserved = bed.reserve(&[&half[..], &["--provision"]].concat());
    let id = reserved.unwrap()["id"].to_string();
    let failed = bed.becomes(&id, "failed", |now| now["state"]["life"] == "failed");
    let why = failed["failure"].as_str().unwrap();
    assert!(
        why.contains("middle") && why.contains("the switch is full"),
        "{why}"
    );
    assert!(
        bed.operate(&["reservations", &id])
            .contains("failed: middle, link last"),
        "{why}"
    );
    wait_until_gone(&bed);
    // Its bandwidth is available again.
    bed.reserve(&half).unwrap();
}

/// A driver that sets up nothing.
const REFUSES: &str = r#"
read -r request
case $request in
*'"do":"set_up"'*) echo '{"answer":"error","kind":"refused","why":"the switch is full"}' ;;
*'"do":"list"'*) echo '{"answer":"parts","parts":[]}' ;;
*) echo '{"answer":"done"}' ;;
esac
"#;
