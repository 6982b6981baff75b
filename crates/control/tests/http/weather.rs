//! Tests of forecasts and routes from measurements.

use longhaul_proto::SigningKey;
use serde_json::{Value, json};

use crate::bench::{Bench, now_ms};
use crate::secured::now;

const MEGABIT: f64 = 1e6;
/// Number of samples of each quantity of a hop, one per second.
const SAMPLES: u64 = 50;

/// Returns some measurements of a hop: its round-trip time, rate and loss.
fn hop(from: &str, to: &str, rtt: f64, rate: f64) -> Value {
    let each = |quantity: &str, value: f64| {
        let at = move |step: u64| now_ms() - 60_000 + step * 1000;
        (0..SAMPLES)
            .map(move |step| {
                json!({
                    "from": from,
                    "to": to,
                    "quantity": quantity,
                    "at_ms": at(step),
                    "value": value,
                    "source": "relay"
                })
            })
            .collect::<Vec<_>>()
    };
    let mut all = each("rtt", rtt);
    all.extend(each("rate", rate));
    all.extend(each("loss", 0.0));
    json!({"measurements": all})
}

/// A client, a depot and a store. Over the depot it is ten times as fast.
struct Mesh {
    bench: Bench,
    client: SigningKey,
    depot: SigningKey,
}

async fn mesh() -> Mesh {
    let bench = Bench::new().await;
    let map = json!({
        "sites": [{"name": "west"}, {"name": "east"}],
        "hosts": [
            {"name": "laptop", "site": "west", "addresses": ["laptop.example"]},
            {"name": "store", "site": "east", "addresses": ["store.example", "192.0.2.0/24"]}
        ]
    });
    assert_eq!(
        bench.local("PUT", "/api/v1/map", &map.to_string()).await.0,
        200
    );
    // A principal that the operator named like a host speaks for it.
    let client = bench.principal("client", "laptop").await;
    let depot = bench.principal("depot", "depot").await;
    let registration = json!({"key": depot.public().to_string(), "name": "mid",
        "addresses": [{"endpoint": "mid.example:7510"}],
        "version": "1", "sent_at": now(), "valid_for_seconds": 300});
    let path = format!("/api/v1/depots/{}", depot.public());
    assert_eq!(
        bench
            .ask(&depot, "PUT", &path, &registration.to_string())
            .await
            .0,
        200
    );
    let store = bench.principal("client", "store").await;
    // Both ends of each hop report, as a hop that only one end reports counts as little known.
    for (ends, measured) in [
        (
            [&client, &store],
            hop("laptop", "store", 0.1, 50.0 * MEGABIT),
        ),
        (
            [&client, &depot],
            hop("laptop", "mid", 0.05, 500.0 * MEGABIT),
        ),
        ([&depot, &store], hop("mid", "store", 0.05, 500.0 * MEGABIT)),
    ] {
        for end in ends {
            let (status, answer) = bench
                .ask(end, "POST", "/api/v1/measurements", &measured.to_string())
                .await;
            assert_eq!(
                (status, answer["kept"].as_u64()),
                (200, Some(3 * SAMPLES)),
                "{answer}"
            );
        }
    }
    bench.forecasts(18).await;
    // The last series is complete when all of its samples are known.
    while bench
        .forecasts(18)
        .await
        .iter()
        .any(|forecast| forecast["samples"] != SAMPLES)
    {}
    Mesh {
        bench,
        client,
        depot,
    }
}

fn used(answer: &Value) -> Vec<&str> {
    let routes = answer["routes"].as_array().unwrap();
    routes
        .iter()
        .map(|route| route["via"][0]["depot"].as_str().unwrap_or("direct"))
        .collect()
}

#[tokio::test]
async fn measurements_are_forecast() {
    let mesh = mesh().await;
    let path = "/api/v1/forecasts?from=laptop&to=mid&quantity=rate";
    let (_, page) = mesh.bench.ask(&mesh.client, "GET", path, "").await;
    // Reports of the two ends are kept apart.
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    let found = &page["items"][0];
    assert_eq!(
        (found["samples"].as_u64(), found["reporter"].is_string()),
        (Some(SAMPLES), true)
    );
    let of = |quantile: &str| found["next"][quantile].as_f64().unwrap();
    assert!(of("p10") <= of("p50") && of("p50") <= of("p90"));
    assert!(
        (of("p50") / (500.0 * MEGABIT) - 1.0).abs() < 0.05,
        "{found}"
    );
    let (_, first) = mesh
        .bench
        .ask(&mesh.client, "GET", "/api/v1/forecasts?limit=14", "")
        .await;
    let next = first["next"].as_str().unwrap();
    let (_, rest) = mesh
        .bench
        .ask(
            &mesh.client,
            "GET",
            &format!("/api/v1/forecasts?limit=14&after={next}"),
            "",
        )
        .await;
    assert_eq!(
        (rest["items"].as_array().unwrap().len(), &rest["next"]),
        (4, &Value::Null)
    );
}

#[tokio::test]
async fn large_transfer_uses_depots_small_goes_direct() {
    let mesh = mesh().await;
    let ask = async |question: Value| {
        let (status, answer) = mesh
            .bench
            .ask(
                &mesh.client,
                "POST",
                "/api/v1/routes/question",
                &question.to_string(),
            )
            .await;
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let large = ask(json!({"to": "store.example", "bytes": 10_u64 << 30})).await;
    assert!(used(&large).contains(&"mid"), "{large}");
    assert!(large["seconds"]["p50"].as_f64().unwrap() < 600.0, "{large}");
    assert_eq!(large["why"].as_array().unwrap().len(), 5);
    let mid = large["routes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|route| route["via"][0]["depot"] == "mid")
        .unwrap();
    assert_eq!(
        mid["route"],
        format!("{}@mid.example:7510", mesh.depot.public())
    );
    let shares: f64 = large["routes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|route| route["share"].as_f64().unwrap())
        .sum();
    assert!((shares - 1.0).abs() < 1e-6, "{large}");
    assert!(large["valid_until_ms"].as_u64() > large["made_ms"].as_u64());
    // An address in the store's network names the same end.
    assert!(used(&ask(json!({"to": "192.0.2.7", "bytes": 10_u64 << 30})).await).contains(&"mid"));
    let small = ask(json!({"to": "store", "bytes": 1000})).await;
    assert_eq!(used(&small), ["direct"]);
    let without = ask(json!({"to": "store", "bytes": 10_u64 << 30, "avoid": ["mid"]})).await;
    assert_eq!(used(&without), ["direct"], "{without}");
    let unknown = ask(json!({"to": "nobody.example", "bytes": 10_u64 << 30})).await;
    assert_eq!(
        (used(&unknown), &unknown["seconds"]),
        (vec!["direct"], &Value::Null)
    );
}

#[tokio::test]
async fn lost_depot_is_not_used() {
    let mesh = mesh().await;
    let path = format!("/api/v1/depots/{}", mesh.depot.public());
    assert_eq!(
        mesh.bench.ask(&mesh.depot, "DELETE", &path, "").await.0,
        204
    );
    let question = json!({"to": "store", "bytes": 10_u64 << 30}).to_string();
    let (_, answer) = mesh
        .bench
        .ask(&mesh.client, "POST", "/api/v1/routes/question", &question)
        .await;
    assert_eq!(used(&answer), ["direct"], "{answer}");
}

#[tokio::test]
async fn route_table_has_routes_by_size() {
    let mesh = mesh().await;
    let (status, table) = mesh
        .bench
        .ask(&mesh.client, "GET", "/api/v1/routes/table", "")
        .await;
    assert_eq!((status, table["from"].as_str()), (200, Some("laptop")));
    assert!(table["valid_until_ms"].as_u64() > table["made_ms"].as_u64());
    let store = &table["destinations"][0];
    assert_eq!(
        (store["to"].as_str(), &store["addresses"][0]),
        (Some("store"), &json!("store.example"))
    );
    let sizes = store["sizes"].as_array().unwrap();
    let last = sizes.last().unwrap();
    assert_eq!(last["routes"][0]["via"][0]["depot"], "mid", "{table}");
    assert!(last["direct_seconds"]["p50"].as_f64() > last["routes"][0]["seconds"]["p50"].as_f64());
    assert!(sizes.is_sorted_by_key(|size| size["at_least_bytes"].as_u64()));
    // Size and direct duration of each class, from which a client derives its promises.
    let direct = store["direct"].as_array().unwrap();
    assert_eq!(direct.len(), sizes.len());
    for (size, direct) in sizes.iter().zip(direct) {
        assert_eq!(size["typical_bytes"], direct["bytes"]);
        assert_eq!(size["direct_seconds"], direct["seconds"]);
    }
    let (_, file) = mesh
        .bench
        .ask(&mesh.client, "GET", "/api/v1/routes.toml", "")
        .await;
    assert!(
        file.as_str().unwrap().contains("mid.example:7510"),
        "{file}"
    );
}

#[tokio::test]
async fn promises_are_scored() {
    let mesh = mesh().await;
    let report = |id: &str, seconds: f64| {
        json!({"id": id, "to": "store", "bytes": 1 << 30, "began_ms": now_ms(),
            "seconds": seconds, "outcome": "done",
            "promised": {"p10": 10.0, "p50": 20.0, "p90": 40.0},
            "routes": [{"via": ["mid"], "bytes": 1 << 30}]})
        .to_string()
    };
    for (id, seconds) in [("1", 15.0), ("2", 30.0), ("3", 50.0)] {
        let (status, answer) = mesh
            .bench
            .ask(
                &mesh.client,
                "POST",
                "/api/v1/transfers",
                &report(id, seconds),
            )
            .await;
        assert_eq!((status, answer), (200, json!({"is_new": true})));
    }
    let (_, score) = mesh.bench.local("GET", "/api/v1/transfers/score", "").await;
    assert_eq!(score["scored"], 3);
    assert!(
        (score["within"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-9,
        "{score}"
    );
    // A route that failed is avoided for a while.
    let failed = json!({"id": "4", "to": "store", "bytes": 1, "began_ms": now_ms(),
        "seconds": 1.0, "outcome": "failed",
        "routes": [{"via": ["mid"], "bytes": 0, "failed": true}]});
    assert_eq!(
        mesh.bench
            .ask(
                &mesh.client,
                "POST",
                "/api/v1/transfers",
                &failed.to_string()
            )
            .await
            .0,
        200
    );
    let question = json!({"to": "store", "bytes": 10_u64 << 30}).to_string();
    let (_, answer) = mesh
        .bench
        .ask(&mesh.client, "POST", "/api/v1/routes/question", &question)
        .await;
    assert_eq!(used(&answer), ["direct"], "{answer}");
    let (_, page) = mesh
        .bench
        .ask(&mesh.client, "GET", "/api/v1/transfers?limit=2", "")
        .await;
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
}

/// Both ends of a hop report, so an end that exaggerates gains nothing.
#[tokio::test]
async fn exaggerating_depot_gains_nothing() {
    let mesh = mesh().await;
    let question = json!({"to": "store", "bytes": 10_u64 << 30}).to_string();
    let best = async || {
        let (_, answer) = mesh
            .bench
            .ask(&mesh.client, "POST", "/api/v1/routes/question", &question)
            .await;
        let of_mid = |list: &Value| -> Option<f64> {
            let found = list
                .as_array()?
                .iter()
                .find(|route| route["via"][0]["depot"] == "mid")?;
            found["seconds"]["p50"].as_f64()
        };
        of_mid(&answer["routes"])
            .or_else(|| of_mid(&answer["others"]))
            .unwrap()
    };
    let before = best().await;
    // Newer than its earlier reports.
    let boast = hop("laptop", "mid", 0.001, 1e12).to_string();
    assert_eq!(
        mesh.bench
            .ask(&mesh.depot, "POST", "/api/v1/measurements", &boast)
            .await
            .0,
        200
    );
    let has_boasted = |forecast: &Value| {
        forecast["next"]["p50"]
            .as_f64()
            .is_some_and(|rate| rate > 1e11)
    };
    while !mesh.bench.forecasts(18).await.iter().any(has_boasted) {}
    let after = best().await;
    assert!(after > before * 0.99, "{before} {after}");
}

#[tokio::test]
async fn depots_measure_unless_the_path_is_in_use() {
    let bench = Bench::new().await;
    let mut depots = Vec::new();
    for name in ["a", "b"] {
        let key = bench.principal("depot", name).await;
        let registration = json!({"key": key.public().to_string(), "name": name,
            "addresses": [{"endpoint": format!("{name}:7510")}],
            "version": "1", "sent_at": now(), "valid_for_seconds": 300});
        let path = format!("/api/v1/depots/{}", key.public());
        assert_eq!(
            bench
                .ask(&key, "PUT", &path, &registration.to_string())
                .await
                .0,
            200
        );
        depots.push(key);
    }
    let tasks = async |key: &SigningKey| {
        let (status, list) = bench.ask(key, "GET", "/api/v1/probes", "").await;
        assert_eq!(status, 200, "{list}");
        list["items"].as_array().unwrap().clone()
    };
    let (first, second) = (tasks(&depots[0]).await, tasks(&depots[1]).await);
    assert!(!first.is_empty() && !second.is_empty());
    assert!(
        first
            .iter()
            .all(|task| task["to"] == "b" && task["address"] == "b:7510")
    );
    // The two directions never have the same slot.
    assert!(
        first
            .iter()
            .all(|task| second.iter().all(|other| other["id"] != task["id"]))
    );
    let measured = json!({
        "measurements": [{
            "from": "a",
            "to": "b",
            "quantity": "rtt",
            "at_ms": now_ms(),
            "value": 0.1,
            "source": "probe"
        }]
    });
    let path = format!("/api/v1/probes/{}/result", first[0]["id"].as_str().unwrap());
    let (status, answer) = bench
        .ask(&depots[0], "POST", &path, &measured.to_string())
        .await;
    assert_eq!(
        (status, answer["kept"].as_u64()),
        (200, Some(1)),
        "{answer}"
    );
    let others = measured.to_string().replace("\"a\"", "\"c\"");
    assert_eq!(bench.ask(&depots[0], "POST", &path, &others).await.0, 403);
    let relayed = json!({
        "measurements": [{
            "from": "a",
            "to": "b",
            "quantity": "rtt",
            "at_ms": now_ms() + 1,
            "value": 0.1,
            "source": "relay"
        }]
    });
    assert_eq!(
        bench
            .ask(
                &depots[0],
                "POST",
                "/api/v1/measurements",
                &relayed.to_string()
            )
            .await
            .0,
        200
    );
    while !tasks(&depots[0]).await.is_empty() {
        tokio::task::yield_now().await;
    }
    let client = bench.principal("client", "c").await;
    assert_eq!(bench.ask(&client, "GET", "/api/v1/probes", "").await.0, 403);
}
