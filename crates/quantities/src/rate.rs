//! Rates, in bits per second.

use std::{fmt, str::FromStr};

use crate::printing::{self, Unit};
use crate::reading::Written;
use crate::{ByteCount, QuantityError, Time};

/// A rate in bit/s, finite and not negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Rate(f64);

const BIT_PER_SECOND: Unit = Unit::new("bit/s", 1.0);
const LARGER: [Unit; 4] = [
    Unit::new("kbit/s", 1e3),
    Unit::new("Mbit/s", 1e6),
    Unit::new("Gbit/s", 1e9),
    Unit::new("Tbit/s", 1e12),
];
/// Unit names that may follow a prefix. The last three are incomplete, but have always been taken
/// for bits per second.
const NAMES: [&str; 8] = ["bit/s", "bit", "bps", "b/s", "b", "bitps", "/s", "ps"];

impl Rate {
    /// A rate of zero.
    pub const ZERO: Self = Self(0.0);

    /// Returns the rate, or `None` if `bits_per_second` is negative, infinite or NaN.
    #[must_use]
    pub fn new(bits_per_second: f64) -> Option<Self> {
        (bits_per_second.is_finite() && bits_per_second >= 0.0).then_some(Self(bits_per_second))
    }

    /// Returns the rate nearest to `bits_per_second`: zero if it is negative or NaN, the largest
    /// for infinity.
    #[must_use]
    pub fn nearest(bits_per_second: f64) -> Self {
        if bits_per_second > 0.0 {
            Self(bits_per_second.min(f64::MAX))
        } else {
            Self::ZERO
        }
    }

    /// Returns the rate of `bytes` in `time`.
    #[must_use]
    pub fn of(bytes: ByteCount, time: Time) -> Self {
        match bytes.0 {
            0 => Self::ZERO,
            bytes => Self::nearest(bytes as f64 * 8.0 / time.seconds()),
        }
    }

    /// Returns the rate in bit/s.
    #[must_use]
    pub const fn bits_per_second(self) -> f64 {
        self.0
    }

    /// Parses a rate that names its unit.
    ///
    /// # Errors
    /// [`QuantityError`] if `text` is not a rate, or is a bare number.
    pub fn with_unit(text: &str) -> Result<Self, QuantityError> {
        read(text)
            .and_then(|(rate, has_unit)| has_unit.then_some(rate))
            .ok_or_else(|| error(text))
    }
}

impl FromStr for Rate {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        read(text).map(|(rate, _)| rate).ok_or_else(|| error(text))
    }
}

fn read(text: &str) -> Option<(Rate, bool)> {
    let written = Written::split(text)?;
    let rate = Rate::new(written.times_ten_to(power(written.unit)?)?)?;
    Some((rate, !written.unit.is_empty()))
}

/// Returns the decimal power that a unit's prefix stands for.
fn power(unit: &str) -> Option<i32> {
    let mut rest = unit.chars();
    let (power, name) = match rest.next() {
        Some('k' | 'K') => (3, rest.as_str()),
        Some('m' | 'M') => (6, rest.as_str()),
        Some('g' | 'G') => (9, rest.as_str()),
        Some('t' | 'T') => (12, rest.as_str()),
        _ => (0, unit),
    };
    let bits = |known: &str| {
        // A lone capital B means bytes.
        name.eq_ignore_ascii_case(known) && (known.starts_with("bit") || !name.starts_with('B'))
    };
    (name.is_empty() || NAMES.iter().any(|known| bits(known))).then_some(power)
}

fn error(text: &str) -> QuantityError {
    QuantityError::new(
        text,
        "rate",
        "155Mbit/s (bit/s, kbit/s, Mbit/s, Gbit/s or Tbit/s)",
    )
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        printing::write(f, self.0, &BIT_PER_SECOND, &LARGER)
    }
}
