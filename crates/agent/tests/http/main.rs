//! Tests of the API over its sockets: answers, authentication, and agreement with its description.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod bench;
mod hostile;
mod keys;
#[allow(dead_code, reason = "shared with tests that use more of it")]
#[path = "../../../api/tests/support/secured.rs"]
mod secured;

use std::collections::BTreeSet;

use bench::Bench;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

fn copy() -> Value {
    json!({"sources": ["/data"], "destination": "dtn:/store/"})
}

#[tokio::test]
async fn jobs_can_be_submitted_read_and_changed() {
    let bench = Bench::new().await;
    let (status, job) = bench.ask("POST", "/api/v1/jobs", Some(copy())).await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(
        (
            job["id"].as_i64(),
            job["user"].as_str(),
            job["state"].as_str()
        ),
        (Some(1), Some("ana"), Some("queued"))
    );
    for (verb, state) in [
        ("pause", "paused"),
        ("resume", "queued"),
        ("cancel", "cancelled"),
        ("retry", "queued"),
    ] {
        let (status, job) = bench
            .ask("POST", &format!("/api/v1/jobs/1/{verb}"), None)
            .await;
        assert_eq!(
            (status, job["state"].as_str()),
            (StatusCode::OK, Some(state))
        );
    }
    let (status, problem) = bench.ask("POST", "/api/v1/jobs/1/resume", None).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(problem["detail"], "the job is queued");
    let (status, page) = bench
        .ask("GET", "/api/v1/jobs?state=queued&limit=1", None)
        .await;
    assert_eq!(
        (status, page["items"][0]["id"].as_i64(), &page["next"]),
        (StatusCode::OK, Some(1), &Value::Null)
    );
    let (_, info) = bench.ask("GET", "/api/v1/agent", None).await;
    assert_eq!(info["jobs"], json!({"queued": 1}));
    assert_eq!(
        bench.ask("GET", "/api/v1/jobs/1/report", None).await.0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        bench.ask("DELETE", "/api/v1/jobs/1", None).await.0,
        StatusCode::CONFLICT
    );
    bench.ask("POST", "/api/v1/jobs/1/cancel", None).await;
    assert_eq!(
        bench.ask("DELETE", "/api/v1/jobs/1", None).await.0,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        bench.ask("GET", "/api/v1/jobs/1", None).await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn idempotency_key_creates_one_job() {
    let bench = Bench::new().await;
    let send = async |body: Value, key: &'static str| {
        let request = bench
            .request("POST", "/api/v1/jobs")
            .header("content-type", "application/json");
        let request = request
            .header("idempotency-key", key)
            .body(Full::new(body.to_string().into()));
        bench.raw(request.unwrap()).await.0
    };
    assert_eq!(send(copy(), "a").await, StatusCode::CREATED);
    assert_eq!(send(copy(), "a").await, StatusCode::OK);
    let other = json!({"sources": ["/other"], "destination": "dtn:/store/"});
    assert_eq!(send(other, "a").await, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(send(copy(), "").await, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn errors_are_one_line_problems_of_their_kind() {
    let bench = Bench::new().await;
    let with = |change: fn(&mut Value)| {
        let mut body = copy();
        change(&mut body);
        body
    };
    let wrong = [
        json!(null),
        json!([]),
        json!({"sources": ["/a"]}),
        with(|body| body["sources"] = json!([])),
        with(|body| body["sources"] = json!(["relative"])),
        with(|body| body["sources"] = json!([7])),
        with(|body| body["unknown"] = json!(1)),
        with(|body| body["options"] = json!({"unknown": 1})),
        with(|body| body["options"] = json!({"streams": -1})),
        with(|body| body["priority"] = json!(i64::MIN)),
        with(|body| body["not_before"] = json!("soon\n<script>")),
        with(|body| body["on_end"] = json!([])),
        with(|body| body["destination"] = json!("dtn:/nonsense")),
        with(|body| body["label"] = json!("x".repeat(5000))),
    ];
    for body in wrong {
        let (status, problem) = bench.ask("POST", "/api/v1/jobs", Some(body.clone())).await;
        assert!(status.is_client_error(), "{body}");
        assert_eq!(problem["status"].as_u64(), Some(u64::from(status.as_u16())));
        assert!(
            problem["type"]
                .as_str()
                .unwrap()
                .starts_with("urn:longhaul:problem:")
        );
        assert!(!problem["detail"].as_str().unwrap().contains('\n'));
    }
    for (method, path, status) in [
        ("GET", "/api/v1/jobs/0", 404),
        ("GET", "/api/v1/jobs/x", 404),
        ("GET", "/api/v1/jobs/99999999999999999999", 404),
        ("GET", "/api/v1/jobs?limit=0", 400),
        ("GET", "/api/v1/jobs?state=lost", 400),
        ("GET", "/api/v1/jobs?x=1", 400),
        ("PUT", "/api/v1/jobs", 405),
        ("GET", "/other", 404),
        ("POST", "/api/v1/jobs/1/destroy", 404),
    ] {
        let (found, problem) = bench.ask(method, path, None).await;
        assert_eq!(
            (found.as_u16(), problem["status"].as_u64()),
            (status, Some(u64::from(status))),
            "{method} {path}"
        );
    }
    let large = json!({"sources": ["/a"], "destination": "x".repeat(2 << 20)});
    assert_eq!(
        bench.ask("POST", "/api/v1/jobs", Some(large)).await.0,
        StatusCode::PAYLOAD_TOO_LARGE
    );
}

#[tokio::test]
async fn unknown_callers_are_refused() {
    let bench = Bench::new().await;
    let host = bench.address.to_string();
    let ask = async |headers: &[(&str, &str)]| {
        let mut request = Request::builder().uri("/api/v1/jobs");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (status, headers, body) = bench.raw(request.body(Full::default()).unwrap()).await;
        if !status.is_success() {
            assert_eq!(headers["content-type"], "application/problem+json");
            assert!(!String::from_utf8_lossy(&body).contains(&bench.token));
        }
        status.as_u16()
    };
    let token = format!("Bearer {}", bench.token);
    assert_eq!(
        ask(&[("host", &host), ("authorization", &token)]).await,
        200
    );
    assert_eq!(ask(&[("host", &host)]).await, 401);
    assert_eq!(
        ask(&[("host", &host), ("authorization", "Bearer stale")]).await,
        401
    );
    // A page whose name resolves to this machine.
    assert_eq!(
        ask(&[("host", "evil.example"), ("authorization", &token)]).await,
        403
    );
    // A page of another site.
    assert_eq!(
        ask(&[
            ("host", &host),
            ("authorization", &token),
            ("origin", "http://evil.example")
        ])
        .await,
        403
    );
    let own = format!("http://{host}");
    assert_eq!(
        ask(&[("host", &host), ("authorization", &token), ("origin", &own)]).await,
        200
    );
}

#[tokio::test]
async fn places_can_be_named_tested_and_listed() {
    let bench = Bench::new().await;
    let put = async |name: &str, root: &str| {
        bench
            .ask(
                "PUT",
                &format!("/api/v1/places/{name}"),
                Some(json!({ "root": root })),
            )
            .await
            .0
            .as_u16()
    };
    assert_eq!(put("store", "ana@dtn:").await, 200);
    assert_eq!(put("gone", "gone:").await, 200);
    assert_eq!(put("home", "dtn:").await, 409);
    assert_eq!(put("store", "relative").await, 400);
    assert_eq!(put("a%2fb", "/a/").await, 400);
    let (_, list) = bench.ask("GET", "/api/v1/places", None).await;
    let names: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|place| place["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["home", "gone", "store"]);
    let test = async |name: &str| {
        bench
            .ask("POST", &format!("/api/v1/places/{name}/test"), None)
            .await
    };
    assert_eq!(test("home").await.1["ok"], true);
    let (status, gone) = test("gone").await;
    assert_eq!((status.as_u16(), &gone["ok"]), (200, &json!(false)));
    assert_eq!(test("missing").await.0, StatusCode::NOT_FOUND);
    assert_eq!(
        bench.ask("DELETE", "/api/v1/places/gone", None).await.0,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        bench.ask("DELETE", "/api/v1/places/gone", None).await.0,
        StatusCode::NOT_FOUND
    );
    let (_, page) = bench.ask("GET", "/api/v1/files?at=ana@dtn:", None).await;
    assert_eq!(page["entries"][0]["name"], "<b>\u{202e}");
    let (status, problem) = bench.ask("GET", "/api/v1/files?at=gone:", None).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert!(!problem["detail"].as_str().unwrap().contains('\n'));
    assert_eq!(
        bench.ask("GET", "/api/v1/files", None).await.0,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        bench
            .ask("GET", "/api/v1/files?at=/&limit=20001", None)
            .await
            .0,
        StatusCode::BAD_REQUEST
    );
    let change = async |what: &str, body: Value| {
        bench
            .ask("POST", &format!("/api/v1/files/{what}"), Some(body))
            .await
            .0
    };
    assert_eq!(
        change("mkdir", json!({"at": "/a"})).await,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        change("rename", json!({"from": "/a", "to": "/b"})).await,
        StatusCode::FORBIDDEN
    );
    assert_eq!(
        change("remove", json!({"at": "/a", "recursive": 1})).await,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn ticket_admits_a_page() {
    let bench = Bench::new().await;
    let host = bench.address.to_string();
    let send = async |method: &str, path: &str, headers: &[(&str, &str)], body: Value| {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &host);
        request = request.header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        bench
            .raw(request.body(Full::new(body.to_string().into())).unwrap())
            .await
    };
    // Tickets are issued only over the Unix socket.
    assert_eq!(
        bench.ask("POST", "/api/v1/tickets", None).await.0,
        StatusCode::FORBIDDEN
    );
    assert_eq!(
        send("POST", "/api/v1/tickets", &[], json!({})).await.0,
        StatusCode::UNAUTHORIZED
    );
    let ticket = bench.sessions.ticket(std::time::Instant::now()).unwrap();
    let body = json!({"ticket": ticket.text()});
    let elsewhere = [("origin", "http://evil.example")];
    assert_eq!(
        send("POST", "/api/v1/session", &elsewhere, body.clone())
            .await
            .0,
        StatusCode::FORBIDDEN
    );
    let (status, headers, _) = send("POST", "/api/v1/session", &[], body.clone()).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(
        send("POST", "/api/v1/session", &[], body).await.0,
        StatusCode::UNAUTHORIZED
    );
    let cookie = headers["set-cookie"]
        .to_str()
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let (status, headers, _) =
        send("GET", "/api/v1/jobs", &[("cookie", &cookie)], json!(null)).await;
    assert_eq!(status, StatusCode::OK);
    assert!(
        headers["content-security-policy"]
            .to_str()
            .unwrap()
            .starts_with("default-src 'none';")
    );
    assert_eq!(
        (
            headers["x-content-type-options"].to_str().unwrap(),
            headers["cache-control"].to_str().unwrap()
        ),
        ("nosniff", "no-store")
    );
    // The page itself is served to anybody on this machine who uses one of its names.
    let (status, headers, body) =
        send("GET", "/", &[("sec-fetch-site", "cross-site")], json!(null)).await;
    assert_eq!(
        (status, headers["content-type"].to_str().unwrap()),
        (StatusCode::OK, "text/html; charset=utf-8")
    );
    assert_eq!(&body[..], b"<!doctype html>");
    assert_eq!(
        send("GET", "/etc/passwd", &[], json!(null)).await.0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        send("GET", "/../index.html", &[], json!(null)).await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn api_matches_its_description() {
    let bench = Bench::new().await;
    let (status, document) = bench.ask("GET", "/api/v1/openapi.json", None).await;
    assert_eq!(status, StatusCode::OK);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            described.insert((method.to_uppercase(), path.clone()));
            // Every described operation exists: the answer is not that of an unknown path.
            if !path.ends_with("/events") {
                let (status, problem) = bench
                    .ask(
                        &method.to_uppercase(),
                        &path.replace("{id}", "7").replace("{name}", "x"),
                        None,
                    )
                    .await;
                assert_ne!(status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
                assert!(
                    !problem["detail"]
                        .as_str()
                        .unwrap_or_default()
                        .contains("openapi.json"),
                    "{method} {path}"
                );
            }
        }
    }
    assert_eq!(described.len(), 22, "{described:?}");
    // The copy that the web page is built with is up to date.
    let kept: Value = serde_json::from_str(include_str!("../../../../web/openapi.json")).unwrap();
    assert_eq!(
        kept, document,
        "cargo run -p longhaul-agent --example openapi > web/openapi.json"
    );
    // Every reference has a target.
    let text = document.to_string();
    for part in text.split("\"#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(
            document["components"]["schemas"][name].is_object(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn every_change_is_sent_as_it_happens() {
    let bench = Bench::new().await;
    bench.ask("POST", "/api/v1/jobs", Some(copy())).await;
    let stream = TcpStream::connect(bench.address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = bench
        .request("GET", "/api/v1/events?after=0")
        .body(Full::<Bytes>::default())
        .unwrap();
    let mut body = sender.send_request(request).await.unwrap().into_body();
    let mut said = String::new();
    let mut until = async |wanted: &str| {
        while !said.contains(wanted) {
            let frame = body.frame().await.unwrap().unwrap();
            said.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    };
    until("\"state\":\"queued\"").await;
    bench.ask("POST", "/api/v1/jobs/1/cancel", None).await;
    until("\"state\":\"cancelled\"").await;
}
