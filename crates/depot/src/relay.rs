//! Observes a session while [`longhaul_hop::Duplex`] moves its bytes unread (LH-DEPOT-3): counts
//! them, and samples the limits of its two hops. Changes no setting but the pacing of a circuit.
//!
//! The first side of the duplex is the upstream hop, on which the OPEN arrived. The second is the
//! downstream hop, which was dialled.

use std::sync::Arc;
use std::time::Duration;

use drs::{FlowWatch, Limit, LimitTally, Side, WatchSettings};
use longhaul_hop::{Conn, DuplexObserver};
use longhaul_proto::{Hop, Open};
use longhaul_wishes::HeldHop;

use crate::marking::RelayedBytes;
use crate::metrics::Traffic;
use crate::observe::{HopEnd, HopObservation, HopReport, hop_ends};

/// Interval between samples: rare enough that a busy relay shows no measurable cost, frequent
/// enough for a verdict per second.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// Counts the bytes of a relayed session, and watches its hops once it moves bulk data.
#[derive(Debug)]
pub(crate) struct RelayObserver {
    traffic: Traffic,
    hops: Option<Box<HopWatches>>,
    /// The downstream hop, if it may get a circuit.
    circuit: Option<HeldHop>,
    /// Bytes of the session, if its hops are marked.
    marked: Option<Arc<RelayedBytes>>,
}

/// Watches both hops of one session.
#[derive(Debug)]
struct HopWatches {
    forward: bool,
    sending: FlowWatch,
    receiving: FlowWatch,
}

/// Time spent under each limit, at each hop of a session.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HopTallies {
    /// The hop towards the initiator.
    pub(crate) upstream: LimitTally,
    /// The hop towards the acceptor.
    pub(crate) downstream: LimitTally,
}

impl RelayObserver {
    pub(crate) fn new(
        traffic: Traffic,
        circuit: Option<HeldHop>,
        marked: Option<Arc<RelayedBytes>>,
    ) -> Self {
        Self {
            traffic,
            hops: None,
            circuit,
            marked,
        }
    }

    /// Returns the time spent under each limit so far.
    pub(crate) fn tallies(&self) -> HopTallies {
        self.hops
            .as_ref()
            .map(|hops| hops.tallies())
            .unwrap_or_default()
    }

    /// Returns what the downstream hop experienced while this depot sent bulk data over it.
    pub(crate) fn sent_downstream(&self) -> Option<HopObservation> {
        let hops = self.hops.as_ref().filter(|hops| hops.forward)?;
        Some(HopObservation::from_sender(hops.sending.observations()))
    }

    /// Returns a report of each hop, in the direction that carried most of the bytes; `None` if too
    /// few bytes moved.
    pub(crate) fn into_reports(self, open: &Open, added: Option<&Hop>) -> Option<[HopReport; 2]> {
        let hops = *self.hops?;
        let (initiator, acceptor) = hop_ends(open, added);
        let (source, sink) = match hops.forward {
            true => (initiator, acceptor),
            false => (acceptor, initiator),
        };
        let report = |from, to, observation| HopReport {
            from,
            to,
            observation,
            train: None,
        };
        let sent = HopObservation::from_sender(hops.sending.observations());
        let received = HopObservation::from_receiver(hops.receiving.observations());
        Some([
            report(source, HopEnd::Here, received),
            report(HopEnd::Here, sink, sent),
        ])
    }
}

impl DuplexObserver<Conn, Conn> for RelayObserver {
    fn count(&mut self, forward: u64, backward: u64) {
        self.traffic.count(forward, backward);
        if let Some(circuit) = &self.circuit {
            circuit.count(forward, backward);
        }
        if let Some(marked) = &self.marked {
            marked.count(forward, backward);
        }
    }

    fn watch(&mut self, upstream: &mut Conn, downstream: &mut Conn, forward: bool) {
        if let Some(circuit) = &mut self.circuit {
            circuit.pace(downstream.tcp());
        }
        self.hops
            .get_or_insert_with(|| Box::new(HopWatches::new(forward)))
            .sample(upstream, downstream);
    }
}

impl HopWatches {
    /// Begins to observe. `forward` is true if the bulk data moves towards the acceptor.
    fn new(forward: bool) -> Self {
        let settings = WatchSettings {
            period: SAMPLE_INTERVAL,
            ..WatchSettings::observe_only()
        };
        Self {
            forward,
            sending: FlowWatch::new(settings, Side::Sending),
            receiving: FlowWatch::new(settings, Side::Receiving),
        }
    }

    /// Samples both hops, if that is due.
    fn sample(&self, upstream: &Conn, downstream: &Conn) {
        let (source, sink) = match self.forward {
            true => (upstream, downstream),
            false => (downstream, upstream),
        };
        for (watch, hop) in [(&self.receiving, source), (&self.sending, sink)] {
            match hop {
                Conn::Tcp(socket) => {
                    watch.sample(socket, 0);
                }
                Conn::Stream(stream) => {
                    watch.record(|side| Some(stream.measurement()?.sample(side)));
                }
            }
        }
    }

    fn tallies(&self) -> HopTallies {
        let sending = self.sending.observations().tally;
        let receiving = self.receiving.observations().tally;
        let (upstream, downstream) = match self.forward {
            true => (receiving, sending),
            false => (sending, receiving),
        };
        HopTallies {
            upstream,
            downstream,
        }
    }
}

impl HopTallies {
    /// Returns the dominant limit at a hop, as a word.
    pub(crate) fn dominant_limit(tally: &LimitTally) -> Option<&'static str> {
        tally
            .dominant_limit()
            .map(|(limit, _)| Limit::as_str(limit))
    }
}
