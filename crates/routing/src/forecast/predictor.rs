//! The individual predictors of the Network Weather Service.

use super::Windows;

/// Predictor of the next value of a series from those before. Each uses bounded memory, and bounded
/// time per value.
pub trait Predictor {
    /// Takes the newest value, which is the last one in `past`. The last [`Predictor::predict`] was
    /// for it.
    fn update(&mut self, value: f64, past: &Windows);

    /// Returns the prediction of the next value; zero before the first.
    fn predict(&self, past: &Windows) -> f64;
}

/// Predicts the last value.
#[derive(Debug, Clone, Copy, Default)]
pub struct LastValue(f64);

impl Predictor for LastValue {
    fn update(&mut self, value: f64, _past: &Windows) {
        self.0 = value;
    }

    fn predict(&self, _past: &Windows) -> f64 {
        self.0
    }
}

/// Predicts the mean of all values so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunningMean {
    mean: f64,
    count: u64,
}

impl Predictor for RunningMean {
    fn update(&mut self, value: f64, _past: &Windows) {
        self.count = self.count.saturating_add(1);
        self.mean += (value - self.mean) / self.count as f64;
    }

    fn predict(&self, _past: &Windows) -> f64 {
        self.mean
    }
}

/// Predicts the mean of a window.
#[derive(Debug, Clone, Copy)]
pub struct SlidingMean {
    /// Index of the window.
    pub window: usize,
}

impl Predictor for SlidingMean {
    fn update(&mut self, _value: f64, _past: &Windows) {}

    fn predict(&self, past: &Windows) -> f64 {
        past.mean(self.window)
    }
}

/// Predicts the median of a window.
#[derive(Debug, Clone, Copy)]
pub struct SlidingMedian {
    /// Index of the window.
    pub window: usize,
}

impl Predictor for SlidingMedian {
    fn update(&mut self, _value: f64, _past: &Windows) {}

    fn predict(&self, past: &Windows) -> f64 {
        past.median(self.window)
    }
}

/// Predicts the mean of a window without three tenths of its values at either end.
#[derive(Debug, Clone, Copy)]
pub struct TrimmedMean {
    /// Index of the window.
    pub window: usize,
}

impl Predictor for TrimmedMean {
    fn update(&mut self, _value: f64, _past: &Windows) {}

    fn predict(&self, past: &Windows) -> f64 {
        past.trimmed_mean(self.window, 0.3)
    }
}

/// Predicts by exponential smoothing: the newest value, weighted by `gain`, and the previous
/// forecast, weighted by the rest.
#[derive(Debug, Clone, Copy)]
pub struct ExponentialSmoothing {
    gain: f64,
    level: Option<f64>,
}

impl ExponentialSmoothing {
    /// Creates the predictor with a gain above 0 and up to 1.
    #[must_use]
    pub const fn new(gain: f64) -> Self {
        Self { gain, level: None }
    }
}

impl Predictor for ExponentialSmoothing {
    fn update(&mut self, value: f64, _past: &Windows) {
        let level = self.level.unwrap_or(value);
        self.level = Some(level + self.gain * (value - level));
    }

    fn predict(&self, _past: &Windows) -> f64 {
        self.level.unwrap_or_default()
    }
}

/// Predicts by exponential smoothing of the value and of its slope (Holt 1957). The slope is
/// damped, so a forecast never diverges.
#[derive(Debug, Clone, Copy)]
pub struct Trend {
    gain: f64,
    slope_gain: f64,
    level: Option<f64>,
    slope: f64,
}

impl Trend {
    /// Factor of the slope per step (Gardner, McKenzie 1985).
    const DAMPING: f64 = 0.9;

    /// Creates the predictor with gains of the value and of the slope, above 0 and up to 1.
    #[must_use]
    pub const fn new(gain: f64, slope_gain: f64) -> Self {
        Self {
            gain,
            slope_gain,
            level: None,
            slope: 0.0,
        }
    }
}

impl Predictor for Trend {
    fn update(&mut self, value: f64, past: &Windows) {
        let Some(before) = self.level else {
            self.level = Some(value);
            return;
        };
        let expected = self.predict(past);
        let level = expected + self.gain * (value - expected);
        let slope = Self::DAMPING * self.slope;
        self.slope = slope + self.slope_gain * (level - before - slope);
        self.level = Some(level);
    }

    fn predict(&self, _past: &Windows) -> f64 {
        self.level.unwrap_or_default() + Self::DAMPING * self.slope
    }
}

/// Choice of a window. It moves to the neighbour that would have erred less.
#[derive(Debug, Clone, Copy, Default)]
struct WindowLadder {
    window: u8,
    /// Number of values since the last move.
    stayed: u8,
    /// Errors of the window below, the one in use, and the one above.
    errors: [f32; 3],
}

impl WindowLadder {
    /// Weight of past errors at each step, so that one value alone does not cause a move.
    const ERROR_WEIGHT_KEPT: f32 = 0.9;

    /// Minimum number of values between moves, because the errors of the new neighbours are
    /// unknown.
    const MIN_VALUES_BETWEEN_MOVES: u8 = 5;

    /// Takes the predictions of the window below, the one in use, and the one above.
    fn update(&mut self, value: f64, predicted: [f64; 3], windows: usize) {
        for (error, predicted) in self.errors.iter_mut().zip(predicted) {
            *error = Self::ERROR_WEIGHT_KEPT * *error + (value - predicted).abs() as f32;
        }
        self.stayed = self.stayed.saturating_add(1);
        if self.stayed < Self::MIN_VALUES_BETWEEN_MOVES {
            return;
        }
        let [below, here, above] = self.errors;
        let last = windows.saturating_sub(1).min(usize::from(u8::MAX)) as u8;
        let moved = if below < here && below <= above && self.window > 0 {
            self.window - 1
        } else if above < here && self.window < last {
            self.window + 1
        } else {
            return;
        };
        self.window = moved;
        self.stayed = 0;
        // The errors of the neighbours belong to other windows now.
        self.errors = [0.0; 3];
    }

    fn neighbours(self) -> [usize; 3] {
        let window = usize::from(self.window);
        [window.saturating_sub(1), window, window + 1]
    }
}

/// Predicts the mean of a window of adaptive size. It moves to the next smaller or larger one that
/// would have erred less.
#[derive(Debug, Clone, Copy, Default)]
pub struct AdaptiveMean {
    ladder: WindowLadder,
    predicted: [f32; 3],
}

/// Predicts the median of a window of adaptive size, chosen in the same way.
#[derive(Debug, Clone, Copy, Default)]
pub struct AdaptiveMedian {
    ladder: WindowLadder,
    predicted: [f32; 3],
}

macro_rules! adaptive {
    ($kind:ident, $of:ident) => {
        impl Predictor for $kind {
            fn update(&mut self, value: f64, past: &Windows) {
                self.ladder
                    .update(value, self.predicted.map(f64::from), past.sizes().len());
                let last = past.sizes().len().saturating_sub(1);
                self.predicted = self
                    .ladder
                    .neighbours()
                    .map(|window| past.$of(window.min(last)) as f32);
            }

            fn predict(&self, _past: &Windows) -> f64 {
                let [_, here, _] = self.predicted;
                f64::from(here)
            }
        }
    };
}

adaptive!(AdaptiveMean, mean);
adaptive!(AdaptiveMedian, median);
