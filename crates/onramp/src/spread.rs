//! Spread of direct connections over the reserved paths of a destination.
//!
//! The network tells the paths of a reservation apart by source port. So a connection takes a path
//! by leaving from one of its ports, and stays an ordinary TCP connection from end to end. Each new
//! connection goes to the path where its expected rate is highest, so the numbers of connections
//! are in proportion to what each path carries: its reserved rate, or its measured rate if that is
//! clearly lower. The kernel says which connections are open and what they carry.

mod assign;
mod meter;
mod state;

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use longhaul_netlink::{TcpSocket, TcpSocketReader};
use longhaul_policy::Network;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval};

pub use assign::{MAX_SHARE, PathShares, SharesError};
use state::SpreadState;
pub(crate) use state::{NoFreePort, PathAssignment};

/// Interval between measurements of the paths.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Reserved paths to a destination, during one period of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedPaths {
    /// ID of the reservation.
    pub reservation: u64,
    /// Local address by which the network recognises the connections. `None` if any does.
    pub from: Option<IpAddr>,
    /// Addresses of the destination.
    pub to: Network,
    /// The paths, in the order of the reservation.
    pub paths: Vec<ReservedPath>,
}

/// One reserved path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedPath {
    /// Source ports of its connections.
    pub ports: RangeInclusive<u16>,
    /// Reserved rate, in bit/s.
    pub rate_bps: u64,
}

/// The paths in use, the connections on them, and the reader of the kernel's sockets.
#[derive(Debug)]
pub(crate) struct PathSpread {
    state: Mutex<SpreadState>,
    /// `None` if the kernel reports no sockets. Then the on-ramp only knows its own decisions.
    reader: Mutex<Option<TcpSocketReader>>,
    began: Instant,
}

impl PathSpread {
    pub(crate) fn new(shares: PathShares) -> Self {
        Self {
            state: Mutex::new(SpreadState::new(shares)),
            reader: Mutex::new(TcpSocketReader::open().ok()),
            began: Instant::now(),
        }
    }

    /// Replaces the paths. Connections that are open stay where they are.
    pub(crate) fn set_paths(&self, paths: Vec<ReservedPaths>) {
        self.state.lock().set_paths(paths);
    }

    /// Assigns a path to a new connection. Returns `None` if the destination has no reserved paths.
    pub(crate) fn assign(&self, to: IpAddr) -> Option<Result<PathAssignment, NoFreePort>> {
        let to = to.to_canonical();
        let ports = {
            let state = self.state.lock();
            state.port_range().filter(|_| state.has_paths_to(to))?
        };
        let sockets = self.sockets(ports);
        let now = self.began.elapsed();
        self.state.lock().assign(to, sockets.as_deref(), now)
    }

    /// Measures the paths while it is polled.
    pub(crate) async fn measure(&self) {
        let mut ticks = interval(SAMPLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(ports) = self.state.lock().port_range() else {
                continue;
            };
            if let Some(sockets) = self.sockets(ports) {
                self.state.lock().observe(&sockets, self.began.elapsed());
            }
        }
    }

    /// Returns the paths, their rates and their connections, for a report.
    pub(crate) fn report(&self) -> Value {
        let Some(ports) = self.state.lock().port_range() else {
            return Value::Array(Vec::new());
        };
        let sockets = self.sockets(ports);
        let now = self.began.elapsed();
        self.state.lock().report(sockets.as_deref(), now)
    }

    fn sockets(&self, ports: RangeInclusive<u16>) -> Option<Vec<TcpSocket>> {
        let mut reader = self.reader.lock();
        let read = reader.as_mut()?.read(ports);
        if read.is_err() {
            // An answer that came late would be taken for that of the next request.
            *reader = TcpSocketReader::open().ok();
        }
        read.ok()
    }
}
