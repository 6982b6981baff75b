//! Forecasts of what paths will carry.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::measurements::Quantity;
use crate::{End, Key, Moment};

/// Three quantiles of a quantity, in that quantity's unit: `p10 <= p50 <= p90`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Spread {
    /// One value in ten is expected below it.
    pub p10: f64,
    /// The median.
    pub p50: f64,
    /// One value in ten is expected above it.
    pub p90: f64,
}

/// Share of past values that lay between `p10` and `p90` of the forecast made before each. The
/// target is 0.8.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Coverage {
    /// Share over the last 100 values; left out until there are that many.
    pub of_100: Option<f64>,
    /// Share over the last 1,000 values; left out until there are that many.
    pub of_1000: Option<f64>,
}

/// Forecast of the next value of one quantity of one path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Forecast {
    /// End where the path begins.
    #[schema(value_type = String)]
    pub from: End,
    /// End where the path ends.
    #[schema(value_type = String)]
    pub to: End,
    /// Key of the reporter that measured it. Values of different reporters are kept apart.
    #[schema(value_type = String)]
    pub reporter: Key,
    /// Quantity that is forecast, which determines the unit.
    pub quantity: Quantity,
    /// Expected next value.
    pub next: Spread,
    /// Time of the latest measurement that the forecast uses.
    #[schema(value_type = u64)]
    pub measured_ms: Moment,
    /// Number of values that the forecast uses.
    pub samples: u64,
    /// Accuracy of past forecasts of this path.
    pub coverage: Coverage,
}

/// Query of `GET /forecasts`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ForecastQuery {
    /// Only paths that begin at this end.
    #[param(value_type = Option<String>)]
    pub from: Option<End>,
    /// Only paths that end at this end.
    #[param(value_type = Option<String>)]
    pub to: Option<End>,
    /// Only this quantity.
    pub quantity: Option<Quantity>,
    /// Only items after this position: `next` of the previous page.
    pub after: Option<String>,
    /// Maximum number of items in one answer.
    #[param(minimum = 1, maximum = 5000)]
    pub limit: Option<u32>,
}

/// One page of forecasts, ordered by path and quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ForecastPage {
    /// Forecasts on this page.
    pub items: Vec<Forecast>,
    /// Value of `after` for the next page; left out on the last one.
    pub next: Option<String>,
}
