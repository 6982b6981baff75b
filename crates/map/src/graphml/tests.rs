//! Networks of the zoo, and labels.

use std::path::Path;

use quantities::Rate;

use super::speed::{self, with_unit};
use super::{Assumptions, GraphmlError, read};
use crate::fuzzing::check_properties;
use crate::model::{CapacitySource, LatencySource, Map, SiteKind};
use crate::{Graph, esnet};

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn zoo(name: &str) -> Map {
    let map = read(
        &data(&format!("zoo/{name}.graphml")),
        Path::new(name),
        &Assumptions::default(),
    )
    .unwrap();
    check_properties(&map);
    map
}

/// Returns the number of links with a stated capacity, and of those with a latency.
fn known(map: &Map) -> (usize, usize) {
    let links = map.links.iter();
    let reported = links
        .clone()
        .filter(|link| link.forward.capacity.is_some())
        .count();
    (
        reported,
        links.filter(|link| link.latency.is_some()).count(),
    )
}

#[test]
fn all_zoo_networks_are_read_completely() {
    for (name, sites, links, reported, timed) in [
        ("Abilene", 11, 14, 14, 14),
        ("Cogentco", 197, 245, 0, 214),
        ("Esnet", 68, 92, 13, 29),
        ("Geant2012", 40, 61, 39, 58),
        ("Internetmci", 19, 45, 45, 45),
        ("Janetbackbone", 29, 45, 0, 43),
        ("Nsfnet", 13, 15, 1, 15),
        ("Surfnet", 50, 73, 0, 73),
        ("Uunet", 49, 84, 77, 77),
    ] {
        let map = zoo(name);
        assert_eq!(
            (map.sites.len(), map.links.len(), known(&map)),
            (sites, links, (reported, timed)),
            "{name}"
        );
        assert_eq!(Graph::from_map(&map).edges().len(), 2 * links);
    }
}

#[test]
fn abilene_matches_the_historical_network() {
    let map = zoo("Abilene");
    let link = map
        .links
        .iter()
        .find(|link| link.name == "New York - Chicago")
        .unwrap();
    // OC-192: 192 times 51.84 Mbit/s. 1,145 km of great circle.
    assert_eq!(link.forward.rate(), Rate::new(192.0 * 51.84e6));
    let latency = link.latency.unwrap();
    assert!(
        (0.0057..0.0059).contains(&latency.one_way.as_secs_f64()),
        "{latency:?}"
    );
    assert_eq!(latency.source, LatencySource::Estimated);
}

#[test]
fn junctions_and_equal_labels_get_unique_names() {
    let map = zoo("Cogentco");
    let junctions: Vec<&str> = map
        .sites
        .iter()
        .filter(|site| site.kind == SiteKind::Junction)
        .map(|site| site.name.as_str())
        .collect();
    assert_eq!(junctions.len(), 11);
    assert!(
        junctions.iter().all(|name| name.starts_with("junction ")),
        "{junctions:?}"
    );
    assert!(
        map.notes[0].starts_with("11 of 197 sites have no coordinates"),
        "{:?}",
        map.notes
    );

    let map = zoo("Uunet");
    assert!(map.site("London").is_some() && map.site("London #2").is_some());
    let map = zoo("Esnet");
    assert!(map.site("None").is_none());
    let vague = |link: &&crate::Link| {
        link.forward
            .capacity
            .is_some_and(|capacity| capacity.source == CapacitySource::Bound)
    };
    assert_eq!(map.links.iter().filter(vague).count(), 3);
    let map = zoo("Internetmci");
    assert!(map.links.iter().any(|link| link.name.ends_with(" #2")));
}

#[test]
fn speeds_are_read_as_people_write_them() {
    let stated = CapacitySource::Stated;
    let bound = CapacitySource::Bound;
    for (label, rate, source) in [
        ("10Gbps", 10e9, stated),
        ("2.5 Gbps", 2.5e9, stated),
        ("155 Mbps OC-3", 155e6, stated),
        ("OC-192c", 9953.28e6, stated),
        ("OC48", 2488.32e6, stated),
        ("STM-16", 2488.32e6, stated),
        ("STM 1", 155.52e6, stated),
        ("DS-3", 44.736e6, stated),
        ("DS3", 44.736e6, stated),
        ("T1", 1.544e6, stated),
        ("T3", 44.736e6, stated),
        ("E3", 34.368e6, stated),
        ("E1 line", 2.048e6, stated),
        ("2 x 10GE", 20e9, stated),
        ("2x10G", 20e9, stated),
        ("4 × 2.5 Gbit/s", 10e9, stated),
        ("n x 10 Gbps", 10e9, bound),
        ("Nx2.5G", 2.5e9, bound),
        ("<45Mb", 45e6, bound),
        (">10Gbps", 10e9, bound),
        ("1-10Gbps", 1e9, bound),
        ("1 Gbps - 10 Gbps", 1e9, bound),
        ("10 GigE", 10e9, stated),
        ("GigE", 1e9, stated),
        ("Gigabit Ethernet", 1e9, stated),
        ("Fast Ethernet", 100e6, stated),
        ("100BaseT", 100e6, stated),
        ("10GBASE-LR", 10e9, stated),
        ("1 Gigabit/s", 1e9, stated),
        ("622M", 622e6, stated),
        ("64 kbit/s", 64e3, stated),
        ("Lambda (10G)", 10e9, stated),
        ("PoS 2.5Gbps via Prague", 2.5e9, stated),
    ] {
        let read = speed::read(label).unwrap_or_else(|| panic!("{label}"));
        assert!(
            (read.rate.bits_per_second() - rate).abs() < 1.0,
            "{label}: {}",
            read.rate
        );
        assert_eq!(read.source, source, "{label}");
    }
    for label in [
        "",
        "Purple Link",
        "Lit Fibre",
        "Leased Wavelength/Managed Service",
        "10 MB/s",
        "10MBps",
        "10 m cable",
        "0 Gbps",
        "OC-",
        "T9",
        "e14",
        "10",
        "x 10",
        "Blue",
        "- -",
        "1.2.3 Gbps",
        "Route 66",
    ] {
        assert_eq!(speed::read(label), None, "{label}");
    }
    assert_eq!(
        with_unit("2.5", "G").unwrap().rate,
        Rate::new(2.5e9).unwrap()
    );
    assert_eq!(with_unit("10", ""), None);
}

#[test]
fn assumed_capacities_are_marked_and_reported_ones_stay() {
    let assumptions = Assumptions {
        capacity: Rate::new(1e9),
    };
    let map = read(&data("zoo/Nsfnet.graphml"), Path::new("n"), &assumptions).unwrap();
    let sources: Vec<_> = map
        .links
        .iter()
        .map(|link| link.forward.capacity.unwrap().source)
        .collect();
    assert_eq!(
        sources
            .iter()
            .filter(|source| **source == CapacitySource::Stated)
            .count(),
        1
    );
    assert_eq!(
        sources
            .iter()
            .filter(|source| **source == CapacitySource::Assumed)
            .count(),
        14
    );
}

#[test]
fn directed_edges_are_paired() {
    let text = r#"<graphml><graph edgedefault="directed"><node id="a"/><node id="b"/>
        <edge source="a" target="b"/><edge source="b" target="a"/><edge source="b" target="a"/></graph></graphml>"#;
    let map = read(text, Path::new("d"), &Assumptions::default()).unwrap();
    check_properties(&map);
    let both: Vec<bool> = map
        .links
        .iter()
        .map(|link| link.backward.is_some())
        .collect();
    assert_eq!(both, [true, false]);
}

#[test]
fn defaults_of_keys_and_loops_count() {
    let text = r#"<graphml><key id="s" for="edge" attr.name="LinkSpeedRaw"><default>5e9</default></key>
        <graph edgedefault="undirected"><node id="a"/><node id="b"/><edge source="a" target="b"/><edge source="a" target="a"/></graph></graphml>"#;
    let map = read(text, Path::new("d"), &Assumptions::default()).unwrap();
    assert_eq!(map.links[0].forward.rate(), Rate::new(5e9));
    assert!(
        map.notes
            .iter()
            .any(|note| note.starts_with("1 edges from a node to itself")),
        "{:?}",
        map.notes
    );
}

#[test]
fn errors_say_where_and_what() {
    let error =
        |text: &str| read(text, Path::new("x.graphml"), &Assumptions::default()).unwrap_err();
    let reported = |text: &str| error(text).to_string();
    assert!(
        reported("<graphml>\n<").starts_with("x.graphml:2: is not readable as XML"),
        "{}",
        reported("<graphml>\n<")
    );
    let no_node =
        "<graphml><graph>\n<node id=\"a\"/>\n<edge source=\"a\" target=\"b\"/></graph></graphml>";
    assert_eq!(
        reported(no_node),
        "x.graphml:3: target: there is no node \"b\""
    );
    let twice = "<graphml>\n<node id=\"a\"/><node id=\"a\"/></graphml>";
    assert!(reported(twice).starts_with("x.graphml:2: node \"a\" appears twice"));
    assert!(matches!(error("<svg/>"), GraphmlError::Graph { .. }));
    let definitions = "<!DOCTYPE g [<!ENTITY a \"b\">]><graphml/>";
    assert!(matches!(error(definitions), GraphmlError::Xml { .. }));
}

#[test]
fn esnet_is_read_completely() {
    let files = [
        data("esnet/esnet-devices.json"),
        data("esnet/esnet-adjcies.json"),
        data("esnet/esnet-positions.json"),
    ];
    let [devices, adjacencies, positions] = &files;
    let map = esnet::read(&esnet::TopologyFiles {
        devices,
        adjacencies,
        positions: Some(positions),
    })
    .unwrap();
    check_properties(&map);
    assert_eq!((map.sites.len(), map.links.len()), (49, 91));
    assert!(
        map.links
            .iter()
            .all(|link| link.backward.is_some() && link.latency.is_some()),
        "{:?}",
        map.notes
    );
    let link = map
        .links
        .iter()
        .find(|link| [&link.from, &link.to].map(String::as_str) == ["sacr-cr5", "nersc-mr2"])
        .unwrap();
    assert_eq!(link.forward.metric, Some(3));
    let rate = link.forward.reservable_rate().unwrap();
    assert_eq!(link.forward.rate(), Some(rate));
    let site = map.site("chic-cr5").unwrap();
    assert_eq!(site.kind, SiteKind::Router);
    assert_eq!(
        site.drawn.map(|drawn| (drawn.x, drawn.y)),
        Some((-245.0, -91.0))
    );
    assert!(site.position.is_some());
    let broken = esnet::read(&esnet::TopologyFiles {
        devices: "[]",
        adjacencies,
        positions: None,
    });
    assert_eq!(
        broken.unwrap_err().to_string(),
        "the adjacencies of the topology: number 1 names \"sacr-cr5\", which is not among the \
        devices"
    );
}
