//! A series of samples of one quantity of one path, and its forecasts.

use serde::{Deserialize, Serialize};

use super::best::{BestByPastError, ErrorMeasure};
use super::sample::SampleFilter;
use super::{
    Band, BandLimits, Coverage, FixedShare, ForecastQuantity, MomentMicros, PredictorFamily,
    SampleBound, SampleRejection, SeriesSample,
};
use crate::Quantiles;

/// Horizons of forecasts, in samples: the next one, and the eighth.
pub const HORIZONS: [usize; 2] = [1, 8];

/// Learning rate of the mixture, for losses between 0 and 1. This rate, `WEIGHT_SHARE` and
/// `MAX_COUNTED_ERROR` were tuned on synthetic series with seeds below 1000. Half or twice of any
/// changes errors by about a per cent.
const LEARNING_RATE: f64 = 2.0;

/// Share of the weight that is spread after each sample.
const WEIGHT_SHARE: f64 = 0.005;

/// Maximum distance from the mixture, in typical errors, at which predictions and values count. A
/// loss of one is twice that.
const MAX_COUNTED_ERROR: f64 = 8.0;

/// Maximum number of samples that a gap counts for, when weights move closer to each other.
const MAX_GAP_STEPS: f64 = 64.0;

/// Minimum length of a gap, in typical intervals.
const GAP_INTERVALS: f64 = 4.0;

/// Amount of state of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SeriesDetail {
    /// All predictors, the last 128 errors, every horizon.
    Full,
    /// Nine predictors, the last 64 errors, the next sample only. For very many series.
    Compact,
}

impl SeriesDetail {
    pub(super) const fn errors(self) -> usize {
        match self {
            Self::Full => 128,
            Self::Compact => 64,
        }
    }

    const fn horizons(self) -> &'static [usize] {
        match self {
            Self::Full => &HORIZONS,
            Self::Compact => &[1],
        }
    }
}

/// A forecast of a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SeriesForecast {
    /// Expected value in the quantity's unit: ordered, finite, and within the quantity's range.
    pub quantiles: Quantiles,
    /// Horizon in samples; one is the next sample.
    pub ahead: usize,
    /// Number of samples of the series that count.
    pub samples: u64,
    /// Share of the last 100 values that fell between their forecast p10 and p90. `None` before
    /// there were as many.
    pub coverage_100: Option<f64>,
    /// The same for the last 1,000.
    pub coverage_1000: Option<f64>,
}

/// Samples of one quantity of one path, reduced to what forecasts need.
#[derive(Debug, Clone)]
pub struct Series {
    quantity: ForecastQuantity,
    intake: SampleFilter,
    samples: u64,
    family: PredictorFamily,
    mixture: FixedShare,
    best: BestByPastError,
    next: NextPrediction,
    horizons: Box<[Horizon]>,
}

/// Prediction of the next sample, on the quantity's scale.
#[derive(Debug, Clone, Copy, Default)]
struct NextPrediction {
    /// Prediction of the mixture.
    forecast: f64,
    /// Centre of the predictions; those further away than `counted` are clamped.
    centre: f64,
    counted: f64,
}

/// Forecasts of one horizon.
#[derive(Debug, Clone)]
struct Horizon {
    band: Band,
    coverage: Coverage,
    /// Forecasts of the samples to come, in a ring; the oldest is at `next`.
    issued: Box<[Option<IssuedForecast>]>,
    next: u32,
}

#[derive(Debug, Clone, Copy)]
struct IssuedForecast {
    forecast: f64,
    tails: BandLimits,
}

impl Series {
    /// Creates a series without samples.
    #[must_use]
    pub fn new(quantity: ForecastQuantity, detail: SeriesDetail) -> Self {
        let family = match detail {
            SeriesDetail::Full => PredictorFamily::full(),
            SeriesDetail::Compact => PredictorFamily::small(),
        };
        let experts = family.predicted().len();
        let horizon = |ahead: &usize| Horizon {
            band: Band::for_quantity(quantity, detail),
            coverage: Coverage::default(),
            issued: vec![None; *ahead].into(),
            next: 0,
        };
        Self {
            quantity,
            intake: SampleFilter::new(),
            samples: 0,
            mixture: FixedShare::new(experts, LEARNING_RATE, WEIGHT_SHARE),
            best: BestByPastError::new(experts),
            family,
            next: NextPrediction::default(),
            horizons: detail.horizons().iter().map(horizon).collect(),
        }
    }

    /// Returns the quantity.
    #[must_use]
    pub const fn quantity(&self) -> ForecastQuantity {
        self.quantity
    }

    /// Returns the number of samples that count.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the time of the newest sample.
    #[must_use]
    pub const fn newest(&self) -> Option<MomentMicros> {
        self.intake.newest()
    }

    /// Takes a sample.
    ///
    /// The predictors treat a lower bound as a value if it is above the expectation. Otherwise it
    /// only changes the weights: an expert that predicted less has erred. It is never compared with
    /// a band, because the actual value is unknown.
    ///
    /// # Errors
    /// [`SampleRejection`] if it is not a value of the quantity, or not newer than the newest.
    pub fn observe(&mut self, sample: SeriesSample) -> Result<(), SampleRejection> {
        let steps = self.intake.take(self.quantity, sample)?;
        let value = self.quantity.to_scale(sample.value);
        let exact = sample.bound == SampleBound::Exact;
        let first = self.samples == 0;
        if !first {
            self.score_predictions(value, exact);
        }
        if steps > GAP_INTERVALS {
            self.mixture.pass_steps(steps.min(MAX_GAP_STEPS) as u32);
        }
        self.samples = self.samples.saturating_add(1);
        if exact || first || value > self.next.forecast {
            self.family.update(value);
        }
        self.predict();
        Ok(())
    }

    /// Compares the predictions with the actual value.
    fn score_predictions(&mut self, value: f64, exact: bool) {
        let NextPrediction {
            centre, counted, ..
        } = self.next;
        let near = |place: f64| place.clamp(centre - counted, centre + counted);
        let came = near(value);
        let losses = self.family.predicted().iter().map(|predicted| {
            let less = came - near(f64::from(*predicted));
            // For a lower bound, only predictions below it are errors. Both losses are convex, so
            // the loss of the mixture is no greater than their mean.
            (if exact { less.abs() } else { less.max(0.0) }) / (2.0 * counted)
        });
        self.mixture.update(losses);
        if exact {
            self.best.update(self.family.predicted(), value);
        }
        for horizon in &mut self.horizons {
            if let Some(issued) = horizon.due_forecast()
                && exact
            {
                horizon.score(issued, value);
            }
        }
    }

    /// Predicts the next sample.
    fn predict(&mut self) {
        let (from, to) = self.quantity.scale();
        let predicted = || {
            self.family
                .predicted()
                .iter()
                .map(|predicted| f64::from(*predicted))
        };
        let centre = self.mixture.mix(predicted()).clamp(from, to);
        let typical = self
            .horizons
            .first()
            .map_or(0.0, |horizon| horizon.band.typical_error());
        let counted = MAX_COUNTED_ERROR * typical;
        let near = predicted().map(|place| place.clamp(centre - counted, centre + counted));
        let forecast = self.mixture.mix(near).clamp(from, to);
        self.next = NextPrediction {
            forecast,
            centre,
            counted,
        };
        for horizon in &mut self.horizons {
            horizon.issue(forecast);
        }
    }

    /// Returns the forecast of the next sample, or `None` before the first.
    #[must_use]
    pub fn forecast(&self) -> Option<SeriesForecast> {
        self.forecast_at_horizon(self.horizons.first()?)
    }

    /// Returns the forecast for a moment. It uses the horizon that reaches it at the typical
    /// interval of the series, or else the longest.
    #[must_use]
    pub fn forecast_at(&self, moment: MomentMicros) -> Option<SeriesForecast> {
        let steps = self.intake.intervals_until(moment).round();
        let reaches = |horizon: &&Horizon| horizon.issued.len() as f64 >= steps;
        self.forecast_at_horizon(
            self.horizons
                .iter()
                .find(reaches)
                .or(self.horizons.last())?,
        )
    }

    fn forecast_at_horizon(&self, horizon: &Horizon) -> Option<SeriesForecast> {
        if self.samples == 0 {
            return None;
        }
        let BandLimits {
            lower,
            middle,
            upper,
        } = horizon.band.around(self.next.forecast);
        Some(SeriesForecast {
            quantiles: Quantiles {
                p10: self.quantity.from_scale(lower),
                p50: self.quantity.from_scale(middle),
                p90: self.quantity.from_scale(upper),
            },
            ahead: horizon.issued.len(),
            samples: self.samples,
            coverage_100: horizon.coverage.over_last(100),
            coverage_1000: horizon.coverage.over_last(1000),
        })
    }

    /// Returns the predictor with the least error so far and its prediction, in the quantity's
    /// unit. Returns `None` before the first sample.
    #[must_use]
    pub fn best(&self, by: ErrorMeasure) -> Option<(&'static str, f64)> {
        let index = self.best.best(by);
        self.predictions().nth(index)
    }

    /// Returns the predictions of all predictors, in the quantity's unit; none before the first
    /// sample.
    pub fn predictions(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let names = self.family.names().iter().copied();
        let predicted = self.family.predicted().iter();
        names
            .zip(predicted.map(|place| self.quantity.from_scale(f64::from(*place))))
            .take(if self.samples == 0 { 0 } else { usize::MAX })
    }

    /// Returns the prediction of the mixture in the quantity's unit, without the correction by past
    /// errors. Returns `None` before the first sample.
    #[must_use]
    pub fn mixture(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.quantity.from_scale(self.next.forecast))
    }

    /// Returns the memory of the series in bytes, without the allocator's overhead.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        let horizon = |horizon: &Horizon| horizon.band.heap_bytes() + size_of_val(&*horizon.issued);
        size_of_val(self)
            + self.family.heap_bytes()
            + self.mixture.heap_bytes()
            + self.best.heap_bytes()
            + size_of_val(&*self.horizons)
            + self.horizons.iter().map(horizon).sum::<usize>()
    }
}

impl Horizon {
    /// Returns the forecast that was issued for the sample that has arrived, if there was one.
    fn due_forecast(&self) -> Option<IssuedForecast> {
        self.issued.get(self.next as usize).copied().flatten()
    }

    fn score(&mut self, issued: IssuedForecast, value: f64) {
        let BandLimits { lower, upper, .. } = issued.tails;
        self.coverage.record((lower..=upper).contains(&value));
        self.band.update(issued.forecast, issued.tails, value);
    }

    /// Issues a forecast for the sample at the horizon.
    fn issue(&mut self, forecast: f64) {
        let tails = self.band.around(forecast);
        if let Some(place) = self.issued.get_mut(self.next as usize) {
            *place = Some(IssuedForecast { forecast, tails });
        }
        self.next = (self.next + 1) % self.issued.len().max(1) as u32;
    }
}

#[cfg(test)]
mod tests;
