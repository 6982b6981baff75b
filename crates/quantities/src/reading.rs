//! From text to a number and a unit.

/// A number that is finite and not negative, with its decimal exponent apart, and the unit behind
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written<'a> {
    mantissa: &'a str,
    exponent: i32,
    /// What stands behind the number, without the space between them.
    pub unit: &'a str,
}

impl<'a> Written<'a> {
    /// Splits "12.5 Mbit/s". `None` where no number stands in front.
    pub(crate) fn split(text: &'a str) -> Option<Self> {
        let text = text.trim();
        let end = text
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(text.len());
        let (mantissa, rest) = text.split_at_checked(end)?;
        let (exponent, unit) = exponent(rest)?;
        Some(Self {
            mantissa,
            exponent,
            unit: unit.trim(),
        })
    }

    /// The number times ten to the power of `power`, rounded once; `None` when that is no finite
    /// number.
    pub(crate) fn times_ten_to(&self, power: i32) -> Option<f64> {
        // An exponent that no f64 reaches either way leaves zero or infinity; a zero mantissa stays
        // zero.
        let exponent = self.exponent.saturating_add(power);
        let value: f64 = format!("{}e{exponent}", self.mantissa).parse().ok()?;
        value.is_finite().then_some(value)
    }

    /// The number, if it was written as a whole one that fits.
    pub(crate) fn whole(&self) -> Option<u64> {
        (self.exponent == 0)
            .then(|| self.mantissa.parse().ok())
            .flatten()
    }
}

/// "e-4 s" is an exponent and a unit; "EiB" is a unit alone.
fn exponent(rest: &str) -> Option<(i32, &str)> {
    let Some(behind) = rest.strip_prefix(['e', 'E']) else {
        return Some((0, rest));
    };
    let digits = behind.strip_prefix(['+', '-']).unwrap_or(behind);
    let length = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    if length == 0 {
        return Some((0, rest));
    }
    let (number, unit) = behind.split_at_checked(behind.len() - digits.len() + length)?;
    Some((number.parse().ok()?, unit))
}
