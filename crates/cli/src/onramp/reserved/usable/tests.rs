#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use serde_json::{Value, json};

use super::*;

fn reservation(changes: &Value) -> Reservation {
    let path = |first: u16, rate: u64| {
        json!({"rate_bps": rate, "links": [{"link": "a", "from": "west", "to": "east"}],
            "source_ports": {"first": first, "last": first + 63}})
    };
    let mut all = json!({
        "id": 12, "owner": "k", "owner_name": "ana", "from": "dtn1", "to": "store",
        "wish": {"rate": {"rate_bps": 15}}, "start_ms": 10, "end_ms": 30, "paths": 2,
        "disjoint": "no", "preference": "fewest-hops", "created_ms": 0,
        "from_address": "192.0.2.1", "to_address": "198.51.100.0/24",
        "pieces": [
            {"start_ms": 10, "end_ms": 20, "paths": [path(10_240, 10), path(10_304, 5)]},
            {"start_ms": 20, "end_ms": 30, "paths": [path(10_304, 15)]},
        ],
        "state": {"reserve": "start", "provision": "provisioned", "life": "created"},
        "circuit": {"standing": "set-up"},
    });
    for (name, value) in changes.as_object().unwrap() {
        all[name] = value.clone();
    }
    serde_json::from_value(all).unwrap()
}

#[test]
fn paths_are_those_of_the_moment() {
    let granted = reservation(&json!({}));
    assert_eq!(check(&granted, 0), Ok(()));
    assert_eq!(paths(&granted, 9), None);
    let both = paths(&granted, 19).unwrap();
    assert_eq!(
        (both.reservation, both.from),
        (12, "192.0.2.1".parse().ok())
    );
    assert!(both.to.contains("198.51.100.7".parse().unwrap()));
    let of = |paths: ReservedPaths| -> Vec<(u16, u16, u64)> {
        let one = |path: &ReservedPath| (*path.ports.start(), *path.ports.end(), path.rate_bps);
        paths.paths.iter().map(one).collect()
    };
    assert_eq!(of(both), [(10_240, 10_303, 10), (10_304, 10_367, 5)]);
    assert_eq!(of(paths(&granted, 20).unwrap()), [(10_304, 10_367, 15)]);
    assert_eq!(paths(&granted, 30), None);
}

#[test]
fn unusable_reservations_are_refused() {
    use UnusableReservation::{NoDestination, NoPorts, OtherMachine, Over};
    let state = json!({"reserve": "start", "provision": "released", "life": "terminated"});
    let cancelled = reservation(&json!({"state": state}));
    assert_eq!(check(&cancelled, 0), Err(Over(12)));
    assert_eq!(paths(&cancelled, 15), None);
    assert_eq!(check(&reservation(&json!({})), 30), Err(Over(12)));
    let unknown = reservation(&json!({"to_address": null}));
    assert_eq!(check(&unknown, 0), Err(NoDestination(12)));
    let pieces = json!([{"start_ms": 10, "end_ms": 30,
        "paths": [{"rate_bps": 10, "links": [], "source_ports": {"first": 9, "last": 8}}]}]);
    let one = reservation(&json!({"pieces": pieces}));
    assert_eq!(check(&one, 0), Err(NoPorts(12)));
    let granted = reservation(&json!({}));
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    assert_eq!(check_source(&granted, &[address]), Ok(()));
    assert_eq!(
        check_source(&granted, &["192.0.2.2".parse().unwrap()]),
        Err(OtherMachine { id: 12, address })
    );
    let prefix = reservation(&json!({"from_address": "192.0.2.0/24"}));
    assert_eq!(check_source(&prefix, &[]), Ok(()));
    assert_eq!(paths(&prefix, 15).unwrap().from, None);
}

#[test]
fn circuit_that_is_not_set_up_has_a_state() {
    assert_eq!(not_set_up(&reservation(&json!({}))), None);
    let waiting = reservation(&json!({"circuit": {"standing": "waiting"}}));
    assert_eq!(not_set_up(&waiting), Some("waiting"));
    let never = reservation(&json!({"circuit": null}));
    assert_eq!(not_set_up(&never), Some("not provisioned"));
}
