//! Paths in use, and the connections on them. Pure: sockets and the time are arguments.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use longhaul_netlink::TcpSocket;
use serde_json::{Value, json};

use super::assign::{PathCandidate, PathShares, choose_path};
use super::meter::{FlowSample, PathMeter};
use super::{ReservedPath, ReservedPaths};

/// Time in which a program uses the port that it was given. It connects at once.
const LEASE_TIME: Duration = Duration::from_secs(2);
/// Maximum bytes of a connection that carries no bulk data, such as GridFTP's control connection.
const MAX_IDLE_BYTES: u64 = 64 * 1024;
/// Round trips after which a connection that has moved so little does not count. A bulk connection
/// in slow start has moved more by then (RFC 6928).
const IDLE_RTTS: u32 = 4;
/// A measured rate counts if it is below this part of the reserved one. Packet headers account for
/// less than the rest.
const CLEARLY_LOWER: f64 = 0.9;

/// Path of a connection, and the local address that it has to leave from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PathAssignment {
    /// ID of the reservation.
    pub(crate) reservation: u64,
    /// Number of the path in the reservation, from 1.
    pub(crate) number: usize,
    /// Local address and port. The address is unspecified if any is right.
    pub(crate) source: SocketAddr,
}

impl std::fmt::Display for PathAssignment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "path {} of reservation {}, from port {}",
            self.number,
            self.reservation,
            self.source.port()
        )
    }
}

/// Reason why a connection takes no path: all of their source ports are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("all source ports of reservation {reservation} are in use")]
pub(crate) struct NoFreePort {
    pub(crate) reservation: u64,
}

/// Ports of a path that were given to connections.
#[derive(Debug, Clone, Copy)]
struct GivenPorts {
    /// The last one.
    last: u16,
    /// Their number, including those that were given again.
    count: usize,
}

/// State of the spread.
#[derive(Debug, Default)]
pub(super) struct SpreadState {
    shares: PathShares,
    reserved: Vec<ReservedPaths>,
    /// Times at which ports were given to connections.
    leases: BTreeMap<u16, Duration>,
    /// Ports that were given so far, by the first port of their path.
    given: BTreeMap<u16, GivenPorts>,
    /// Meters, by the first port of their path.
    meters: BTreeMap<u16, PathMeter>,
}

impl SpreadState {
    pub(super) fn new(shares: PathShares) -> Self {
        Self {
            shares,
            ..Self::default()
        }
    }

    /// Replaces the paths. What is known of ports that remain stays.
    pub(super) fn set_paths(&mut self, reserved: Vec<ReservedPaths>) {
        let paths = || reserved.iter().flat_map(|reserved| &reserved.paths);
        self.leases
            .retain(|port, _| paths().any(|path| path.ports.contains(port)));
        let is_first = |port: &u16| paths().any(|path| path.ports.start() == port);
        self.given.retain(|first, _| is_first(first));
        self.meters.retain(|first, _| is_first(first));
        self.reserved = reserved;
    }

    /// Returns the range that all ports of the paths are in, if there are paths.
    pub(super) fn port_range(&self) -> Option<RangeInclusive<u16>> {
        hull(self.reserved.iter().flat_map(|reserved| &reserved.paths))
    }

    /// Returns true if there are paths to a destination.
    pub(super) fn has_paths_to(&self, to: IpAddr) -> bool {
        self.paths_to(to).is_some()
    }

    fn paths_to(&self, to: IpAddr) -> Option<&ReservedPaths> {
        let found = self
            .reserved
            .iter()
            .find(|reserved| reserved.to.contains(to))?;
        (!found.paths.is_empty()).then_some(found)
    }

    /// Assigns a path to a new connection. Returns `None` if the destination has no paths.
    /// `sockets` are those with ports of any path. Without them, each earlier assignment counts as
    /// a connection.
    pub(super) fn assign(
        &mut self,
        to: IpAddr,
        sockets: Option<&[TcpSocket]>,
        now: Duration,
    ) -> Option<Result<PathAssignment, NoFreePort>> {
        self.expire_leases(sockets, now);
        let reserved = self.paths_to(to)?;
        let reservation = reserved.reservation;
        let free: Vec<Option<u16>> = reserved
            .paths
            .iter()
            .map(|path| self.free_port(path, sockets))
            .collect();
        let candidates: Vec<PathCandidate> = reserved
            .paths
            .iter()
            .zip(&free)
            .enumerate()
            .map(|(place, (path, port))| PathCandidate {
                weight: self.shares.weight(place, self.rate(path, now)),
                connections: self.connections(path, sockets, now),
                has_port: port.is_some(),
            })
            .collect();
        let chosen = choose_path(&candidates);
        let found = chosen.and_then(|place| {
            let first = *reserved.paths.get(place)?.ports.start();
            Some((place, first, free.get(place).copied().flatten()?))
        });
        let Some((place, first, port)) = found else {
            return Some(Err(NoFreePort { reservation }));
        };
        let any = match to {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let source = SocketAddr::new(reserved.from.unwrap_or(any), port);
        self.leases.insert(port, now);
        let count = self.given.get(&first).map_or(0, |given| given.count);
        let given = GivenPorts {
            last: port,
            count: count.saturating_add(1),
        };
        self.given.insert(first, given);
        Some(Ok(PathAssignment {
            reservation,
            number: place + 1,
            source,
        }))
    }

    /// Measures the paths.
    pub(super) fn observe(&mut self, sockets: &[TcpSocket], now: Duration) {
        self.expire_leases(Some(sockets), now);
        let paths = self.reserved.iter().flat_map(|reserved| &reserved.paths);
        for path in paths {
            let flows: Vec<FlowSample> = sockets
                .iter()
                .filter(|socket| path.ports.contains(&socket.local_port))
                .filter(|socket| is_open(socket) && !self.is_idle(socket, now))
                .filter_map(|socket| {
                    let info = socket.info.as_ref()?;
                    Some(FlowSample {
                        port: socket.local_port,
                        acked: info.bytes_acked?,
                        is_backlogged: info.bytes_not_sent.is_some_and(|bytes| bytes > 0)
                            && info.delivery_rate_app_limited != Some(true),
                    })
                })
                .collect();
            let meter = self.meters.entry(*path.ports.start()).or_default();
            meter.observe(now, &flows);
        }
    }

    /// Returns the paths, their rates and their connections.
    pub(super) fn report(&self, sockets: Option<&[TcpSocket]>, now: Duration) -> Value {
        let path = |reserved: &ReservedPaths, place: usize, path: &ReservedPath| {
            let measured = self.meters.get(path.ports.start());
            json!({
                "reservation": reserved.reservation,
                "path": place + 1,
                "first_port": path.ports.start(),
                "last_port": path.ports.end(),
                "reserved_bps": path.rate_bps,
                "measured_bps": measured.and_then(|meter| meter.valid_rate(now)),
                "connections": self.connections(path, sockets, now),
            })
        };
        let all = self.reserved.iter().flat_map(|reserved| {
            let paths = reserved.paths.iter().enumerate();
            paths.map(move |(place, of)| path(reserved, place, of))
        });
        Value::Array(all.collect())
    }

    /// Drops leases of ports that their programs did not use, or whose connections have ended.
    fn expire_leases(&mut self, sockets: Option<&[TcpSocket]>, now: Duration) {
        let Some(sockets) = sockets else {
            return;
        };
        self.leases.retain(|port, at| {
            now.saturating_sub(*at) < LEASE_TIME
                || sockets.iter().any(|socket| socket.local_port == *port)
        });
    }

    /// Returns the next port of a path that no connection has, after the last one that was given.
    fn free_port(&self, path: &ReservedPath, sockets: Option<&[TcpSocket]>) -> Option<u16> {
        let is_free = |port: &u16| {
            let is_used = |socket: &TcpSocket| socket.local_port == *port;
            !self.leases.contains_key(port) && !sockets.is_some_and(|all| all.iter().any(is_used))
        };
        let given = self.given.get(path.ports.start());
        let after = given.and_then(|given| given.last.checked_add(1));
        let later = after.map(|after| after..=*path.ports.end());
        let mut candidates = later.into_iter().flatten().chain(path.ports.clone());
        let found = candidates.find(is_free);
        // Without a look at the kernel's sockets, ports are used again in turn.
        found.or_else(|| {
            let next = after.filter(|next| path.ports.contains(next));
            sockets
                .is_none()
                .then(|| next.unwrap_or(*path.ports.start()))
        })
    }

    /// Returns the number of connections of a path that count.
    fn connections(
        &self,
        path: &ReservedPath,
        sockets: Option<&[TcpSocket]>,
        now: Duration,
    ) -> usize {
        let leases = self.leases.range(path.ports.clone());
        let Some(sockets) = sockets else {
            let given = self.given.get(path.ports.start());
            return given.map_or(0, |given| given.count);
        };
        let of_path = |socket: &&TcpSocket| path.ports.contains(&socket.local_port);
        let own = sockets.iter().filter(of_path);
        let open = own.filter(|socket| is_open(socket) && !self.is_idle(socket, now));
        let is_seen = |port: u16| sockets.iter().any(|socket| socket.local_port == port);
        open.count() + leases.filter(|(port, _)| !is_seen(**port)).count()
    }

    /// Returns true if a connection is open for some time, and carries no bulk data.
    fn is_idle(&self, socket: &TcpSocket, now: Duration) -> bool {
        let Some(info) = &socket.info else {
            return true;
        };
        let carried = info
            .bytes_acked
            .unwrap_or(0)
            .max(info.bytes_received.unwrap_or(0));
        let age = self
            .leases
            .get(&socket.local_port)
            .map_or(Duration::MAX, |at| now.saturating_sub(*at));
        // The acknowledged SYN counts as a byte. A connection without any data may begin later.
        let has_begun = info.bytes_acked.unwrap_or(0) > 1 || info.bytes_received.unwrap_or(0) > 0;
        has_begun && carried <= MAX_IDLE_BYTES && age > info.rtt.saturating_mul(IDLE_RTTS)
    }

    /// Returns the rate of a path, in bit/s: the reserved one, or the measured one if that is
    /// clearly lower.
    fn rate(&self, path: &ReservedPath, now: Duration) -> f64 {
        let reserved = path.rate_bps as f64;
        let meter = self.meters.get(path.ports.start());
        let measured = meter.and_then(|meter| meter.valid_rate(now));
        measured
            .filter(|rate| *rate < reserved * CLEARLY_LOWER)
            .unwrap_or(reserved)
    }
}

/// Returns true if this side can still send.
fn is_open(socket: &TcpSocket) -> bool {
    use drs::TcpState::{CloseWait, Established, SynReceived, SynSent};
    matches!(
        socket.state,
        SynSent | SynReceived | Established | CloseWait
    )
}

/// Returns the smallest range with all ports of these paths.
fn hull<'a>(paths: impl IntoIterator<Item = &'a ReservedPath>) -> Option<RangeInclusive<u16>> {
    let ranges = paths.into_iter().map(|path| path.ports.clone());
    ranges.reduce(|all, ports| *all.start().min(ports.start())..=*all.end().max(ports.end()))
}

#[cfg(test)]
mod tests;
