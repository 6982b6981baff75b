//! Observations of the hops that a depot relays over, for an interested observer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use drs::{FlowObservations, LimitTally, PacketCounts};
use longhaul_proto::{Endpoint, Hop, Open, PublicKey};

use crate::probe::train::Train;

/// An end of a hop.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HopEnd {
    /// This depot.
    Here,
    /// The party with this key: an initiator, or another depot.
    Key(PublicKey),
    /// The party that listens at this endpoint.
    At(Endpoint),
}

/// Behaviour of a session's hop while it was observed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HopObservation {
    /// Time spent under each limit.
    pub tally: LimitTally,
    /// Smoothed round-trip time at the latest sample; zero before the first.
    pub rtt: Duration,
    /// Number of segments or packets sent, if this end sends.
    pub segments: u64,
    /// Number of those that were retransmitted or lost.
    pub lost: u64,
    /// Bytes moved between the first and the latest sample.
    pub bytes: u64,
    /// Time between the first and the latest sample.
    pub time: Duration,
    /// Congestion control of this end; empty if it does not send.
    pub congestion: String,
}

impl HopObservation {
    /// Creates the observation of a hop towards which this end sends.
    pub(crate) fn from_sender(seen: FlowObservations) -> Self {
        let packets = seen.packets.unwrap_or_else(|| PacketCounts {
            sent: seen.sent / u64::from(seen.mss.max(1)),
            lost: u64::from(seen.retransmits),
        });
        Self {
            segments: packets.sent,
            lost: packets.lost,
            congestion: seen.congestion.as_str().to_owned(),
            ..Self::from_receiver(seen)
        }
    }

    /// Creates the observation of a hop from which this end receives.
    pub(crate) fn from_receiver(seen: FlowObservations) -> Self {
        Self {
            tally: seen.tally,
            rtt: seen.rtt,
            bytes: seen.span_moved,
            time: seen.span,
            ..Self::default()
        }
    }
}

/// Report on one hop of an ended session or of a probe. Bytes moved from `from` to `to`.
#[derive(Debug, Clone, PartialEq)]
pub struct HopReport {
    /// Sending end.
    pub from: HopEnd,
    /// Receiving end.
    pub to: HopEnd,
    /// Observed behaviour.
    pub observation: HopObservation,
    /// Train that arrived when the other end measured the path (LH-PROBE-2). The hop then carried
    /// no payload of a session.
    pub train: Option<Train>,
}

/// Callback for hop reports. The threads that relay call it, so it must not block.
#[derive(Clone)]
pub struct HopObserver(pub Arc<dyn Fn(HopReport) + Send + Sync>);

impl fmt::Debug for HopObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HopObserver")
    }
}

/// Returns the other ends of the two hops of a forwarded session, from its forwarded OPEN: towards
/// the initiator, and towards the acceptor. The latter is `added` if this depot added a hop.
pub(crate) fn hop_ends(open: &Open, added: Option<&Hop>) -> (HopEnd, HopEnd) {
    // The last passed depot is this one.
    let before = open.passed.iter().rev().nth(1).copied();
    let upstream = HopEnd::Key(before.unwrap_or(open.principal));
    let listed = || {
        open.route
            .hops()
            .get(usize::from(open.cursor).checked_sub(1)?)
    };
    let downstream = match added.or_else(listed) {
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
    use longhaul_proto::{Route, ServiceName, SessionId};

    use super::*;

    #[test]
    fn hop_ends_are_the_previous_hop_and_the_dialled_one() {
        let [me, other, next] = [1, 2, 3].map(|byte| PublicKey::from_bytes([byte; 32]));
        let route: Route = format!("a:1,b:2,{next}@c:3").parse().unwrap();
        let (id, destination) = (SessionId::from_bytes([0; 16]), "h:9".parse().unwrap());
        let mut open = Open::new(id, ServiceName::COPY, route, destination, Duration::ZERO);
        open.principal = other;
        open.passed = vec![me];
        open.cursor = 2;
        assert_eq!(
            hop_ends(&open, None),
            (HopEnd::Key(other), HopEnd::At("b:2".parse().unwrap()))
        );
        open.passed = vec![other, me];
        open.cursor = 3;
        assert_eq!(
            hop_ends(&open, None),
            (HopEnd::Key(other), HopEnd::Key(next))
        );
        open.cursor = 4;
        assert_eq!(hop_ends(&open, None).1, HopEnd::At("h:9".parse().unwrap()));
        // An added depot leaves the cursor as it is.
        open.cursor = 1;
        let added: Route = "d:8".parse().unwrap();
        assert_eq!(
            hop_ends(&open, added.hops().first()).1,
            HopEnd::At("d:8".parse().unwrap())
        );
    }
}
