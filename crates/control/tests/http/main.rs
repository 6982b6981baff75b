//! Tests of the API as other machines and the operator use it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod archives;
mod bench;
mod delegations;
mod documents;
mod map;
mod refused;
mod reservations;
#[path = "../../../api/tests/support/secured.rs"]
mod secured;
mod topology;
mod weather;

use bench::{Bench, now_ms};
use serde_json::{Value, json};

#[tokio::test]
async fn health_and_readiness_are_public() {
    let bench = Bench::new().await;
    let plain = |path| bench.send(bench.service.request("GET", path, ""));
    assert_eq!(plain("/healthz").await, (200, json!({"status": "ok"})));
    // Nothing has to be rebuilt, so it is ready soon.
    while plain("/readyz").await.0 != 200 {}
    bench.controller.store().close().await;
    let (status, health) = plain("/readyz").await;
    assert_eq!(
        (status, health["status"].as_str()),
        (503, Some("the store does not answer"))
    );
    assert_eq!(plain("/healthz").await.0, 200);
}

#[tokio::test]
async fn description_includes_request_signatures() {
    let bench = Bench::new().await;
    let (_, described) = bench.local("GET", "/api/v1/openapi.json", "").await;
    assert!(described["openapi"].as_str().unwrap().starts_with("3.1"));
    assert_eq!(
        longhaul_control::http::description()
            .trim()
            .parse::<Value>()
            .unwrap(),
        described
    );
    let schemes = &described["components"]["securitySchemes"];
    assert_eq!(schemes["signature"]["name"], "Signature");
    for (path, item) in described["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let security = &operation["security"];
            let is_open = path == "/healthz" || path == "/readyz";
            assert_eq!(
                security.as_array().map_or(0, Vec::len),
                usize::from(!is_open),
                "{method} {path}"
            );
            if !is_open {
                assert!(
                    security[0].get("signature").is_some()
                        && security[0].get("signature-input").is_some()
                );
            }
        }
    }
    // Every described operation exists: no path answers with 404 or 405.
    for (path, item) in described["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let (status, problem) = bench.local(&method.to_uppercase(), path, "").await;
            let unknown = problem["detail"]
                .as_str()
                .unwrap_or_default()
                .contains("openapi.json");
            assert!(
                !unknown && status != 405,
                "{method} {path}: {status} {problem}"
            );
        }
    }
}

#[tokio::test]
async fn role_admits_a_key_until_it_is_revoked() {
    let bench = Bench::new().await;
    let reader = bench.principal("reader", "grafana").await;
    assert_eq!(bench.ask(&reader, "GET", "/api/v1/map", "").await.0, 200);
    let (_, list) = bench.local("GET", "/api/v1/principals", "").await;
    assert_eq!(list["items"][0]["name"], "grafana");
    assert_eq!(list["items"][0]["roles"], json!(["reader"]));
    let path = format!("/api/v1/principals/{}", reader.public());
    assert_eq!(bench.local("DELETE", &path, "").await.0, 204);
    assert_eq!(bench.ask(&reader, "GET", "/api/v1/map", "").await.0, 401);
    assert_eq!(bench.local("DELETE", &path, "").await.0, 404);
}

#[tokio::test]
async fn remote_operator_has_all_rights() {
    let bench = Bench::new().await;
    let operator = bench.principal("operator", "ana").await;
    let role = json!({"rights": [{"resource": "map", "permission": "read", "constraint": "any"}]})
        .to_string();
    assert_eq!(
        bench
            .ask(&operator, "PUT", "/api/v1/roles/viewer", &role)
            .await
            .0,
        201
    );
    assert_eq!(
        bench
            .ask(&operator, "PUT", "/api/v1/roles/viewer", &role)
            .await
            .0,
        204
    );
    assert_eq!(
        bench
            .ask(&operator, "PUT", "/api/v1/roles/client", &role)
            .await
            .0,
        409
    );
    let viewer = bench.principal("viewer", "ben").await;
    assert_eq!(bench.ask(&viewer, "GET", "/api/v1/map", "").await.0, 200);
    assert_eq!(
        bench.ask(&viewer, "GET", "/api/v1/forecasts", "").await.0,
        403
    );
    assert_eq!(
        bench
            .ask(&operator, "DELETE", "/api/v1/roles/viewer", "")
            .await
            .0,
        204
    );
    assert_eq!(bench.ask(&viewer, "GET", "/api/v1/map", "").await.0, 401);
}

/// Acknowledged measurements are stored when the service ends, and then nothing is accepted any
/// more.
#[tokio::test]
async fn pending_writes_finish_at_shutdown() {
    let bench = Bench::new().await;
    let batch = json!({
        "measurements": [{
            "from": "a",
            "to": "b",
            "quantity": "rtt",
            "at_ms": now_ms(),
            "value": 0.1,
            "source": "probe"
        }]
    });
    let (status, answer) = bench
        .local("POST", "/api/v1/measurements", &batch.to_string())
        .await;
    assert_eq!((status, answer["kept"].as_u64()), (200, Some(1)));
    let again = bench.again().await;
    assert_eq!(
        again.controller.store().count_measurements().await.unwrap(),
        1
    );
    // It is also forecast again.
    assert_eq!(again.forecasts(1).await[0]["from"], "a");
}

#[tokio::test]
async fn metrics_have_counters_and_no_names() {
    let bench = Bench::new().await;
    let batch = json!({
        "measurements": [{
            "from": "a\"",
            "to": "b",
            "quantity": "loss",
            "at_ms": now_ms(),
            "value": 0.25,
            "source": "probe"
        }]
    });
    assert_eq!(
        bench
            .local("POST", "/api/v1/measurements", &batch.to_string())
            .await
            .0,
        200
    );
    bench.forecasts(1).await;
    let reader = bench.principal("reader", "prometheus").await;
    let (status, page) = bench.ask(&reader, "GET", "/metrics", "").await;
    let page = page.as_str().unwrap();
    assert_eq!(status, 200);
    for line in [
        "longhaul_control_measurements_kept_total 1",
        "longhaul_control_series 1",
        "longhaul_control_leads 1",
        "longhaul_control_leads_begun_total 1",
        r#"longhaul_control_path_loss_ratio{quantile="0.5"} 0.25"#,
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
    assert!(page.ends_with("# EOF\n") && page.matches("# EOF").count() == 1);
    // No label contains a reporter, as not everybody who may scrape may see keys and names.
    assert!(
        !page.contains("operator") && !page.contains("a\\\""),
        "{page}"
    );
    let depot = bench.principal("depot", "d").await;
    assert_eq!(bench.ask(&depot, "GET", "/metrics", "").await.0, 403);
}
