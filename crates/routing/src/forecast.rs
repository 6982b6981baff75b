//! Forecasts of one quantity of one path, from its samples.
//!
//! A [`Series`] takes samples as they are measured, and returns a [`SeriesForecast`] at any time:
//! three quantiles, and how often earlier forecasts of this series were right. It consists of these
//! modules:
//!
//! | module | contents |
//! |---|---|
//! | `sample` | filtering of samples: invalid values, duplicates, late arrivals, clock steps |
//! | `quantity` | rate, round trip and loss: the range of each, and the scale of its errors |
//! | `windows`, `predictor`, `family` | predictors of the Network Weather Service (Wolski 1998) |
//! | `best` | the predictor with the least past error, which is that service's own choice |
//! | `share` | mixture of all predictors by fixed share (Herbster, Warmuth 1998) |
//! | `band`, `coverage` | quantiles by adaptive conformal inference, and their coverage |
//! | `promise` | scores of promised copy times |
//!
//! - Wolski, "Dynamically forecasting network performance using the Network Weather Service",
//!   Cluster Computing 1, 1998
//! - Herbster, Warmuth, "Tracking the best expert", Machine Learning 32, 1998
//! - Gibbs, Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021
//!
//! A series costs a few kilobytes and a few microseconds per sample. `cargo run --release -p
//! longhaul-routing --example forecast_cost` measures it.

mod band;
mod best;
mod coverage;
mod family;
mod predictor;
mod promise;
mod quantity;
mod sample;
mod series;
mod share;
mod windows;

pub use band::{Band, BandLimits, QUANTILE_LEVELS};
pub use best::{BestByPastError, ErrorMeasure};
pub use coverage::Coverage;
pub use family::{Expert, PredictorFamily};
pub use predictor::{
    AdaptiveMean, AdaptiveMedian, ExponentialSmoothing, LastValue, Predictor, RunningMean,
    SlidingMean, SlidingMedian, Trend, TrimmedMean,
};
pub use promise::{CopyEnding, PromiseLedger, PromiseReport, ScoreError};
pub use quantity::ForecastQuantity;
pub use sample::{MomentMicros, SampleBound, SampleRejection, SeriesSample};
pub use series::{HORIZONS, Series, SeriesDetail, SeriesForecast};
pub use share::FixedShare;
pub use windows::Windows;
