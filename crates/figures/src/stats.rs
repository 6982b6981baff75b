//! Order statistics over the runs of one cell.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use crate::single::Basis;

/// Number of bootstrap samples for [`sums`].
const DRAWN: usize = 2_000;

/// The spread of one figure over the runs of a cell. All fields carry the unit of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Number of samples.
    pub count: usize,
    /// Smallest sample.
    pub min: f64,
    /// Lower quartile.
    pub lower: f64,
    /// Median: the mean of the middle two where the count is even.
    pub median: f64,
    /// Upper quartile.
    pub upper: f64,
    /// Largest sample.
    pub max: f64,
    /// Arithmetic mean: the papers print averages, so comparisons with them use this.
    pub mean: f64,
}

impl Spread {
    /// Returns true if there is one sample: then the median is that sample, and no median.
    pub const fn is_single(&self) -> bool {
        self.count == 1
    }

    /// Returns the basis of a figure that is computed from it.
    pub const fn basis(&self) -> Basis {
        Basis::Runs(self.count)
    }

    /// Multiplies every value by `factor`, which is positive.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self {
            count: self.count,
            min: factor * self.min,
            lower: factor * self.lower,
            median: factor * self.median,
            upper: factor * self.upper,
            max: factor * self.max,
            mean: factor * self.mean,
        }
    }

    /// Returns the spread of `samples`, or `None` if there are none.
    pub fn from_samples(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        Some(Self {
            count: sorted.len(),
            min,
            lower: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            upper: quantile(&sorted, 0.75),
            max,
            mean,
        })
    }
}

/// The same quantity in two cells, of which the second is compared with the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// Reference.
    pub before: Spread,
    /// Compared quantity.
    pub after: Spread,
}

impl Gain {
    /// Returns the ratio of the medians.
    pub fn ratio(&self) -> f64 {
        self.after.median / self.before.median
    }

    /// Returns the basis of the ratio: the fewer of both runs.
    pub fn basis(&self) -> Basis {
        Basis::Runs(self.before.count.min(self.after.count))
    }

    /// Formats the ratio in bold, with `digits` digits after the point and this unit.
    pub fn bold(&self, digits: usize, unit: &str) -> String {
        let text = format!("**{:.digits$}{unit}**", self.ratio());
        self.basis().mark(text)
    }

    /// Returns the numbers of runs of both, as `1+2`.
    pub fn counts(&self) -> String {
        format!("{}+{}", self.before.count, self.after.count)
    }
}

/// Returns the sum of the second values divided by that of the first, with its bounds in 95 of 100
/// samples that are drawn from the pairs with replacement (percentile bootstrap). The same pairs
/// yield the same values. `None` if there is no pair.
pub fn sums(pairs: &[(f64, f64)]) -> Option<(f64, [f64; 2])> {
    let ratio = |drawn: &mut dyn Iterator<Item = (f64, f64)>| {
        let (first, second) = drawn.fold((0.0, 0.0), |(first, second), pair| {
            (first + pair.0, second + pair.1)
        });
        second / first
    };
    if pairs.is_empty() {
        return None;
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(0);
    let mut drawn: Vec<f64> = (0..DRAWN)
        .map(|_| ratio(&mut (0..pairs.len()).map(|_| pairs[random.random_range(0..pairs.len())])))
        .collect();
    drawn.sort_by(f64::total_cmp);
    Some((
        ratio(&mut pairs.iter().copied()),
        [0.025, 0.975].map(|at| quantile(&drawn, at)),
    ))
}

/// Interpolates linearly between the closest ranks (type 7 of Hyndman and Fan).
fn quantile(sorted: &[f64], at: f64) -> f64 {
    let position = at * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_count_lies_between_the_middle_two() {
        let spread = Spread::from_samples(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(
            (spread.min, spread.median, spread.max, spread.mean),
            (1.0, 2.5, 4.0, 2.5)
        );
        assert_eq!((spread.lower, spread.upper), (1.75, 3.25));
    }

    #[test]
    fn no_samples_have_no_spread() {
        assert_eq!(Spread::from_samples(&[]), None);
        assert_eq!(sums(&[]), None);
    }

    #[test]
    fn sums_are_compared_within_what_other_samples_would_give() {
        let pairs: Vec<(f64, f64)> = (1..=40)
            .map(|n| (f64::from(n), f64::from(n + n % 3)))
            .collect();
        let (ratio, [low, high]) = sums(&pairs).unwrap();
        assert_eq!(ratio, 860.0 / 820.0);
        assert!(
            1.0 < low && low < ratio && ratio < high && high < 1.1,
            "{low} {high}"
        );
        assert_eq!(sums(&pairs), sums(&pairs));
        assert_eq!(sums(&[(2.0, 3.0)]), Some((1.5, [1.5, 1.5])));
    }
}
