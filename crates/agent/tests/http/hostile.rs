//! Arbitrary requests get answers as described, and never an internal error.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::bench::Bench;

/// Generates JSON, with the API's own names among its keys and significant values.
fn hostile() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        prop::sample::select(vec![
            "/a",
            "dtn:",
            "lh://",
            "lh://[",
            "user@:x",
            "--json",
            "\u{202e}",
            "1e999",
            "9".repeat(400).leak()
        ])
        .prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    let key = prop_oneof![
        prop::sample::select(vec![
            "sources",
            "destination",
            "options",
            "label",
            "priority",
            "not_before",
            "on_end",
            "at",
            "from",
            "to",
            "overwrite",
            "recursive",
            "root",
            "ticket",
            "streams",
            "routes",
            "ssh_options",
        ])
        .prop_map(str::to_owned),
        text,
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..8)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Replaces one field of a valid body.
fn bent(mut body: Value, with: Value, which: usize) -> Value {
    if let Some(fields) = body.as_object_mut() {
        let keys: Vec<String> = fields.keys().cloned().collect();
        if let Some(key) = keys.get(which % keys.len().max(1)) {
            fields.insert(key.clone(), with);
        }
    }
    body
}

#[tokio::test]
async fn hostile_requests_get_described_answers() {
    let bench = Bench::new().await;
    let asks = [
        (
            "POST",
            "/api/v1/jobs",
            json!({
                "sources": ["/a"],
                "destination": "dtn:",
                "options": {},
                "label": "x",
                "priority": 1
            }),
        ),
        ("PUT", "/api/v1/places/x", json!({"root": "dtn:"})),
        ("POST", "/api/v1/files/mkdir", json!({"at": "/a"})),
        (
            "POST",
            "/api/v1/files/rename",
            json!({"from": "/a", "to": "/b", "overwrite": true}),
        ),
        (
            "POST",
            "/api/v1/files/remove",
            json!({"at": "/a", "recursive": true}),
        ),
        ("POST", "/api/v1/session", json!({"ticket": "x"})),
    ];
    let mut runner = TestRunner::deterministic();
    for round in 0..400 {
        let (method, path, body) = &asks[round % asks.len()];
        let with = hostile().new_tree(&mut runner).unwrap().current();
        let body = match round % 3 {
            0 => with,
            _ => bent(body.clone(), with, round / 3),
        };
        let (status, problem) = bench.ask(method, path, Some(body.clone())).await;
        assert!(
            !status.is_server_error(),
            "{method} {path} {body}: {status}"
        );
        if status.is_client_error() {
            assert_eq!(
                problem["status"].as_u64(),
                Some(u64::from(status.as_u16())),
                "{method} {path} {body}"
            );
            let detail = problem["detail"].as_str().unwrap();
            assert!(
                !detail.chars().any(char::is_control),
                "{method} {path} {body}: {detail:?}"
            );
        }
    }
}
