//! Probabilities, mostly of loss.

use std::{fmt, str::FromStr};

use crate::QuantityError;
use crate::printing::{Decimal, digits};
use crate::reading::Written;

/// A probability from 0 to 1, for example that a segment is lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Probability(f64);

/// Smallest probability that is written without an exponent.
const PLAIN_FROM: f64 = 0.01;

impl Probability {
    /// Probability of the impossible.
    pub const ZERO: Self = Self(0.0);
    /// Probability of the certain.
    pub const ONE: Self = Self(1.0);

    /// Returns the probability `value`, or `None` unless it is from 0 to 1.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// Returns the probability nearest to `value`: 0 if it is negative or NaN.
    #[must_use]
    pub fn nearest(value: f64) -> Self {
        if value > 0.0 {
            Self(value.min(1.0))
        } else {
            Self::ZERO
        }
    }

    /// Returns the probability as a number from 0 to 1.
    #[must_use]
    pub const fn value(self) -> f64 {
        self.0
    }
}

impl FromStr for Probability {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let read = || {
            if text.trim() == "none" {
                return Some(Self::ZERO);
            }
            let written = Written::split(text)?;
            let power = match written.unit {
                "" => 0,
                "%" => -2,
                _ => return None,
            };
            Self::new(written.times_ten_to(power)?)
        };
        read().ok_or_else(|| {
            QuantityError::new(text, "probability from 0 to 1", "8e-4, 0.001% or \"none\"")
        })
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = digits(f);
        if self.0 == 0.0 || self.0 >= PLAIN_FROM {
            return write!(f, "{}", Decimal::rounded(self.0, digits));
        }
        let mut exponent = self.0.log10().floor() as i32;
        // Below this, the power of ten would not be a normal number, so trailing zeros stay.
        if exponent < -300 {
            return write!(f, "{:.*e}", digits - 1, self.0);
        }
        let mut mantissa = self.0 / 10f64.powi(exponent);
        // 9.9999e-5 to four digits.
        let step = 10f64.powi(digits as i32 - 1);
        mantissa = (mantissa * step).round() / step;
        if mantissa >= 10.0 {
            (mantissa, exponent) = (1.0, exponent + 1);
        }
        if exponent >= -2 {
            return write!(f, "{}", Decimal::rounded(PLAIN_FROM, digits));
        }
        write!(f, "{}e{exponent}", Decimal::rounded(mantissa, digits))
    }
}
