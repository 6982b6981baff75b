//! Observes a session while [`longhaul_hop::Duplex`] moves its bytes unread (LH-DEPOT-3): counts
//! them, and samples the limits of its two hops. Never changes a setting.
//!
//! The first side of the duplex is the upstream hop, on which the OPEN arrived. The second is the
//! downstream hop, which was dialled.

use std::time::Duration;

use drs::{Estimator, Limit, LimitTally, Sampler, Side};
use longhaul_hop::{Conn, DuplexObserver};
use longhaul_proto::{Hop, Open};
use tokio::time::Instant;

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
}

/// Watches both hops of one session.
#[derive(Debug)]
struct HopWatches {
    begun: Instant,
    next: Instant,
    forward: bool,
    sending: HopWatch,
    receiving: HopWatch,
}

#[derive(Debug)]
struct HopWatch {
    sampler: Sampler,
    estimator: Estimator,
    sends: bool,
    first: Option<(Duration, u64)>,
    latest: HopObservation,
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
    pub(crate) fn new(traffic: Traffic) -> Self {
        Self {
            traffic,
            hops: None,
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
    pub(crate) fn sent_downstream(&self) -> Option<&HopObservation> {
        let hops = self.hops.as_ref().filter(|hops| hops.forward)?;
        Some(&hops.sending.latest)
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
        Some([
            report(source, HopEnd::Here, hops.receiving.latest),
            report(HopEnd::Here, sink, hops.sending.latest),
        ])
    }
}

impl DuplexObserver<Conn, Conn> for RelayObserver {
    fn count(&mut self, forward: u64, backward: u64) {
        self.traffic.count(forward, backward);
    }

    fn watch(&mut self, upstream: &mut Conn, downstream: &mut Conn, forward: bool) {
        self.hops
            .get_or_insert_with(|| Box::new(HopWatches::new(forward)))
            .sample(upstream, downstream);
    }
}

impl HopWatches {
    /// Begins to observe. `forward` is true if the bulk data moves towards the acceptor.
    fn new(forward: bool) -> Self {
        let now = Instant::now();
        let hop = |side| HopWatch {
            sampler: Sampler::new(),
            estimator: Estimator::new(side),
            sends: matches!(side, Side::Sending),
            first: None,
            latest: HopObservation::default(),
        };
        Self {
            begun: now,
            next: now,
            forward,
            sending: hop(Side::Sending),
            receiving: hop(Side::Receiving),
        }
    }

    /// Samples both hops, if that is due.
    fn sample(&mut self, upstream: &mut Conn, downstream: &mut Conn) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + SAMPLE_INTERVAL;
        let at = now - self.begun;
        if self.forward {
            self.receiving.sample(upstream, at);
            self.sending.sample(downstream, at);
        } else {
            self.receiving.sample(downstream, at);
            self.sending.sample(upstream, at);
        }
    }

    fn tallies(&self) -> HopTallies {
        let (sending, receiving) = (self.sending.latest.tally, self.receiving.latest.tally);
        if self.forward {
            HopTallies {
                upstream: receiving,
                downstream: sending,
            }
        } else {
            HopTallies {
                upstream: sending,
                downstream: receiving,
            }
        }
    }
}

impl HopWatch {
    /// Samples a hop that has a TCP socket.
    fn sample(&mut self, hop: &mut Conn, at: Duration) {
        let Some(socket) = hop.tcp() else {
            return;
        };
        // A socket that cannot be sampled is about to fail, which is reported elsewhere.
        let Ok(sample) = self.sampler.sample(socket, at) else {
            return;
        };
        if let Some(verdict) = self.estimator.observe(&sample) {
            self.latest.tally.add(&verdict);
        }
        let info = &sample.info;
        let moved = if self.sends {
            info.bytes_acked
        } else {
            info.bytes_received
        };
        let (Some(moved), latest) = (moved, &mut self.latest) else {
            return;
        };
        let (begun, before) = *self.first.get_or_insert((at, moved));
        latest.bytes = moved.saturating_sub(before);
        latest.time = at.saturating_sub(begun);
        latest.rtt = info.rtt;
        if self.sends {
            latest.segments = info.bytes_sent.unwrap_or(0) / u64::from(info.send_mss.max(1));
            latest.lost = u64::from(info.retransmits);
            sample
                .congestion
                .name
                .as_str()
                .clone_into(&mut latest.congestion);
        } else if info.receive_rtt > Duration::ZERO && info.rtt.is_zero() {
            latest.rtt = info.receive_rtt;
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
