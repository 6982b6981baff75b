//! A distribution by three of its quantiles.

use serde::{Deserialize, Serialize};

/// Three quantiles of a quantity, in that quantity's unit: `p10 <= p50 <= p90`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// One value in ten is expected below it.
    pub p10: f64,
    /// The median.
    pub p50: f64,
    /// One value in ten is expected above it.
    pub p90: f64,
}

impl Quantiles {
    /// A value that is known.
    #[must_use]
    pub const fn exactly(value: f64) -> Self {
        Self {
            p10: value,
            p50: value,
            p90: value,
        }
    }
}
