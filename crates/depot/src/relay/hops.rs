//! What limits the two hops of a relayed session. Looks every now and then, as data passes; never sets anything.

use std::os::fd::AsFd;
use std::time::Duration;

use drs::{Estimator, Limit, Sampler, Side, Tally};
use tokio::time::Instant;

/// Between looks: rare enough to cost a busy relay nothing that can be measured, often enough for a verdict a second.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A session that moved less has no bulk direction and is not looked at, so that it costs no memory.
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
    tally: Tally,
}

/// What limited each hop of a session while it was looked at.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HopTallies {
    /// The hop towards the initiator.
    pub(crate) upstream: Tally,
    /// The hop towards the acceptor.
    pub(crate) downstream: Tally,
}

impl Hops {
    /// Begins to watch once a session has a bulk direction.
    pub(super) fn of(forward: u64, backward: u64) -> Option<Box<Self>> {
        if forward.max(backward) < BULK {
            return None;
        }
        let now = Instant::now();
        let hop = |side| Hop {
            sampler: Sampler::new(),
            estimator: Estimator::new(side),
            tally: Tally::default(),
        };
        Some(Box::new(Self {
            begun: now,
            next: now,
            forward: forward >= backward,
            sending: hop(Side::Sending),
            receiving: hop(Side::Receiving),
        }))
    }

    /// Looks at both hops, when that is due.
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

    pub(super) fn tallies(&self) -> HopTallies {
        let (sending, receiving) = (self.sending.tally, self.receiving.tally);
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
        // What cannot be sampled is about to end, and says so elsewhere.
        if let Ok(sample) = self.sampler.sample(socket, at)
            && let Some(verdict) = self.estimator.observe(&sample)
        {
            self.tally.add(&verdict);
        }
    }
}

impl HopTallies {
    /// The limit that held longest at a hop, as a word.
    pub(crate) fn chief(tally: &Tally) -> Option<&'static str> {
        tally.chief().map(|(limit, _)| Limit::word(limit))
    }
}
