//! For how long each limit held, over many intervals.

use std::time::Duration;

use crate::{Evidence, Limit, Verdict};

/// What limited a flow, or several, so far.
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

    /// Counts time that was reported rather than measured: by the other end, say.
    pub fn hold(&mut self, limit: Limit, time: Duration) {
        if let Some(held) = self.held.get_mut(limit as usize) {
            *held = held.saturating_add(time);
        }
    }

    /// Takes in another flow's.
    pub fn merge(&mut self, other: &Self) {
        for limit in Limit::ALL {
            self.hold(limit, other.held(limit));
        }
        self.last = other.last.or(self.last);
    }

    /// What was counted since an earlier state of the same tally.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = *self;
        for (held, before) in since.held.iter_mut().zip(earlier.held) {
            *held = held.saturating_sub(before);
        }
        since
    }

    /// For how long a limit held.
    #[must_use]
    pub fn held(&self, limit: Limit) -> Duration {
        self.held.get(limit as usize).copied().unwrap_or_default()
    }

    /// All that was counted.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.held
            .iter()
            .fold(Duration::ZERO, |sum, held| sum.saturating_add(*held))
    }

    /// The limit that held longest and its share of the time, 0 to 1; `None` when nothing was
    /// counted.
    #[must_use]
    pub fn chief(&self) -> Option<(Limit, f64)> {
        let total = self.total().as_secs_f64();
        let limit = Limit::ALL
            .into_iter()
            .max_by_key(|limit| self.held(*limit))?;
        (total > 0.0).then(|| (limit, self.held(limit).as_secs_f64() / total))
    }

    /// The latest verdict's evidence.
    #[must_use]
    pub fn evidence(&self) -> Option<Evidence> {
        self.last.map(|verdict| verdict.evidence)
    }

    /// The latest verdict.
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
    fn the_chief_limit_is_the_one_that_held_longest() {
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
