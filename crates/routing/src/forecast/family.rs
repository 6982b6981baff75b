//! All predictors of a series, side by side.

use super::Windows;
use super::predictor::{
    AdaptiveMean, AdaptiveMedian, ExponentialSmoothing, LastValue, Predictor, RunningMean,
    SlidingMean, SlidingMedian, Trend, TrimmedMean,
};

/// Window sizes of a full family, in samples.
const WINDOWS: &[usize] = &[5, 11, 21, 31, 51];
/// Window sizes of a small family.
const SMALL_WINDOWS: &[usize] = &[5, 11, 21];
/// Gains of exponential smoothing.
const GAINS: [f64; 6] = [0.05, 0.1, 0.2, 0.3, 0.5, 0.75];

/// One predictor of a family.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "each is the predictor of its name")]
pub enum Expert {
    LastValue(LastValue),
    RunningMean(RunningMean),
    SlidingMean(SlidingMean),
    SlidingMedian(SlidingMedian),
    TrimmedMean(TrimmedMean),
    ExponentialSmoothing(ExponentialSmoothing),
    Trend(Trend),
    AdaptiveMean(AdaptiveMean),
    AdaptiveMedian(AdaptiveMedian),
}

impl Expert {
    fn update(&mut self, value: f64, past: &Windows) {
        match self {
            Self::LastValue(one) => one.update(value, past),
            Self::RunningMean(one) => one.update(value, past),
            Self::SlidingMean(one) => one.update(value, past),
            Self::SlidingMedian(one) => one.update(value, past),
            Self::TrimmedMean(one) => one.update(value, past),
            Self::ExponentialSmoothing(one) => one.update(value, past),
            Self::Trend(one) => one.update(value, past),
            Self::AdaptiveMean(one) => one.update(value, past),
            Self::AdaptiveMedian(one) => one.update(value, past),
        }
    }

    fn predict(&self, past: &Windows) -> f64 {
        match self {
            Self::LastValue(one) => one.predict(past),
            Self::RunningMean(one) => one.predict(past),
            Self::SlidingMean(one) => one.predict(past),
            Self::SlidingMedian(one) => one.predict(past),
            Self::TrimmedMean(one) => one.predict(past),
            Self::ExponentialSmoothing(one) => one.predict(past),
            Self::Trend(one) => one.predict(past),
            Self::AdaptiveMean(one) => one.predict(past),
            Self::AdaptiveMedian(one) => one.predict(past),
        }
    }
}

/// The predictors of one series, with their predictions.
#[derive(Debug, Clone)]
pub struct PredictorFamily {
    past: Windows,
    experts: Box<[Expert]>,
    /// Prediction of each for the next value.
    predicted: Box<[f32]>,
    names: &'static [&'static str],
}

impl PredictorFamily {
    /// Maximum number of predictors in a family.
    pub const MAX_PREDICTORS: usize = 21;

    /// Creates the full family: last value, running mean, means and medians of 5, 11, 21 and 51
    /// values, trimmed means of 31 and 51, exponential smoothing with six gains, a damped trend,
    /// and mean and median of adaptive windows of 5 to 51.
    #[must_use]
    pub fn full() -> Self {
        let mut experts = vec![
            Expert::LastValue(LastValue::default()),
            Expert::RunningMean(RunningMean::default()),
        ];
        experts.extend([0, 1, 2, 4].map(|window| Expert::SlidingMean(SlidingMean { window })));
        experts.extend([0, 1, 2, 4].map(|window| Expert::SlidingMedian(SlidingMedian { window })));
        experts.extend([3, 4].map(|window| Expert::TrimmedMean(TrimmedMean { window })));
        experts.extend(
            GAINS.map(|gain| Expert::ExponentialSmoothing(ExponentialSmoothing::new(gain))),
        );
        experts.extend([
            Expert::Trend(Trend::new(0.5, 0.2)),
            Expert::AdaptiveMean(AdaptiveMean::default()),
            Expert::AdaptiveMedian(AdaptiveMedian::default()),
        ]);
        Self::with_experts(WINDOWS, experts, &NAMES)
    }

    /// Creates the small family: last value, running mean, median of 5, means of 5 and 21, trimmed
    /// mean of 21, and exponential smoothing with three gains.
    #[must_use]
    pub fn small() -> Self {
        let experts = vec![
            Expert::LastValue(LastValue::default()),
            Expert::RunningMean(RunningMean::default()),
            Expert::SlidingMean(SlidingMean { window: 0 }),
            Expert::SlidingMean(SlidingMean { window: 2 }),
            Expert::SlidingMedian(SlidingMedian { window: 0 }),
            Expert::TrimmedMean(TrimmedMean { window: 2 }),
            Expert::ExponentialSmoothing(ExponentialSmoothing::new(0.1)),
            Expert::ExponentialSmoothing(ExponentialSmoothing::new(0.3)),
            Expert::ExponentialSmoothing(ExponentialSmoothing::new(0.5)),
        ];
        Self::with_experts(SMALL_WINDOWS, experts, &SMALL_NAMES)
    }

    fn with_experts(
        sizes: &'static [usize],
        experts: Vec<Expert>,
        names: &'static [&'static str],
    ) -> Self {
        Self {
            past: Windows::new(sizes),
            predicted: vec![0.0; experts.len()].into(),
            experts: experts.into(),
            names,
        }
    }

    /// Takes the newest value, which must be finite, and updates all predictions of the next one.
    pub fn update(&mut self, value: f64) {
        self.past.push(value as f32);
        for (expert, predicted) in self.experts.iter_mut().zip(&mut self.predicted) {
            expert.update(value, &self.past);
            *predicted = expert.predict(&self.past) as f32;
        }
    }

    /// Returns the predictions of the next value, in the order of [`PredictorFamily::names`]; zeros
    /// before the first value.
    #[must_use]
    pub fn predicted(&self) -> &[f32] {
        &self.predicted
    }

    /// Returns the names of the predictors.
    #[must_use]
    pub const fn names(&self) -> &'static [&'static str] {
        self.names
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.past.heap_bytes() + size_of_val(&*self.experts) + size_of_val(&*self.predicted)
    }
}

const NAMES: [&str; PredictorFamily::MAX_PREDICTORS] = [
    "last value",
    "running mean",
    "mean of 5",
    "mean of 11",
    "mean of 21",
    "mean of 51",
    "median of 5",
    "median of 11",
    "median of 21",
    "median of 51",
    "trimmed mean of 31",
    "trimmed mean of 51",
    "smoothing 0.05",
    "smoothing 0.1",
    "smoothing 0.2",
    "smoothing 0.3",
    "smoothing 0.5",
    "smoothing 0.75",
    "trend",
    "adaptive mean",
    "adaptive median",
];

const SMALL_NAMES: [&str; 9] = [
    "last value",
    "running mean",
    "mean of 5",
    "mean of 21",
    "median of 5",
    "trimmed mean of 21",
    "smoothing 0.1",
    "smoothing 0.3",
    "smoothing 0.5",
];

#[cfg(test)]
mod tests;
