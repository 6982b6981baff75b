//! Runs in an experiment's file while some of them are measured again.
//!
//! Only a new, finished run of the same cell, seed and noise replaces a run. All others stay,
//! whatever their code, and the page names the commit of each run.

use std::collections::BTreeMap;

use crate::record::{Key, Record};

/// Runs of one experiment, as its file will hold them.
#[derive(Clone, Debug)]
pub struct Published<C, S> {
    records: Vec<Record<C, S>>,
}

/// Effect of a new run on the published ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The run is new, or replaces one of the same key.
    Taken,
    /// The lab did not keep up, and an earlier valid run stays instead.
    Refused,
}

impl<C: PartialEq, S> Published<C, S> {
    /// Wraps the runs that the file holds now.
    pub const fn new(records: Vec<Record<C, S>>) -> Self {
        Self { records }
    }

    /// Returns all runs.
    pub fn records(&self) -> &[Record<C, S>] {
        &self.records
    }

    /// Returns true if this commit has made a run of `key` that counts.
    pub fn has(&self, key: &Key<C>, commit: &str) -> bool {
        let mut same = self.records.iter().filter(|record| record.cell == *key);
        same.any(|record| record.gate.valid && record.made.commit == commit)
    }

    /// Replaces the run of the same key by a new run.
    pub fn take(&mut self, record: Record<C, S>) -> Change {
        let is_same = |old: &Record<C, S>| old.cell == record.cell;
        if !record.gate.valid
            && self
                .records
                .iter()
                .any(|old| is_same(old) && old.gate.valid)
        {
            return Change::Refused;
        }
        self.records.retain(|old| !is_same(old));
        self.records.push(record);
        Change::Taken
    }

    /// Sorts the runs in the order of the file.
    pub fn sort_by_key<K: Ord>(&mut self, key: impl FnMut(&Record<C, S>) -> K) {
        self.records.sort_by_key(key);
    }

    /// Describes the runs that measuring `keys` leaves unchanged. `None` if there are none.
    pub fn kept(&self, keys: &[Key<C>]) -> Option<String> {
        let mut commits = BTreeMap::<&str, usize>::new();
        let kept = self
            .records
            .iter()
            .filter(|record| !keys.contains(&record.cell));
        kept.for_each(|record| *commits.entry(&record.made.commit).or_default() += 1);
        let runs: usize = commits.values().sum();
        let each: Vec<String> = commits
            .iter()
            .map(|(commit, runs)| format!("{runs} of {commit}"))
            .collect();
        (runs > 0).then(|| {
            format!(
                "{runs} runs are kept and not made again: {}",
                each.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;
    use crate::runs::tests::record;

    fn with_commit(
        commit: &str,
        mut record: Record<&'static str, f64>,
    ) -> Record<&'static str, f64> {
        record.made.commit = commit.into();
        record
    }

    fn published() -> Published<&'static str, f64> {
        Published::new(vec![
            with_commit("old", record("a", 1, 1.0, true)),
            with_commit("old", record("a", 2, 2.0, true)),
            with_commit("older", record("not in the plan", 1, 3.0, true)),
        ])
    }

    fn values(published: &Published<&'static str, f64>) -> Vec<f64> {
        let mut values: Vec<f64> = published
            .records()
            .iter()
            .map(|record| record.seen)
            .collect();
        values.sort_by(f64::total_cmp);
        values
    }

    #[test]
    fn run_replaces_only_that_of_the_same_key() {
        let mut published = published();
        assert_eq!(
            published.take(with_commit("new", record("a", 1, 9.0, true))),
            Change::Taken
        );
        assert_eq!(values(&published), [2.0, 3.0, 9.0]);
        assert_eq!(
            published.take(with_commit("new", record("b", 1, 8.0, true))),
            Change::Taken
        );
        assert_eq!(values(&published), [2.0, 3.0, 8.0, 9.0]);
        let mut noisy = record("a", 2, 7.0, true);
        noisy.cell.noise = Noise::Codel;
        published.take(noisy);
        assert_eq!(values(&published), [2.0, 3.0, 7.0, 8.0, 9.0]);
    }

    #[test]
    fn spoilt_run_never_replaces_one_that_counts() {
        let mut published = published();
        assert_eq!(
            published.take(with_commit("new", record("a", 1, 9.0, false))),
            Change::Refused
        );
        assert_eq!(values(&published), [1.0, 2.0, 3.0]);
        assert_eq!(
            published.take(with_commit("new", record("c", 1, 9.0, false))),
            Change::Taken
        );
        assert_eq!(
            published.take(with_commit("new", record("c", 1, 8.0, false))),
            Change::Taken
        );
        assert_eq!(values(&published), [1.0, 2.0, 3.0, 8.0]);
    }

    #[test]
    fn runs_that_are_not_made_again_are_named_with_their_commits() {
        let published = published();
        let keys = [published.records()[0].cell.clone()];
        assert_eq!(
            published.kept(&keys).unwrap(),
            "2 runs are kept and not made again: 1 of old, 1 of older"
        );
        let all: Vec<_> = published
            .records()
            .iter()
            .map(|record| record.cell.clone())
            .collect();
        assert_eq!(published.kept(&all), None);
    }

    #[test]
    fn resume_skips_only_valid_runs_of_this_commit() {
        let mut published = published();
        let key = published.records()[0].cell.clone();
        assert!(published.has(&key, "old") && !published.has(&key, "new"));
        let mut spoilt = with_commit("new", record("d", 1, 9.0, false));
        spoilt.cell.seed = 5;
        let key = spoilt.cell.clone();
        published.take(spoilt);
        assert!(!published.has(&key, "new"));
    }
}
