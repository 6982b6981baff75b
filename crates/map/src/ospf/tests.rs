//! Databases that FRR printed, and their changes.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::model::{Map, Reservable};
use crate::{LiveDirection, LiveLink, LiveNetwork};

/// Three routers with a link between each two.
const TRIANGLE: &str = include_str!("../../data/ospf/triangle.json");
/// The same, while the adjacency between the second and the third is forming.
const FORMING: &str = include_str!("../../data/ospf/forming.json");
/// The same, after the first router has forgotten the rates of a link that the second announces.
const UNCONNECTED: &str = include_str!("../../data/ospf/unconnected.json");

const MAP: &str = r#"
[[site]]
name = "one"
[[site]]
name = "two"
[[site]]
name = "three"
[[site]]
name = "campus"
[[link]]
between = ["one", "two"]
capacity = "10 Gbit/s"
[[link]]
between = ["two", "three"]
capacity = "800 Mbit/s"
reservable = "25%"
[[link]]
between = ["three", "one"]
[[link]]
between = ["campus", "one"]
capacity = "1 Gbit/s"
"#;

fn map() -> Map {
    crate::file::read(MAP, Path::new("map.toml")).unwrap()
}

fn names() -> RouterNames {
    let routers = ["one", "two", "three"].into_iter().zip(1..);
    RouterNames {
        routers: routers
            .map(|(site, number)| (site.to_owned(), Ipv4Addr::new(192, 168, 0, number)))
            .collect(),
        interfaces: BTreeMap::new(),
    }
}

fn rate(bits_per_second: f64) -> Option<Rate> {
    Rate::new(bits_per_second)
}

#[test]
fn recorded_database_has_all_links_with_their_rates() {
    let database = TrafficDatabase::parse(TRIANGLE).unwrap();
    assert_eq!(database.len(), 6);
    let observed = observe(&map(), &names(), &database);
    assert!(observed.problems.is_empty(), "{:?}", observed.problems);
    let direction = LiveDirection {
        capacity: rate(1e9),
        reservable: rate(5e8),
    };
    let up = ObservedLink {
        up: true,
        forward: direction,
        backward: direction,
    };
    let expected = ["one - two", "three - one", "two - three"];
    let expected = expected.map(|name| (name.to_owned(), up));
    assert_eq!(observed.links, expected.into());
}

#[test]
fn forming_adjacency_is_down() {
    let database = TrafficDatabase::parse(FORMING).unwrap();
    let observed = observe(&map(), &names(), &database);
    let up: Vec<bool> = observed.links.values().map(|link| link.up).collect();
    // "one - two", "three - one", "two - three".
    assert_eq!(up, [true, true, false]);
}

#[test]
fn addresses_connect_what_lacks_a_remote_router() {
    let database = TrafficDatabase::parse(UNCONNECTED).unwrap();
    let observed = observe(&map(), &names(), &database);
    let link = observed.links["two - three"];
    assert!(link.up);
    // The rates of one direction are missing, so those of the other count.
    assert_eq!(
        database.edges(names().routers["two"], names().routers["three"])[0].capacity,
        None
    );
    assert_eq!(link.forward, link.backward);
    assert_eq!(link.forward.capacity, rate(1e9));
}

#[test]
fn link_that_one_router_withdraws_is_down() {
    for (status, is_up) in [("Update", true), ("Delete", false), ("Orphan", false)] {
        let mut printed: Value = serde_json::from_str(TRIANGLE).unwrap();
        let edges = printed["ted"]["edges"].as_array_mut().unwrap();
        let edge = edges
            .iter_mut()
            .find(|edge| edge["edge-attributes"]["local-address"] == "10.0.12.2");
        edge.unwrap()["status"] = json!(status);
        let database = TrafficDatabase::parse(&printed.to_string()).unwrap();
        let observed = observe(&map(), &names(), &database);
        assert_eq!(observed.links["one - two"].up, is_up, "{status}");
        assert!(observed.links["two - three"].up);
    }
}

#[test]
fn parallel_links_need_addresses() {
    let mut map = map();
    let mut second = map.links[0].clone();
    second.name = "second".to_owned();
    map.links.push(second);
    let database = TrafficDatabase::parse(TRIANGLE).unwrap();
    let mut names = names();
    let observed = observe(&map, &names, &database);
    assert_eq!(observed.links.len(), 2);
    assert_eq!(observed.problems.len(), 2);
    assert!(observed.problems[0].contains("\"one - two\" is not followed"));
    // An address at one end suffices, as each router names both.
    for (link, address) in [("one - two", "10.0.12.1"), ("second", "10.0.99.1")] {
        let address = address.parse().unwrap();
        names.interfaces.insert(link.to_owned(), [address].into());
    }
    names
        .routers
        .insert("nowhere".to_owned(), Ipv4Addr::LOCALHOST);
    let observed = observe(&map, &names, &database);
    assert!(observed.links["one - two"].up);
    assert!(!observed.links["second"].up);
    assert_eq!(
        observed.problems,
        ["ospf.routers: there is no site \"nowhere\" on the map"]
    );
}

#[test]
fn lower_rate_counts() {
    let database = TrafficDatabase::parse(TRIANGLE).unwrap();
    let observed = observe(&map(), &names(), &database);
    let live = observed.links.iter().map(|(name, link)| {
        let ObservedLink {
            up,
            forward,
            backward,
        } = *link;
        let since_ms = 7;
        let live = LiveLink {
            up,
            since_ms,
            forward,
            backward,
        };
        (name.clone(), live)
    });
    let live = LiveNetwork {
        links: live.collect(),
        problems: Vec::new(),
    };
    let map = live.attach(&map());
    map.check().unwrap();
    let rates = |name: &str| {
        let link = map.links.iter().find(|link| link.name == name).unwrap();
        let current = link.current_forward();
        assert_eq!(Some(current), link.current_backward());
        (current.rate(), current.reservable_rate())
    };
    // The network announces 1 Gbit/s, half of which may be reserved.
    assert_eq!(rates("one - two"), (rate(1e9), rate(5e8)));
    assert_eq!(rates("two - three"), (rate(8e8), rate(2e8)));
    assert_eq!(rates("three - one"), (rate(1e9), rate(5e8)));
    assert_eq!(rates("campus - one"), (rate(1e9), rate(5e8)));
    let json = serde_json::to_string(&map).unwrap();
    let mut back: Map = serde_json::from_str(&json).unwrap();
    assert_eq!(back, map);
    back.forget_live();
    assert!(back.links.iter().all(|link| link.live.is_none()));
    assert_eq!(back.links[0].current_forward().rate(), rate(1e10));
}

#[test]
fn announced_share_limits_the_stated_one() {
    let live = LiveDirection {
        capacity: rate(1e9),
        reservable: rate(9e8),
    };
    let mut stated = map().links[2].forward;
    assert_eq!(
        live.limit(&stated).reservable_rate(),
        rate(5e8),
        "by default, half"
    );
    stated.reservable = Some(Reservable::Share(1.0));
    assert_eq!(live.limit(&stated).reservable_rate(), rate(9e8));
    stated.reservable = Some(Reservable::Rate(Rate::nearest(2e8)));
    assert_eq!(live.limit(&stated).reservable_rate(), rate(2e8));
}

#[test]
fn other_answers_are_faults() {
    let fault = |text: &str| TrafficDatabase::parse(text).unwrap_err();
    for text in [
        "",
        "MPLS-TE database is not enabled",
        "{}",
        "{\"ted\":7}",
        "[1",
    ] {
        assert!(
            matches!(fault(text), DatabaseFault::NotADatabase { .. }),
            "{text}"
        );
    }
    assert_eq!(fault("{\"ted\":{}}"), DatabaseFault::Empty);
    let long = " ".repeat(MAX_DATABASE_BYTES + 1);
    assert_eq!(fault(&long), DatabaseFault::TooLong(long.len()));
    let many = format!(
        "{{\"ted\":{{\"edges\":[{}{{}}]}}}}",
        "{},".repeat(MAX_EDGES)
    );
    assert_eq!(fault(&many), DatabaseFault::TooManyEdges(MAX_EDGES + 1));
    let text = fault("% \u{1b}[2J unknown").to_string();
    assert!(text.contains("begins \"% \\u{1b}[2J unknown\""), "{text}");
}

#[test]
fn absurd_rates_are_unknown() {
    for absurd in ["-1.0", "1e308", "0.0"] {
        let text = TRIANGLE.replace("125000000.0", absurd);
        let database = TrafficDatabase::parse(&text).unwrap();
        let observed = observe(&map(), &names(), &database);
        let link = observed.links["one - two"];
        assert!(link.up && link.forward.capacity.is_none(), "{absurd}");
        assert_eq!(link.forward.reservable, rate(5e8));
    }
}
