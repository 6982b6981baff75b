//! Attacks on the names by which the controller knows depots, hosts and sites.

use longhaul_control_client::unix_ms;
use serde_json::{Value, json};

use crate::controller::{Controller, Principal};
use crate::world::World;

fn register(controller: &Controller<'_>, principal: &Principal, name: &str) -> (u16, Value) {
    let body = principal.registration(name, 60.0);
    controller.ask(principal, "PUT", &principal.depot_path(), &body)
}

fn measured(from: &str, to: &str) -> Value {
    json!({"measurements": [{
        "from": from, "to": to, "quantity": "rtt", "at_ms": unix_ms(), "value": 0.1,
        "source": "relay"
    }]})
}

/// Returns the key of the depot of this name on the map, if there is one.
fn key_of(controller: &Controller<'_>, name: &str) -> Option<String> {
    let map = controller.map();
    let depots = map["map"]["depots"]
        .as_array()
        .or(map["depots"].as_array())
        .unwrap()
        .clone();
    let depot = depots.into_iter().find(|depot| depot["name"] == name)?;
    Some(depot["key"].as_str().unwrap().to_owned())
}

#[test]
fn a_depot_key_cannot_take_over_names() {
    let world = World::new();
    let controller = Controller::new(&world);
    let client = controller.principal(&["client"], "dtn1");
    let depot = controller.principal(&["depot"], "");
    let attacker = controller.principal(&["depot", "client", "reserver"], "");
    assert_eq!(register(&controller, &depot, "quad").0, 200);

    // A registration cannot take the name of a host, a site, an address, or another key.
    let keys = [&client, &depot].map(|of| of.key.public().to_string());
    for name in [
        "dtn1",
        "DTN1",
        "west",
        "192.0.2.7",
        "dtn1.example",
        &keys[0],
        &keys[1],
    ] {
        let (status, problem) = register(&controller, &attacker, name);
        assert_eq!(status, 409, "{name}: {problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains("another name"),
            "{problem}"
        );
    }
    // Another depot's name cannot be taken, in any case.
    for name in ["quad", "QUAD"] {
        let (status, answer) = register(&controller, &attacker, name);
        let shown = answer["name"].as_str().unwrap();
        assert!(
            status == 200 && shown.starts_with(&format!("{name}~")),
            "{answer}"
        );
    }
    let own = depot.key.public().to_string();
    assert_eq!(key_of(&controller, "quad"), Some(own));
    for (from, to) in [
        ("dtn1", "store"),
        ("quad", "store"),
        (keys[0].as_str(), "store"),
    ] {
        let (status, problem) =
            controller.ask(&attacker, "POST", "/measurements", &measured(from, to));
        assert_eq!(status, 403, "{from}: {problem}");
        let question = json!({"from": from, "to": to});
        let (status, answer) = controller.ask(&attacker, "POST", "/routes/question", &question);
        assert_eq!(status, 403, "{from}: {answer}");
    }

    // Honest depots keep their names meanwhile.
    let (_, answer) = register(&controller, &depot, "quad");
    assert_eq!(answer["name"], "quad");
    for (principal, from) in [(&client, "dtn1"), (&depot, "quad")] {
        let (status, answer) =
            controller.ask(principal, "POST", "/measurements", &measured(from, "store"));
        assert_eq!(
            (status, &answer["kept"]),
            (200, &json!(1)),
            "{from}: {answer}"
        );
        let question = json!({"from": from, "to": "store"});
        let (status, answer) = controller.ask(principal, "POST", "/routes/question", &question);
        assert_eq!(status, 200, "{from}: {answer}");
    }
}

#[test]
fn a_revoked_depot_is_gone_and_its_name_is_free() {
    let world = World::new();
    let controller = Controller::new(&world);
    let depot = controller.principal(&["depot"], "");
    let other = controller.principal(&["depot"], "");
    assert_eq!(register(&controller, &depot, "quad").0, 200);
    assert!(key_of(&controller, "quad").is_some());
    controller.operate(&["control", "revoke", &depot.key.public().to_string()]);
    assert_eq!(key_of(&controller, "quad"), None);
    let (_, answer) = register(&controller, &other, "quad");
    assert_ne!(answer["name"], "quad");
    assert!(
        controller
            .operate(&["control", "names"])
            .contains(&depot.key.public().to_string())
    );
    // Only the operator can give the name to another key.
    controller.operate(&["control", "release", "quad"]);
    let (_, answer) = register(&controller, &other, "quad");
    assert_eq!(answer["name"], "quad");
}

#[test]
fn an_expired_registration_has_no_rights() {
    let world = World::new();
    let controller = Controller::new(&world);
    let depot = controller.principal(&["depot"], "");
    let reserver = controller.principal(&["reserver"], "");
    // Expires before it arrives, as after a silence of the depot.
    let mut body = depot.registration("quad", 1.0);
    body["sent_at"] = json!(unix_ms() as f64 / 1000.0 - 5.0);
    assert_eq!(
        controller.ask(&depot, "PUT", &depot.depot_path(), &body).0,
        200
    );
    let (status, problem) =
        controller.ask(&depot, "POST", "/measurements", &measured("quad", "store"));
    assert_eq!(status, 403, "{problem}");
    let wish = json!({"from": "quad", "to": "store", "wish": {"rate": {"rate_bps": 1000}},
        "end_ms": unix_ms() + 3_600_000});
    let (status, problem) = controller.ask(&reserver, "POST", "/reservations", &wish);
    assert_eq!(status, 404, "{problem}");
    assert_eq!(register(&controller, &depot, "quad").0, 200);
    let (status, answer) =
        controller.ask(&depot, "POST", "/measurements", &measured("quad", "store"));
    assert_eq!(status, 200, "{answer}");
    let (status, answer) = controller.ask(&reserver, "POST", "/reservations", &wish);
    assert_eq!(status, 201, "{answer}");
}

#[test]
fn a_key_registers_a_few_names_and_no_more() {
    let world = World::new();
    let controller = Controller::new(&world);
    let attacker = controller.principal(&["depot"], "");
    let depot = controller.principal(&["depot"], "");
    for number in 0..4 {
        let (status, answer) = register(&controller, &attacker, &format!("squat-{number}"));
        assert_eq!(status, 200, "{answer}");
    }
    let (status, problem) = register(&controller, &attacker, "squat-4");
    assert_eq!(status, 409, "{problem}");
    let (_, answer) = register(&controller, &depot, "squat-4");
    assert_eq!(answer["name"], "squat-4");
}
