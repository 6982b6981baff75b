//! Choice of the pending connections that stay when there is room for a limited number. Pure:
//! connections are numbers in order of arrival.
//!
//! A pending connection has not yet proved that it is authorised. Every new one is admitted. When
//! there are too many, the oldest of the fullest source is evicted, so a flood hurts itself and not
//! the next to arrive. The time for the OPEN shrinks as the room fills.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Prefix lengths of the networks that are counted, each with the weight of one connection.
///
/// A single address, or the /64 of an IPv6 address (one party controls all of it), has the highest
/// weight. A wider network may be one party's or a whole university's. It counts as fullest only
/// when it holds many times more connections than any single source.
const LEVELS_V4: [(u32, usize); 3] = [(32, 16), (24, 4), (16, 1)];
const LEVELS_V6: [(u32, usize); 4] = [(64, 16), (56, 8), (48, 4), (32, 1)];

/// The pending connections of one program.
#[derive(Debug)]
pub(crate) struct Newcomers {
    max: usize,
    header: Duration,
    least_header: Duration,
    next: u64,
    here: BTreeMap<u64, IpAddr>,
    /// Connections of each network, oldest first.
    networks: HashMap<Network, BTreeSet<u64>>,
    /// Networks by weight. Among equals, the one with the oldest connection is last.
    fullest: BTreeSet<(usize, Reverse<u64>, Network)>,
}

/// Prefix length and first address of a network.
type Network = (u32, IpAddr);

/// An admitted pending connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// Number of the connection, for [`Newcomers::leave`].
    pub(crate) number: u64,
    /// Connection that was evicted for it.
    pub(crate) evicted: Option<u64>,
    /// Time limit for its OPEN.
    pub(crate) header: Duration,
}

impl Newcomers {
    /// Creates room for `max` connections. The time limit for the OPEN is `header` while at most
    /// half of the room is taken, and falls to `least_header` when all of it is.
    pub(crate) fn new(max: usize, header: Duration, least_header: Duration) -> Self {
        Self {
            max: max.max(1),
            header,
            least_header: least_header.min(header),
            next: 0,
            here: BTreeMap::new(),
            networks: HashMap::new(),
            fullest: BTreeSet::new(),
        }
    }

    /// Admits a connection from `source`.
    pub(crate) fn enter(&mut self, source: IpAddr) -> Admitted {
        let number = self.next;
        self.next += 1;
        let evicted = if self.here.len() >= self.max {
            self.victim()
        } else {
            None
        };
        if let Some(evicted) = evicted {
            self.leave(evicted);
        }
        let source = source.to_canonical();
        self.here.insert(number, source);
        self.count(source, |connections| {
            connections.insert(number);
        });
        Admitted {
            number,
            evicted,
            header: self.header_time(),
        }
    }

    /// Removes a connection that has been verified or closed.
    pub(crate) fn leave(&mut self, number: u64) {
        if let Some(source) = self.here.remove(&number) {
            self.count(source, |connections| {
                connections.remove(&number);
            });
        }
    }

    /// Returns the number of pending connections.
    pub(crate) fn len(&self) -> usize {
        self.here.len()
    }

    /// Returns the current time limit, which falls linearly from half full to full.
    fn header_time(&self) -> Duration {
        let over = (2 * self.here.len()).saturating_sub(self.max).min(self.max);
        let span = self.header.saturating_sub(self.least_header);
        let whole = |number| u32::try_from(number).unwrap_or(u32::MAX);
        self.header
            .saturating_sub(span.saturating_mul(whole(over)) / whole(self.max))
    }

    /// Returns the oldest connection of the fullest network. The arriving connection is not counted
    /// yet, so it is never the one evicted.
    fn victim(&self) -> Option<u64> {
        self.fullest.last().map(|(_, Reverse(oldest), _)| *oldest)
    }

    /// Applies `change` to the connections of every network that contains `source`.
    fn count(&mut self, source: IpAddr, change: impl Fn(&mut BTreeSet<u64>)) {
        let levels: &[(u32, usize)] = if source.is_ipv4() {
            &LEVELS_V4
        } else {
            &LEVELS_V6
        };
        for &(prefix, weight) in levels {
            let network = (prefix, network(source, prefix));
            let connections = self.networks.entry(network).or_default();
            let place = |connections: &BTreeSet<u64>| {
                let oldest = connections.first()?;
                Some((connections.len() * weight, Reverse(*oldest), network))
            };
            if let Some(before) = place(connections) {
                self.fullest.remove(&before);
            }
            change(connections);
            match place(connections) {
                Some(after) => _ = self.fullest.insert(after),
                None => _ = self.networks.remove(&network),
            }
        }
    }
}

/// Returns the first address of the network of `prefix` bits that contains `source`.
pub(crate) fn network(source: IpAddr, prefix: u32) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - prefix.min(32)).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - prefix.min(128)).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & mask).into()
        }
    }
}

#[cfg(test)]
mod tests;
