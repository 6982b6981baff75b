//! Client of a service as other machines see it: over TLS, with signed requests. Shared by the
//! tests of the services.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::http::request::Parts;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use longhaul_api::signatures::message::Scheme;
use longhaul_api::signatures::sign::random_nonce;
use longhaul_api::signatures::{Purpose, sign};
use longhaul_api::tls::{self, Known};
use longhaul_proto::{PublicKey, SigningKey};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Seconds since the Unix epoch.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

/// Address of a service, and the key that identifies it.
pub struct Secured {
    pub address: SocketAddr,
    pub key: PublicKey,
}

impl Secured {
    /// Creates an unsigned request.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Request<Bytes> {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.address.to_string())
            .header("content-type", "application/json")
            .body(Bytes::from(body.to_owned()))
            .unwrap()
    }

    /// Creates a request signed by `key`.
    pub fn signed(&self, key: &SigningKey, method: &str, path: &str, body: &str) -> Request<Bytes> {
        signed_at(key, self.request(method, path, body), now(), |_| {})
    }

    /// Sends a request over a connection of its own and returns the answer.
    pub async fn send(&self, request: Request<Bytes>) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let expected = self.key;
        let config = tls::client(Known::ByKey(Arc::new(move |found| *found == expected))).unwrap();
        let stream = tls::connect(&config, "127.0.0.1", stream).await.unwrap();
        answer(stream, request).await
    }
}

/// Creates a request that is signed at a given second.
pub fn signed_at(
    key: &SigningKey,
    request: Request<Bytes>,
    at: u64,
    change: impl FnOnce(&mut Parts),
) -> Request<Bytes> {
    let (mut parts, body) = request.into_parts();
    let nonce = random_nonce().unwrap();
    sign(
        &mut parts,
        Scheme::Https,
        &body,
        key,
        Purpose::Api,
        at,
        &nonce,
    )
    .unwrap();
    change(&mut parts);
    Request::from_parts(parts, body)
}

/// Sends a request over a connection and returns the answer.
pub async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Bytes>,
) -> Response<Incoming> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender.send_request(request.map(Full::new)).await.unwrap()
}
