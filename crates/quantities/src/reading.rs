//! Parsing of text into a number and a unit.

/// A finite, non-negative number with its decimal exponent kept apart, and the unit that follows
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written<'a> {
    mantissa: &'a str,
    exponent: i32,
    /// Text after the number, without the space between them.
    pub unit: &'a str,
}

impl<'a> Written<'a> {
    /// Splits text such as "12.5 Mbit/s". Returns `None` if it does not begin with a number.
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

    /// Returns the number times ten to the power of `power`, rounded once, or `None` if the result
    /// is not finite.
    pub(crate) fn times_ten_to(&self, power: i32) -> Option<f64> {
        // An exponent beyond the range of `f64` gives zero or infinity; a zero mantissa stays zero.
        let exponent = self.exponent.saturating_add(power);
        let value: f64 = format!("{}e{exponent}", self.mantissa).parse().ok()?;
        value.is_finite().then_some(value)
    }

    /// Returns the number if it was written as an integer that fits.
    pub(crate) fn whole(&self) -> Option<u64> {
        (self.exponent == 0)
            .then(|| self.mantissa.parse().ok())
            .flatten()
    }
}

/// Splits an exponent from the unit: "e-4 s" has both, "EiB" is a unit alone.
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
