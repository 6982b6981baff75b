//! Valid runs of an experiment, and the values derived from them.

use crate::columns::Columns;
use crate::measured::{Measured, spread};
use crate::record::Record;
use crate::single::Basis;
use crate::stats::{Gain, Spread};

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

    /// Returns each of these cells with its runs.
    pub fn rows(&self, cells: impl IntoIterator<Item = C>) -> Vec<Measured<'a, C, S>> {
        let row = |cell| Measured {
            runs: self.cell(&cell),
            cell,
        };
        cells.into_iter().map(row).collect()
    }

    /// Begins a table with a row for each of these cells.
    pub fn table<'b>(&self, cells: impl IntoIterator<Item = C>) -> Columns<'b, Measured<'a, C, S>> {
        Columns::of(self.rows(cells))
    }

    /// Returns the spread of a value over the runs of one cell. A run whose value is `None` does
    /// not count.
    pub fn spread<V: Into<Option<f64>>>(
        &self,
        cell: &C,
        value: impl Fn(&S) -> V,
    ) -> Option<Spread> {
        self.spread_of(|other| other == cell, value)
    }

    /// Returns the spread of a value over the runs of the cells that satisfy `wanted`.
    pub fn spread_of<V: Into<Option<f64>>>(
        &self,
        wanted: impl Fn(&C) -> bool,
        value: impl Fn(&S) -> V,
    ) -> Option<Spread> {
        spread(&self.pick(wanted), value)
    }

    /// Returns a value in two cells, of which the second is compared with the first.
    pub fn gain<V: Into<Option<f64>>>(
        &self,
        [before, after]: [&C; 2],
        value: impl Fn(&S) -> V,
    ) -> Option<Gain> {
        Some(Gain {
            before: self.spread(before, &value)?,
            after: self.spread(after, &value)?,
        })
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
    pub fn ratios<V: Into<Option<f64>>>(
        &self,
        of: &C,
        by: &C,
        value: impl Fn(&S) -> V,
    ) -> Vec<f64> {
        let others = self.cell(by);
        let ratio = |record: &&'a Record<C, S>| {
            let is_same = |other: &&&Record<C, S>| other.cell.seed == record.cell.seed;
            let other = others.iter().find(is_same)?;
            Some(value(&record.seen).into()? / value(&other.seen).into()?)
        };
        self.cell(of).iter().filter_map(ratio).collect()
    }

    /// Returns the spread of [`Runs::ratios`].
    pub fn ratio<V: Into<Option<f64>>>(
        &self,
        of: &C,
        by: &C,
        value: impl Fn(&S) -> V,
    ) -> Option<Spread> {
        Spread::from_samples(&self.ratios(of, by, value))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::record::{Gate, Key, Provenance};

    /// Makes a run for tests.
    pub fn record<C, S>(factors: C, seed: u64, seen: S, valid: bool) -> Record<C, S> {
        Record {
            cell: Key::new(factors, seed),
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
