//! A cell of an experiment with its runs.

use crate::record::Record;
use crate::stats::Spread;

/// A cell, and its runs by seed.
pub struct Measured<'a, C, S> {
    /// The cell.
    pub cell: C,
    /// Its runs.
    pub runs: Vec<&'a Record<C, S>>,
}

impl<'a, C, S> Measured<'a, C, S> {
    /// Returns the number of runs.
    pub fn count(&self) -> usize {
        self.runs.len()
    }

    /// Returns the observation of the first run.
    pub fn first(&self) -> Option<&'a S> {
        self.runs.first().map(|record| &record.seen)
    }

    /// Returns the spread of a value. A run whose value is `None` does not count.
    pub fn spread<V: Into<Option<f64>>>(&self, value: impl Fn(&S) -> V) -> Option<Spread> {
        spread(&self.runs, value)
    }
}

/// Returns the spread of a value over runs. A run whose value is `None` does not count.
pub fn spread<C, S, V: Into<Option<f64>>>(
    runs: &[&Record<C, S>],
    value: impl Fn(&S) -> V,
) -> Option<Spread> {
    let values = runs.iter().filter_map(|record| value(&record.seen).into());
    Spread::from_samples(&values.collect::<Vec<_>>())
}
