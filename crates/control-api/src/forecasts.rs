//! What is expected of paths.

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

/// How many of past values lay between `p10` and `p90` of the forecasts made before them; what was
/// meant is 0.8.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Coverage {
    /// Of the last hundred; none before there were as many.
    pub of_100: Option<f64>,
    /// Of the last thousand; none before there were as many.
    pub of_1000: Option<f64>,
}

/// What is expected of one quantity of one path next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Forecast {
    /// Where the path begins.
    #[schema(value_type = String)]
    pub from: End,
    /// Where it ends.
    #[schema(value_type = String)]
    pub to: End,
    /// Who measured it: what different reporters say is kept apart.
    #[schema(value_type = String)]
    pub reporter: Key,
    /// What of it, which says the unit.
    pub quantity: Quantity,
    /// The next value.
    pub next: Spread,
    /// When the last value was measured that it rests on.
    #[schema(value_type = u64)]
    pub measured_ms: Moment,
    /// On how many values it rests.
    pub samples: u64,
    /// How good the forecasts of this path were.
    pub coverage: Coverage,
}

/// Which forecasts: `GET /forecasts`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ForecastQuery {
    /// Only of paths that begin there.
    #[param(value_type = Option<String>)]
    pub from: Option<End>,
    /// Only of paths that end there.
    #[param(value_type = Option<String>)]
    pub to: Option<End>,
    /// Only of this quantity.
    pub quantity: Option<Quantity>,
    /// Only those that follow: `next` of the answer before.
    pub after: Option<String>,
    /// Most of one answer.
    #[param(minimum = 1, maximum = 5000)]
    pub limit: Option<u32>,
}

/// Some of the forecasts, by path and quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ForecastPage {
    /// What was found.
    pub items: Vec<Forecast>,
    /// What to ask for as `after` for those that follow; none if nothing does.
    pub next: Option<String>,
}
