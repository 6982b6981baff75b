//! What the tests stand on: depots, initiators that speak the protocol by hand, and acceptors that
//! do.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use longhaul_depot::{Depot, DepotConfig, GrantsInUse, Listen, Policy};
use longhaul_proto::{
    Endpoint, Open, OpenDecoder, PublicKey, Route, Service, SessionId, SigningKey, Status,
    StatusCode, StatusDecoder,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A depot that runs in a task of the test's runtime.
pub struct Running {
    pub address: SocketAddr,
    pub metrics: Option<SocketAddr>,
    pub key: PublicKey,
    pub grants: GrantsInUse,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    /// Tells the depot to stop.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Drops the depot where it stands.
    pub fn abandon(&self) {
        self.task.abort();
    }

    /// Waits until the depot has drained.
    pub async fn stopped(self) {
        self.task.await.expect("the depot must not panic");
    }
}

pub fn new_key() -> SigningKey {
    SigningKey::generate().expect("key")
}

/// A policy that lets `key` go to loopback addresses, directly and through other depots on
/// loopback.
pub fn loopback_policy(key: PublicKey, more: &str) -> Policy {
    let text = format!(
        "[[allow]]\nprincipals = [\"{key}\"]\nto = [\"127.0.0.0/8\"]\nports = [\"any\"]\nnext_hops = [\"direct\", \"127.0.0.0/8:*\"]\n{more}\n"
    );
    Policy::parse(&text, Path::new("test.toml")).expect(&text)
}

/// Starts a depot with `policy`, changed by `tweak`.
pub fn depot_with(policy: Policy, tweak: impl FnOnce(&mut DepotConfig)) -> Running {
    let key = new_key();
    let public = key.public();
    let mut config = DepotConfig::new(key, policy);
    config.listen = vec![Listen::at("127.0.0.1:0".parse().expect("address"))];
    // On the test's own runtime, whose clock the test may stop.
    config.workers = 0;
    tweak(&mut config);
    let depot = Depot::bind(config).expect("bind");
    let (address, metrics) = (depot.local_addresses()[0], depot.metrics_address());
    let grants = depot.grants();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(depot.run(async {
        let _ = stopped.await;
    }));
    Running {
        address,
        metrics,
        key: public,
        grants,
        stop: Some(stop),
        task,
    }
}

/// Starts a depot that lets `key` go anywhere on loopback.
pub fn depot(key: &SigningKey) -> Running {
    depot_with(loopback_policy(key.public(), ""), |_| {})
}

pub fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("clock")
        .as_millis() as u64
}

pub fn session_id() -> SessionId {
    SessionId::from_bytes(rand::random())
}

/// A signed OPEN through `depots` to `destination`, as it leaves the initiator.
pub fn open_via(key: &SigningKey, depots: &[SocketAddr], destination: impl Into<Endpoint>) -> Open {
    let hops: Vec<String> = depots.iter().map(ToString::to_string).collect();
    let route: Route = hops.join(",").parse().expect("route");
    let mut open = Open::new(
        session_id(),
        Service::COPY,
        route,
        destination.into(),
        Duration::from_secs(10),
    );
    open.sign(key, now_ms()).expect("sign");
    open.departing()
}

pub fn encoded(open: &Open) -> BytesMut {
    let mut bytes = BytesMut::new();
    open.encode(&mut bytes).expect("encode");
    bytes
}

/// Connects to a depot and sends an OPEN, with `early` behind it in the same write.
pub async fn initiate(to: SocketAddr, open: &Open, early: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.expect("connect");
    let mut bytes = encoded(open);
    bytes.extend_from_slice(early);
    stream.write_all(&bytes).await.expect("write OPEN");
    stream
}

/// Reads one status, byte for byte so that nothing after it is taken.
pub async fn read_status(stream: &mut TcpStream) -> Status {
    let mut decoder = StatusDecoder::new();
    loop {
        let byte = stream.read_u8().await.expect("a status before the end");
        if let Some((status, _)) = decoder.feed(&[byte]).expect("status") {
            return status;
        }
    }
}

/// Reads one OPEN, byte for byte so that the early data stays in the stream.
pub async fn read_open(stream: &mut TcpStream) -> Open {
    let mut decoder = OpenDecoder::new();
    loop {
        let byte = stream.read_u8().await.expect("an OPEN before the end");
        if let Some((open, _)) = decoder.feed(&[byte]).expect("OPEN") {
            return open;
        }
    }
}

/// An acceptor that accepts nobody until it is asked to.
pub async fn acceptor() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    (listener, address)
}

/// Takes the next session: reads its OPEN and answers Ok.
pub async fn take(listener: &TcpListener) -> (TcpStream, Open) {
    let (mut stream, _) = listener.accept().await.expect("accept");
    let open = read_open(&mut stream).await;
    let mut answer = BytesMut::new();
    Status::of_acceptor(StatusCode::Ok, open.position()).encode(&mut answer);
    stream.write_all(&answer).await.expect("answer");
    (stream, open)
}

/// An established session through `depots`: the initiator's stream, its statuses read, and the
/// acceptor's.
pub async fn established(key: &SigningKey, depots: &[SocketAddr]) -> (TcpStream, TcpStream) {
    let (listener, address) = acceptor().await;
    let open = open_via(key, depots, address);
    let mut initiator = initiate(depots[0], &open, b"").await;
    let (accepted, _) = take(&listener).await;
    for _ in 0..=depots.len() {
        assert_eq!(read_status(&mut initiator).await.code, StatusCode::Ok);
    }
    (initiator, accepted)
}

/// Makes a hang a failure. Real time: for tests that wait for sockets only.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), what)
        .await
        .expect("this must not take for ever")
}

/// The stream must end in a reset, whatever comes before.
pub async fn assert_reset(stream: &mut TcpStream) {
    let mut sink = Vec::new();
    let error = stream
        .read_to_end(&mut sink)
        .await
        .expect_err("a reset, not a clean end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// The stream must end cleanly, at once.
pub async fn assert_end(stream: &mut TcpStream) {
    let mut sink = Vec::new();
    stream.read_to_end(&mut sink).await.expect("a clean end");
    assert_eq!(sink, b"", "nothing may come before the end");
}

/// Closes with a reset.
pub fn reset(stream: TcpStream) {
    let stream = socket2::SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .map(|()| stream);
    drop(stream.expect("linger"));
}

/// Nobody may have connected to `listener`. Its queue is looked at once: the caller has an answer
/// that shows that the depot is done with what could have dialled.
pub async fn assert_never_dialled(listener: &TcpListener) {
    let accepted = std::future::poll_fn(|cx| {
        std::task::Poll::Ready(matches!(
            listener.poll_accept(cx),
            std::task::Poll::Ready(_)
        ))
    });
    // The reactor must have had its turn, or an event in the queue could go unseen.
    tokio::task::yield_now().await;
    assert!(!accepted.await, "the destination must see no connection");
}

/// Keeps tokio's paused clock from jumping to the next timer while the kernel still carries bytes:
/// as long as this lives, time passes only by `tokio::time::advance`.
pub struct Still(#[allow(dead_code, reason = "held, not used")] std::sync::mpsc::Sender<()>);

pub fn stand_still() -> Still {
    let (held, released) = std::sync::mpsc::channel::<()>();
    // The clock does not jump while a blocking task runs.
    tokio::task::spawn_blocking(move || released.recv());
    Still(held)
}

/// Waits until a metric has a value.
pub async fn until(page: SocketAddr, name: &str, value: f64) {
    while metric(page, name).await != Some(value) {
        tokio::task::yield_now().await;
    }
}

/// Serve the metrics page, somewhere.
pub fn with_page(config: &mut DepotConfig) {
    config.metrics = Some("127.0.0.1:0".parse().expect("address"));
}

/// The value of a metric on the depot's page.
pub async fn metric(page: SocketAddr, name: &str) -> Option<f64> {
    let mut stream = TcpStream::connect(page).await.expect("connect to the page");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        .await
        .expect("ask");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("read");
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}
