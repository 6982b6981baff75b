//! Counts connections, so that a flood of them costs a bounded amount.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::Limits;

/// Everybody now connected.
#[derive(Debug)]
pub(crate) struct Gate {
    limits: Limits,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    sessions: usize,
    unauthenticated: usize,
    /// Only sources with a connection have an entry, so the map is bounded by the connections.
    sources: HashMap<IpAddr, Source>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Source {
    all: usize,
    unauthenticated: usize,
}

/// A connection's place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    gate: Arc<Gate>,
    source: IpAddr,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unauthenticated,
    Session,
}

/// Which bound was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    Unauthenticated,
    Source,
    Sessions,
}

impl Full {
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Unauthenticated => "unauthenticated",
            Self::Source => "source",
            Self::Sessions => "sessions",
        }
    }
}

impl Gate {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            counts: Mutex::default(),
        })
    }

    /// A place for a new connection from `peer`, whose OPEN is yet to come.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr) -> Result<Place, Full> {
        let source = source_of(peer);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.unauthenticated >= self.limits.unauthenticated {
            return Err(Full::Unauthenticated);
        }
        let now = counts.sources.get(&source).copied().unwrap_or_default();
        if now.unauthenticated >= self.limits.unauthenticated_per_source
            || now.all >= self.limits.connections_per_source
        {
            return Err(Full::Source);
        }
        counts.unauthenticated += 1;
        let entry = counts.sources.entry(source).or_default();
        entry.all += 1;
        entry.unauthenticated += 1;
        drop(counts);
        Ok(Place {
            gate: Arc::clone(self),
            source,
            kind: Kind::Unauthenticated,
        })
    }

    /// Connections whose OPEN is yet to be verified.
    pub(crate) fn unauthenticated(&self) -> usize {
        self.counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .unauthenticated
    }

    /// Sessions being set up or relayed.
    pub(crate) fn sessions(&self) -> usize {
        self.counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .sessions
    }
}

impl Place {
    /// The OPEN has been verified: from now on this is a session, if there is room for one more.
    pub(crate) fn authenticated(&mut self) -> Result<(), Full> {
        let mut counts = self.gate.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.sessions >= self.gate.limits.sessions {
            return Err(Full::Sessions);
        }
        counts.sessions += 1;
        counts.unauthenticated -= 1;
        if let Some(source) = counts.sources.get_mut(&self.source) {
            source.unauthenticated -= 1;
        }
        self.kind = Kind::Session;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.gate.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match self.kind {
            Kind::Unauthenticated => counts.unauthenticated -= 1,
            Kind::Session => counts.sessions -= 1,
        }
        if let Some(source) = counts.sources.get_mut(&self.source) {
            source.all -= 1;
            if self.kind == Kind::Unauthenticated {
                source.unauthenticated -= 1;
            }
            if source.all == 0 {
                counts.sources.remove(&self.source);
            }
        }
    }
}

/// An IPv4 address, or the /64 of an IPv6 address, for who has one of those has all of it.
fn source_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(sessions: usize, unauthenticated: usize, per_source: usize) -> Arc<Gate> {
        Gate::new(Limits {
            sessions,
            unauthenticated,
            unauthenticated_per_source: per_source,
            connections_per_source: 2 * per_source,
            ..Limits::default()
        })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn one_source_cannot_take_every_place() {
        let gate = gate(10, 3, 2);
        let one = gate.enter(ip("192.0.2.1"));
        let two = gate.enter(ip("::ffff:192.0.2.1"));
        assert!(one.is_ok() && two.is_ok());
        assert_eq!(gate.enter(ip("192.0.2.1")).err(), Some(Full::Source));
        let three = gate.enter(ip("2001:db8::1"));
        assert!(three.is_ok());
        assert_eq!(gate.enter(ip("2001:db8:1::1")).err(), Some(Full::Unauthenticated));
        drop((one, two, three));
        assert_eq!(gate.unauthenticated(), 0);
        assert!(
            gate.counts.lock().unwrap().sources.is_empty(),
            "nothing is remembered of those who left"
        );
    }

    #[test]
    fn a_v6_source_is_a_64() {
        let gate = gate(10, 10, 1);
        let _held = gate.enter(ip("2001:db8::1")).expect("room");
        assert_eq!(gate.enter(ip("2001:db8::2")).err(), Some(Full::Source));
        assert!(gate.enter(ip("2001:db8:0:1::2")).is_ok());
    }

    #[test]
    fn verified_connections_make_room_for_strangers_and_are_bounded_themselves() {
        let gate = gate(1, 1, 1);
        let mut one = gate.enter(ip("192.0.2.1")).expect("room");
        assert_eq!(one.authenticated(), Ok(()));
        let mut two = gate.enter(ip("192.0.2.1")).expect("room again");
        assert_eq!(two.authenticated(), Err(Full::Sessions));
        assert_eq!((gate.sessions(), gate.unauthenticated()), (1, 1));
        assert_eq!(gate.enter(ip("192.0.2.1")).err(), Some(Full::Unauthenticated));
        drop(two);
        drop(one);
        assert_eq!((gate.sessions(), gate.unauthenticated()), (0, 0));
    }

    #[test]
    fn sessions_count_towards_their_source() {
        let gate = gate(10, 10, 1);
        let mut held: Vec<Place> = Vec::new();
        for _ in 0..2 {
            let mut place = gate.enter(ip("192.0.2.1")).expect("room");
            place.authenticated().expect("room for a session");
            held.push(place);
        }
        assert_eq!(gate.enter(ip("192.0.2.1")).err(), Some(Full::Source));
    }
}
