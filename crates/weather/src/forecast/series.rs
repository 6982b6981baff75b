//! One quantity of one path: samples in, forecasts out.

use serde::{Deserialize, Serialize};

use super::best::{BestByPastError, Error};
use super::sample::Intake;
use super::{Band, Bound, Coverage, Family, FixedShare, Moment, Quantity, Rejected, Sample, Tails};
use crate::Quantiles;

/// How many samples ahead forecasts are made: the next one, and the eighth.
pub const HORIZONS: [usize; 2] = [1, 8];

/// The learning rate of the mixture, for losses between 0 and 1. This, the share and the reach of
/// what counts were chosen on made-up series with seeds below 1000; half or twice as much of any
/// changes errors by about a per cent.
const LEARNING_RATE: f64 = 2.0;

/// The share of weight that is spread after each sample.
const SHARE: f64 = 0.005;

/// What experts say, and what comes, counts up to so many typical errors away from the mixture: a
/// loss of one is twice that.
const MAX_COUNTED_ERROR: f64 = 8.0;

/// After a gap, weights have drawn near to each other as after so many samples at most.
const MAX_GAP_STEPS: f64 = 64.0;

/// Gaps shorter than this, in typical intervals, are none.
const GAP_INTERVALS: f64 = 4.0;

/// How much a series remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Detail {
    /// All predictors, the last 128 errors, every horizon.
    Full,
    /// Nine predictors, the last 64 errors, the next sample only: for where there are very many
    /// series.
    Compact,
}

impl Detail {
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

/// What to expect of a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// The value to expect, in the quantity's unit: monotone, finite, and within the quantity's
    /// range.
    pub quantiles: Quantiles,
    /// How many samples ahead: one is the next.
    pub ahead: usize,
    /// How many samples of the series count.
    pub samples: u64,
    /// The share of the last 100 values that fell between the p10 and the p90 that had been
    /// forecast for them; none before there were as many.
    pub coverage_100: Option<f64>,
    /// The same of the last 1,000.
    pub coverage_1000: Option<f64>,
}

/// Samples of one quantity of one path, as much of them as forecasts need.
#[derive(Debug, Clone)]
pub struct Series {
    quantity: Quantity,
    intake: Intake,
    samples: u64,
    family: Family,
    mixture: FixedShare,
    best: BestByPastError,
    next: Next,
    horizons: Box<[Horizon]>,
}

/// What is predicted for the next sample, on the quantity's scale.
#[derive(Debug, Clone, Copy, Default)]
struct Next {
    /// By the mixture.
    forecast: f64,
    /// What experts predict counts as far as `counted` from here.
    centre: f64,
    counted: f64,
}

/// Forecasts of one horizon.
#[derive(Debug, Clone)]
struct Horizon {
    band: Band,
    coverage: Coverage,
    /// What was said of the samples to come, oldest in the place that is next.
    issued: Box<[Option<Issued>]>,
    next: u32,
}

#[derive(Debug, Clone, Copy)]
struct Issued {
    forecast: f64,
    tails: Tails,
}

impl Series {
    /// A series without samples.
    #[must_use]
    pub fn new(quantity: Quantity, detail: Detail) -> Self {
        let family = match detail {
            Detail::Full => Family::full(),
            Detail::Compact => Family::small(),
        };
        let experts = family.predicted().len();
        let horizon = |ahead: &usize| Horizon {
            band: Band::of(quantity, detail),
            coverage: Coverage::default(),
            issued: vec![None; *ahead].into(),
            next: 0,
        };
        Self {
            quantity,
            intake: Intake::new(),
            samples: 0,
            mixture: FixedShare::new(experts, LEARNING_RATE, SHARE),
            best: BestByPastError::new(experts),
            family,
            next: Next::default(),
            horizons: detail.horizons().iter().map(horizon).collect(),
        }
    }

    /// What the series is of.
    #[must_use]
    pub const fn quantity(&self) -> Quantity {
        self.quantity
    }

    /// How many samples count.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// The moment of the newest sample.
    #[must_use]
    pub const fn newest(&self) -> Option<Moment> {
        self.intake.newest()
    }

    /// Takes a sample.
    ///
    /// A lower bound counts as a value for the predictors where it is above what was expected, and
    /// is else left to the weights alone: whoever predicted less than there was at least has erred.
    /// It is never held against a band, as nobody knows where the value was.
    ///
    /// # Errors
    /// The sample does not count: it is no value of the quantity, or not newer than the newest.
    pub fn observe(&mut self, sample: Sample) -> Result<(), Rejected> {
        let steps = self.intake.take(self.quantity, sample)?;
        let value = self.quantity.to_scale(sample.value);
        let exact = sample.bound == Bound::Exact;
        let first = self.samples == 0;
        if !first {
            self.judge(value, exact);
        }
        if steps > GAP_INTERVALS {
            self.mixture.pass(steps.min(MAX_GAP_STEPS) as u32);
        }
        self.samples = self.samples.saturating_add(1);
        if exact || first || value > self.next.forecast {
            self.family.update(value);
        }
        self.predict();
        Ok(())
    }

    /// Holds what was predicted against what came.
    fn judge(&mut self, value: f64, exact: bool) {
        let Next {
            centre, counted, ..
        } = self.next;
        let near = |place: f64| place.clamp(centre - counted, centre + counted);
        let came = near(value);
        let losses = self.family.predicted().iter().map(|predicted| {
            let less = came - near(f64::from(*predicted));
            // Of a lower bound, only less than it is an error. Both losses are convex, so the
            // mixture's is no greater than their mean.
            (if exact { less.abs() } else { less.max(0.0) }) / (2.0 * counted)
        });
        self.mixture.update(losses);
        if exact {
            self.best.update(self.family.predicted(), value);
        }
        for horizon in &mut self.horizons {
            if let Some(issued) = horizon.due()
                && exact
            {
                horizon.judge(issued, value);
            }
        }
    }

    /// Works out what comes next.
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
        self.next = Next {
            forecast,
            centre,
            counted,
        };
        for horizon in &mut self.horizons {
            horizon.issue(forecast);
        }
    }

    /// What to expect of the next sample; none before the first.
    #[must_use]
    pub fn forecast(&self) -> Option<Forecast> {
        self.issued(self.horizons.first()?)
    }

    /// What to expect at a moment: of so many samples ahead as lie between at the pace of the
    /// series, as far as the series has such a horizon.
    #[must_use]
    pub fn forecast_at(&self, moment: Moment) -> Option<Forecast> {
        let steps = self.intake.steps(moment).round();
        let reaches = |horizon: &&Horizon| horizon.issued.len() as f64 >= steps;
        self.issued(
            self.horizons
                .iter()
                .find(reaches)
                .or(self.horizons.last())?,
        )
    }

    fn issued(&self, horizon: &Horizon) -> Option<Forecast> {
        if self.samples == 0 {
            return None;
        }
        let Tails {
            lower,
            middle,
            upper,
        } = horizon.band.around(self.next.forecast);
        Some(Forecast {
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

    /// The predictor that erred least so far, and what it predicts, in the quantity's unit; none
    /// before the first sample.
    #[must_use]
    pub fn best(&self, by: Error) -> Option<(&'static str, f64)> {
        let index = self.best.best(by);
        self.predictions().nth(index)
    }

    /// What each predictor predicts, in the quantity's unit; nothing before the first sample.
    pub fn predictions(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let names = self.family.names().iter().copied();
        let predicted = self.family.predicted().iter();
        names
            .zip(predicted.map(|place| self.quantity.from_scale(f64::from(*place))))
            .take(if self.samples == 0 { 0 } else { usize::MAX })
    }

    /// What the mixture predicts, in the quantity's unit, without the correction that the errors so
    /// far call for; none before the first sample.
    #[must_use]
    pub fn mixture(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.quantity.from_scale(self.next.forecast))
    }

    /// The bytes that the series takes in memory, without the allocator's own.
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
    /// What was said of the sample that has come, if so many samples ago there was something to
    /// say.
    fn due(&self) -> Option<Issued> {
        self.issued.get(self.next as usize).copied().flatten()
    }

    fn judge(&mut self, issued: Issued, value: f64) {
        let Tails { lower, upper, .. } = issued.tails;
        self.coverage.note((lower..=upper).contains(&value));
        self.band.update(issued.forecast, issued.tails, value);
    }

    /// Says something of the sample that is as far ahead as the horizon.
    fn issue(&mut self, forecast: f64) {
        let tails = self.band.around(forecast);
        if let Some(place) = self.issued.get_mut(self.next as usize) {
            *place = Some(Issued { forecast, tails });
        }
        self.next = (self.next + 1) % self.issued.len().max(1) as u32;
    }
}

#[cfg(test)]
mod tests;
