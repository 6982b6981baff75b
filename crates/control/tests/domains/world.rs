//! Domains in a row: `d0`, `d1` and so on. Each has a host `host`, and a site `left` or `right` for
//! the link to each neighbour.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use longhaul_api::tls::Certificate;
use longhaul_api::{KeyGate, LocalGate, listen};
use longhaul_control::domains::settings::{DomainSettings, DomainText, EdgeSettings, PeerSettings};
use longhaul_control::http::{MAX_BODY_BYTES, router, router_for_keys};
use longhaul_control::{Controller, ControllerConfig, ControllerStore};
use longhaul_control_client::ServiceClient;
use longhaul_domains::timing::Timing;
use longhaul_proto::SigningKey;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Capacity of every link, in bit/s. Half of it may be reserved.
pub const LINK_BPS: u64 = 10_000_000_000;
/// Length of the reservations' window, in milliseconds: a day.
const WINDOW_MS: u64 = 86_400_000;

/// Time limits that a busy machine keeps, and that let a test wait for all of them.
pub const TIMING: Timing = Timing {
    reserve: 20_000,
    commit: 20_000,
    confirm: 25_000,
    lease: 25_000,
    retry: 200,
    max_retry: 1_000,
    memory: 3_600_000,
};

/// A running controller.
struct Running {
    runtime: Runtime,
    controller: Controller,
    _stop: watch::Sender<bool>,
}

/// A domain.
pub struct Domain {
    pub number: usize,
    dir: tempfile::TempDir,
    pub key: SigningKey,
    address: SocketAddr,
    /// Keeps the port while the controller is down.
    listener: TcpListener,
    settings: Option<DomainSettings>,
    running: Option<Running>,
}

impl Domain {
    fn new(number: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self {
            number,
            dir: tempfile::tempdir().unwrap(),
            key: SigningKey::generate().unwrap(),
            address: listener.local_addr().unwrap(),
            listener,
            settings: None,
            running: None,
        }
    }

    fn name(number: usize) -> String {
        format!("d{number}")
    }

    /// Starts the controller with what is in its store.
    pub fn start(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (stop, stopped) = watch::channel(false);
        let config = ControllerConfig {
            name: Self::name(self.number),
            key: self.key.public(),
            signer: self.key.clone(),
            retention: Default::default(),
            identities: Default::default(),
            registrations: Default::default(),
            setup: Default::default(),
            roots: Default::default(),
            advertise: None,
            domain: self.settings.clone(),
            ospf: Default::default(),
        };
        let (file, socket) = (
            self.dir.path().join("control.sqlite"),
            self.dir.path().join("socket"),
        );
        let listener = self.listener.try_clone().unwrap();
        let (address, key) = (self.address, self.key.clone());
        let controller = runtime.block_on(async move {
            let store = ControllerStore::sqlite(&file).await.unwrap();
            let begun = Controller::begin(store, config, stopped.clone()).await;
            let (controller, tasks) = begun.unwrap();
            // The tasks run until the runtime ends.
            std::mem::forget(tasks);
            let gate = KeyGate::with_body_limit(
                "longhaul control",
                MAX_BODY_BYTES,
                controller.keys(),
                [address.to_string()],
                0,
            );
            let gate = Arc::new(gate);
            controller.serve_gate(gate.clone());
            let certificate = Certificate::from_key(&key, &["127.0.0.1".to_owned()]).unwrap();
            let (sender, config) = watch::channel(certificate.config);
            std::mem::forget(sender);
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let keyed = router_for_keys(controller.clone(), gate);
            tokio::spawn(listen::serve_secured(
                listener,
                keyed,
                config,
                stopped.clone(),
            ));
            let gate = LocalGate {
                uid: rustix::process::getuid().as_raw(),
                user: "ana".into(),
                token: None,
                sessions: Arc::default(),
            };
            let unix = listen::unix(&socket).unwrap();
            let local = router(controller.clone(), gate);
            tokio::spawn(listen::serve(unix, local, stopped));
            controller
        });
        self.running = Some(Running {
            runtime,
            controller,
            _stop: stop,
        });
    }

    /// Kills the controller: whatever it does ends at once.
    pub fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.runtime.shutdown_background();
        }
    }

    pub fn is_up(&self) -> bool {
        self.running.is_some()
    }

    /// Sends a request as the operator. Returns the answer, or the problem.
    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Value> {
        ask(self.dir.path(), method, path, body, "")
    }

    fn controller(&self) -> &Controller {
        &self.running.as_ref().unwrap().controller
    }

    /// Returns the number of changes of the agent's connections since the start.
    pub fn changes(&self) -> u64 {
        *self.controller().domains().unwrap().changes().borrow()
    }

    /// Returns the rates of this domain's reservations that are held or promised.
    pub fn reserved(&self) -> Vec<u64> {
        let list = self
            .ask("GET", "/reservations?active=true", None)
            .unwrap_or_default();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let rate = |item: &Value| item["wish"]["rate"]["rate_bps"].as_u64().unwrap();
        items.iter().map(rate).collect()
    }

    /// Returns the states of this domain's part of reservations.
    pub fn states(&self) -> Vec<String> {
        let list = self
            .ask("GET", "/domain/reservations", None)
            .unwrap_or_default();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let state = |item: &Value| item["state"].as_str().unwrap().to_owned();
        items.iter().map(state).collect()
    }
}

fn ask(
    dir: &std::path::Path,
    method: &str,
    path: &str,
    body: Option<&Value>,
    key: &str,
) -> Result<Value, Value> {
    let client = ServiceClient::at_socket("controller", dir.join("socket"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let key = Some(key).filter(|key| !key.is_empty());
    let answer = runtime.block_on(client.ask::<Value>(method, path, body, key));
    answer.map_err(|error| match error {
        longhaul_control_client::ClientError::Refused(problem) => {
            serde_json::to_value(problem).unwrap()
        }
        error => json!({"detail": error.to_string(), "status": 0}),
    })
}

/// Domains in a row.
pub struct World {
    pub domains: Vec<Domain>,
}

impl World {
    /// Starts domains in a row. Every domain is a peer of all others if `is_mesh`, otherwise of its
    /// neighbours.
    pub fn start(count: usize, is_mesh: bool) -> Self {
        let mut domains: Vec<Domain> = (0..count).map(Domain::new).collect();
        let known: Vec<(SocketAddr, String)> = domains
            .iter()
            .map(|domain| (domain.address, domain.key.public().to_string()))
            .collect();
        for domain in &mut domains {
            let own = domain.number;
            let is_neighbour = |other: usize| other + 1 == own || own + 1 == other;
            let peers = (0..count).filter(|other| *other != own);
            let peers = peers.filter(|other| is_mesh || is_neighbour(*other));
            let peer = |other: usize| {
                let (address, key) = &known[other];
                let settings = PeerSettings {
                    url: format!("https://{address}"),
                    key: key.clone(),
                };
                (Domain::name(other), settings)
            };
            let edge = |name: &str, other: usize, theirs: &str| {
                let peer = format!("{}:{theirs}", Domain::name(other));
                (name.to_owned(), EdgeSettings { peer })
            };
            let left = (own > 0).then(|| edge("left", own - 1, "right"));
            let right = (own + 1 < count).then(|| edge("right", own + 1, "left"));
            let text = DomainText {
                name: Domain::name(own),
                peers: peers.map(peer).collect(),
                edges: left.into_iter().chain(right).collect(),
                disclose: Default::default(),
                forecasts: ["host", "store"].map(str::to_owned).into(),
                lease_s: None,
            };
            let mut settings = DomainSettings::try_from(text).unwrap();
            settings.timing = TIMING;
            // Each exchange costs a handshake with every peer.
            settings.exchange_interval = Duration::from_secs(2);
            domain.settings = Some(settings);
            domain.start();
            let direction = json!({"capacity": {"rate_bps": LINK_BPS}});
            let link = |name: &str, to: &str| {
                json!({"name": name, "from": "middle", "to": to,
                    "forward": direction, "backward": direction})
            };
            let map = json!({
                "sites": [{"name": "middle"}, {"name": "left"}, {"name": "right"}],
                "hosts": [{"name": "host", "site": "middle",
                    "addresses": [format!("192.0.2.{}", own + 1)]}],
                "links": [link("l", "left"), link("r", "right")],
            });
            domain.ask("PUT", "/map", Some(&map)).unwrap();
            let keys = known.iter().enumerate().filter(|(other, _)| *other != own);
            for (other, (_, key)) in keys {
                let path = format!("/principals/{key}/roles/peer");
                let name = json!({"name": Domain::name(other)});
                domain.ask("PUT", &path, Some(&name)).unwrap();
            }
        }
        let world = Self { domains };
        world.wait_until("all know all", |world| {
            let known = |domain: &Domain| {
                let known = domain.controller().domains().unwrap().topologies();
                let is_complete = |topology: &longhaul_domains::publication::AcceptedTopology| {
                    topology
                        .topology
                        .accesses
                        .iter()
                        .any(|access| access.inward.iter().any(|rate| rate.rate_bps > 0))
                };
                known.len() == count && known.values().all(is_complete)
            };
            world.domains.iter().all(known)
        });
        world
    }

    /// Requests a rate from the host of one domain to that of another.
    pub fn reserve(&self, from: usize, to: usize, rate: u64, shape: &str) -> Result<Value, Value> {
        self.reserve_once(from, to, rate, shape, "")
    }

    pub fn reserve_once(
        &self,
        from: usize,
        to: usize,
        rate: u64,
        shape: &str,
        key: &str,
    ) -> Result<Value, Value> {
        let request = request(from, to, rate, shape);
        let dir = self.domains[from].dir.path();
        ask(dir, "POST", "/domain/reservations", Some(&request), key)
    }

    /// Begins a request in the background, whatever becomes of it.
    pub fn begin_reserving(
        &self,
        to: usize,
        rate: u64,
        shape: &str,
    ) -> std::thread::JoinHandle<()> {
        let request = request(0, to, rate, shape);
        let dir = self.domains[0].dir.path().to_owned();
        std::thread::spawn(move || {
            let _ = ask(&dir, "POST", "/domain/reservations", Some(&request), "");
        })
    }

    /// Waits until something holds, at most for three minutes.
    pub fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let began = std::time::Instant::now();
        while !holds(self) {
            assert!(
                began.elapsed() < Duration::from_secs(180),
                "{what}: {}",
                self.describe()
            );
            std::thread::yield_now();
        }
    }

    pub fn describe(&self) -> String {
        let up = self.domains.iter().filter(|domain| domain.is_up());
        let described = up.map(|domain| {
            let list = domain.ask("GET", "/domain/reservations", None);
            let known = domain.controller().domains().unwrap().topologies();
            let known: Vec<String> = known
                .values()
                .map(|known| format!("{}: {:?}", known.topology.domain, known.topology.accesses))
                .collect();
            let reserved = domain.reserved();
            format!("{}: {reserved:?} {list:?} {known:?}\n", domain.number)
        });
        described.collect()
    }

    /// Returns the rates that all domains hold or promise.
    pub fn reserved(&self) -> Vec<Vec<u64>> {
        self.domains.iter().map(Domain::reserved).collect()
    }
}

/// Returns the end of the window of a request that is made now.
pub fn end_ms() -> u64 {
    longhaul_control_client::unix_ms() + WINDOW_MS
}

fn request(from: usize, to: usize, rate: u64, shape: &str) -> Value {
    json!({
        "from": "host",
        "to": format!("{}:host", Domain::name(to)),
        "rate_bps": rate,
        "end_ms": end_ms(),
        "shape": shape,
        "from_address": format!("192.0.2.{}", from + 1),
    })
}
