//! Observes the limits of the two hops of a relayed session. Takes occasional samples as data
//! passes, and never changes a setting.

use std::os::fd::AsFd;
use std::time::Duration;

use drs::{Estimator, Limit, Sampler, Side, Tally};
use tokio::time::Instant;

use crate::observe::{HopEnd, HopReport, HopSeen};

/// Interval between samples: rare enough that a busy relay shows no measurable cost, frequent
/// enough for a verdict per second.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Minimum bytes moved before a session has a bulk direction and is observed. Smaller sessions cost
/// no memory for it.
const BULK: u64 = 256 * 1024;

/// Watches both hops of one session.
#[derive(Debug)]
pub(crate) struct Hops {
    begun: Instant,
    next: Instant,
    forward: bool,
    sending: Hop,
    receiving: Hop,
}

#[derive(Debug)]
struct Hop {
    sampler: Sampler,
    estimator: Estimator,
    sends: bool,
    first: Option<(Duration, u64)>,
    latest: HopSeen,
}

/// Observations of both hops of a session.
#[derive(Debug, Clone)]
pub(crate) struct HopsSeen {
    forward: bool,
    sending: HopSeen,
    receiving: HopSeen,
}

impl HopsSeen {
    /// Returns a report of each hop, in the direction that carried most of the bytes.
    pub(crate) fn reports(self, initiator: HopEnd, acceptor: HopEnd) -> [HopReport; 2] {
        let (source, sink) = match self.forward {
            true => (initiator, acceptor),
            false => (acceptor, initiator),
        };
        [
            HopReport {
                from: source,
                to: HopEnd::Here,
                seen: self.receiving,
                train: None,
            },
            HopReport {
                from: HopEnd::Here,
                to: sink,
                seen: self.sending,
                train: None,
            },
        ]
    }
}

/// Time spent under each limit, at each hop of a session.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HopTallies {
    /// The hop towards the initiator.
    pub(crate) upstream: Tally,
    /// The hop towards the acceptor.
    pub(crate) downstream: Tally,
}

impl Hops {
    /// Begins to observe once a session has a bulk direction.
    pub(super) fn of(forward: u64, backward: u64) -> Option<Box<Self>> {
        if forward.max(backward) < BULK {
            return None;
        }
        let now = Instant::now();
        let hop = |side| Hop {
            sampler: Sampler::new(),
            estimator: Estimator::new(side),
            sends: matches!(side, Side::Sending),
            first: None,
            latest: HopSeen::default(),
        };
        Some(Box::new(Self {
            begun: now,
            next: now,
            forward: forward >= backward,
            sending: hop(Side::Sending),
            receiving: hop(Side::Receiving),
        }))
    }

    /// Samples both hops, if that is due.
    pub(super) fn look(&mut self, upstream: &impl AsFd, downstream: &impl AsFd) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + LOOK_EVERY;
        let at = now - self.begun;
        if self.forward {
            self.receiving.look(upstream, at);
            self.sending.look(downstream, at);
        } else {
            self.receiving.look(downstream, at);
            self.sending.look(upstream, at);
        }
    }

    pub(super) fn seen(&self) -> HopsSeen {
        HopsSeen {
            forward: self.forward,
            sending: self.sending.latest.clone(),
            receiving: self.receiving.latest.clone(),
        }
    }

    pub(super) fn tallies(&self) -> HopTallies {
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

impl Hop {
    fn look(&mut self, socket: &impl AsFd, at: Duration) {
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
    pub(crate) fn chief(tally: &Tally) -> Option<&'static str> {
        tally.chief().map(|(limit, _)| Limit::word(limit))
    }
}
