//! A UDP relay between one client and one server that plays the network between them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Faults of the network. They may be changed at any time.
#[derive(Debug, Default)]
pub struct NetworkState {
    /// Size above which datagrams vanish, in bytes; zero for no limit.
    pub max_datagram: AtomicU64,
    /// One datagram in so many vanishes towards the server; zero for none.
    pub lose_one_in: AtomicU64,
    /// True if nothing passes.
    pub is_cut: AtomicBool,
    /// Datagrams that passed towards the server.
    pub passed: AtomicU64,
}

impl NetworkState {
    /// Returns true if datagram number `number`, of `size` bytes, passes.
    fn passes(&self, number: u64, size: usize) -> bool {
        let most = self.max_datagram.load(Ordering::Relaxed);
        let lose = self.lose_one_in.load(Ordering::Relaxed);
        let fits = most == 0 || size as u64 <= most;
        let is_lost = lose > 0 && number.is_multiple_of(lose);
        fits && !is_lost && !self.is_cut.load(Ordering::Relaxed)
    }
}

/// Relay that runs until it is dropped.
pub struct Relay {
    /// Address that the client connects to.
    pub address: SocketAddr,
    /// Faults of the network.
    pub network: Arc<NetworkState>,
    rebind: watch::Sender<SocketAddr>,
    _tasks: JoinSet<()>,
}

impl Relay {
    /// Starts a relay to `server`.
    pub async fn start(server: SocketAddr) -> Self {
        let near = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let network = Arc::new(NetworkState::default());
        let (rebind, outside) = watch::channel("127.0.0.1:0".parse().unwrap());
        let mut tasks = JoinSet::new();
        let address = near.local_addr().unwrap();
        tasks.spawn(relay(near, server, Arc::clone(&network), outside));
        Self {
            address,
            network,
            rebind,
            _tasks: tasks,
        }
    }

    /// Sends from another port of `source` from now on, as a NAT does that has forgotten the flow.
    /// Datagrams to the earlier port vanish.
    pub fn rebind(&self, source: &str) {
        self.rebind
            .send_replace(format!("{source}:0").parse().unwrap());
    }
}

/// Relays datagrams between the client and `server`, each time from a socket bound to `outside`.
async fn relay(
    near: Arc<UdpSocket>,
    server: SocketAddr,
    network: Arc<NetworkState>,
    mut outside: watch::Receiver<SocketAddr>,
) {
    let mut client = None;
    let (mut forward, mut backward) = (vec![0; 65_536], vec![0; 65_536]);
    let (mut number, mut number_back) = (0, 0);
    loop {
        let source = *outside.borrow_and_update();
        let far = UdpSocket::bind(source).await.unwrap();
        loop {
            tokio::select! {
                received = near.recv_from(&mut forward) => {
                    let Ok((size, from)) = received else { continue };
                    client = Some(from);
                    number += 1;
                    if network.passes(number, size) {
                        network.passed.fetch_add(1, Ordering::Relaxed);
                        // A full buffer drops, as a network does.
                        let _ = far.try_send_to(&forward[..size], server);
                    }
                }
                received = far.recv_from(&mut backward) => {
                    let (Ok((size, _)), Some(client)) = (received, client) else { continue };
                    number_back += 1;
                    if network.passes(number_back, size) {
                        let _ = near.try_send_to(&backward[..size], client);
                    }
                }
                changed = outside.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
            }
        }
    }
}
