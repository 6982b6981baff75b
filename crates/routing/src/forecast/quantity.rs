//! Forecast quantities: the unit and range of each, and the scale on which its errors are measured.

use serde::{Deserialize, Serialize};

/// Rate in bit/s at which the logarithmic scale becomes linear. Lower rates carry no bulk data, and
/// hardly differ from none. With a smaller value, an outage would be so far from any rate that its
/// error outweighed all others for long.
const SMALLEST_RATE: f64 = 1e5;

/// A quantity of a path.
///
/// Forecasts are made on a scale of the quantity's own, on which an error means the same
/// everywhere: a rate that is off by a tenth is off by as much at 1 Mbit/s as at 10 Gbit/s. Medians
/// and quantiles are the same on any scale; means are not. On synthetic series, the scales were
/// within a per cent of plain values in mean absolute error, and better for losses. Their advantage
/// is that the band of a series stays meaningful when the series changes by orders of magnitude.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForecastQuantity {
    /// Rate that is available to a transfer on the path, in bit/s. The scale is logarithmic, and
    /// linear below 100 kbit/s, so that it includes an outage.
    Rate,
    /// A time above zero, such as the round trip or its spread, in seconds. The scale is
    /// logarithmic.
    RoundTrip,
    /// Share of lost packets, 0 to 1. The scale is that of square roots, on which the standard
    /// deviation of a count hardly depends on its mean (Bartlett 1936).
    Loss,
}

impl ForecastQuantity {
    /// All quantities.
    pub const ALL: [Self; 3] = [Self::Rate, Self::RoundTrip, Self::Loss];

    /// Returns the least and the greatest value of a sample, in the quantity's unit.
    #[must_use]
    pub const fn range(self) -> (f64, f64) {
        match self {
            Self::Rate => (0.0, 1e13),
            Self::RoundTrip => (1e-7, 1e5),
            Self::Loss => (0.0, 1.0),
        }
    }

    /// Converts a value to the quantity's scale. Values beyond the range are clamped.
    #[must_use]
    pub fn to_scale(self, value: f64) -> f64 {
        let (least, most) = self.range();
        let value = value.clamp(least, most);
        match self {
            Self::Rate => (value / SMALLEST_RATE).ln_1p(),
            Self::RoundTrip => value.ln(),
            Self::Loss => value.sqrt(),
        }
    }

    /// Converts a point of the scale to a value, which is finite and within the range.
    #[must_use]
    pub fn from_scale(self, place: f64) -> f64 {
        let (from, to) = self.scale();
        let place = place.clamp(from, to);
        let value = match self {
            Self::Rate => SMALLEST_RATE * place.exp_m1(),
            Self::RoundTrip => place.exp(),
            Self::Loss => place * place,
        };
        let (least, most) = self.range();
        value.clamp(least, most)
    }

    /// Returns the ends of the scale.
    #[must_use]
    pub fn scale(self) -> (f64, f64) {
        let (least, most) = self.range();
        (self.to_scale(least), self.to_scale(most))
    }

    /// Returns the initial typical error of a series, on the scale: a factor of 1.3, or a tenth of
    /// a per cent of loss where there was none.
    #[must_use]
    pub(super) const fn first_error(self) -> f64 {
        match self {
            Self::Rate | Self::RoundTrip => 0.25,
            Self::Loss => 0.03,
        }
    }

    /// Returns the error on the scale below which errors are not distinguished: a thousandth of a
    /// rate or time, a millionth of loss.
    #[must_use]
    pub(super) const fn least_error(self) -> f64 {
        1e-3
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_round_trip_through_the_scale_within_range(share in 0.0..=1.0_f64, place: f64) {
            for quantity in ForecastQuantity::ALL {
                let (from, to) = quantity.scale();
                let value = quantity.from_scale(from + share * (to - from));
                let back = quantity.from_scale(quantity.to_scale(value));
                prop_assert!((back - value).abs() <= 1e-9 * value.abs(), "{value} {back}");
                let (least, most) = quantity.range();
                if !place.is_nan() {
                    let value = quantity.from_scale(place);
                    prop_assert!(value >= least && value <= most);
                }
            }
        }
    }
}
