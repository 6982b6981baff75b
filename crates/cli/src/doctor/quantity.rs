//! Rates and times as a person types them.

#![deny(clippy::indexing_slicing)] // what is read here comes from the command line

use anyhow::{Result, anyhow};

/// A rate: a number and bit/s, kbit/s, Mbit/s, Gbit/s or Tbit/s (also short: 10G).
pub fn parse_rate(text: &str) -> Result<f64> {
    let (number, unit) = split(text);
    let scale = match unit
        .to_ascii_lowercase()
        .trim_end_matches("/s")
        .trim_end_matches("ps")
        .trim_end_matches("bit")
        .trim_end_matches('b')
    {
        "" if unit.is_empty() => None,
        "" => Some(1.0),
        "k" => Some(1e3),
        "m" => Some(1e6),
        "g" => Some(1e9),
        "t" => Some(1e12),
        _ => None,
    };
    let bps = number.zip(scale).map(|(number, scale)| number * scale);
    bps.filter(|bps| (1e3..=1e13).contains(bps))
        .ok_or_else(|| anyhow!("not a rate from 1 kbit/s to 10 Tbit/s: write 10Gbit/s or 155Mbit/s"))
}

/// A time: a number and us, ms or s.
pub fn parse_time(text: &str) -> Result<f64> {
    let (number, unit) = split(text);
    let scale = match unit {
        "us" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        _ => None,
    };
    let seconds = number.zip(scale).map(|(number, scale)| number * scale);
    seconds
        .filter(|seconds| (1e-6..=100.0).contains(seconds))
        .ok_or_else(|| anyhow!("not a time from 1us to 100s: write 100ms or 0.2s"))
}

fn split(text: &str) -> (Option<f64>, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number.parse().ok(), unit.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_are_read() {
        assert_eq!(parse_rate("10Gbit/s").unwrap(), 1e10);
        assert_eq!(parse_rate("155 Mbit/s").unwrap(), 1.55e8);
        assert_eq!(parse_rate("2.5g").unwrap(), 2.5e9);
        assert_eq!(parse_rate("1000Mbps").unwrap(), 1e9);
        assert_eq!(parse_time("100ms").unwrap(), 0.1);
        assert_eq!(parse_time("0.25 s").unwrap(), 0.25);
        for bad in [
            "",
            "10",
            "Gbit/s",
            "-1Gbit/s",
            "0Gbit/s",
            "1e9bit/s",
            "10 parsecs",
            "99Tbit/s",
            "1.2.3Mbit/s",
            "infGbit/s",
        ] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
        for bad in ["", "100", "ms", "-1ms", "0ms", "1h", "1000s"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }
}
