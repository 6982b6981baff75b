//! Valid runs of an experiment, and the values derived from them.

use crate::record::Record;
use crate::single::Basis;
use crate::stats::Spread;

/// Valid runs under one kind of noise.
pub struct Runs<'a, C, S> {
    records: Vec<&'a Record<C, S>>,
}

impl<'a, C: PartialEq, S> Runs<'a, C, S> {
    /// Selects the valid ones of `records`.
    pub fn select_valid(records: impl IntoIterator<Item = &'a Record<C, S>>) -> Self {
        Self {
            records: records
                .into_iter()
                .filter(|record| record.gate.valid)
                .collect(),
        }
    }

    /// Returns true if there are no runs.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the runs of the cells that satisfy `wanted`, by seed.
    pub fn pick(&self, wanted: impl Fn(&C) -> bool) -> Vec<&'a Record<C, S>> {
        let mut picked: Vec<_> = self
            .records
            .iter()
            .copied()
            .filter(|record| wanted(&record.cell.factors))
            .collect();
        picked.sort_by_key(|record| record.cell.seed);
        picked
    }

    /// Returns the runs of one cell, by seed.
    pub fn cell(&self, cell: &C) -> Vec<&'a Record<C, S>> {
        self.pick(|other| other == cell)
    }

    /// Returns the spread of a value over the runs of one cell.
    pub fn spread(&self, cell: &C, value: impl Fn(&S) -> f64) -> Option<Spread> {
        self.spread_of(|other| other == cell, value)
    }

    /// Returns the spread of a value over the runs of the cells that satisfy `wanted`.
    pub fn spread_of(
        &self,
        wanted: impl Fn(&C) -> bool,
        value: impl Fn(&S) -> f64,
    ) -> Option<Spread> {
        let values: Vec<f64> = self
            .pick(wanted)
            .iter()
            .map(|record| value(&record.seen))
            .collect();
        Spread::from_samples(&values)
    }

    /// Returns the basis of a figure that takes these cells together: that of the fewest runs.
    pub fn basis<'b>(&self, cells: impl IntoIterator<Item = &'b C>) -> Basis
    where
        C: 'b,
    {
        let runs = cells.into_iter().map(|cell| self.cell(cell).len());
        Basis::Runs(runs.min().unwrap_or(0))
    }

    /// Returns the value of `of` divided by that of `by`, for every seed that both have.
    pub fn ratios(&self, of: &C, by: &C, value: impl Fn(&S) -> f64) -> Vec<f64> {
        let others = self.cell(by);
        self.cell(of)
            .iter()
            .filter_map(|record| {
                let other = others
                    .iter()
                    .find(|other| other.cell.seed == record.cell.seed)?;
                Some(value(&record.seen) / value(&other.seen))
            })
            .collect()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::noise::Noise;
    use crate::record::{Gate, Key, Provenance};

    /// Makes a run for tests.
    pub fn record<C, S>(factors: C, seed: u64, seen: S, valid: bool) -> Record<C, S> {
        Record {
            cell: Key {
                factors,
                seed,
                noise: Noise::None,
            },
            seen,
            gate: Gate {
                valid,
                reasons: vec![],
                lag_p99_us: 0,
                busy: 0.0,
                steal: 0.0,
                discarded: 0,
            },
            made: Provenance {
                commit: "1a2b3c4".into(),
                kernel: "6.1".into(),
                backend: "user/tun".into(),
                processor: "2 x A 1".into(),
                awake: false,
                date: "2026-01-01".into(),
            },
        }
    }

    #[test]
    fn ratios_pair_runs_of_the_same_seed() {
        let records = [
            record("direct", 1, 2.0, true),
            record("direct", 2, 4.0, true),
            record("depots", 2, 12.0, true),
            record("depots", 1, 4.0, true),
        ];
        let runs = Runs::select_valid(&records);
        assert_eq!(runs.ratios(&"depots", &"direct", |seen| *seen), [2.0, 3.0]);
    }

    #[test]
    fn basis_is_the_cell_with_the_fewest_runs() {
        let records = [
            record("a", 1, 2.0, true),
            record("b", 1, 2.0, true),
            record("b", 2, 2.0, true),
            record("a", 2, 2.0, false),
        ];
        let runs = Runs::select_valid(&records);
        assert_eq!(runs.basis([&"a", &"b"]), Basis::Runs(1));
        assert_eq!(runs.basis([&"b"]), Basis::Runs(2));
        assert_eq!(runs.basis([]), Basis::Runs(0));
    }

    #[test]
    fn a_run_that_the_lab_spoilt_does_not_count() {
        let records = [record("a", 1, 2.0, false)];
        assert!(
            Runs::select_valid(&records)
                .spread(&"a", |seen| *seen)
                .is_none()
        );
    }
}
