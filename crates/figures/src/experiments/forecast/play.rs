//! Replay of a series to forecasters, which are scored on each value before they see it.

use longhaul_routing::forecast::{
    Band, ErrorMeasure, ForecastQuantity, HORIZONS, MomentMicros, Predictor as _, PredictorFamily,
    QUANTILE_LEVELS, RunningMean, Series, SeriesDetail, SeriesSample, Windows,
};
use serde::{Deserialize, Serialize};

/// Number of values that are seen before any is scored.
pub const WARM_UP: usize = 50;

/// Method of forecasting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forecaster {
    /// The published method: the mixture, corrected by its errors.
    Mixture,
    /// The published method with fewer predictors and less memory.
    Compact,
    /// The predictor with the least mean absolute error so far.
    BestAbsolute,
    /// The predictor with the least mean squared error so far.
    BestSquared,
    /// The last value.
    LastValue,
    /// The mean of all values.
    RunningMean,
    /// The predictor with the least error over the whole series, in hindsight.
    Hindsight,
}

impl Forecaster {
    /// All methods, in the order of the tables.
    pub const ALL: [Self; 7] = [
        Self::Mixture,
        Self::Compact,
        Self::BestAbsolute,
        Self::BestSquared,
        Self::LastValue,
        Self::RunningMean,
        Self::Hindsight,
    ];

    /// Returns the head of its column.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Mixture => "mixture",
            Self::Compact => "compact",
            Self::BestAbsolute => "best so far (MAE)",
            Self::BestSquared => "best so far (MSE)",
            Self::LastValue => "last value",
            Self::RunningMean => "running mean",
            Self::Hindsight => "best in hindsight",
        }
    }
}

/// Scores of the forecasts of one series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Mean of the values that were scored, in the quantity's unit.
    pub mean: f64,
    /// Scores in the order of [`Forecaster::ALL`].
    pub of: Vec<Scored>,
    /// Best predictor in hindsight, by its mean absolute error.
    pub hindsight: String,
    /// Shares of values below p10, between, and above p90 of the published forecast, for each
    /// horizon.
    pub shares: Vec<[f64; 3]>,
    /// Minimum and maximum share in the band over any hundred consecutive values, one value ahead.
    pub any_hundred: (f64, f64),
}

/// The score of one forecaster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    /// Mean absolute error of the point forecast, in the quantity's unit.
    pub mae: f64,
    /// Mean pinball loss over the three quantiles, in the quantity's unit.
    pub pinball: f64,
    /// Share of values in the band.
    pub within: f64,
}

/// Three quantiles of the next value around any prediction, with a band like that of the published
/// forecast.
struct ScoredQuantiles {
    quantity: ForecastQuantity,
    band: Band,
    sum: Scored,
}

impl ScoredQuantiles {
    fn new(quantity: ForecastQuantity) -> Self {
        Self {
            quantity,
            band: Band::for_quantity(quantity, SeriesDetail::Full),
            sum: Scored::default(),
        }
    }

    fn take(&mut self, point: f64, value: f64, scored: bool) {
        let place = self.quantity.to_scale(point);
        let issued = self.band.around(place);
        if scored {
            let quantiles = [issued.lower, issued.middle, issued.upper]
                .map(|end| self.quantity.from_scale(end));
            self.sum.add(point, quantiles, value);
        }
        self.band
            .update(place, issued, self.quantity.to_scale(value));
    }
}

impl Scored {
    fn add(&mut self, point: f64, quantiles: [f64; 3], value: f64) {
        self.mae += (value - point).abs();
        for (quantile, level) in quantiles.into_iter().zip(QUANTILE_LEVELS) {
            let beyond = value - quantile;
            self.pinball += (level * beyond).max((level - 1.0) * beyond) / 3.0;
        }
        self.within += f64::from(u8::from((quantiles[0]..=quantiles[2]).contains(&value)));
    }

    fn over(self, count: f64) -> Self {
        Self {
            mae: self.mae / count,
            pinball: self.pinball / count,
            within: self.within / count,
        }
    }
}

/// Replays a series whose values are `period` seconds apart.
pub fn play(quantity: ForecastQuantity, period: f64, values: &[f64]) -> Score {
    let mut series = Series::new(quantity, SeriesDetail::Full);
    let mut compact = Series::new(quantity, SeriesDetail::Compact);
    let mut family: Vec<ScoredQuantiles> = (0..PredictorFamily::MAX_PREDICTORS)
        .map(|_| ScoredQuantiles::new(quantity))
        .collect();
    let mut best = [ErrorMeasure::Absolute, ErrorMeasure::Squared]
        .map(|by| (by, ScoredQuantiles::new(quantity)));
    let mut running = (RunningMean::default(), ScoredQuantiles::new(quantity));
    let none = Windows::new(&[1]);
    let (mut published, mut small) = (Scored::default(), Scored::default());
    let mut shares = vec![[0.0; 3]; HORIZONS.len()];
    let mut ahead: Vec<Vec<[f64; 2]>> = vec![vec![]; HORIZONS.len()];
    let mut within = vec![];
    let mut sum = 0.0;
    for (step, &value) in values.iter().enumerate() {
        let scored = step >= WARM_UP;
        let at = (step as f64 * period * 1e6) as MomentMicros;
        if step > 0 {
            for (beside, (_, point)) in family.iter_mut().zip(series.predictions()) {
                beside.take(point, value, scored);
            }
            for (by, beside) in &mut best {
                let point = series.best(*by).map_or(value, |(_, point)| point);
                beside.take(point, value, scored);
            }
            running.1.take(running.0.predict(&none), value, scored);
        }
        if let Some(issued) = series.forecast().map(|issued| issued.quantiles)
            && scored
        {
            published.add(issued.p50, [issued.p10, issued.p50, issued.p90], value);
            within.push((issued.p10..=issued.p90).contains(&value));
            sum += value;
        }
        if let Some(issued) = compact.forecast().map(|issued| issued.quantiles)
            && scored
        {
            small.add(issued.p50, [issued.p10, issued.p50, issued.p90], value);
        }
        for ((horizon, issued), shares) in HORIZONS.iter().zip(&ahead).zip(&mut shares) {
            // The forecast that was made `horizon` values before.
            if let Some([p10, p90]) = step.checked_sub(*horizon).and_then(|then| issued.get(then))
                && scored
            {
                let place = usize::from(value >= *p10) + usize::from(value > *p90);
                shares[place] += 1.0;
            }
        }
        // A value that is refused would be left out elsewhere, too.
        let _ = series.observe(SeriesSample::exact(at, value));
        let _ = compact.observe(SeriesSample::exact(at, value));
        running.0.update(value, &none);
        for (horizon, issued) in HORIZONS.iter().zip(&mut ahead) {
            let then = at + (*horizon as f64 * period * 1e6) as MomentMicros;
            let quantiles = series.forecast_at(then).map(|issued| issued.quantiles);
            issued.push(quantiles.map_or([f64::NAN; 2], |issued| [issued.p10, issued.p90]));
        }
    }
    let count = values.len().saturating_sub(WARM_UP).max(1) as f64;
    let names: Vec<&str> = series.predictions().map(|(name, _)| name).collect();
    let hindsight = least(&family, |beside| beside.sum.mae);
    let of = Forecaster::ALL.map(|forecaster| {
        let scored = match forecaster {
            Forecaster::Mixture => published,
            Forecaster::Compact => small,
            Forecaster::BestAbsolute => best[0].1.sum,
            Forecaster::BestSquared => best[1].1.sum,
            // The first of the family.
            Forecaster::LastValue => family[0].sum,
            Forecaster::RunningMean => running.1.sum,
            Forecaster::Hindsight => Scored {
                pinball: family[least(&family, |beside| beside.sum.pinball)]
                    .sum
                    .pinball,
                ..family[hindsight].sum
            },
        };
        scored.over(count)
    });
    for share in &mut shares {
        let all: f64 = share.iter().sum();
        *share = share.map(|one| one / all.max(1.0));
    }
    let hundreds = within
        .windows(100)
        .map(|some| some.iter().filter(|held| **held).count() as f64 / 100.0);
    Score {
        mean: sum / count,
        of: of.into(),
        hindsight: names.get(hindsight).copied().unwrap_or_default().to_owned(),
        shares,
        any_hundred: hundreds.fold((1.0, 0.0), |(least, most), share| {
            (share.min(least), share.max(most))
        }),
    }
}

fn least(family: &[ScoredQuantiles], by: impl Fn(&ScoredQuantiles) -> f64) -> usize {
    let errors = family.iter().map(by).enumerate();
    errors
        .reduce(|best, next| if next.1 < best.1 { next } else { best })
        .map_or(0, |(index, _)| index)
}
