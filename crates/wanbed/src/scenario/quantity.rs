//! Quantities with their units, as a scenario writes them: "155 Mbit/s", "53 ms", "256 KB", "0.001%", "1.5 bdp".
//!
//! Bit rates are decimal (1 Mbit/s = 10^6 bit/s). Sizes follow the habit of the papers and of socket buffers:
//! KB, MB and GB are powers of 1024, the same as KiB, MiB and GiB.

use std::time::Duration;

/// Splits "12.5 Mbit/s" into its number and its unit. The number may not be negative, infinite or in hexadecimal.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .char_indices()
        .find(|&(at, c)| {
            let exponent = matches!(c, 'e' | 'E')
                && text[at + 1..].starts_with(|d: char| d.is_ascii_digit() || d == '-' || d == '+');
            let sign = matches!(c, '-' | '+') && at > 0 && text[..at].ends_with(['e', 'E']);
            !(c.is_ascii_digit() || c == '.' || exponent || sign)
        })
        .map_or(text.len(), |(at, _)| at);
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then(|| (number, text[end..].trim()))
}

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, unit) = number_and_unit(text)?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    Some(number * factor)
}

/// A span of time: "53 ms", "20 s", "100 us".
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 5] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("min", 60.0),
    ];
    scaled(text, &UNITS)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("{text:?} is not a time: write it like \"53 ms\" (ns, us, ms, s, min)"))
}

/// A bit rate in bit/s: "155 Mbit/s"; `None` for "unlimited", zero for an outage.
pub(super) fn bit_rate(text: &str) -> Result<Option<u64>, String> {
    const UNITS: [(&str, f64); 4] = [("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9)];
    if text.trim() == "unlimited" {
        return Ok(None);
    }
    scaled(text, &UNITS).map(f64::round).filter(|rate| (0.0..=1e12).contains(rate)).map(|rate| Some(rate as u64)).ok_or_else(
        || format!("{text:?} is not a rate: write it like \"155 Mbit/s\" (bit/s, kbit/s, Mbit/s, Gbit/s) or \"unlimited\""),
    )
}

/// A size in bytes: "256 KB".
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 9] = [
        ("B", 1.0),
        ("bytes", 1.0),
        ("KB", 1024.0),
        ("KiB", 1024.0),
        ("MB", 1_048_576.0),
        ("MiB", 1_048_576.0),
        ("GB", 1_073_741_824.0),
        ("GiB", 1_073_741_824.0),
        ("kB", 1024.0),
    ];
    scaled(text, &UNITS)
        .map(f64::round)
        .filter(|size| (0.0..=1e15).contains(size))
        .map(|size| size as u64)
        .ok_or_else(|| {
            format!("{text:?} is not a size: write it like \"256 KB\" (B, KB, MB, GB; 1 KB = 1024 B)")
        })
}

/// A probability: "0.001%", "8e-4", "none".
pub(super) fn probability(text: &str) -> Result<f64, String> {
    if text.trim() == "none" {
        return Ok(0.0);
    }
    scaled(text, &[("", 1.0), ("%", 0.01)])
        .filter(|p| (0.0..=1.0).contains(p))
        .ok_or_else(|| {
            format!(
                "{text:?} is not a probability from 0 to 1: write it like \"0.001%\", \"8e-4\" or \"none\""
            )
        })
}

/// How long a queue may grow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum QueueLength {
    /// A fixed number of bytes.
    Bytes(u64),
    /// A multiple of the bandwidth-delay product over `rtt` (the link's own when `None`), but never under `at_least` bytes.
    Bdp {
        multiple: f64,
        rtt: Option<Duration>,
        at_least: u64,
    },
}

/// A queue: "256 KB", "1.5 bdp", "1 bdp of 106 ms", "1 bdp, at least 256 KB".
pub(super) fn queue_length(text: &str) -> Result<QueueLength, String> {
    let wrong = || {
        format!(
            "{text:?} is not a queue: write \"256 KB\", \"1.5 bdp\", \"1 bdp of 106 ms\" or \"1 bdp, at least 256 KB\""
        )
    };
    let (length, floor) = text
        .split_once(',')
        .map_or((text, None), |(length, floor)| (length, Some(floor.trim())));
    let Some((multiple, of)) = length.split_once("bdp") else {
        return if floor.is_none() {
            bytes(text).map(QueueLength::Bytes).map_err(|_| wrong())
        } else {
            Err(wrong())
        };
    };
    let multiple = scaled(multiple, &[("", 1.0)])
        .filter(|m| *m > 0.0)
        .ok_or_else(wrong)?;
    let rtt = match of.trim() {
        "" => None,
        of => Some(duration(of.strip_prefix("of ").ok_or_else(wrong)?).map_err(|_| wrong())?),
    };
    let at_least = match floor {
        None => 0,
        Some(floor) => bytes(floor.strip_prefix("at least ").ok_or_else(wrong)?).map_err(|_| wrong())?,
    };
    Ok(QueueLength::Bdp {
        multiple,
        rtt,
        at_least,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_scale_as_they_say() {
        assert_eq!(duration("53 ms"), Ok(Duration::from_millis(53)));
        assert_eq!(duration("1.15ms"), Ok(Duration::from_micros(1150)));
        assert_eq!(duration("1e-3 s"), Ok(Duration::from_millis(1)));
        assert_eq!(bit_rate("155 Mbit/s"), Ok(Some(155_000_000)));
        assert_eq!(bit_rate("unlimited"), Ok(None));
        assert_eq!(bytes("64 KB"), Ok(65_536));
        assert!((probability("0.001%").unwrap() - 1e-5).abs() < 1e-18);
        assert_eq!(probability("8e-4"), Ok(8e-4));
        assert_eq!(queue_length("256 KB"), Ok(QueueLength::Bytes(262_144)));
        assert_eq!(
            queue_length("1.5 bdp of 106 ms, at least 1 MB"),
            Ok(QueueLength::Bdp {
                multiple: 1.5,
                rtt: Some(Duration::from_millis(106)),
                at_least: 1_048_576
            })
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "", "ms", "53", "-1 ms", "53 m", "inf s", "NaN s", "1e400 s", "0x10 s",
        ] {
            assert!(duration(text).is_err(), "{text:?} passed as a time");
        }
        for text in ["155", "155 MB/s", "-1 bit/s", "10 Tbit/s"] {
            assert!(bit_rate(text).is_err(), "{text:?} passed as a rate");
        }
        for text in ["101%", "1.1", "-0.1", "1 %%"] {
            assert!(probability(text).is_err(), "{text:?} passed as a probability");
        }
        for text in [
            "bdp",
            "0 bdp",
            "1 bdp 106 ms",
            "1 bdp, 4 KB",
            "64 KB, at least 1 KB",
        ] {
            assert!(queue_length(text).is_err(), "{text:?} passed as a queue");
        }
    }
}
