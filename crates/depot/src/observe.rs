//! What a depot saw of the hops that it relays over, for whoever wants to receive it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use drs::Tally;
use longhaul_proto::{Endpoint, Open, PublicKey};

use crate::probe::Train;

/// An end of a hop.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HopEnd {
    /// This depot.
    Here,
    /// Who has this key: an initiator, or another depot.
    Key(PublicKey),
    /// Who listens there.
    At(Endpoint),
}

/// What a hop of a session did while it was looked at.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HopSeen {
    /// For how long each limit held.
    pub tally: Tally,
    /// Smoothed round trip at the latest look; zero before there is one.
    pub rtt: Duration,
    /// Of the end that sends: segments sent, and those of them that were sent again.
    pub segments: u64,
    /// See `segments`.
    pub lost: u64,
    /// Bytes moved between the first look and the latest, and the time between.
    pub bytes: u64,
    /// See `bytes`.
    pub time: Duration,
    /// The congestion control of this end; empty where it does not send.
    pub congestion: String,
}

/// One hop of a session that has ended, or was a probe; bytes went `from` there `to` there.
#[derive(Debug, Clone, PartialEq)]
pub struct HopReport {
    /// Where it begins.
    pub from: HopEnd,
    /// Where it ends.
    pub to: HopEnd,
    /// What was seen.
    pub seen: HopSeen,
    /// The train that arrived, where the other end measured the path (LH-PROBE-2): then nobody's
    /// data was on it.
    pub train: Option<Train>,
}

/// Learns of hops. Called by the threads that relay; must not block.
#[derive(Clone)]
pub struct HopObserver(pub Arc<dyn Fn(HopReport) + Send + Sync>);

impl fmt::Debug for HopObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HopObserver")
    }
}

/// Who stands at the other ends of the hops of a session that a depot passed on, as `open` went on:
/// towards the initiator, and towards the acceptor.
pub(crate) fn ends(open: &Open) -> (HopEnd, HopEnd) {
    // The last of those passed is this depot.
    let before = open.passed.iter().rev().nth(1).copied();
    let upstream = HopEnd::Key(before.unwrap_or(open.principal));
    let dialled = usize::from(open.cursor)
        .checked_sub(1)
        .and_then(|place| open.route.hops().get(place));
    let downstream = match dialled {
        Some(hop) => match hop.key {
            Some(key) => HopEnd::Key(key),
            None => HopEnd::At(hop.endpoint.clone()),
        },
        None => HopEnd::At(open.destination.clone()),
    };
    (upstream, downstream)
}

#[cfg(test)]
mod tests {
    use longhaul_proto::{Route, Service, SessionId};

    use super::*;

    #[test]
    fn the_ends_are_who_came_before_and_who_was_dialled() {
        let [me, other, next] = [1, 2, 3].map(|byte| PublicKey::from_bytes([byte; 32]));
        let route: Route = format!("a:1,b:2,{next}@c:3").parse().unwrap();
        let (id, destination) = (SessionId::from_bytes([0; 16]), "h:9".parse().unwrap());
        let mut open = Open::new(id, Service::COPY, route, destination, Duration::ZERO);
        open.principal = other;
        open.passed = vec![me];
        open.cursor = 2;
        assert_eq!(
            ends(&open),
            (HopEnd::Key(other), HopEnd::At("b:2".parse().unwrap()))
        );
        open.passed = vec![other, me];
        open.cursor = 3;
        assert_eq!(ends(&open), (HopEnd::Key(other), HopEnd::Key(next)));
        open.cursor = 4;
        assert_eq!(ends(&open).1, HopEnd::At("h:9".parse().unwrap()));
    }
}
