//! Durations of each limit, over many intervals.

use std::time::Duration;

use crate::{Evidence, Limit, Verdict};

/// Durations of the limits of one or several flows so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tally {
    held: [Duration; Limit::ALL.len()],
    last: Option<Verdict>,
}

impl Tally {
    /// Counts one interval.
    pub fn add(&mut self, verdict: &Verdict) {
        self.hold(verdict.limit, verdict.evidence.interval);
        self.last = Some(*verdict);
    }

    /// Counts time that was reported rather than measured, for example by the peer.
    pub fn hold(&mut self, limit: Limit, time: Duration) {
        if let Some(held) = self.held.get_mut(limit as usize) {
            *held = held.saturating_add(time);
        }
    }

    /// Adds the counts of another flow.
    pub fn merge(&mut self, other: &Self) {
        for limit in Limit::ALL {
            self.hold(limit, other.held(limit));
        }
        self.last = other.last.or(self.last);
    }

    /// Returns what was counted since an earlier state of the same tally.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = *self;
        for (held, before) in since.held.iter_mut().zip(earlier.held) {
            *held = held.saturating_sub(before);
        }
        since
    }

    /// Returns the duration of a limit.
    #[must_use]
    pub fn held(&self, limit: Limit) -> Duration {
        self.held.get(limit as usize).copied().unwrap_or_default()
    }

    /// Returns the total duration.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.held
            .iter()
            .fold(Duration::ZERO, |sum, held| sum.saturating_add(*held))
    }

    /// Returns the limit that held longest, and its share of the time from 0 to 1. Returns `None`
    /// if nothing was counted.
    #[must_use]
    pub fn chief(&self) -> Option<(Limit, f64)> {
        let total = self.total().as_secs_f64();
        let limit = Limit::ALL
            .into_iter()
            .max_by_key(|limit| self.held(*limit))?;
        (total > 0.0).then(|| (limit, self.held(limit).as_secs_f64() / total))
    }

    /// Returns the evidence of the latest verdict.
    #[must_use]
    pub fn evidence(&self) -> Option<Evidence> {
        self.last.map(|verdict| verdict.evidence)
    }

    /// Returns the latest verdict.
    #[must_use]
    pub const fn last(&self) -> Option<Verdict> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(limit: Limit, ms: u64) -> Verdict {
        let evidence = Evidence {
            interval: Duration::from_millis(ms),
            ..Evidence::default()
        };
        Verdict { limit, evidence }
    }

    #[test]
    fn dominant_limit_is_the_one_that_held_longest() {
        let mut tally = Tally::default();
        assert_eq!(tally.chief(), None);
        tally.add(&verdict(Limit::Growing, 300));
        tally.add(&verdict(Limit::Loss, 100));
        tally.add(&verdict(Limit::Loss, 100));
        assert_eq!(tally.chief(), Some((Limit::Growing, 0.6)));
        let mut other = Tally::default();
        other.add(&verdict(Limit::Loss, 500));
        tally.merge(&other);
        assert_eq!(tally.chief(), Some((Limit::Loss, 0.7)));
        assert_eq!(tally.held(Limit::Path), Duration::ZERO);
        assert_eq!(tally.total(), Duration::from_secs(1));
        assert_eq!(tally.since(&other).chief(), Some((Limit::Growing, 0.6)));
        assert_eq!(tally.last().map(|last| last.limit), Some(Limit::Loss));
    }
}
