//! Trend of a value that was sampled at regular times.

/// Contiguous blocks of samples that are left out in turn.
const BLOCKS: usize = 8;
/// Seconds of an hour.
const HOUR: f64 = 3600.0;

/// Slope of a line through samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// Change of the value in an hour.
    pub per_hour: f64,
    /// Two standard errors of it. They come from leaving out one block of samples after the other
    /// (delete-block jackknife), because samples that follow each other are alike.
    pub error: f64,
}

impl Slope {
    /// Fits a line through samples of seconds and values, in order of time, by least squares.
    /// Returns `None` if there are fewer than two samples for each block.
    pub fn fit(samples: &[(f64, f64)]) -> Option<Self> {
        let size = samples.len() / BLOCKS;
        if size < 2 {
            return None;
        }
        let without = |block: usize| {
            let end = match block + 1 {
                BLOCKS => samples.len(),
                next => next * size,
            };
            let rest = samples[..block * size].iter().chain(&samples[end..]);
            least_squares(rest.copied())
        };
        let slopes: Vec<f64> = (0..BLOCKS).map(without).collect::<Option<_>>()?;
        let blocks = BLOCKS as f64;
        let mean = slopes.iter().sum::<f64>() / blocks;
        let squares: f64 = slopes.iter().map(|slope| (slope - mean).powi(2)).sum();
        Some(Self {
            per_hour: HOUR * least_squares(samples.iter().copied())?,
            error: HOUR * 2.0 * ((blocks - 1.0) / blocks * squares).sqrt(),
        })
    }

    /// Formats the slope and its error with `digits` digits after the point.
    pub fn words(self, digits: usize) -> String {
        // No sign of a zero.
        let rounded = format!("{:+.digits$}", self.per_hour);
        let zero = format!("{:.digits$}", 0.0);
        let value = match rounded.trim_start_matches(['+', '-']) == zero {
            true => zero,
            false => rounded,
        };
        format!("{value} ± {:.digits$}", self.error)
    }
}

/// Returns the slope of the least-squares line. `None` if all times are the same.
fn least_squares(samples: impl Iterator<Item = (f64, f64)> + Clone) -> Option<f64> {
    let count = samples.clone().count() as f64;
    let (x, y) = samples
        .clone()
        .fold((0.0, 0.0), |(x, y), sample| (x + sample.0, y + sample.1));
    let (x, y) = (x / count, y / count);
    let (products, squares) = samples.fold((0.0, 0.0), |(products, squares), sample| {
        let from_mean = sample.0 - x;
        (
            products + from_mean * (sample.1 - y),
            squares + from_mean * from_mean,
        )
    });
    (squares > 0.0).then(|| products / squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples every ten seconds for 20 minutes.
    fn samples(value: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        let at = |n: u32| 10.0 * f64::from(n);
        (0..120).map(|n| (at(n), value(at(n)))).collect()
    }

    #[test]
    fn a_line_has_its_slope_and_no_error() {
        let slope = Slope::fit(&samples(|at| 7.0 + at / 36.0)).unwrap();
        assert!((slope.per_hour - 100.0).abs() < 1e-6, "{slope:?}");
        assert!(slope.error < 1e-6, "{slope:?}");
        assert_eq!(slope.words(0), "+100 ± 0");
    }

    #[test]
    fn a_value_that_only_varies_is_flat_within_its_error() {
        let slope = Slope::fit(&samples(|at| 500.0 + 20.0 * (at / 70.0).sin())).unwrap();
        assert!(slope.per_hour.abs() < slope.error, "{slope:?}");
        assert!(slope.error > 1.0, "{slope:?}");
    }

    #[test]
    fn a_leak_beneath_variation_is_seen() {
        let leak = |at: f64| 500.0 + 20.0 * (at / 70.0).sin() + at;
        let slope = Slope::fit(&samples(leak)).unwrap();
        assert!(slope.per_hour > slope.error, "{slope:?}");
    }

    #[test]
    fn few_samples_have_no_slope() {
        assert_eq!(Slope::fit(&samples(|at| at)[..15]), None);
        assert_eq!(Slope::fit(&[(1.0, 2.0); 40]), None);
    }
}
