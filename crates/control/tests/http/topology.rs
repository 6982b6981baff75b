//! Live topology: databases that FRR printed, and a controller that follows them.

use std::path::{Path, PathBuf};

use longhaul_control::topology::OspfConfig;
use serde_json::{Value, json};

use crate::bench::{Bench, now_ms};

const HOUR_MS: u64 = 3_600_000;
/// Three routers with a link between each two, as FRR printed it.
const TRIANGLE: &str = include_str!("../../../map/data/ospf/triangle.json");

fn map() -> Value {
    let link = |from: &str, to: &str| {
        let any = json!({"reservable": {"share": 1.0}});
        let name = format!("{from} - {to}");
        json!({"name": name, "from": from, "to": to, "forward": any, "backward": any})
    };
    json!({
        "sites": [{"name": "one"}, {"name": "two"}, {"name": "three"}],
        "links": [link("one", "two"), link("two", "three"), link("one", "three")]
    })
}

/// Returns the database without the link between the first and the third router.
fn without_a_link() -> String {
    let mut printed: Value = serde_json::from_str(TRIANGLE).unwrap();
    let edges = printed["ted"]["edges"].as_array_mut().unwrap();
    edges.retain(|edge| {
        let address = edge["edge-attributes"]["local-address"].as_str().unwrap();
        !address.starts_with("10.0.13.")
    });
    printed.to_string()
}

/// Replaces what the router prints, at once.
fn print(file: &Path, database: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, database).unwrap();
    std::fs::rename(&new, file).unwrap();
}

async fn follow() -> (Bench, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("database.json");
    print(&file, TRIANGLE);
    let ospf: OspfConfig = serde_json::from_value(json!({
        "source": [{"command": ["cat", file]}],
        "interval_ms": 50,
        "routers": {"one": "192.168.0.1", "two": "192.168.0.2", "three": "192.168.0.3"},
    }))
    .unwrap();
    let bench = Bench::following(dir, ospf).await;
    let put = bench.local("PUT", "/api/v1/map", &map().to_string()).await;
    assert_eq!(put.0, 200, "{}", put.1);
    (bench, file)
}

/// Waits until the answer to a request is as expected.
async fn becomes(bench: &Bench, path: &str, is: impl Fn(&Value) -> bool) -> Value {
    loop {
        let (status, answer) = bench.local("GET", path, "").await;
        assert!(status < 300, "{answer}");
        if is(&answer) {
            return answer;
        }
        tokio::task::yield_now().await;
    }
}

fn live<'a>(map: &'a Value, name: &str) -> &'a Value {
    let mut links = map["map"]["links"].as_array().unwrap().iter();
    &links.find(|link| link["name"] == name).unwrap()["live"]
}

/// Returns the links of the last piece of a reservation's plan.
fn links(reservation: &Value) -> Vec<&str> {
    let last = reservation["pieces"].as_array().unwrap().last().unwrap();
    let links = last["paths"][0]["links"].as_array().unwrap().iter();
    links.map(|link| link["link"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn reservation_moves_when_the_network_loses_a_link() {
    let (bench, file) = follow().await;
    let map = becomes(&bench, "/api/v1/map", |map| {
        live(map, "one - three")["up"] == true
    })
    .await;
    assert_eq!(live(&map, "one - three")["forward"]["capacity_bps"], 1e9);
    let request = json!({
        "from": "one", "to": "three", "wish": {"rate": {"rate_bps": 400_000_000}},
        "end_ms": now_ms() + HOUR_MS
    });
    let reserve = async || {
        let (status, answer) = bench
            .local("POST", "/api/v1/reservations", &request.to_string())
            .await;
        assert_eq!(status, 201, "{answer}");
        answer["reservations"][0].clone()
    };
    assert_eq!(links(&reserve().await), ["one - three"]);

    print(&file, &without_a_link());
    let is_moved = |one: &Value| links(one) == ["one - two", "two - three"];
    let moved = becomes(&bench, "/api/v1/reservations/1", is_moved).await;
    assert!(moved.get("impaired").is_none(), "{moved}");
    let (_, map) = bench.local("GET", "/api/v1/map", "").await;
    assert_eq!(live(&map, "one - three")["up"], false);

    // No router answers: links stay as last known.
    print(&file, "MPLS-TE database is not enabled\n");
    let map = becomes(&bench, "/api/v1/map", |map| map["problems"] != json!([])).await;
    assert_eq!(live(&map, "one - three")["up"], false);
    assert_eq!(live(&map, "one - two")["up"], true);
    let problem = map["problems"][0].as_str().unwrap();
    assert!(
        problem.contains("not a traffic engineering database"),
        "{problem}"
    );
    let (_, metrics) = bench.local("GET", "/metrics", "").await;
    let metrics = metrics.as_str().unwrap();
    for line in [
        "longhaul_control_reservations_rerouted_total 1",
        "longhaul_control_reservations_impaired 0",
        "longhaul_control_topology_current 0",
        "longhaul_control_topology_links{state=\"down\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }

    // The state of links is not stored with a map that was read from the controller.
    let put = bench
        .local("PUT", "/api/v1/map", &map["map"].to_string())
        .await;
    assert_eq!(put.0, 200, "{}", put.1);
    let stored = bench.controller.store().map().await.unwrap();
    assert!(stored.links.iter().all(|link| link.live.is_none()));

    // The link is back, and its bandwidth is free.
    print(&file, TRIANGLE);
    becomes(&bench, "/api/v1/map", |map| {
        live(map, "one - three")["up"] == true
    })
    .await;
    assert_eq!(links(&reserve().await), ["one - three"]);
}

#[tokio::test]
async fn reservation_without_another_path_stays_and_is_impaired() {
    let (bench, file) = follow().await;
    becomes(&bench, "/api/v1/map", |map| {
        live(map, "one - three")["up"] == true
    })
    .await;
    for id in 1..=2 {
        let request = json!({
            "from": "one", "to": "three", "wish": {"rate": {"rate_bps": 300_000_000}},
            "end_ms": now_ms() + HOUR_MS
        });
        let path = "/api/v1/reservations";
        let (status, answer) = bench.local("POST", path, &request.to_string()).await;
        assert_eq!(
            (status, &answer["reservations"][0]["id"]),
            (201, &json!(id))
        );
    }
    print(&file, &without_a_link());
    // The second one already has the other path.
    let reported = becomes(&bench, "/api/v1/reservations/1", |one| {
        one["impaired"][0]["link"] == "one - three"
    })
    .await;
    assert_eq!(reported["state"]["life"], "created");
    let is_counted = |metrics: &Value| {
        let metrics = metrics.as_str().unwrap();
        metrics.contains("longhaul_control_reservations_impaired 1")
    };
    becomes(&bench, "/metrics", is_counted).await;
}
