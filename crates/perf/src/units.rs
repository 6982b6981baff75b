//! Quantities with their units, and how people write them.

use std::{fmt, str::FromStr, time::Duration};

/// A rate in bit/s.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(f64);

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// A length of time as people write it: `180ms`, `60s`, `250us`; a bare number is seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

/// A probability that a segment is lost, greater than 0 and less than 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct LossRate(f64);

/// Text that is no quantity of the kind that was wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {kind}: write it like {example}")]
pub struct UnitError {
    text: String,
    kind: &'static str,
    example: &'static str,
}

impl Rate {
    /// `bits_per_second`, if it is a positive finite number.
    #[must_use]
    pub fn new(bits_per_second: f64) -> Option<Self> {
        (bits_per_second.is_finite() && bits_per_second > 0.0).then_some(Self(bits_per_second))
    }

    /// In bit/s.
    #[must_use]
    pub const fn bits_per_second(self) -> f64 {
        self.0
    }
}

impl LossRate {
    /// `probability`, if it lies between 0 and 1.
    #[must_use]
    pub fn new(probability: f64) -> Option<Self> {
        (probability > 0.0 && probability < 1.0).then_some(Self(probability))
    }

    /// As a number between 0 and 1.
    #[must_use]
    pub const fn probability(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = [
            (1e12, "Tbit/s"),
            (1e9, "Gbit/s"),
            (1e6, "Mbit/s"),
            (1e3, "kbit/s"),
        ];
        match steps.into_iter().find(|(unit, _)| self.0 >= *unit) {
            Some((unit, name)) => write!(f, "{} {name}", significant(self.0 / unit)),
            None => write!(f, "{} bit/s", significant(self.0)),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        let steps = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
        match steps.into_iter().find(|(unit, _)| bytes >= *unit) {
            Some((unit, name)) => write!(f, "{} {name}", significant(bytes / unit)),
            None => write!(f, "{} B", self.0),
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        match seconds {
            s if s >= 2.0 * 86400.0 => write!(f, "{} days", significant(s / 86400.0)),
            s if s >= 2.0 * 3600.0 => write!(f, "{} h", significant(s / 3600.0)),
            s if s >= 120.0 => write!(f, "{} min", significant(s / 60.0)),
            s if s >= 1.0 => write!(f, "{} s", significant(s)),
            s if s >= 1e-3 => write!(f, "{} ms", significant(s * 1e3)),
            s => write!(f, "{} us", significant(s * 1e6)),
        }
    }
}

impl fmt::Display for LossRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2e}", self.0)
    }
}

/// Four significant digits, without digits behind the point that say nothing.
fn significant(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Splits `text` into a finite number that is not negative and what stands behind it.
fn number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    // "8e-4": an exponent belongs to the number.
    let end = match text.get(end..)?.strip_prefix(['e', 'E']) {
        Some(rest) => {
            let digits = rest.strip_prefix(['+', '-']).unwrap_or(rest);
            let length = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            match length {
                0 => end,
                _ => text.len() - digits.len() + length,
            }
        }
        None => end,
    };
    let (value, unit) = text.split_at_checked(end)?;
    let value: f64 = value.parse().ok()?;
    value.is_finite().then_some((value, unit.trim()))
}

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let parsed = number(text).and_then(|(value, unit)| {
            // iperf3 writes `2.4G`; both are decimal.
            let factor = match unit {
                "" | "bit/s" => 1.0,
                "k" | "K" | "kbit/s" => 1e3,
                "m" | "M" | "Mbit/s" => 1e6,
                "g" | "G" | "Gbit/s" => 1e9,
                "t" | "T" | "Tbit/s" => 1e12,
                _ => return None,
            };
            Self::new(value * factor)
        });
        parsed.ok_or_else(|| UnitError {
            text: text.to_owned(),
            kind: "rate",
            example: "2.4Gbit/s, 155Mbit/s or 500kbit/s",
        })
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let parsed = number(text).and_then(|(value, unit)| {
            let factor = match unit {
                "" | "B" => 1.0,
                "k" | "K" | "KB" | "KiB" => 1024.0,
                "m" | "M" | "MB" | "MiB" => 1024f64.powi(2),
                "g" | "G" | "GB" | "GiB" => 1024f64.powi(3),
                "t" | "T" | "TB" | "TiB" => 1024f64.powi(4),
                _ => return None,
            };
            let bytes = (value * factor).round();
            // Exact in a float, and more than anybody measures.
            (1.0..9e15).contains(&bytes).then_some(Self(bytes as u64))
        });
        parsed.ok_or_else(|| UnitError {
            text: text.to_owned(),
            kind: "size",
            example: "512M, 100G or 65536 (1 K is 1024 bytes)",
        })
    }
}

impl FromStr for Time {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let parsed = number(text).and_then(|(value, unit)| {
            let factor = match unit {
                "us" => 1e-6,
                "ms" => 1e-3,
                "" | "s" => 1.0,
                "min" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
            let seconds = value * factor;
            // A year; anything longer is a slip of the finger.
            (seconds > 0.0 && seconds < 3.2e7)
                .then(|| Duration::try_from_secs_f64(seconds).ok().map(Self))
                .flatten()
        });
        parsed.ok_or_else(|| UnitError {
            text: text.to_owned(),
            kind: "time",
            example: "180ms, 10s or 250us",
        })
    }
}

impl FromStr for LossRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let parsed = number(text).and_then(|(value, unit)| match unit {
            "" => Self::new(value),
            "%" => Self::new(value / 100.0),
            _ => None,
        });
        parsed.ok_or_else(|| UnitError {
            text: text.to_owned(),
            kind: "loss rate",
            example: "8e-4 or 0.001%, between 0 and 1",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_understood() {
        assert_eq!("2.4 Gbit/s".parse::<Rate>().unwrap().bits_per_second(), 2.4e9);
        assert_eq!("155M".parse::<Rate>().unwrap().bits_per_second(), 155e6);
        assert_eq!("8e9".parse::<Rate>().unwrap().bits_per_second(), 8e9);
        assert_eq!("64K".parse::<Bytes>().unwrap(), Bytes(65536));
        assert_eq!("1.5M".parse::<Bytes>().unwrap(), Bytes(1_572_864));
        assert_eq!("180ms".parse::<Time>().unwrap().0, Duration::from_millis(180));
        assert_eq!("10".parse::<Time>().unwrap().0, Duration::from_secs(10));
        assert_eq!("0.001%".parse::<LossRate>().unwrap().probability(), 0.00001);
        assert_eq!("8e-4".parse::<LossRate>().unwrap().probability(), 8e-4);
    }

    #[test]
    fn nonsense_is_refused_in_one_line() {
        for bad in [
            "", "fast", "-1", "0", "1e999", "2.4 Gbps", "NaN", "inf", "1..2", "1e", "e5", "µ",
        ] {
            for error in [
                bad.parse::<Rate>().map(drop),
                bad.parse::<Bytes>().map(drop),
                bad.parse::<Time>().map(drop),
                bad.parse::<LossRate>().map(drop),
            ] {
                assert!(!error.unwrap_err().to_string().contains('\n'), "{bad}");
            }
        }
        assert!("1".parse::<LossRate>().is_err() && "100%".parse::<LossRate>().is_err());
    }

    #[test]
    fn quantities_print_with_the_unit_that_fits() {
        assert_eq!(Rate(2.4e9).to_string(), "2.4 Gbit/s");
        assert_eq!(Rate(999.0).to_string(), "999 bit/s");
        assert_eq!(Bytes(54_000_000).to_string(), "54 MB");
        assert_eq!(Time(Duration::from_millis(180)).to_string(), "180 ms");
        assert_eq!(Time(Duration::from_secs(542)).to_string(), "9.033 min");
        assert_eq!(Time(Duration::from_secs(8 * 86400)).to_string(), "8 days");
        assert_eq!(LossRate(2.49e-8).to_string(), "2.49e-8");
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,24}") {
            let _ = (text.parse::<Rate>(), text.parse::<Bytes>(), text.parse::<Time>(), text.parse::<LossRate>());
        }
    }
}
