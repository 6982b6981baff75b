//! What limits a flow right now, found from [`Sample`]s and nothing else: no socket, no clock.
//!
//! Samples are gathered into intervals of about one round trip and at least 100 ms. Of each
//! interval the counters' differences and the single looks are kept; `sending` and `receiving` make
//! a [`Limit`] of them and of the little that is remembered of the flow. `docs/right-sizing.md`
//! explains the rules and how often they are right.

mod holes;
mod interval;
mod receiving;
mod round_trips;
mod sending;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::{Limit, Sample, Verdict};
use interval::Interval;

/// No interval is shorter: counters of stalled time tick in steps of up to 10 ms.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// None has to be longer, however long the round trip.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// Which end of the connection is looked at: the one that sends the bulk of the data or the one
/// that receives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Sees everything that holds the flow.
    Sending,
    /// Sees less: its own program, the window that it offers, losses and a queue on the path. What
    /// holds the sender back otherwise it can't tell apart and calls [`Limit::Sender`].
    Receiving,
}

/// Watches one flow. See the module's documentation.
#[derive(Debug, Clone)]
pub struct Estimator {
    side: Side,
    gathering: Option<Interval>,
    sending: sending::Memory,
    receiving: receiving::Memory,
    smoothing: Smoothing,
}

impl Estimator {
    /// Begins to watch a flow, best from its start: the largest window that the peer ever offered
    /// is remembered.
    #[must_use]
    pub fn new(side: Side) -> Self {
        Self {
            side,
            gathering: None,
            sending: sending::Memory::default(),
            receiving: receiving::Memory::default(),
            smoothing: Smoothing::default(),
        }
    }

    /// Takes the next sample. Gives a verdict when it closes an interval, which it does after one
    /// round trip, but at least 100 ms and at most 1 s. One sample an interval is enough; several
    /// ([`SAMPLE_PERIOD`](crate::SAMPLE_PERIOD)) see what goes on within.
    ///
    /// A sample whose time lies before the last one's begins anew.
    pub fn observe(&mut self, sample: &Sample) -> Option<Verdict> {
        if self
            .gathering
            .is_some_and(|open| open.last().at > sample.at)
        {
            *self = Self::new(self.side);
        }
        match self.side {
            Side::Sending => self.sending.look(sample),
            Side::Receiving => self.receiving.look(sample),
        }
        let Some(interval) = self.gathering.as_mut() else {
            self.gathering = Some(Interval::open(sample));
            return None;
        };
        interval.look(sample);
        let rtt = match self.side {
            Side::Sending => sample.info.rtt,
            Side::Receiving => sample.info.receive_rtt.max(sample.info.rtt),
        };
        if interval.length() < rtt.clamp(MIN_INTERVAL, MAX_INTERVAL) {
            return None;
        }
        let closed = *interval;
        self.gathering = Some(Interval::open(sample));
        let limit = match self.side {
            Side::Sending => self.sending.judge(&closed),
            Side::Receiving => self.receiving.judge(&closed),
        };
        Some(Verdict {
            limit: self.smoothing.settle(limit),
            evidence: closed.evidence(self.side),
        })
    }
}

/// Keeps single intervals from flickering: a limit that differs from the last verdict is believed
/// when two intervals in a row say it. So a change is reported one interval late.
#[derive(Debug, Clone, Copy, Default)]
struct Smoothing {
    verdict: Option<Limit>,
    other: Option<Limit>,
}

impl Smoothing {
    fn settle(&mut self, limit: Limit) -> Limit {
        let settled = match self.verdict {
            Some(verdict) if verdict != limit && self.other != Some(limit) => verdict,
            _ => limit,
        };
        self.other = (settled != limit).then_some(limit);
        self.verdict = Some(settled);
        settled
    }
}
