//! `map.toml`.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use quantities::Rate;

use super::everything;
use crate::fuzzing::{EVERYTHING, check_properties};
use crate::{CapacitySource, LatencySource, Map, Reservable, file};

fn refused(line: &str, other: &str) -> String {
    assert!(EVERYTHING.contains(line));
    let text = EVERYTHING.replacen(line, other, 1);
    file::read(&text, Path::new("map.toml"))
        .unwrap_err()
        .to_string()
}

#[test]
fn every_field_of_a_file_is_read() {
    let map = everything();
    check_properties(&map);
    assert_eq!(
        (
            map.sites.len(),
            map.links.len(),
            map.depots.len(),
            map.hosts.len()
        ),
        (3, 3, 1, 2)
    );
    let names: Vec<&str> = map.links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["chicago - amsterdam", "tail", "campus - chicago"]);

    let [first, tail, spare] = map.links.as_slice() else {
        panic!("three links")
    };
    let back = first.backward.unwrap();
    assert_eq!(first.forward.rate(), Rate::new(100e9));
    assert_eq!(back.rate(), Rate::new(10e9));
    assert_eq!(first.forward.reservable_rate(), Rate::new(25e9));
    assert_eq!(back.reservable_rate(), Rate::new(2e9));
    // 6,610 km at 0.66 c.
    let latency = first.latency.unwrap();
    assert_eq!(latency.source, LatencySource::Estimated);
    assert!(
        (0.0331..0.0338).contains(&latency.one_way.as_secs_f64()),
        "{latency:?}"
    );

    assert_eq!(tail.latency.unwrap().one_way, Duration::from_micros(2500));
    assert_eq!(tail.latency.unwrap().source, LatencySource::Stated);
    // The default is half.
    assert_eq!(tail.backward.unwrap().reservable_rate(), Rate::new(5e9));
    assert_eq!((spare.backward, spare.latency), (None, None));
    assert_eq!(spare.forward.reservable, Some(Reservable::Share(0.75)));
    assert_eq!(spare.forward.reservable_rate(), None);
    assert_eq!(
        first.forward.capacity.unwrap().source,
        CapacitySource::Stated
    );
    assert_eq!(
        map.depots[0].addresses[1].endpoint.to_string(),
        "[2001:db8::1]:7777"
    );
}

#[test]
fn errors_say_where_and_what() {
    for (line, other, reported) in [
        ("\"100 Gbit/s\"", "\"100\"", "map.toml:17: capacity: "),
        (
            "\"2 Gbit/s\"",
            "\"much\"",
            "map.toml:20: reservable_back: write a share",
        ),
        (
            "41.8967",
            "91.0",
            "map.toml:1: site[1]: latitude is -90 to 90",
        ),
        (
            "longitude = 4.9543\n",
            "",
            "map.toml:7: latitude and longitude: write both or neither",
        ),
        (
            "name = \"tail\"",
            "name = \"chicago - amsterdam\"",
            "map.toml:23: link[2]: name: ",
        ),
        (
            "[\"campus\", \"chicago\"]\nname",
            "[\"camp\", \"chicago\"]\nname",
            "map.toml:23: link[2]: there is no site \"camp\"",
        ),
        ("lhk1:aea", "lhk1:zz", "map.toml:36: key: \"lhk1:zz"),
        (
            "[\"laptop.example\"]",
            "[\"lap top\"]",
            "map.toml:50: host[2]: addresses: ",
        ),
        (
            "[\"laptop.example\"]",
            "[]",
            "map.toml:50: host[2]: addresses: write 1 to 64",
        ),
        (
            "one_way = true",
            "one_way = true\ncapacity_back = \"1 Gbit/s\"",
            "map.toml:33: capacity_back: the link is one_way",
        ),
        (
            "metric = 10",
            "speed = 10",
            "map.toml:21: unknown field `speed`",
        ),
    ] {
        let error = refused(line, other);
        assert!(error.starts_with(reported), "{error}\nand not {reported}");
    }
}

#[test]
fn a_file_may_name_the_sites_of_another() {
    let mut map = everything();
    let text = "[[link]]\nbetween = [\"campus\", \"lab\"]\n\n[[site]]\nname = \"lab\"\n";
    file::read_onto(&mut map, text, Path::new("more.toml")).unwrap();
    check_properties(&map);
    assert_eq!((map.sites.len(), map.links.len()), (4, 4));
    let before = map.clone();
    let error = file::read_onto(
        &mut map,
        "\n[[site]]\nname = \"lab\"\n",
        Path::new("again.toml"),
    )
    .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("again.toml:2: site[1]: name: \"lab\" is used twice"),
        "{error}"
    );
    assert_eq!(map, before);
}

proptest! {
    #[test]
    fn sites_and_links_of_any_values_are_read_or_reported(
        latitude in -200f64..200.0,
        share in -1f64..2.0,
        rate in "[0-9]{1,4}(\\.[0-9])? ?[kMGT]?(bit/s|bps|B)?",
        name in "\\PC{0,20}",
    ) {
        let name = toml::Value::String(name);
        let text = format!(
            "[[site]]\nname = {name}\nlatitude = {latitude:?}\nlongitude = 1\n\
             [[site]]\nname = \"b b\"\n\
             [[link]]\nbetween = [{name}, \"b b\"]\ncapacity = \"{rate}\"\n\
             reservable = {share:?}\n"
        );
        match file::read(&text, Path::new("m")) {
            Ok(map) => {
                check_properties(&map);
                prop_assert!((-90.0..=90.0).contains(&latitude) && (0.0..=1.0).contains(&share));
            }
            Err(error) => prop_assert!(error.line >= 1 && error.line <= 10),
        }
    }
}

#[test]
fn an_empty_file_is_a_map() {
    assert_eq!(file::read("", Path::new("m")).unwrap(), Map::default());
}
