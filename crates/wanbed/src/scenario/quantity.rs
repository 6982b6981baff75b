//! Quantities with their units, as a scenario writes them: "155 Mbit/s", "53 ms", "256 KB",
//! "0.001%", "1.5 bdp".
//!
//! The crate `quantities` parses them. Here a unit is always required, and values are limited to
//! those that a link can have.

use std::time::Duration;

use quantities::{ByteCount, Probability, Rate, Time};

/// Maximum rate of a link: 1 Tbit/s, in bit/s.
const MAX_RATE: f64 = 1e12;
/// Maximum size in bytes: more than any queue or buffer.
const MAX_BYTES: u64 = 1_000_000_000_000_000;

/// Parses a span of time: "53 ms", "20 s", "100 us".
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    Time::with_unit(text)
        .map(|Time(time)| time)
        .map_err(|error| error.to_string())
}

/// Parses a bit rate in bit/s: "155 Mbit/s"; `None` for "unlimited", zero for an outage.
pub(super) fn bit_rate(text: &str) -> Result<Option<u64>, String> {
    if text.trim() == "unlimited" {
        return Ok(None);
    }
    let rate = Rate::with_unit(text).map_err(|error| format!("{error}, or \"unlimited\""))?;
    let bits = rate.bits_per_second().round();
    if bits > MAX_RATE {
        return Err(format!(
            "{text:?} is more than a link carries: up to 1 Tbit/s, or \"unlimited\""
        ));
    }
    Ok(Some(bits as u64))
}

/// Parses a size in bytes: "256 KB".
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    match ByteCount::with_unit(text) {
        Ok(ByteCount(bytes @ ..=MAX_BYTES)) => Ok(bytes),
        Ok(_) => Err(format!("{text:?} is more than a queue or a buffer holds")),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a probability: "0.001%", "8e-4", "none".
pub(super) fn probability(text: &str) -> Result<f64, String> {
    text.parse::<Probability>()
        .map(Probability::value)
        .map_err(|error| error.to_string())
}

/// Maximum length of a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum QueueLength {
    /// A fixed number of bytes.
    Bytes(u64),
    /// A multiple of the bandwidth-delay product over `rtt` (the link's own if `None`), but at
    /// least `at_least` bytes.
    Bdp {
        multiple: f64,
        rtt: Option<Duration>,
        at_least: u64,
    },
}

/// Parses a queue: "256 KB", "1.5 bdp", "1 bdp of 106 ms", "1 bdp, at least 256 KB".
pub(super) fn queue_length(text: &str) -> Result<QueueLength, String> {
    let wrong = || {
        format!(
            "{text:?} is not a queue: write \"256 KB\", \"1.5 bdp\", \"1 bdp of 106 ms\" or \"1 \
             bdp, at least 256 KB\""
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
    let multiple = multiple
        .trim()
        .parse()
        .ok()
        .filter(|m: &f64| m.is_finite() && *m > 0.0)
        .ok_or_else(wrong)?;
    let rtt = match of.trim() {
        "" => None,
        of => Some(duration(of.strip_prefix("of ").ok_or_else(wrong)?).map_err(|_| wrong())?),
    };
    let at_least = match floor {
        None => 0,
        Some(floor) => {
            bytes(floor.strip_prefix("at least ").ok_or_else(wrong)?).map_err(|_| wrong())?
        }
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
    fn every_spelling_of_a_unit_stays_valid() {
        let second = Duration::from_secs(1);
        for text in ["1000000000 ns", "1e6 us", "1000ms", "1 s"] {
            assert_eq!(duration(text), Ok(second), "{text}");
        }
        assert_eq!(duration("1 min"), Ok(60 * second));
        assert_eq!(duration("0 ms"), Ok(Duration::ZERO));
        for text in ["2.5e9 bit/s", "2500000 kbit/s", "2500 Mbit/s", "2.5Gbit/s"] {
            assert_eq!(bit_rate(text), Ok(Some(2_500_000_000)), "{text}");
        }
        assert_eq!(bit_rate("0 bit/s"), Ok(Some(0)));
        assert_eq!(bit_rate("1000 Gbit/s"), Ok(Some(1_000_000_000_000)));
        for text in [
            "1048576 B",
            "1048576 bytes",
            "1024 KB",
            "1024 kB",
            "1024 KiB",
            "1 MB",
            "1 MiB",
        ] {
            assert_eq!(bytes(text), Ok(1 << 20), "{text}");
        }
        assert_eq!((bytes("1 GB"), bytes("1 GiB")), (Ok(1 << 30), Ok(1 << 30)));
        assert_eq!(
            (probability("none"), probability("1%")),
            (Ok(0.0), Ok(0.01))
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
            assert!(
                probability(text).is_err(),
                "{text:?} passed as a probability"
            );
        }
        for text in ["64", "-1 KB", "1e16 B", "64 mb"] {
            assert!(bytes(text).is_err(), "{text:?} passed as a size");
        }
        for text in [
            "bdp",
            "0 bdp",
            "-1 bdp",
            "inf bdp",
            "1 bdp 106 ms",
            "1 bdp, 4 KB",
            "64 KB, at least 1 KB",
        ] {
            assert!(queue_length(text).is_err(), "{text:?} passed as a queue");
        }
    }
}
