//! Tests of the API for other machines: over TLS, with signed requests.

use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::Bytes;
use longhaul_agent::http::router_for_keys;
use longhaul_api::authorized_keys::AuthorizedKeys;
use longhaul_api::tls::Certificate;
use longhaul_api::{KeyGate, listen};
use longhaul_proto::SigningKey;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::bench::agent_in;
use crate::secured::{Secured, now};

struct Keyed {
    _dir: tempfile::TempDir,
    service: Secured,
    all: SigningKey,
    read: SigningKey,
    stop: watch::Sender<bool>,
}

impl Keyed {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let agent = agent_in(dir.path()).await;
        let [own, all, read] = [(); 3].map(|()| SigningKey::generate().unwrap());
        let text = format!("{} ana all\n{} ben read", all.public(), read.public());
        let keys = AuthorizedKeys::parse(&text, "keys".as_ref()).unwrap();
        let listener = listen::any_address("127.0.0.1:0".parse().unwrap())
            .await
            .unwrap();
        let address = listener.local_addr().unwrap();
        let gate = KeyGate::new(keys, [address.to_string()], now() - 100);
        let certificate = Certificate::from_key(&own, &["127.0.0.1".to_owned()]).unwrap();
        let (stop, stopped) = watch::channel(false);
        // The TLS configuration does not change.
        let (_, config) = watch::channel(certificate.config);
        let router = router_for_keys(agent, gate, stopped.clone());
        tokio::spawn(listen::serve_secured(listener, router, config, stopped));
        Self {
            _dir: dir,
            service: Secured {
                address,
                key: own.public(),
            },
            all,
            read,
            stop,
        }
    }

    /// Returns the status and the body.
    async fn answer(&self, request: Request<Bytes>) -> (u16, Value) {
        let response = self.service.send(request).await;
        let status = response.status();
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        if !status.is_success() {
            assert_eq!(
                response.headers()["content-type"],
                "application/problem+json"
            );
        }
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (
            status.as_u16(),
            serde_json::from_slice(&body).unwrap_or(Value::Null),
        )
    }
}

fn copy() -> String {
    json!({"sources": ["/data"], "destination": "dtn:/store/"}).to_string()
}

#[tokio::test]
async fn signed_requests_are_answered_by_name() {
    let keyed = Keyed::new().await;
    let (status, job) = keyed
        .answer(
            keyed
                .service
                .signed(&keyed.all, "POST", "/api/v1/jobs", &copy()),
        )
        .await;
    assert_eq!((status, job["user"].as_str()), (201, Some("ana")));
    let (status, page) = keyed
        .answer(
            keyed
                .service
                .signed(&keyed.read, "GET", "/api/v1/jobs?limit=1", ""),
        )
        .await;
    assert_eq!((status, page["items"][0]["id"].as_i64()), (200, Some(1)));
}

#[tokio::test]
async fn other_callers_are_refused_with_the_reason() {
    let keyed = Keyed::new().await;
    let assert_refused = async |request, status: u16, word: &str| {
        let (found, problem) = keyed.answer(request).await;
        assert_eq!(found, status, "{problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains(word),
            "{problem}"
        );
    };
    assert_refused(
        keyed.service.request("GET", "/api/v1/jobs", ""),
        401,
        "not signed",
    )
    .await;
    assert_refused(keyed.service.request("GET", "/", ""), 401, "not signed").await;
    assert_refused(
        keyed.service.request("POST", "/api/v1/session", "{}"),
        401,
        "not signed",
    )
    .await;
    let request = keyed.service.signed(&keyed.all, "GET", "/api/v1/jobs", "");
    assert_eq!(keyed.answer(request.clone()).await.0, 200);
    assert_refused(request, 401, "received before").await;
    let mut other = keyed
        .service
        .signed(&keyed.all, "POST", "/api/v1/jobs", &copy());
    *other.body_mut() = Bytes::from_static(b"{}");
    assert_refused(other, 401, "not the one that was signed").await;
    let stranger = SigningKey::generate().unwrap();
    assert_refused(
        keyed.service.signed(&stranger, "GET", "/api/v1/jobs", ""),
        401,
        "not authorized here",
    )
    .await;
    assert_refused(
        keyed
            .service
            .signed(&keyed.read, "POST", "/api/v1/jobs", &copy()),
        403,
        "may only read",
    )
    .await;
    // There is no page, and nothing that opens one.
    assert_refused(
        keyed.service.signed(&keyed.all, "GET", "/", ""),
        404,
        "/api/v1",
    )
    .await;
    assert_refused(
        keyed
            .service
            .signed(&keyed.all, "POST", "/api/v1/session", "{}"),
        404,
        "openapi",
    )
    .await;
    assert_refused(
        keyed
            .service
            .signed(&keyed.all, "POST", "/api/v1/tickets", ""),
        403,
        "socket only",
    )
    .await;
    let large = "x".repeat(2 << 20);
    assert_refused(
        keyed
            .service
            .signed(&keyed.all, "POST", "/api/v1/jobs", &large),
        413,
        "1048576",
    )
    .await;
}

#[tokio::test]
async fn events_are_streamed_until_the_listener_leaves() {
    let keyed = Keyed::new().await;
    let events = keyed
        .service
        .signed(&keyed.read, "GET", "/api/v1/events?after=0", "");
    let response = keyed.service.send(events).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    let mut said = String::new();
    keyed
        .answer(
            keyed
                .service
                .signed(&keyed.all, "POST", "/api/v1/jobs", &copy()),
        )
        .await;
    keyed
        .answer(
            keyed
                .service
                .signed(&keyed.all, "POST", "/api/v1/jobs/1/cancel", ""),
        )
        .await;
    while !said.contains("\"state\":\"cancelled\"") {
        let frame = body.frame().await.unwrap().unwrap();
        said.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    // The event stream ends with the service.
    keyed.stop.send_replace(true);
    while body.frame().await.is_some_and(|frame| frame.is_ok()) {}
}

/// Connections without TLS, and malformed requests, are closed.
#[tokio::test]
async fn connections_without_tls_or_http_are_closed() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let keyed = Keyed::new().await;
    let mut plain = TcpStream::connect(keyed.service.address).await.unwrap();
    plain
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    // An alert or nothing, and then the end.
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"));
    assert_eq!(
        keyed
            .answer(keyed.service.signed(&keyed.all, "GET", "/api/v1/agent", ""))
            .await
            .0,
        200
    );
}

/// Listing a directory on another host connects and logs in there.
#[tokio::test]
async fn read_only_key_cannot_make_the_agent_connect() {
    let keyed = Keyed::new().await;
    let list = async |key: &SigningKey, at: &str| {
        let path = format!("/api/v1/files?at={at}");
        keyed
            .answer(keyed.service.signed(key, "GET", &path, ""))
            .await
    };
    for at in ["lh://127.0.0.1:22/", "ana@dtn:/", "dtn:", "host:22", "./x"] {
        let (status, problem) = list(&keyed.read, at).await;
        assert_eq!(status, 403, "{at}: {problem}");
    }
    assert_eq!(list(&keyed.read, "/data/").await.0, 200);
    assert_eq!(list(&keyed.all, "lh://127.0.0.1:22/").await.0, 200);
}
