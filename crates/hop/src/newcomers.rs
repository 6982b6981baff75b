//! Who stays when there is room for so many newcomers only. Pure: connections are numbers, in the
//! order in which they came.
//!
//! A newcomer is a connection that has not shown yet that it may be here. Every one is let in; when
//! that is one too many, the oldest of the fullest source makes room (so the crowd pays, not who
//! comes next), and the time for the OPEN shrinks as the room fills.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Prefix lengths by which sources are counted, each with the weight of one connection. An address,
/// or the /64 of an IPv6 address (who has one of those has all of it), counts most; a wider
/// network, which may be one party's or a whole university's, is the fullest only when it holds so
/// many times more than any single source.
const LEVELS_V4: [(u32, usize); 3] = [(32, 16), (24, 4), (16, 1)];
const LEVELS_V6: [(u32, usize); 4] = [(64, 16), (56, 8), (48, 4), (32, 1)];

/// The newcomers of one program.
#[derive(Debug)]
pub(crate) struct Newcomers {
    max: usize,
    header: Duration,
    least_header: Duration,
    next: u64,
    here: BTreeMap<u64, IpAddr>,
    /// The connections of each network, the first being the oldest.
    networks: HashMap<Network, BTreeSet<u64>>,
    /// The networks by weight; of equals the one with the oldest connection is the last.
    fullest: BTreeSet<(usize, Reverse<u64>, Network)>,
}

/// A prefix length and the first address.
type Network = (u32, IpAddr);

/// A newcomer that was let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// Its number, for [`Newcomers::leave`].
    pub(crate) number: u64,
    /// Who had to make room for it.
    pub(crate) evicted: Option<u64>,
    /// How long its OPEN may take.
    pub(crate) header: Duration,
}

impl Newcomers {
    /// Room for `max`, each with `header` for its OPEN while at most half of the room is taken, and
    /// down to `least_header` when all is.
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

    /// Lets a connection from `source` in.
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

    /// A connection has shown that it may be here, or has gone.
    pub(crate) fn leave(&mut self, number: u64) {
        if let Some(source) = self.here.remove(&number) {
            self.count(source, |connections| {
                connections.remove(&number);
            });
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.here.len()
    }

    /// Falls in a straight line from half full to full.
    fn header_time(&self) -> Duration {
        let over = (2 * self.here.len()).saturating_sub(self.max).min(self.max);
        let span = self.header.saturating_sub(self.least_header);
        let whole = |number| u32::try_from(number).unwrap_or(u32::MAX);
        self.header
            .saturating_sub(span.saturating_mul(whole(over)) / whole(self.max))
    }

    /// The oldest of the fullest network. Who comes is not counted yet, so the last to come is
    /// never the one to go.
    fn victim(&self) -> Option<u64> {
        self.fullest.last().map(|(_, Reverse(oldest), _)| *oldest)
    }

    /// Changes the connections of every network that `source` lies in.
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

/// The first address of the network of `prefix` bits that `source` lies in.
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
