//! Properties that must hold for any map, in each format; see [`longhaul_proto::fuzzing`].

#![allow(clippy::unwrap_used)] // a broken property is to panic

use std::path::Path;

use longhaul_proto::fuzzing::{FuzzTarget, Seed, assert_one_line, text_seeds};
use quantities::Rate;
use unicode_width::UnicodeWidthStr;

use crate::ospf::{RouterNames, TrafficDatabase, observe};
use crate::{Graph, LiveLink, LiveNetwork, Map, esnet, file, graphml, render};

/// Fuzz targets of this crate.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget {
        name: "map",
        property: toml,
        seeds: tomls,
    },
    FuzzTarget {
        name: "graphml",
        property: graphml,
        seeds: graphmls,
    },
    FuzzTarget {
        name: "esnet",
        property: esnet,
        seeds: esnets,
    },
    FuzzTarget {
        name: "ospf",
        property: ospf,
        seeds: ospfs,
    },
];

/// Checks the properties of every map: it is consistent, prints in 100 columns, has a graph, and
/// survives a round trip through JSON.
pub fn check_properties(map: &Map) {
    map.check().unwrap();
    let printed = render::render_tables(map, 1e9);
    for line in printed.lines() {
        assert!(line.width() <= render::MAX_COLUMNS, "{line:?}");
        assert!(
            line.chars().all(longhaul_proto::text::is_printable),
            "{line:?}"
        );
    }
    let graph = Graph::from_map(map);
    assert_eq!(graph.nodes(), map.sites.len());
    let ways = map
        .links
        .iter()
        .map(|link| 1 + usize::from(link.backward.is_some()));
    assert_eq!(graph.edges().len(), ways.sum::<usize>());
    let json = serde_json::to_string(map).unwrap();
    let back: Map = serde_json::from_str(&json).unwrap();
    back.check().unwrap();
    assert_eq!(back.sites.len(), map.sites.len());
}

fn toml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match file::read(text, Path::new("map.toml")) {
        Ok(map) => check_properties(&map),
        Err(error) => {
            assert_one_line(&error);
            assert!(error.to_string().starts_with("map.toml:"), "{error}");
        }
    }
}

/// Checks that any database leaves a map valid, with the same links.
fn ospf(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let database = match TrafficDatabase::parse(text) {
        Ok(database) => database,
        Err(fault) => return assert_one_line(&fault),
    };
    assert!(!database.is_empty());
    let map = file::read(EVERYTHING, Path::new("map.toml")).unwrap();
    let sites = map.sites.iter().zip(1..);
    let names = RouterNames {
        routers: sites
            .map(|(site, number)| (site.name.clone(), [192, 168, 0, number].into()))
            .collect(),
        interfaces: map
            .links
            .iter()
            .skip(1)
            .map(|link| (link.name.clone(), [[10, 0, 12, 1].into()].into()))
            .collect(),
    };
    let observed = observe(&map, &names, &database);
    observed.problems.iter().for_each(assert_one_line);
    let links = observed.links.iter().map(|(name, link)| {
        let live = LiveLink {
            up: link.up,
            since_ms: 0,
            forward: link.forward,
            backward: link.backward,
        };
        (name.clone(), live)
    });
    let live = LiveNetwork {
        links: links.collect(),
        problems: Vec::new(),
    };
    let attached = live.attach(&map);
    check_properties(&attached);
    for (link, stated) in attached.links.iter().zip(&map.links) {
        let (now, before) = (link.current_forward(), stated.current_forward());
        if let (Some(now), Some(before)) = (now.reservable_rate(), before.reservable_rate()) {
            assert!(now <= before, "{now} {before}");
        }
    }
}

fn graphml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let assumptions = graphml::Assumptions {
        capacity: Rate::new(1e9),
    };
    match graphml::read(text, Path::new("a.graphml"), &assumptions) {
        Ok(map) => {
            check_properties(&map);
            assert!(map.links.iter().all(|link| link.forward.capacity.is_some()));
        }
        Err(error) => {
            assert_one_line(&error);
            assert!(error.to_string().starts_with("a.graphml:"), "{error}");
        }
    }
}

/// Parses devices, adjacencies and positions, separated by lines that consist of `---`.
fn esnet(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut parts = text.split("\n---\n");
    let files = esnet::TopologyFiles {
        devices: parts.next().unwrap_or_default(),
        adjacencies: parts.next().unwrap_or("[]"),
        positions: parts.next(),
    };
    match esnet::read(&files) {
        Ok(map) => check_properties(&map),
        Err(error) => assert_one_line(&error),
    }
}

/// A file with everything that a map can have.
pub const EVERYTHING: &str = r#"[[site]]
name = "chicago"
label = "StarLight, Chicago"
latitude = 41.8967
longitude = -87.6161

[[site]]
name = "amsterdam"
latitude = 52.3567
longitude = 4.9543

[[site]]
name = "campus"

[[link]]
between = ["chicago", "amsterdam"]
capacity = "100 Gbit/s"
capacity_back = "10 Gbit/s"
reservable = "25%"
reservable_back = "2 Gbit/s"
metric = 10

[[link]]
between = ["campus", "chicago"]
name = "tail"
capacity = "10 Gbit/s"
latency = "2.5 ms"

[[link]]
between = ["campus", "chicago"]
reservable = 0.75
one_way = true

[[depot]]
name = "starlight"
key = "lhk1:aeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaq"
site = "chicago"
addresses = ["depot.starlight.example", "[2001:db8::1]:7777"]
max_rate = "40 Gbit/s"
max_sessions = 500
version = "0.1.0"

[[host]]
name = "archive"
site = "amsterdam"
addresses = ["*.archive.example", "192.0.2.0/24"]
offramp = "lhk1:aeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaq@gateway.example"
access = "10 Gbit/s"

[[host]]
name = "laptop"
site = "campus"
addresses = ["laptop.example"]
"#;

fn tomls() -> Vec<Seed> {
    let with = |line: &str, other: &str| EVERYTHING.replacen(line, other, 1);
    text_seeds(&[
        ("everything", EVERYTHING),
        ("empty", ""),
        ("name-twice", &with("\"amsterdam\"", "\"chicago\"")),
        ("no-such-site", &with("[\"campus\", ", "[\"nowhere\", ")),
        (
            "loop",
            &with("[\"campus\", \"chicago\"]", "[\"campus\", \"campus\"]"),
        ),
        (
            "three-ends",
            &with("[\"campus\", \"chicago\"]", "[\"a\", \"b\", \"c\"]"),
        ),
        ("no-pole", &with("41.8967", "90.1")),
        ("not-a-number", &with("41.8967", "nan")),
        ("half-a-position", &with("longitude = -87.6161\n", "")),
        ("bare-rate", &with("\"100 Gbit/s\"", "\"100\"")),
        ("no-rate", &with("\"100 Gbit/s\"", "\"0 bit/s\"")),
        ("share-beyond", &with("\"25%\"", "\"125%\"")),
        ("reservable-beyond", &with("\"25%\"", "\"200 Gbit/s\"")),
        (
            "one-way-back",
            &with(
                "one_way = true",
                "one_way = true\ncapacity_back = \"1 Gbit/s\"",
            ),
        ),
        ("no-key", &with("lhk1:aea", "lhk1:zz")),
        ("no-addresses", &with("[\"laptop.example\"]", "[]")),
        (
            "steering-name",
            &with("\"campus\"", "\"\u{202e}\\u001b[2J\""),
        ),
        (
            "unknown-field",
            "[[site]]\nname = \"a\"\n\"\u{2028}\" = 1\n",
        ),
        ("unclosed", "[[site]]\nname = \"\u{202e}"),
    ])
}

fn ospfs() -> Vec<Seed> {
    let triangle = include_str!("../data/ospf/triangle.json");
    let with = |word: &str, other: &str| triangle.replace(word, other);
    text_seeds(&[
        ("triangle", triangle),
        ("forming", include_str!("../data/ospf/forming.json")),
        ("unconnected", include_str!("../data/ospf/unconnected.json")),
        ("deleted", &with("Sync", "Delete")),
        ("huge-rate", &with("125000000.0", "1e308")),
        ("negative-rate", &with("62500000.0", "-1")),
        ("one-router", &with("192.168.0.2", "192.168.0.1")),
        ("no-router-id", &with("\"router-id\"", "\"name\"")),
        ("no-address", &with("10.0.12.1", "10.0.12")),
        ("not-enabled", "MPLS-TE database is not enabled\n"),
        ("empty", "{\"ted\":{\"name\":\"OSPF\",\"key\":1}}"),
        ("steering", "% \u{1b}[2J\u{202e}"),
    ])
}

fn graphmls() -> Vec<Seed> {
    let zoo = |edges: &str| {
        format!(
            r#"<?xml version="1.0" encoding="utf-8"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d1"/><key attr.name="LinkSpeed" attr.type="string" for="edge" id="d2"/>
<key attr.name="LinkSpeedUnits" attr.type="string" for="edge" id="d3"/><key attr.name="LinkLabel" attr.type="string" for="edge" id="d4"/>
<key attr.name="Latitude" attr.type="double" for="node" id="d5"/><key attr.name="Longitude" attr.type="double" for="node" id="d6"/>
<key attr.name="label" attr.type="string" for="node" id="d7"/><key attr.name="hyperedge" attr.type="int" for="node" id="d8"/>
<graph edgedefault="undirected">
<node id="0"><data key="d5">52.1</data><data key="d6">4.9</data><data key="d7">Amsterdam</data></node>
<node id="1"><data key="d5">50.1</data><data key="d6">8.7</data><data key="d7">Frankfurt</data></node>
<node id="2"><data key="d7">Frankfurt</data></node><node id="3"><data key="d8">1</data></node><node id="4"><data key="d7">None</data></node>
{edges}</graph></graphml>
"#
        )
    };
    let labelled = |label: &str| {
        zoo(&format!(
            r#"<edge source="0" target="1"><data key="d4">{label}</data></edge>"#
        ))
    };
    let deep = format!("{}{}", "<g>".repeat(2000), "</g>".repeat(2000));
    text_seeds(&[
        (
            "raw",
            &zoo(r#"<edge source="0" target="1"><data key="d1">2500000000.0</data></edge>"#),
        ),
        (
            "split",
            &zoo(
                r#"<edge source="0" target="3"><data key="d2">2.5</data><data key="d3">G</data></edge>"#,
            ),
        ),
        (
            "several",
            &zoo(&r#"<edge source="0" target="2"/>"#.repeat(3)),
        ),
        ("loop", &zoo(r#"<edge source="4" target="4"/>"#)),
        (
            "directed",
            &zoo(
                r#"<edge directed="true" source="0" target="2"/><edge directed="true" source="2" target="0"/><edge directed="true" source="2" target="0"/>"#,
            ),
        ),
        (
            "hyperedge",
            &zoo(
                r#"<hyperedge id="h"><endpoint node="0"/><endpoint node="1"/><endpoint node="2"/></hyperedge>"#,
            ),
        ),
        ("label-sonet", &labelled("OC-192c")),
        ("label-range", &labelled("1-10Gbps")),
        ("label-bound", &labelled("&lt;45Mb")),
        ("label-times", &labelled("2 x 10GE")),
        ("label-steering", &labelled("&#x202e;&#27;")),
        ("no-such-node", &zoo(r#"<edge source="0" target="17"/>"#)),
        ("node-twice", &zoo(r#"<node id="0"/>"#)),
        ("no-id", &zoo("<node/>")),
        ("no-graphml", "<svg/>"),
        ("deep", &deep),
        (
            "definitions",
            "<!DOCTYPE g [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><graphml>&b;</graphml>",
        ),
        ("unclosed", "<graphml>"),
        ("empty", ""),
    ])
}

fn esnets() -> Vec<Seed> {
    let device = |name: &str| {
        format!(
            r#"{{"urn": "{name}-cr5", "location": "{name}", "latitude": "41.5", "longitude": -87.1, "ports": [
  {{"urn": "{name}-cr5:1", "reservableIngressBw": 10000, "reservableEgressBw": 1000}}]}}"#
        )
    };
    let way = |a: &str, z: &str| {
        format!(
            r#"{{"a": {{"device": "{a}-cr5", "port": "{a}-cr5:1"}}, "z": {{"device": "{z}-cr5", "port": "{z}-cr5:1"}}, "metrics": {{"MPLS": 3}}}}"#
        )
    };
    let devices = format!("[{},\n{}]", device("chic"), device("star"));
    let ways = format!("[{},\n{}]", way("chic", "star"), way("star", "chic"));
    let drawn = r#"{"positions": {"chic": {"x": -245, "y": -91}}}"#;
    text_seeds(&[
        (
            "both-ways",
            &format!("{devices}\n---\n{ways}\n---\n{drawn}"),
        ),
        (
            "one-way",
            &format!("{devices}\n---\n[{}]", way("chic", "star")),
        ),
        (
            "no-device",
            &format!("{devices}\n---\n[{}]", way("chic", "lond")),
        ),
        (
            "device-twice",
            &format!("[{},{}]", device("chic"), device("chic")),
        ),
        ("no-number", &devices.replace("41.5", "north\\u001b")),
        ("off-the-earth", &devices.replace("41.5", "415")),
        ("steering", &devices.replace("chic", "\u{202e}\\n")),
        (
            "huge",
            &format!("{}\n---\n{ways}", devices.replace("10000", "1e308")),
        ),
        ("no-json", "\u{2028}"),
    ])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn the_corpora_hold() {
        longhaul_proto::fuzzing::replay_corpora(super::TARGETS);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        /// Seeds with bytes changed, removed and repeated.
        #[test]
        fn what_is_near_the_seeds_holds(
            target in any::<prop::sample::Index>(),
            seed in any::<prop::sample::Index>(),
            changes in prop::collection::vec((any::<usize>(), any::<u8>(), 0u8..4), 0..6),
        ) {
            let target = target.get(super::TARGETS);
            let seeds = (target.seeds)();
            let data = longhaul_proto::fuzzing::apply_changes(&seed.get(&seeds).1, &changes);
            (target.property)(&data);
        }
    }
}
