//! From a value to the digits and the unit that a person reads.

use std::fmt;

/// So many significant digits are printed unless the format says otherwise.
const SIGNIFICANT_DIGITS: usize = 4;
/// More digits than this an `f64` does not have.
const MAX_SIGNIFICANT_DIGITS: usize = 15;
/// Values of the chosen unit that are written without an exponent.
const PLAIN: std::ops::Range<f64> = 1e-9..1e15;

/// A unit that values are printed in.
pub(crate) struct Unit {
    /// Its name.
    pub name: &'static str,
    /// How many base units it is.
    pub factor: f64,
    /// From how many base units on it is used.
    pub from: f64,
}

impl Unit {
    /// A unit that is used from one of it on.
    pub(crate) const fn new(name: &'static str, factor: f64) -> Self {
        Self {
            name,
            factor,
            from: factor,
        }
    }
}

/// The significant digits that `f` asks for.
pub(crate) fn digits(f: &fmt::Formatter<'_>) -> usize {
    f.precision()
        .unwrap_or(SIGNIFICANT_DIGITS)
        .clamp(1, MAX_SIGNIFICANT_DIGITS)
}

/// Writes `value`, in base units, in the largest unit that fits; `first`, where none does.
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
    // 999.96 Mbit/s would be 1000 Mbit/s: the next unit has it shorter.
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
    /// What is too large or too small to be written so, with so many digits behind the point.
    Exponential { value: f64, decimals: usize },
}

impl Decimal {
    /// `value`, which is not negative, to so many significant digits; those before the point all
    /// stay, zeros at the end do not.
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
