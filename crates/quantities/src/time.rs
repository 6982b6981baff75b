//! Durations.

use std::{fmt, str::FromStr, time::Duration};

use crate::QuantityError;
use crate::printing::{self, Unit};
use crate::reading::Written;

/// A duration: `180 ms`, `60 s`, `250 us`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub Duration);

const NANOSECOND: Unit = Unit::new("ns", 1e-9);
/// Minutes, hours and days are used from two of them on: "90 s" says more than "1.5 min".
const LARGER: [Unit; 6] = [
    Unit::new("us", 1e-6),
    Unit::new("ms", 1e-3),
    Unit::new("s", 1.0),
    Unit {
        name: "min",
        factor: 60.0,
        from: 120.0,
    },
    Unit {
        name: "h",
        factor: 3600.0,
        from: 7200.0,
    },
    Unit {
        name: "days",
        factor: 86_400.0,
        from: 172_800.0,
    },
];

impl Time {
    /// Returns the time nearest to `seconds`: zero if that is negative or NaN, the longest if it is
    /// too long.
    #[must_use]
    pub fn from_seconds(seconds: f64) -> Self {
        let seconds = seconds.max(0.0);
        Self(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    /// Returns the time in seconds.
    #[must_use]
    pub const fn seconds(self) -> f64 {
        self.0.as_secs_f64()
    }

    /// Parses a time that names its unit.
    ///
    /// # Errors
    /// [`QuantityError`] if `text` is not a time, or is a bare number.
    pub fn with_unit(text: &str) -> Result<Self, QuantityError> {
        read(text)
            .and_then(|(time, has_unit)| has_unit.then_some(time))
            .ok_or_else(|| error(text))
    }
}

impl From<Duration> for Time {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl FromStr for Time {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        read(text).map(|(time, _)| time).ok_or_else(|| error(text))
    }
}

fn read(text: &str) -> Option<(Time, bool)> {
    let written = Written::split(text)?;
    let (power, times) = match written.unit {
        "ns" => (-9, 1.0),
        "us" => (-6, 1.0),
        "ms" => (-3, 1.0),
        "" | "s" => (0, 1.0),
        "min" => (0, 60.0),
        "h" => (0, 3600.0),
        "d" | "days" => (0, 86_400.0),
        _ => return None,
    };
    let seconds = written.times_ten_to(power)? * times;
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    Some((Time(duration), !written.unit.is_empty()))
}

fn error(text: &str) -> QuantityError {
    QuantityError::new(text, "time", "180ms (ns, us, ms, s, min, h or days)")
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Duration::ZERO => f.write_str("0 s"),
            _ => printing::write(f, self.seconds(), &NANOSECOND, &LARGER),
        }
    }
}
