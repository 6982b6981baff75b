//! Test bed: off-ramps, depots before them, initiators, and servers that are unaware of sessions.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longhaul_depot::{Depot, DepotConfig};
use longhaul_offramp::{ListenerConfig, Offramp, OfframpConfig};
use longhaul_policy::Policy;
use longhaul_proto::{Endpoint, Open, PublicKey, Route, ServiceName, SessionId, SigningKey};
use longhaul_session::{ConnectOptions, Error, Identity, ServerTrust, Session, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub const ANY: &str = "127.0.0.1:0";

/// An off-ramp that runs in a task of the test's runtime.
pub struct RunningOfframp {
    pub address: SocketAddr,
    pub metrics: SocketAddr,
    pub key: PublicKey,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl RunningOfframp {
    /// Tells the off-ramp to stop.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until the off-ramp has drained.
    pub async fn stopped(self) {
        with_timeout(self.task)
            .await
            .expect("the off-ramp must not panic");
    }

    /// Returns options for `me` to connect to `server` through this off-ramp, along `route`.
    pub fn connect_options(
        &self,
        me: &Arc<Identity>,
        server: impl Into<Endpoint>,
        route: &str,
    ) -> ConnectOptions {
        ConnectOptions::through_offramp(
            server.into(),
            route.parse().expect("route"),
            self.address.into(),
            me.clone(),
            ServerTrust::Pinned(self.key),
        )
    }

    pub async fn connect(
        &self,
        me: &Arc<Identity>,
        server: impl Into<Endpoint>,
    ) -> Result<Session, Error> {
        with_timeout(connect(&self.connect_options(me, server, "direct"))).await
    }

    /// Returns a value of its metrics page.
    pub async fn metric(&self, name: &str) -> f64 {
        let mut stream = TcpStream::connect(self.metrics).await.expect("connect");
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
            .await
            .expect("ask");
        let mut page = String::new();
        stream.read_to_string(&mut page).await.expect("read");
        page.lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
            .unwrap_or(0.0)
    }

    /// Waits until a metric has a value.
    pub async fn wait_for_metric(&self, name: &str, value: f64) {
        let watching = async {
            while self.metric(name).await != value {
                tokio::task::yield_now().await;
            }
        };
        with_timeout(watching).await;
    }
}

pub fn me() -> Arc<Identity> {
    Arc::new(Identity::generate().expect("key"))
}

/// Returns a policy that lets `key` connect to these servers at any port.
pub fn policy(key: PublicKey, servers: &str, more: &str) -> Policy {
    let text = format!(
        "[[allow]]\nprincipals = [\"{key}\"]\nservers = {servers}\nports = [\"any\"]\n{more}\n"
    );
    Policy::parse(&text, Path::new("test.toml")).expect(&text)
}

pub fn loopback(key: PublicKey) -> Policy {
    policy(key, "[\"127.0.0.0/8\"]", "")
}

/// Starts an off-ramp with `policy`, changed by `tweak`.
pub fn offramp_with(policy: Policy, tweak: impl FnOnce(&mut OfframpConfig)) -> RunningOfframp {
    let identity = me();
    let key = identity.public();
    let mut config = OfframpConfig::new(identity, policy);
    config.listen = vec![ListenerConfig::new(ANY.parse().expect("address"))];
    config.metrics = Some(ANY.parse().expect("address"));
    tweak(&mut config);
    let offramp = Offramp::bind(config).expect("bind");
    let address = *offramp.local_addresses().first().expect("an address");
    let metrics = offramp.metrics_address().expect("a page");
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(offramp.run(async {
        let _ = stopped.await;
    }));
    RunningOfframp {
        address,
        metrics,
        key,
        stop: Some(stop),
        task,
    }
}

/// Starts an off-ramp that lets `me` connect anywhere on loopback.
pub fn offramp(me: &Identity) -> RunningOfframp {
    offramp_with(loopback(me.public()), |_| {})
}

/// Starts a depot that lets `me` connect anywhere on loopback.
pub fn depot(me: &Identity) -> SocketAddr {
    mortal_depot(me).0
}

/// Starts a depot that dies without a word when its task is aborted: its connections are reset.
pub fn mortal_depot(me: &Identity) -> (SocketAddr, JoinHandle<()>) {
    let text = format!(
        "[[allow]]\nprincipals = [\"{}\"]\nto = [\"127.0.0.0/8\"]\nports = [\"any\"]\n\
         next_hops = [\"direct\", \"127.0.0.0/8:*\"]\n",
        me.public()
    );
    let policy = Policy::parse(&text, Path::new("test.toml")).expect(&text);
    let mut config = DepotConfig::new(SigningKey::generate().expect("key"), policy);
    config.listen = vec![ListenerConfig::new(ANY.parse().expect("address"))];
    config.workers = 0;
    let depot = Depot::bind(config).expect("bind");
    let address = *depot.local_addresses().first().expect("an address");
    let task = tokio::spawn(depot.run(std::future::pending()));
    (address, task)
}

/// Starts an ordinary server, and returns its address.
pub async fn server() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(ANY).await.expect("bind");
    let address = listener.local_addr().expect("address");
    (listener, address)
}

/// Establishes a session with an ordinary server through an off-ramp, and returns both ends.
pub async fn established(offramp: &RunningOfframp, me: &Arc<Identity>) -> (Session, TcpStream) {
    let (listener, address) = server().await;
    let (session, accepted) = tokio::join!(offramp.connect(me, address), listener.accept());
    (
        session.expect("a session"),
        accepted.expect("a connection").0,
    )
}

/// Returns an OPEN of `me` for `server`, as the off-ramp at `offramp` receives it.
pub fn open(me: &Identity, offramp: SocketAddr, server: impl Into<Endpoint>) -> Open {
    let mut open = Open::new(
        SessionId::random().expect("random"),
        ServiceName::TCP,
        Route::direct(),
        offramp.into(),
        Duration::from_secs(60),
    );
    open.onward = Some(server.into());
    open.sign(me.signing_key(), longhaul_hop::unix_ms())
        .expect("sign");
    open.for_first_hop()
}

/// Turns a hang into a failure.
pub async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), future)
        .await
        .expect("it does not happen")
}
