//! Test bed: depots, and initiators and acceptors that speak the protocol by hand.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use longhaul_depot::{Depot, DepotConfig, GrantsInUse, ListenerConfig, Policy};
use longhaul_proto::{
    Endpoint, Open, OpenDecoder, PublicKey, Route, ServiceName, SessionId, SigningKey, Status,
    StatusCode, StatusDecoder,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A depot that runs in a task of the test's runtime.
pub struct RunningDepot {
    pub address: SocketAddr,
    pub metrics: Option<SocketAddr>,
    pub key: PublicKey,
    pub grants: GrantsInUse,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl RunningDepot {
    /// Tells the depot to stop.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Drops the depot without draining it.
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

/// Returns a policy that lets `key` connect to loopback addresses, directly and through other
/// depots on loopback.
pub fn loopback_policy(key: PublicKey, more: &str) -> Policy {
    let text = format!(
        "[[allow]]\nprincipals = [\"{key}\"]\nto = [\"127.0.0.0/8\"]\nports = [\"any\"]\n\
         next_hops = [\"direct\", \"127.0.0.0/8:*\"]\n{more}\n"
    );
    Policy::parse(&text, Path::new("test.toml")).expect(&text)
}

/// Starts a depot with `policy`, changed by `tweak`.
pub fn depot_with(policy: Policy, tweak: impl FnOnce(&mut DepotConfig)) -> RunningDepot {
    let key = new_key();
    let public = key.public();
    let mut config = DepotConfig::new(key, policy);
    config.listen = vec![ListenerConfig::new("127.0.0.1:0".parse().expect("address"))];
    // Run on the test's own runtime, whose clock the test may pause.
    config.workers = 0;
    tweak(&mut config);
    let depot = Depot::bind(config).expect("bind");
    let (address, metrics) = (depot.local_addresses()[0], depot.metrics_address());
    let grants = depot.grants();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(depot.run(async {
        let _ = stopped.await;
    }));
    RunningDepot {
        address,
        metrics,
        key: public,
        grants,
        stop: Some(stop),
        task,
    }
}

/// Starts a depot that lets `key` connect anywhere on loopback.
pub fn depot(key: &SigningKey) -> RunningDepot {
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

/// Returns a signed OPEN through `depots` to `destination`, as the initiator sends it.
pub fn open_via(key: &SigningKey, depots: &[SocketAddr], destination: impl Into<Endpoint>) -> Open {
    let hops: Vec<String> = depots.iter().map(ToString::to_string).collect();
    let route: Route = hops.join(",").parse().expect("route");
    let mut open = Open::new(
        session_id(),
        ServiceName::COPY,
        route,
        destination.into(),
        Duration::from_secs(60),
    );
    open.sign(key, now_ms()).expect("sign");
    open.for_first_hop()
}

pub fn encoded(open: &Open) -> BytesMut {
    let mut bytes = BytesMut::new();
    open.encode(&mut bytes).expect("encode");
    bytes
}

/// Connects to a depot and sends an OPEN, followed by `early` in the same write.
pub async fn initiate(to: SocketAddr, open: &Open, early: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.expect("connect");
    let mut bytes = encoded(open);
    bytes.extend_from_slice(early);
    stream.write_all(&bytes).await.expect("write OPEN");
    stream
}

/// Reads one status, byte by byte so that nothing after it is consumed.
pub async fn read_status(stream: &mut TcpStream) -> Status {
    let mut decoder = StatusDecoder::new();
    loop {
        let byte = stream.read_u8().await.expect("a status before the end");
        if let Some((status, _)) = decoder.feed(&[byte]).expect("status") {
            return status;
        }
    }
}

/// Reads one OPEN, byte by byte so that the early data stays in the stream.
pub async fn read_open(stream: &mut TcpStream) -> Open {
    let mut decoder = OpenDecoder::new();
    loop {
        let byte = stream.read_u8().await.expect("an OPEN before the end");
        if let Some((open, _)) = decoder.feed(&[byte]).expect("OPEN") {
            return open;
        }
    }
}

/// Starts an acceptor that accepts connections only on request.
pub async fn acceptor() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    (listener, address)
}

/// Returns an address that refuses connections, and its socket, which keeps the port from others.
pub fn refusing_address() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("socket");
    socket
        .bind("127.0.0.1:0".parse().expect("address"))
        .expect("bind");
    let address = socket.local_addr().expect("address");
    (socket, address)
}

/// Accepts the next session: reads its OPEN and answers Ok.
pub async fn accept_session(listener: &TcpListener) -> (TcpStream, Open) {
    let (mut stream, _) = listener.accept().await.expect("accept");
    let open = read_open(&mut stream).await;
    let mut answer = BytesMut::new();
    Status::from_acceptor(StatusCode::Ok, open.position()).encode(&mut answer);
    stream.write_all(&answer).await.expect("answer");
    (stream, open)
}

/// Establishes a session through `depots`. Returns the initiator's stream, after its statuses, and
/// the acceptor's.
pub async fn established(key: &SigningKey, depots: &[SocketAddr]) -> (TcpStream, TcpStream) {
    let (listener, address) = acceptor().await;
    let open = open_via(key, depots, address);
    let mut initiator = initiate(depots[0], &open, b"").await;
    let (accepted, _) = accept_session(&listener).await;
    for _ in 0..=depots.len() {
        assert_eq!(read_status(&mut initiator).await.code, StatusCode::Ok);
    }
    (initiator, accepted)
}

/// Turns a hang into a failure. It uses real time: only for tests that wait for sockets.
pub async fn with_timeout<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), what)
        .await
        .expect("this must not take for ever")
}

/// Asserts that the stream ends in a reset, whatever comes before.
pub async fn assert_reset(stream: &mut TcpStream) {
    let mut sink = Vec::new();
    let error = stream
        .read_to_end(&mut sink)
        .await
        .expect_err("a reset, not a clean end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// Asserts that the stream ends cleanly, at once.
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

/// Asserts that nobody has connected to `listener`. Its queue is checked once. The caller has an
/// answer that proves that the depot will no longer dial.
pub async fn assert_never_dialled(listener: &TcpListener) {
    let accepted = std::future::poll_fn(|cx| {
        std::task::Poll::Ready(matches!(
            listener.poll_accept(cx),
            std::task::Poll::Ready(_)
        ))
    });
    // Lets the reactor run, or an event in the queue could go unseen.
    tokio::task::yield_now().await;
    assert!(!accepted.await, "the destination must see no connection");
}

/// Keeps tokio's paused clock from jumping to the next timer while the kernel still carries bytes.
/// While this lives, only `tokio::time::advance` moves time.
pub struct ClockGuard(
    #[allow(dead_code, reason = "held until dropped, never read")] std::sync::mpsc::Sender<()>,
);

pub fn stand_still() -> ClockGuard {
    let (held, released) = std::sync::mpsc::channel::<()>();
    // The clock does not jump while a blocking task runs.
    tokio::task::spawn_blocking(move || released.recv());
    ClockGuard(held)
}

/// Waits until a metric has a value.
pub async fn wait_for_metric(page: SocketAddr, name: &str, value: f64) {
    while metric(page, name).await != Some(value) {
        tokio::task::yield_now().await;
    }
}

/// Serves the metrics page on any port.
pub fn with_page(config: &mut DepotConfig) {
    config.metrics = Some("127.0.0.1:0".parse().expect("address"));
}

/// Returns the value of a metric on the depot's page.
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
