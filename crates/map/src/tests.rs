//! Maps as a whole; formats have their own tests.

mod file;
mod graph;
mod ownership;
mod registration;
mod render;
mod routes;

use std::path::Path;

use longhaul_proto::PublicKey;

use crate::{Map, MapFault, Position, fuzzing, great_circle};

/// Returns a map with everything that a file can have.
fn everything() -> Map {
    crate::file::read(fuzzing::EVERYTHING, Path::new("map.toml")).unwrap()
}

fn key(byte: u8) -> PublicKey {
    PublicKey::from_bytes([byte; 32])
}

#[test]
fn great_circles_have_their_known_lengths() {
    let new_york = Position {
        latitude: 40.6413,
        longitude: -73.7781,
    };
    let london = Position {
        latitude: 51.4700,
        longitude: -0.4543,
    };
    // As published for the airports JFK and LHR, on the ellipsoid: 5554 km.
    let metres = great_circle(new_york, london);
    assert!((metres - 5_554e3).abs() < 0.006 * 5_554e3, "{metres}");
    assert_eq!(great_circle(london, london), 0.0);
    let pole = Position {
        latitude: 90.0,
        longitude: 12.0,
    };
    let other = Position {
        latitude: -90.0,
        longitude: 99.0,
    };
    assert!((great_circle(pole, other) - 20_015e3).abs() < 1e3);
}

#[test]
fn json_says_units_and_comes_back() {
    let map = everything();
    let json = serde_json::to_value(&map).unwrap();
    let link = &json["links"][0];
    assert_eq!(link["forward"]["capacity"]["rate_bps"], 1e11);
    assert_eq!(link["forward"]["capacity"]["source"], "stated");
    assert_eq!(link["forward"]["reservable"]["share"], 0.25);
    assert_eq!(link["backward"]["reservable"]["rate_bps"], 2e9);
    assert_eq!(link["latency"]["source"], "estimated");
    assert_eq!(json["links"][1]["latency"]["one_way_seconds"], 0.0025);
    assert_eq!(
        json["depots"][0]["addresses"][0]["endpoint"],
        "depot.starlight.example:7510"
    );
    assert_eq!(json["depots"][0]["state"]["state"], "listed");
    assert_eq!(json["hosts"][0]["end"]["at"], "offramp");
    assert_eq!(serde_json::from_value::<Map>(json).unwrap(), map);
}

#[test]
fn joining_maps_with_a_common_name_fails_without_effect() {
    let mut map = everything();
    let other = Map {
        sites: vec![map.sites[0].clone()],
        ..Map::default()
    };
    let before = map.clone();
    let fault = map.join(other).unwrap_err();
    assert!(matches!(fault, MapFault::NameTwice { .. }), "{fault}");
    assert_eq!(map, before);
}

#[test]
fn a_depot_is_on_a_map_once() {
    let mut map = everything();
    let mut second = map.depots[0].clone();
    second.name = "another".to_owned();
    map.depots.push(second);
    assert!(matches!(map.check(), Err(MapFault::KeyTwice { .. })));
}
