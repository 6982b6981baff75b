//! Names of depots, and their owners.

use std::time::Duration;

use longhaul_proto::{DEPOT_PORT, Endpoint};

use super::key;
use crate::{
    DepotAddress, DepotLimits, DepotNames, Map, NameConflict, Registration, RegistrationPolicy,
    RegistrationProblem, Transport, merge,
};

const NOW: f64 = 1_800_000_000.0;

fn map() -> Map {
    let text = format!(
        r#"{{"sites": [{{"name": "west"}}, {{"name": "east"}}],
            "depots": [{{"name": "mid", "key": "{}", "site": "west", "addresses": [{{"endpoint": "mid.example:7510"}}]}}],
            "hosts": [{{"name": "dtn1", "site": "west", "addresses": ["dtn1.example", "192.0.2.0/24"]}},
                      {{"name": "store", "site": "east", "addresses": ["*.store.example"]}}]}}"#,
        key(1)
    );
    serde_json::from_str(&text).unwrap()
}

fn registration(number: u8, name: &str) -> Registration {
    Registration {
        key: key(number),
        name: name.to_owned(),
        site: Some("east".to_owned()),
        addresses: vec![DepotAddress {
            endpoint: Endpoint::parse_with_port("198.51.100.1", DEPOT_PORT).unwrap(),
            transports: vec![Transport::Tcp],
        }],
        limits: DepotLimits::default(),
        version: "0.2.0".to_owned(),
        sent_at: NOW,
        valid_for: Duration::from_secs(90),
    }
}

#[test]
fn no_depot_has_the_name_of_an_address_key_host_or_site() {
    let names = DepotNames::from_map(&map());
    let own_key = key(9).to_string();
    for (name, conflict) in [
        ("west", NameConflict::Site),
        ("West", NameConflict::Site),
        ("dtn1", NameConflict::Host),
        ("DTN1", NameConflict::Host),
        ("dtn1.example", NameConflict::Address),
        ("DTN1.example.", NameConflict::Address),
        ("a.b.store.example", NameConflict::Address),
        ("mid.example", NameConflict::Address),
        ("192.0.2.9", NameConflict::Address),
        ("203.0.113.1", NameConflict::Address),
        ("127.1", NameConflict::Address),
        ("0x7f.1", NameConflict::Address),
        ("::ffff:192.0.2.9", NameConflict::Address),
        ("[2001:db8::1]", NameConflict::Address),
        ("10.0.0.0/8", NameConflict::Address),
        ("mid.example:7510", NameConflict::Address),
        (own_key.as_str(), NameConflict::Key),
        ("LHK1:x", NameConflict::Key),
    ] {
        let refused = names.check(name, &key(9)).unwrap_err();
        let RegistrationProblem::NameReserved {
            conflict: found, ..
        } = refused
        else {
            panic!("{name}: {refused}")
        };
        assert_eq!(found, conflict, "{name}");
    }
    for name in [
        "quad",
        "mid",
        "store.example",
        "pop-1.net",
        "quad 2",
        "depot.1",
    ] {
        assert_eq!(names.check(name, &key(9)), Ok(()), "{name}");
    }
    // The depot that the operator listed may use its own address.
    assert_eq!(names.check("mid.example", &key(1)), Ok(()));
}

#[test]
fn a_host_of_all_names_reserves_names_with_dots() {
    let mut map = map();
    map.hosts[1].addresses = vec!["*".to_owned()];
    let names = DepotNames::from_map(&map);
    assert!(names.check("any.example", &key(9)).is_err());
    assert_eq!(names.check("quad", &key(9)), Ok(()));
}

#[test]
fn a_name_belongs_to_the_granted_key_then_to_the_first() {
    let mut names = DepotNames::from_map(&map());
    assert_eq!(names.belongs_to("quad", &key(8)), None);
    names.bind_first("Quad", key(8));
    assert_eq!(names.belongs_to("quad", &key(8)), Some(true));
    assert_eq!(names.belongs_to("QUAD", &key(9)), Some(false));
    // The operator's decision outranks the first registration.
    names.grant("quad", key(9));
    assert_eq!(names.belongs_to("quad", &key(8)), Some(false));
    assert_eq!(names.belongs_to("quad", &key(9)), Some(true));
    // If the operator gave a name to several keys, the first that registers it has it.
    names.grant("pop", key(8));
    names.grant("pop", key(9));
    names.bind_first("pop", key(9));
    assert_eq!(names.belongs_to("pop", &key(8)), Some(false));
    assert_eq!(names.belongs_to("mid", &key(9)), Some(false));
    assert_eq!(names.belongs_to("mid", &key(1)), Some(true));
}

#[test]
fn the_first_key_keeps_its_name_when_another_registers_it() {
    let map = map();
    let mut names = DepotNames::from_map(&map);
    names.bind_first("quad", key(9));
    let both = [
        registration(8, "quad"),
        registration(9, "quad"),
        registration(7, "mid"),
    ];
    let merged = merge(&map, &both, &names, NOW, &RegistrationPolicy::default());
    assert_eq!(merged.map.depot("quad").unwrap().key, key(9));
    assert_eq!(merged.map.depot("mid").unwrap().key, key(1));
    let others = merged
        .map
        .depots
        .iter()
        .filter(|depot| depot.name.contains('~'));
    let others: Vec<_> = others.map(|depot| depot.key).collect();
    assert_eq!(others, [key(7), key(8)]);
}

#[test]
fn a_reserved_name_puts_no_depot_on_the_map() {
    let map = map();
    let mut names = DepotNames::from_map(&map);
    let own_key = key(6).to_string();
    let all = [
        ("dtn1", 9),
        ("west", 8),
        ("192.0.2.9", 7),
        (own_key.as_str(), 5),
    ];
    let all = all.map(|(name, number)| registration(number, name));
    let merged = merge(&map, &all, &names, NOW, &RegistrationPolicy::default());
    assert_eq!(merged.map.depots, map.depots);
    assert_eq!(merged.problems.len(), 4);
    // A key to which the operator gave the host's name may use it, and is located at the host's
    // site.
    names.grant("dtn1", key(9));
    let merged = merge(&map, &all[..1], &names, NOW, &RegistrationPolicy::default());
    let depot = merged.map.depot("dtn1").unwrap();
    assert_eq!((depot.key, depot.site.as_deref()), (key(9), Some("west")));
}
