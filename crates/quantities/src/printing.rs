//! Formatting of a value as digits and a unit.

use std::fmt;

/// Significant digits that are printed unless the format asks for others.
const SIGNIFICANT_DIGITS: usize = 4;
/// Significant digits of an `f64`.
const MAX_SIGNIFICANT_DIGITS: usize = 15;
/// Values, in the chosen unit, that are written without an exponent.
const PLAIN: std::ops::Range<f64> = 1e-9..1e15;

/// A unit that values are printed in.
pub(crate) struct Unit {
    /// Its name.
    pub name: &'static str,
    /// Number of base units in it.
    pub factor: f64,
    /// Smallest value, in base units, that is printed in it.
    pub from: f64,
}

impl Unit {
    /// Returns a unit that is used for values of at least one of it.
    pub(crate) const fn new(name: &'static str, factor: f64) -> Self {
        Self {
            name,
            factor,
            from: factor,
        }
    }
}

/// Returns the number of significant digits that `f` asks for.
pub(crate) fn digits(f: &fmt::Formatter<'_>) -> usize {
    f.precision()
        .unwrap_or(SIGNIFICANT_DIGITS)
        .clamp(1, MAX_SIGNIFICANT_DIGITS)
}

/// Writes `value`, in base units, in the largest unit that fits, or in `first` if none does.
pub(crate) fn write(
    f: &mut fmt::Formatter<'_>,
    value: f64,
    first: &Unit,
    larger: &[Unit],
) -> fmt::Result {
    let digits = digits(f);
    let at = larger.iter().rposition(|unit| value >= unit.from);
    let unit = at.and_then(|at| larger.get(at)).unwrap_or(first);
    let shown = Decimal::rounded(value / unit.factor, digits);
    // 999.96 Mbit/s would round to 1000 Mbit/s, which is shorter in the next unit.
    let rounded = shown.value() * unit.factor;
    match larger.get(at.map_or(0, |at| at + 1)) {
        Some(next) if rounded >= next.from * (1.0 - 1e-12) => {
            let shown = Decimal::rounded(rounded / next.factor, digits);
            write!(f, "{shown} {}", next.name)
        }
        _ => write!(f, "{shown} {}", unit.name),
    }
}

/// A number in decimal digits.
pub(crate) enum Decimal {
    /// A whole number, divided by ten to the power of `decimals`.
    Plain { scaled: u128, decimals: u32 },
    /// A number too large or too small for plain digits, with `decimals` digits after the point.
    Exponential { value: f64, decimals: usize },
}

impl Decimal {
    /// Rounds `value`, which is not negative, to `digits` significant digits. Digits before the
    /// point are kept, and trailing zeros are dropped.
    pub(crate) fn rounded(value: f64, digits: usize) -> Self {
        if value != 0.0 && !PLAIN.contains(&value) {
            let decimals = digits - 1;
            return Self::Exponential { value, decimals };
        }
        let before = if value == 0.0 {
            1
        } else {
            value.log10().floor() as i32 + 1
        };
        let mut decimals = u32::try_from(digits as i32 - before).unwrap_or(0);
        let mut scaled = (value * 10f64.powi(decimals as i32)).round() as u128;
        while decimals > 0 && scaled.is_multiple_of(10) {
            scaled /= 10;
            decimals -= 1;
        }
        Self::Plain { scaled, decimals }
    }

    fn value(&self) -> f64 {
        match *self {
            Self::Plain { scaled, decimals } => scaled as f64 / 10f64.powi(decimals as i32),
            Self::Exponential { value, .. } => value,
        }
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Plain {
                scaled,
                decimals: 0,
            } => write!(f, "{scaled}"),
            Self::Plain { scaled, decimals } => {
                let one = 10u128.pow(decimals);
                let width = decimals as usize;
                write!(f, "{}.{:0width$}", scaled / one, scaled % one)
            }
            Self::Exponential { value, decimals } => write!(f, "{value:.decimals$e}"),
        }
    }
}
