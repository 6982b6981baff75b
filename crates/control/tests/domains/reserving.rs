//! Reservations that are granted, refused, cancelled and set up.

use serde_json::{Value, json};

use crate::world::{LINK_BPS, World};

const RATE: u64 = LINK_BPS / 5;

fn grant(world: &World, to: usize, shape: &str) -> Value {
    let granted = world.reserve(0, to, RATE, shape).unwrap();
    assert_eq!(granted["state"], "reserved", "{granted}");
    let segments = granted["segments"].as_array().unwrap();
    let domains: Vec<&str> = segments
        .iter()
        .map(|segment| segment["domain"].as_str().unwrap())
        .collect();
    let expected: Vec<String> = (0..=to).map(|number| format!("d{number}")).collect();
    assert_eq!(domains, expected);
    assert_eq!(world.reserved(), vec![vec![RATE]; to + 1]);
    granted
}

fn cancel(world: &World, granted: &Value) {
    let id = granted["id"].as_str().unwrap();
    let path = format!("/domain/reservations/{id}");
    world.domains[0].ask("DELETE", &path, None).unwrap();
    let nothing = vec![Vec::<u64>::new(); world.domains.len()];
    world.wait_until("all is returned", |world| world.reserved() == nothing);
    world.wait_until("all have ended", |world| {
        let mut states = world.domains.iter().flat_map(crate::world::Domain::states);
        states.all(|state| state == "terminated")
    });
}

#[test]
fn two_domains_reserve_and_return() {
    let world = World::start(2, false);
    let granted = grant(&world, 1, "chain");
    assert_eq!(
        (&granted["from"], &granted["to"]),
        (&json!("d0:host"), &json!("d1:host"))
    );
    cancel(&world, &granted);
}

#[test]
fn four_domains_reserve_as_a_chain_of_neighbours() {
    let world = World::start(4, false);
    let granted = grant(&world, 3, "chain");
    cancel(&world, &granted);
    // A domain that is no peer can only be reached by a chain.
    let refused = world.reserve(0, 3, RATE, "tree").unwrap_err();
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("is no peer of domain d0"), "{detail}");
}

#[test]
fn four_domains_reserve_as_a_tree() {
    let world = World::start(4, true);
    let granted = grant(&world, 3, "tree");
    cancel(&world, &granted);
}

#[test]
fn repeated_request_reserves_once() {
    let world = World::start(2, false);
    let first = world.reserve_once(0, 1, RATE, "chain", "a-key").unwrap();
    let again = world.reserve_once(0, 1, RATE, "chain", "a-key").unwrap();
    assert_eq!(first["id"], again["id"]);
    assert_eq!(world.reserved(), [[RATE], [RATE]]);
}

#[test]
fn full_link_of_another_domain_refuses_and_leaves_nothing() {
    let world = World::start(3, false);
    // The domain in the middle has promised all that it may on the link to the last one.
    let local = json!({"from": "host", "to": "right", "wish": {"rate": {"rate_bps": LINK_BPS / 2}},
        "end_ms": crate::world::end_ms()});
    let filled = world.domains[1]
        .ask("POST", "/reservations", Some(&local))
        .unwrap();
    let refused = world.reserve(0, 2, RATE, "chain").unwrap_err();
    let status = refused["status"].as_u64().unwrap();
    assert!(status == 409 || status == 404, "{refused}");
    world.wait_until("nothing is left", |world| {
        world.reserved() == [vec![], vec![LINK_BPS / 2], vec![]]
    });
    let id = filled["reservations"][0]["id"].as_u64().unwrap();
    world.domains[1]
        .ask("DELETE", &format!("/reservations/{id}"), None)
        .unwrap();
    // Others learn of it within a moment.
    world.wait_until("it fits again", |world| {
        world.reserve(0, 2, RATE, "chain").is_ok()
    });
    // What earlier attempts held is returned.
    world.wait_until("nothing else is left", |world| {
        world.reserved() == vec![vec![RATE]; 3]
    });
}

#[test]
fn operator_of_a_domain_ends_the_whole_reservation() {
    let world = World::start(3, false);
    grant(&world, 2, "chain");
    let list = world.domains[1].ask("GET", "/reservations", None).unwrap();
    let id = list["items"][0]["id"].as_u64().unwrap();
    let path = format!("/reservations/{id}");
    world.domains[1].ask("DELETE", &path, None).unwrap();
    world.wait_until("all is returned", |world| {
        world.reserved().iter().all(Vec::is_empty)
    });
    world.wait_until("the reason is known", |world| {
        let list = world.domains[0].ask("GET", "/domain/reservations", None);
        let problem = &list.unwrap()["items"][0]["problem"];
        problem["reason"] == "forced-end" && problem["nsaId"] == "d1"
    });
}

#[test]
fn set_up_of_the_first_segment_sets_up_all() {
    let world = World::start(3, false);
    grant(&world, 2, "chain");
    let state = |world: &World, domain: usize| {
        let list = world.domains[domain].ask("GET", "/reservations", None);
        list.unwrap()["items"][0]["state"]["provision"].clone()
    };
    let list = world.domains[0].ask("GET", "/reservations", None).unwrap();
    let id = list["items"][0]["id"].as_u64().unwrap();
    for (action, reached) in [("provision", "provisioned"), ("release", "released")] {
        let path = format!("/reservations/{id}/{action}");
        world.domains[0].ask("POST", &path, None).unwrap();
        world.wait_until(action, |world| {
            (0..3).all(|domain| state(world, domain) == reached)
        });
    }
}

#[test]
fn peer_is_limited_by_its_role() {
    let world = World::start(2, false);
    let domain = &world.domains[1];
    let right = |permission: &str, constraint: &str| {
        json!({"resource": "reservations", "permission": permission, "constraint": constraint,
            "limits": {"rate_bps": RATE / 2}})
    };
    let rights = [right("create", "any"), right("modify", "own")];
    let read = json!({"resource": "reservations", "permission": "read", "constraint": "own"});
    let role = json!({"rights": [read, rights[0], rights[1]]});
    domain.ask("PUT", "/roles/small", Some(&role)).unwrap();
    let key = world.domains[0].key.public();
    let path = format!("/principals/{key}/roles");
    let name = json!({"name": "d0"});
    domain
        .ask("PUT", &format!("{path}/small"), Some(&name))
        .unwrap();
    domain.ask("DELETE", &format!("{path}/peer"), None).unwrap();
    let refused = world.reserve(0, 1, RATE, "chain").unwrap_err();
    assert_eq!(refused["status"], 403, "{refused}");
    world.wait_until("nothing is left", |world| {
        world.reserved().iter().all(Vec::is_empty)
    });
    let granted = world.reserve(0, 1, RATE / 2, "chain").unwrap();
    assert_eq!(granted["state"], "reserved");
}

#[test]
fn map_stays_private_and_strangers_are_refused() {
    let world = World::start(2, false);
    let topology = world.domains[0]
        .ask("GET", "/domain/topology", None)
        .unwrap();
    let items = topology["items"].as_array().unwrap();
    assert_eq!(items.len(), 2);
    let foreign = &items[1];
    assert_eq!(
        (&foreign["topology"]["domain"], &foreign["learned_from"]),
        (&json!("d1"), &json!("d1"))
    );
    assert_eq!(foreign["key"], world.domains[1].key.public().to_string());
    let text = foreign.to_string();
    assert!(
        !text.contains("middle") && !text.contains("192.0.2."),
        "{text}"
    );
    // The operator is no peer.
    let message = json!({
        "header": {"correlationId": "c", "requesterNsa": "d1", "providerNsa": "d0",
            "globalReservationId": "g"},
        "body": {"type": "terminate"}
    });
    let refused = world.domains[0].ask("POST", "/domain/messages", Some(&message));
    assert_eq!(refused.unwrap_err()["status"], 403);
}
