//! Detection of a flow's current limit from [`Sample`]s alone, without socket or clock.
//!
//! Samples are gathered into intervals of about one round trip and at least 100 ms. For each
//! interval the differences of the counters and the single samples are kept. `sending` and
//! `receiving` derive a [`Limit`] from them and from a short memory of the flow.
//! `docs/right-sizing.md` explains the rules and their accuracy.

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

/// Minimum length of an interval: counters of stalled time tick in steps of up to 10 ms.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum length of an interval, however long the round trip.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// End of the connection that is watched: the sender or the receiver of the bulk of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The sender, which sees every limit of the flow.
    Sending,
    /// The receiver, which sees less: its own program, the window that it offers, losses, and a
    /// queue on the path. It reports every other limit of the sender as [`Limit::Sender`].
    Receiving,
}

/// Watches one flow, and derives verdicts on its limit from samples.
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

    /// Takes the next sample. Returns a verdict when it closes an interval, which happens after one
    /// round trip, but at least 100 ms and at most 1 s. One sample per interval is enough; several
    /// ([`SAMPLE_PERIOD`](crate::SAMPLE_PERIOD)) show events within it.
    ///
    /// A sample with a time before that of the last one resets the estimator.
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

/// Suppresses flickering verdicts: a limit that differs from the last verdict is accepted when two
/// consecutive intervals show it. So a change is reported one interval late.
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
