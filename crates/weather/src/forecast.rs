//! Samples of one quantity of one path in; a distribution of its next values out.
//!
//! A [`Series`] takes samples as they are measured and answers at any time with a [`Forecast`]:
//! three quantiles, and how often earlier forecasts of this series were right. Beneath it, one
//! thing each:
//!
//! | room | what it does |
//! |---|---|
//! | `sample` | which samples count: values that make no sense, duplicates, late arrivals, steps of a clock |
//! | `quantity` | rate, round trip, loss: the range of each, and the scale that its errors are measured on |
//! | `windows`, `predictor`, `family` | the predictors of the Network Weather Service (Wolski, "Dynamically forecasting network performance using the Network Weather Service", Cluster Computing 1, 1998) |
//! | `best` | the predictor that erred least so far: that service's own choice |
//! | `share` | all predictors, weighed by fixed share (Herbster, Warmuth, "Tracking the best expert", Machine Learning 32, 1998) |
//! | `band`, `coverage` | quantiles from past errors by adaptive conformal inference (Gibbs, Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021), and how often they held |
//! | `promise` | whether copies took as long as was promised |
//!
//! A series costs a few kilobytes and a few microseconds a sample; `cargo run --release -p
//! longhaul-weather --example forecast_cost` says how much.

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

pub use band::{Band, LEVELS, Tails};
pub use best::{BestByPastError, Error};
pub use coverage::Coverage;
pub use family::{Expert, Family};
pub use predictor::{
    AdaptiveMean, AdaptiveMedian, ExponentialSmoothing, LastValue, Predictor, RunningMean,
    SlidingMean, SlidingMedian, Trend, TrimmedMean,
};
pub use promise::{Ending, Ledger, NotScored, Report};
pub use quantity::Quantity;
pub use sample::{Bound, Moment, Rejected, Sample};
pub use series::{Detail, Forecast, HORIZONS, Series};
pub use share::FixedShare;
pub use windows::Windows;
