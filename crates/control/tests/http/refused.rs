//! Requests that are unsigned, outdated, repeated, or exceed the caller's rights.

use hyper::http::HeaderValue;
use longhaul_proto::SigningKey;
use serde_json::{Value, json};

use crate::bench::{Bench, now_ms};
use crate::secured::{now, signed_at};

fn assert_refused(answer: (u16, Value), status: u16, word: &str) {
    let (found, problem) = answer;
    assert_eq!(found, status, "{problem}");
    assert!(
        problem["detail"].as_str().unwrap().contains(word),
        "{problem}"
    );
}

fn measured(from: &str, to: &str) -> String {
    json!({
        "measurements": [{
            "from": from,
            "to": to,
            "quantity": "rtt",
            "at_ms": now_ms(),
            "value": 0.1,
            "source": "relay"
        }]
    })
    .to_string()
}

#[tokio::test]
async fn unsigned_requests_are_refused() {
    let bench = Bench::new().await;
    for (method, path) in [
        ("GET", "/api/v1/map"),
        ("PUT", "/api/v1/map"),
        ("POST", "/api/v1/measurements"),
        ("GET", "/api/v1/principals"),
        ("GET", "/metrics"),
        ("GET", "/api/v1/openapi.json"),
    ] {
        assert_refused(
            bench.send(bench.service.request(method, path, "")).await,
            401,
            "not signed",
        );
    }
}

#[tokio::test]
async fn key_without_roles_is_refused() {
    let bench = Bench::new().await;
    let stranger = SigningKey::generate().unwrap();
    assert_refused(
        bench.ask(&stranger, "GET", "/api/v1/map", "").await,
        401,
        "not authorized here",
    );
}

#[tokio::test]
async fn replayed_request_is_refused() {
    let bench = Bench::new().await;
    let reader = bench.principal("reader", "r").await;
    let request = bench.service.signed(&reader, "GET", "/api/v1/map", "");
    assert_eq!(bench.send(request.clone()).await.0, 200);
    assert_refused(bench.send(request).await, 401, "received before");
}

#[tokio::test]
async fn expired_and_earlier_requests_are_refused() {
    let bench = Bench::new().await;
    let reader = bench.principal("reader", "r").await;
    let at = |at| {
        signed_at(
            &reader,
            bench.service.request("GET", "/api/v1/map", ""),
            at,
            |_| {},
        )
    };
    assert_refused(bench.send(at(now() - 61)).await, 401, "expired");
    assert_refused(bench.send(at(now() - 119)).await, 401, "");
    assert_refused(bench.send(at(now() + 300)).await, 401, "future");
    assert_eq!(bench.send(at(now())).await.0, 200);
}

#[tokio::test]
async fn altered_request_is_refused() {
    let bench = Bench::new().await;
    let operator = bench.principal("operator", "o").await;
    let request = || bench.service.request("PUT", "/api/v1/map", "{}");
    let moved = signed_at(&operator, request(), now(), |parts| {
        parts.uri = "/api/v1/roles/x".parse().unwrap();
    });
    assert_refused(bench.send(moved).await, 401, "is not that of the key");
    let mut other = bench.service.signed(&operator, "PUT", "/api/v1/map", "{}");
    *other.body_mut() = r#"{"sites":[]}"#.into();
    assert_refused(bench.send(other).await, 401, "not the one that was signed");
    let elsewhere = signed_at(&operator, request(), now(), |parts| {
        parts
            .headers
            .insert("host", HeaderValue::from_static("other.example:1"));
    });
    assert_refused(
        bench.send(elsewhere).await,
        403,
        "longhaul control --server-name",
    );
    let with_key = signed_at(
        &operator,
        bench.service.request("POST", "/api/v1/measurements", "{}"),
        now(),
        |parts| {
            parts
                .headers
                .insert("idempotency-key", HeaderValue::from_static("k"));
        },
    );
    assert_refused(
        bench.send(with_key).await,
        401,
        "does not cover idempotency-key",
    );
}

#[tokio::test]
async fn actions_outside_a_role_are_refused() {
    let bench = Bench::new().await;
    let keys = [
        ("reader", bench.principal("reader", "r").await),
        ("client", bench.principal("client", "c").await),
        ("depot", bench.principal("depot", "d").await),
    ];
    let grant = json!({"name": "me"}).to_string();
    for (role, key) in &keys {
        // No key can make itself an operator.
        let own = format!("/api/v1/principals/{}/roles/operator", key.public());
        assert_refused(bench.ask(key, "PUT", &own, &grant).await, 403, "principals");
        assert_refused(
            bench.ask(key, "GET", "/api/v1/principals", "").await,
            403,
            "principals",
        );
        assert_refused(
            bench
                .ask(key, "PUT", "/api/v1/roles/mine", r#"{"rights": []}"#)
                .await,
            403,
            "principals",
        );
        assert_refused(
            bench.ask(key, "PUT", "/api/v1/map", "{}").await,
            403,
            "the map",
        );
        let of_others = measured("a", "b");
        assert_refused(
            bench
                .ask(key, "POST", "/api/v1/measurements", &of_others)
                .await,
            403,
            "measurements",
        );
        assert_eq!(bench.ask(key, "GET", "/api/v1/controller", "").await.0, 200);
        let counted = bench.ask(key, "GET", "/metrics", "").await;
        assert_eq!(counted.0, if *role == "reader" { 200 } else { 403 });
    }
}

/// A depot may report hops that it is an end of, a client paths that it is an end of. So a liar
/// changes nothing between others.
#[tokio::test]
async fn paths_of_others_cannot_be_reported() {
    let bench = Bench::new().await;
    let (client, other) = (
        bench.principal("client", "c").await,
        bench.principal("client", "o").await,
    );
    let (own, others) = (client.public().to_string(), other.public().to_string());
    let post = |body: String| {
        let client = &client;
        let bench = &bench;
        async move {
            bench
                .ask(client, "POST", "/api/v1/measurements", &body)
                .await
        }
    };
    assert_eq!(post(measured(&own, "store")).await.0, 200);
    assert_eq!(post(measured("store", &own)).await.0, 200);
    assert_refused(
        post(measured(&others, "store")).await,
        403,
        "only of its own",
    );
    assert_refused(post(measured("a", "b")).await, 403, "measurements[0]");
    // With one measurement that it may not report, the whole batch is refused.
    let mut mixed: Value = serde_json::from_str(&measured(&own, "x")).unwrap();
    let foreign: Value = serde_json::from_str(&measured("a", "b")).unwrap();
    mixed["measurements"]
        .as_array_mut()
        .unwrap()
        .push(foreign["measurements"][0].clone());
    assert_refused(post(mixed.to_string()).await, 403, "measurements[1]");
    // Reports of others are not shown to it.
    assert_eq!(
        bench
            .ask(
                &other,
                "POST",
                "/api/v1/measurements",
                &measured(&others, "s")
            )
            .await
            .0,
        200
    );
    let (_, page) = bench.ask(&client, "GET", "/api/v1/measurements", "").await;
    let reporters = page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["reporter"].as_str().unwrap());
    assert_eq!(reporters.collect::<Vec<_>>(), [&own, &own]);
    // The same for transfers and routes.
    let report = |from: &str, to: &str| {
        json!({
            "id": "1",
            "from": from,
            "to": to,
            "bytes": 1,
            "began_ms": 1,
            "seconds": 1.0,
            "outcome": "done"
        })
        .to_string()
    };
    let take = |body: String| {
        bench.ask(
            &client,
            "POST",
            "/api/v1/transfers",
            Box::leak(body.into_boxed_str()),
        )
    };
    assert_eq!(
        take(report(&own, "store")).await,
        (200, json!({"is_new": true}))
    );
    assert_eq!(
        take(report(&own, "store")).await,
        (200, json!({"is_new": false}))
    );
    assert_refused(take(report(&others, "store")).await, 403, "only of its own");
    let question = json!({"from": others, "to": own}).to_string();
    assert_refused(
        bench
            .ask(&client, "POST", "/api/v1/routes/question", &question)
            .await,
        403,
        "only of its own",
    );
}

#[tokio::test]
async fn other_depots_cannot_be_registered() {
    let bench = Bench::new().await;
    let (depot, other) = (
        bench.principal("depot", "d").await,
        bench.principal("depot", "o").await,
    );
    let registration = |key: &SigningKey| {
        json!({"key": key.public().to_string(), "name": "d",
            "addresses": [{"endpoint": "d:7510"}], "version": "1",
            "sent_at": now(), "valid_for_seconds": 60})
        .to_string()
    };
    let path = |key: &SigningKey| format!("/api/v1/depots/{}", key.public());
    assert_refused(
        bench
            .ask(&other, "PUT", &path(&depot), &registration(&depot))
            .await,
        403,
        "only of its own",
    );
    assert_refused(
        bench
            .ask(&other, "PUT", &path(&other), &registration(&depot))
            .await,
        400,
        "key",
    );
    assert_eq!(
        bench
            .ask(&depot, "PUT", &path(&depot), &registration(&depot))
            .await
            .0,
        200
    );
    assert_refused(
        bench.ask(&other, "DELETE", &path(&depot), "").await,
        403,
        "only of its own",
    );
    assert_eq!(bench.ask(&depot, "DELETE", &path(&depot), "").await.0, 204);
}

#[tokio::test]
async fn invalid_measurements_are_refused() {
    let bench = Bench::new().await;
    let with = |change: &dyn Fn(&mut Value)| {
        let mut batch: Value = serde_json::from_str(&measured("a", "b")).unwrap();
        change(&mut batch["measurements"][0]);
        batch.to_string()
    };
    for (body, status) in [
        ("{}".to_owned(), 400),
        ("nonsense".to_owned(), 400),
        (json!({"measurements": []}).to_string(), 400),
        (with(&|one| one["value"] = json!(-1.0)), 400),
        (with(&|one| one["quantity"] = json!("colour")), 400),
        (
            with(&|one| {
                one["quantity"] = json!("loss");
                one["value"] = json!(1.5)
            }),
            400,
        ),
        (with(&|one| one["to"] = json!("a")), 400),
        (with(&|one| one["from"] = json!("")), 400),
        (with(&|one| one["from"] = json!("a\nb")), 400),
        (with(&|one| one["at_ms"] = json!(now_ms() + 3_600_000)), 400),
        (
            with(&|one| one["conditions"] = json!({"congestion": "x".repeat(200)})),
            400,
        ),
        (
            json!({
                "measurements": vec![json!({
                    "from": "a",
                    "to": "b",
                    "quantity": "rtt",
                    "at_ms": 1,
                    "value": 1.0,
                    "source": "probe"
                }); 5001]
            })
            .to_string(),
            413,
        ),
    ] {
        let (found, problem) = bench.local("POST", "/api/v1/measurements", &body).await;
        assert_eq!(found, status, "{problem} {}", &body[..body.len().min(200)]);
    }
    assert_eq!(
        bench.controller.store().count_measurements().await.unwrap(),
        0
    );
    for path in [
        "/api/v1/measurements?after=x",
        "/api/v1/measurements?limit=0",
        "/api/v1/forecasts?limit=9999",
        "/api/v1/map?x=1%",
    ] {
        let status = bench.local("GET", path, "").await.0;
        assert!(
            status == 400 || (path.contains("map") && status == 200),
            "{path} {status}"
        );
    }
}
