//! A distribution described by three quantiles.

use serde::{Deserialize, Serialize};

/// Three quantiles of a quantity, in that quantity's unit: `p10 <= p50 <= p90`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Value that one in ten is expected to be below.
    pub p10: f64,
    /// The median.
    pub p50: f64,
    /// Value that one in ten is expected to be above.
    pub p90: f64,
}

impl Quantiles {
    /// Creates the distribution of a value that is known exactly.
    #[must_use]
    pub const fn exactly(value: f64) -> Self {
        Self {
            p10: value,
            p50: value,
            p90: value,
        }
    }
}
