//! The API for other machines: by TLS, for keys.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use longhaul_agent::http::router_for_keys;
use longhaul_api::authorized_keys::AuthorizedKeys;
use longhaul_api::signatures::message::Scheme;
use longhaul_api::signatures::sign::random_nonce;
use longhaul_api::signatures::{Purpose, sign};
use longhaul_api::tls::{self, Certificate, Known};
use longhaul_api::{KeyGate, listen};
use longhaul_proto::{PublicKey, SigningKey};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::bench::agent_in;

struct Keyed {
    _dir: tempfile::TempDir,
    address: SocketAddr,
    /// The service's.
    key: PublicKey,
    all: SigningKey,
    read: SigningKey,
    stop: watch::Sender<bool>,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl Keyed {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let agent = agent_in(dir.path()).await;
        let [own, all, read] = [(); 3].map(|()| SigningKey::generate().unwrap());
        let text = format!("{} ana all\n{} ben read", all.public(), read.public());
        let keys = AuthorizedKeys::parse(&text, "keys".as_ref()).unwrap();
        let listener = listen::anywhere("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let gate = KeyGate::new(keys, [address.to_string()], now() - 100);
        let certificate = Certificate::own(&own, &["127.0.0.1".to_owned()]).unwrap();
        let (stop, stopped) = watch::channel(false);
        // What it makes connections with stays as it is.
        let (_, config) = watch::channel(certificate.config);
        let router = router_for_keys(agent, gate, stopped.clone());
        tokio::spawn(listen::serve_secured(listener, router, config, stopped));
        Self {
            _dir: dir,
            address,
            key: own.public(),
            all,
            read,
            stop,
        }
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Request<Bytes> {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.address.to_string())
            .header("content-type", "application/json")
            .body(Bytes::from(body.to_owned()))
            .unwrap()
    }

    fn signed(&self, key: &SigningKey, method: &str, path: &str, body: &str) -> Request<Bytes> {
        let (mut parts, body) = self.request(method, path, body).into_parts();
        let nonce = random_nonce().unwrap();
        sign(&mut parts, Scheme::Https, &body, key, Purpose::Api, now(), &nonce).unwrap();
        Request::from_parts(parts, body)
    }

    async fn send(&self, request: Request<Bytes>) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let expected = self.key;
        let config = tls::client(Known::ByKey(Arc::new(move |found| *found == expected))).unwrap();
        let stream = tls::connect(&config, "127.0.0.1", stream).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request.map(Full::new)).await.unwrap()
    }

    /// The status, and what is said.
    async fn answer(&self, request: Request<Bytes>) -> (u16, Value) {
        let response = self.send(request).await;
        let status = response.status();
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        if !status.is_success() {
            assert_eq!(response.headers()["content-type"], "application/problem+json");
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
async fn who_has_signed_is_answered_by_name() {
    let keyed = Keyed::new().await;
    let (status, job) = keyed
        .answer(keyed.signed(&keyed.all, "POST", "/api/v1/jobs", &copy()))
        .await;
    assert_eq!((status, job["user"].as_str()), (201, Some("ana")));
    let (status, page) = keyed
        .answer(keyed.signed(&keyed.read, "GET", "/api/v1/jobs?limit=1", ""))
        .await;
    assert_eq!((status, page["items"][0]["id"].as_i64()), (200, Some(1)));
}

#[tokio::test]
async fn everybody_else_is_told_why_not() {
    let keyed = Keyed::new().await;
    let told = async |request, status: u16, word: &str| {
        let (found, problem) = keyed.answer(request).await;
        assert_eq!(found, status, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(word), "{problem}");
    };
    told(keyed.request("GET", "/api/v1/jobs", ""), 401, "not signed").await;
    told(keyed.request("GET", "/", ""), 401, "not signed").await;
    told(keyed.request("POST", "/api/v1/session", "{}"), 401, "not signed").await;
    let request = keyed.signed(&keyed.all, "GET", "/api/v1/jobs", "");
    assert_eq!(keyed.answer(request.clone()).await.0, 200);
    told(request, 401, "here before").await;
    let mut other = keyed.signed(&keyed.all, "POST", "/api/v1/jobs", &copy());
    *other.body_mut() = Bytes::from_static(b"{}");
    told(other, 401, "not the one that was signed").await;
    let stranger = SigningKey::generate().unwrap();
    told(
        keyed.signed(&stranger, "GET", "/api/v1/jobs", ""),
        401,
        "not let in",
    )
    .await;
    told(
        keyed.signed(&keyed.read, "POST", "/api/v1/jobs", &copy()),
        403,
        "may read",
    )
    .await;
    // There is no page, and nothing that opens one.
    told(keyed.signed(&keyed.all, "GET", "/", ""), 404, "/api/v1").await;
    told(
        keyed.signed(&keyed.all, "POST", "/api/v1/session", "{}"),
        404,
        "openapi",
    )
    .await;
    told(
        keyed.signed(&keyed.all, "POST", "/api/v1/tickets", ""),
        403,
        "socket only",
    )
    .await;
    let large = "x".repeat(2 << 20);
    told(
        keyed.signed(&keyed.all, "POST", "/api/v1/jobs", &large),
        413,
        "1048576",
    )
    .await;
}

#[tokio::test]
async fn what_changes_is_sent_for_as_long_as_somebody_listens() {
    let keyed = Keyed::new().await;
    let events = keyed.signed(&keyed.read, "GET", "/api/v1/events?after=0", "");
    let response = keyed.send(events).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    let mut said = String::new();
    keyed
        .answer(keyed.signed(&keyed.all, "POST", "/api/v1/jobs", &copy()))
        .await;
    keyed
        .answer(keyed.signed(&keyed.all, "POST", "/api/v1/jobs/1/cancel", ""))
        .await;
    while !said.contains("\"state\":\"cancelled\"") {
        let frame = body.frame().await.unwrap().unwrap();
        said.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    // When the service ends, so does this.
    keyed.stop.send_replace(true);
    while body.frame().await.is_some_and(|frame| frame.is_ok()) {}
}

/// What is no TLS, and what is no request, is let go.
#[tokio::test]
async fn what_is_none_of_it_is_let_go() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let keyed = Keyed::new().await;
    let mut plain = TcpStream::connect(keyed.address).await.unwrap();
    plain
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    // An alert, or nothing, and the end.
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"));
    assert_eq!(
        keyed
            .answer(keyed.signed(&keyed.all, "GET", "/api/v1/agent", ""))
            .await
            .0,
        200
    );
}
