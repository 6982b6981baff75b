//! Live topology: three routers that run FRR's `ospfd`, a controller that follows one of them, and
//! a reservation and a copy over links that fail and return.

mod routers;

use std::fs;
use std::process::{Child, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::common::bed::{Bed, is_set_up, until};
use crate::common::{key_of, new_key, noise, started};
use crate::path::quiet;
use routers::LINK_BPS;

/// Length of the copied file. The circuit limits the copy to some 20 s, so links fail meanwhile.
const BYTES: usize = 48 << 20;
/// Reserved rate.
const RATE: &str = "20M";

/// Starts the routers, a server behind them, and a controller that follows the router in the west.
fn start() -> Option<Bed> {
    let mut bed = routers::start()?;
    fs::create_dir(bed.path("root")).unwrap();
    fs::write(bed.path("data"), noise(BYTES, 7)).unwrap();
    for name in ["client", "server"] {
        new_key(&bed.path(name));
    }
    let link = |name: &str| json!({"interface": name, "rate": LINK_BPS * 9 / 10});
    bed.start_router(
        "west",
        &json!({"direct": link("direct"), "first": link("first")}),
    );
    bed.start_router("middle", &json!({"second": link("second")}));
    let mut serve = bed.longhaul("server", "server");
    serve
        .args(["serve", "--listen", "0.0.0.0:7511", "--root"])
        .arg(bed.path("root"))
        .args(["--create", &bed.key("client")]);
    bed.keep("server", started(quiet(serve)));
    bed.start_controller(&format!(
        "{}{}",
        bed.agents(&["west", "middle"]),
        routers::ospf_config(&bed, "west")
    ));
    bed.import(&map(&bed));
    Some(bed)
}

/// Returns the map, without capacities: those are the network's.
fn map(bed: &Bed) -> Value {
    let link = |name: &str, from: &str, to: &str| {
        let any = json!({"reservable": {"share": 1.0}});
        json!({"name": name, "from": from, "to": to, "forward": any, "backward": any})
    };
    json!({
        "sites": [{"name": "west"}, {"name": "middle"}, {"name": "east"}],
        "hosts": [
            {"name": "client", "site": "west", "addresses": [bed.address("client")]},
            {"name": "server", "site": "east", "addresses": [bed.address("server")]},
        ],
        "links": [
            link("direct", "west", "east"),
            link("first", "west", "middle"),
            link("second", "middle", "east"),
        ],
    })
}

/// Reserves between the hosts from now on. Returns the reservation.
fn reserve(bed: &Bed, rate: &str, more: &[&str]) -> Result<Value, String> {
    bed.reserve(&[&["--rate", rate, "--for", "20 min"][..], more].concat())
}

/// Waits until a link is up on the controller's map, or down. Returns its live state.
fn becomes_up(bed: &Bed, link: &str, up: bool) -> Value {
    until(&format!("{link} up: {up}"), || {
        let map: Value = serde_json::from_str(&bed.operate(&["map", "--json"])).unwrap();
        let links = map["map"]["links"].as_array().unwrap();
        let found = links.iter().find(|known| known["name"] == link);
        let live = found.unwrap()["live"].clone();
        if live["up"] == up {
            Ok(live)
        } else {
            Err(live)
        }
    })
}

/// Waits until a new answer, which is given up at once, has these links.
fn answers(bed: &Bed, what: &str, expected: &[&str]) {
    until(what, || {
        let one = reserve(bed, "1M", &["--hold"]).map_err(Value::String)?;
        bed.operate(&["reservations", &one["id"].to_string(), "abort"]);
        let found = links(&one["held"]["pieces"]);
        if found == expected {
            Ok(())
        } else {
            Err(json!(found))
        }
    });
}

/// Starts a copy from the client to the server.
fn copy(bed: &Bed) -> Child {
    let mut cp = bed.longhaul("client", "client");
    cp.args(["cp", "--host-key", &key_of(&bed.path("server"))])
        .arg(bed.path("data"))
        .arg(format!("lh://{}/there", bed.address("server")));
    cp.stdout(Stdio::null()).spawn().unwrap()
}

/// Returns the links of the last of some pieces, over one path.
fn links(pieces: &Value) -> Vec<String> {
    let last = pieces.as_array().and_then(|pieces| pieces.last()).unwrap();
    let paths = last["paths"].as_array().unwrap();
    assert_eq!(paths.len(), 1, "{pieces:#}");
    let links = paths[0]["links"].as_array().unwrap().iter();
    links
        .map(|link| link["link"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn failed_link_moves_a_reservation_under_a_copy() {
    let Some(bed) = start() else { return };
    // Capacity and reservable rate are those of the routers.
    for link in ["direct", "first", "second"] {
        let live = becomes_up(&bed, link, true);
        assert_eq!(live["forward"]["capacity_bps"], LINK_BPS as f64, "{live}");
        assert_eq!(
            live["forward"]["reservable_bps"],
            LINK_BPS as f64 / 2.0,
            "{live}"
        );
    }
    let most = reserve(&bed, "600M", &[]).unwrap_err();
    assert!(most.contains("direct"), "{most}");
    let reserved = reserve(&bed, RATE, &["--provision"]).unwrap();
    let id = reserved["id"].to_string();
    bed.becomes(&id, "set up", is_set_up);
    assert_eq!(links(&reserved["pieces"]), ["direct"]);
    let mut copy = copy(&bed);
    bed.becomes(&id, "used by the copy", |now| {
        now["pieces"][0]["paths"][0]["carried"]["bytes"].as_u64() > Some(1 << 20)
    });

    let cut = routers::cut(&bed, "direct");
    let begun = Instant::now();
    answers(
        &bed,
        "a new answer without the failed link",
        &["first", "second"],
    );
    eprintln!(
        "a failed link was out of new answers after {:.2} s",
        begun.elapsed().as_secs_f64()
    );
    let moved = bed.becomes(&id, "moved", |now| {
        links(&now["pieces"]) == ["first", "second"] && is_set_up(now)
    });
    eprintln!(
        "its reservation was moved and set up after {:.2} s",
        begun.elapsed().as_secs_f64()
    );
    assert!(moved.get("impaired").is_none(), "{moved:#}");
    let map = bed.operate(&["map"]);
    let line = map.lines().find(|line| line.starts_with("direct"));
    assert!(line.is_some_and(|line| line.contains("down")), "{map}");
    assert_eq!(copy.wait().unwrap().code(), Some(0));
    assert!(fs::read(bed.path("root/there")).unwrap() == fs::read(bed.path("data")).unwrap());

    cut.restore();
    let begun = Instant::now();
    becomes_up(&bed, "direct", true);
    answers(&bed, "a new answer over the restored link", &["direct"]);
    eprintln!(
        "the restored link was in new answers after {:.2} s",
        begun.elapsed().as_secs_f64()
    );
}

#[test]
fn reservation_without_another_path_is_reported() {
    let Some(bed) = start() else { return };
    for link in ["direct", "first", "second"] {
        becomes_up(&bed, link, true);
    }
    // No other link has room for it.
    let beside = reserve(&bed, "450M", &["--avoid-link", "direct"]).unwrap();
    let reserved = reserve(&bed, "100M", &["--provision"]).unwrap();
    let id = reserved["id"].to_string();
    bed.becomes(&id, "set up", is_set_up);
    let cut = routers::cut(&bed, "direct");
    let reported = bed.becomes(&id, "reported", |now| {
        now["impaired"][0]["link"] == "direct" && now["circuit"]["standing"] == "unmanaged"
    });
    let why = reported["circuit"]["why"].as_str().unwrap();
    assert!(why.starts_with("direct has failed"), "{why}");
    let said = bed.operate(&["reservations", &id]);
    assert!(said.contains("impaired"), "{said}");
    // Its place is free again, so it moves without being asked.
    bed.operate(&["reservations", &beside["id"].to_string(), "cancel"]);
    bed.becomes(&id, "moved", |now| {
        links(&now["pieces"]) == ["first", "second"] && is_set_up(now)
    });
    cut.restore();
    becomes_up(&bed, "direct", true);
}
