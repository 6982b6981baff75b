//! Tests of the map and of registrations.

use longhaul_proto::SigningKey;
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::secured::now;

fn sites() -> Value {
    json!({
        "sites": [{"name": "west"}, {"name": "east"}],
        "hosts": [{
            "name": "store",
            "site": "east",
            "addresses": ["store.example", "192.0.2.0/24"]
        }],
        "links": [{
            "name": "w-e",
            "from": "west",
            "to": "east",
            "forward": {"capacity": {"rate_bps": 1e10}}
        }]
    })
}

fn registration(key: &SigningKey, name: &str, age: u64, valid_for: f64) -> String {
    registration_sent_at(now() - age, key, name, valid_for)
}

fn registration_sent_at(sent_at: u64, key: &SigningKey, name: &str, valid_for: f64) -> String {
    json!({"key": key.public().to_string(), "name": name, "site": "west",
        "addresses": [{"endpoint": "d.example:7510"}],
        "limits": {"max_sessions": 10}, "version": "0.1.0",
        "sent_at": sent_at, "valid_for_seconds": valid_for})
    .to_string()
}

#[tokio::test]
async fn map_survives_a_round_trip() {
    let bench = Bench::new().await;
    let (status, changed) = bench
        .local("PUT", "/api/v1/map", &sites().to_string())
        .await;
    assert_eq!(
        (status, &changed["sites"], &changed["links"]),
        (200, &json!(2), &json!(1))
    );
    let (_, known) = bench.local("GET", "/api/v1/map", "").await;
    assert_eq!(known["map"]["hosts"][0]["name"], "store");
    assert_eq!(
        known["map"]["links"][0]["forward"]["capacity"]["rate_bps"],
        1e10
    );
    // A map that was read can be stored again.
    let (status, _) = bench
        .local("PUT", "/api/v1/map", &known["map"].to_string())
        .await;
    assert_eq!(status, 200);
    let (_, again) = bench.local("GET", "/api/v1/map", "").await;
    assert_eq!(again["map"], known["map"]);
    assert!(again["version"].as_u64() > known["version"].as_u64());
}

#[tokio::test]
async fn invalid_map_changes_nothing() {
    let bench = Bench::new().await;
    bench
        .local("PUT", "/api/v1/map", &sites().to_string())
        .await;
    let mut bad = sites();
    bad["links"][0]["to"] = json!("nowhere");
    let (status, problem) = bench.local("PUT", "/api/v1/map", &bad.to_string()).await;
    assert_eq!(status, 400);
    assert!(
        problem["detail"].as_str().unwrap().contains("nowhere"),
        "{problem}"
    );
    let (_, known) = bench.local("GET", "/api/v1/map", "").await;
    assert_eq!(known["map"]["links"][0]["to"], "east");
}

#[tokio::test]
async fn registered_depot_expires_and_returns() {
    let bench = Bench::new().await;
    bench
        .local("PUT", "/api/v1/map", &sites().to_string())
        .await;
    let depot = bench.principal("depot", "west-depot").await;
    let path = format!("/api/v1/depots/{}", depot.public());
    let (status, answer) = bench
        .ask(&depot, "PUT", &path, &registration(&depot, "d", 0, 60.0))
        .await;
    assert_eq!(
        (status, &answer["name"], &answer["again_in_s"]),
        (200, &json!("d"), &json!(20.0))
    );
    let state = async || {
        let (_, list) = bench.local("GET", "/api/v1/depots", "").await;
        list["items"][0]["state"]["state"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(state().await, "live");
    // The registration is valid for a moment, then expires by itself.
    let short = registration(&depot, "d", 0, 1.5);
    assert_eq!(bench.ask(&depot, "PUT", &path, &short).await.0, 200);
    while state().await != "stale" {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        bench
            .ask(&depot, "PUT", &path, &registration(&depot, "d", 0, 60.0))
            .await
            .0,
        200
    );
    assert_eq!(state().await, "live");
    // A new map of the operator leaves the registration in place.
    assert_eq!(bench.local("PUT", "/api/v1/map", "{}").await.0, 200);
    assert_eq!(state().await, "live");
    let future = registration_sent_at(now() + 500, &depot, "d", 60.0);
    assert_eq!(bench.ask(&depot, "PUT", &path, &future).await.0, 400);
    assert_eq!(bench.ask(&depot, "DELETE", &path, "").await.0, 204);
    let (_, list) = bench.local("GET", "/api/v1/depots", "").await;
    assert_eq!(list["items"], json!([]));
}

#[tokio::test]
async fn routes_toml_is_made_for_the_caller() {
    let bench = Bench::new().await;
    bench
        .local("PUT", "/api/v1/map", &sites().to_string())
        .await;
    let client = bench.principal("client", "laptop").await;
    let (status, file) = bench.ask(&client, "GET", "/api/v1/routes.toml", "").await;
    let file = file.as_str().unwrap();
    assert_eq!(status, 200);
    assert!(
        file.contains("[[route]]")
            && file.contains("store.example")
            && file.contains("acceptor = true"),
        "{file}"
    );
    // Over the socket, the caller is no end, so the start must be given.
    assert_eq!(bench.local("GET", "/api/v1/routes.toml", "").await.0, 404);
    assert_eq!(
        bench
            .local("GET", "/api/v1/routes.toml?from=store", "")
            .await
            .0,
        200
    );
    assert_eq!(
        bench
            .ask(&client, "GET", "/api/v1/routes.toml?from=store", "")
            .await
            .0,
        403
    );
}
