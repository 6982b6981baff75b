//! Order statistics over the runs of one cell.

use serde::Serialize;

/// The spread of one figure over the runs of a cell. All fields carry the unit of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// How many samples.
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
    /// The spread of `samples`, or `None` where there are none.
    pub fn of(samples: &[f64]) -> Option<Self> {
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

/// Linear interpolation between the closest ranks (type 7 of Hyndman and Fan).
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
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(
            (spread.min, spread.median, spread.max, spread.mean),
            (1.0, 2.5, 4.0, 2.5)
        );
        assert_eq!((spread.lower, spread.upper), (1.75, 3.25));
    }

    #[test]
    fn no_samples_have_no_spread() {
        assert_eq!(Spread::of(&[]), None);
    }
}
