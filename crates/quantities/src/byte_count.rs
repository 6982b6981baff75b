//! Sizes, in bytes.

use std::{fmt, str::FromStr};

use crate::QuantityError;
use crate::printing::{self, Unit};
use crate::reading::NumberWithUnit;

/// A number of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCount(pub u64);

const BYTE: Unit = Unit::new("B", 1.0);
const LARGER_UNITS: [Unit; 6] = [
    Unit::new("KiB", 1024.0),
    Unit::new("MiB", 1_048_576.0),
    Unit::new("GiB", 1_073_741_824.0),
    Unit::new("TiB", 1_099_511_627_776.0),
    Unit::new("PiB", 1_125_899_906_842_624.0),
    Unit::new("EiB", 1_152_921_504_606_846_976.0),
];
/// One more than the largest count, in bytes.
const EXCLUSIVE_MAX: f64 = 18_446_744_073_709_551_616.0;

impl ByteCount {
    /// Returns the count nearest to `bytes`: zero if `bytes` is negative or NaN.
    #[must_use]
    pub fn nearest(bytes: f64) -> Self {
        Self(bytes.round() as u64)
    }

    /// Parses a size that names its unit.
    ///
    /// # Errors
    /// [`QuantityError`] if `text` is not a size, or is a bare number.
    pub fn with_unit(text: &str) -> Result<Self, QuantityError> {
        read(text)
            .and_then(|(count, has_unit)| has_unit.then_some(count))
            .ok_or_else(|| error(text))
    }
}

impl ByteCount {
    /// Returns the count for printing as `du -h` does, rounded up: `1.5G`, `64K`, `7`. It reads
    /// back, and `sort -h` orders it.
    #[must_use]
    pub const fn short(self) -> ShortByteCount {
        ShortByteCount(self)
    }
}

/// A number of bytes that prints as `du -h` prints it. See [`ByteCount::short`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShortByteCount(ByteCount);

impl fmt::Display for ShortByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = u128::from(self.0.0);
        if bytes < 1024 {
            return f.pad(&bytes.to_string());
        }
        let mut factor = 1_u128;
        let mut text = String::new();
        for unit in ["K", "M", "G", "T", "P", "E"] {
            factor *= 1024;
            let (tenths, whole) = ((bytes * 10).div_ceil(factor), bytes.div_ceil(factor));
            text = match tenths < 100 {
                true => format!("{}.{}{unit}", tenths / 10, tenths % 10),
                false => format!("{whole}{unit}"),
            };
            if whole < 1024 {
                break;
            }
        }
        f.pad(&text)
    }
}

impl FromStr for ByteCount {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        read(text)
            .map(|(count, _)| count)
            .ok_or_else(|| error(text))
    }
}

fn read(text: &str) -> Option<(ByteCount, bool)> {
    let written = NumberWithUnit::split(text)?;
    let shift = binary_exponent(written.unit)?;
    let exactly = written
        .as_integer()
        .map(|whole| u128::from(whole) << shift)
        .and_then(|bytes| u64::try_from(bytes).ok());
    let rounded = || {
        let bytes = (written.scaled_by_ten_to(0)? * 2f64.powi(shift)).round();
        // `u64::MAX` prints as "16 EiB", which is one byte more than fits.
        (bytes <= EXCLUSIVE_MAX).then_some(bytes as u64)
    };
    let bytes = exactly.or_else(rounded)?;
    Some((ByteCount(bytes), !written.unit.is_empty()))
}

/// Returns the power of two that a unit stands for.
fn binary_exponent(unit: &str) -> Option<i32> {
    if matches!(unit, "" | "B" | "bytes") {
        return Some(0);
    }
    let mut rest = unit.chars();
    let shift = match rest.next()? {
        'k' | 'K' => 10,
        'm' | 'M' => 20,
        'g' | 'G' => 30,
        't' | 'T' => 40,
        'P' => 50,
        'E' => 60,
        _ => return None,
    };
    // "mb" is refused: one reader would take it for millibits, another for megabytes.
    let known = match rest.as_str() {
        "" => true,
        "B" => unit == "kB" || unit.starts_with(char::is_uppercase),
        "iB" => unit.starts_with(char::is_uppercase),
        _ => false,
    };
    known.then_some(shift)
}

fn error(text: &str) -> QuantityError {
    QuantityError::new(
        text,
        "size",
        "512KiB (B, KiB, MiB, GiB or TiB; 1 K, KB or KiB is 1024 bytes)",
    )
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        printing::write(f, self.0 as f64, &BYTE, &LARGER_UNITS)
    }
}
