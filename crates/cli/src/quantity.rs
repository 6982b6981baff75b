//! Quantities of the command line, with sensible bounds.

#![deny(clippy::indexing_slicing)] // what is read here comes from the command line

use std::time::Duration;

use quantities::{ByteCount, Probability, Rate, Time};

/// Maximum measurement time and round trip: a year.
const MAX_TIME: Time = Time(Duration::from_secs(365 * 86_400));
/// Accepted rates of a path for `doctor`, in bit/s.
const PATH_RATES: std::ops::RangeInclusive<f64> = 1e3..=1e13;
/// Accepted round trips of a path for `doctor`.
const PATH_ROUND_TRIPS: std::ops::RangeInclusive<Time> =
    Time(Duration::from_micros(1))..=Time(Duration::from_secs(100));

/// Parses a rate above zero; a bare number is bit/s, as in iperf3.
pub fn positive_rate(text: &str) -> Result<Rate, String> {
    read(text, |rate: &Rate| *rate > Rate::ZERO, "a rate over 0")
}

/// Parses a size above zero; a bare number is bytes, as in iperf3.
pub fn positive_bytes(text: &str) -> Result<ByteCount, String> {
    read(text, |count: &ByteCount| count.0 > 0, "a size over 0")
}

/// Parses a time above zero and within [`MAX_TIME`]; a bare number is seconds, as in iperf3.
pub fn positive_time(text: &str) -> Result<Time, String> {
    read(
        text,
        |time: &Time| !time.0.is_zero() && *time <= MAX_TIME,
        "a time over 0 and up to 365 days",
    )
}

/// Parses a loss rate between 0 and 1.
pub fn loss_rate(text: &str) -> Result<Probability, String> {
    read(
        text,
        |loss: &Probability| *loss > Probability::ZERO && *loss < Probability::ONE,
        "a loss rate between 0 and 1, neither of them included",
    )
}

/// Parses a size of memory; a bare number is MiB, for compatibility.
pub fn memory(text: &str) -> Result<ByteCount, String> {
    if let Ok(mebibytes) = text.parse::<u64>() {
        return Ok(ByteCount(mebibytes.saturating_mul(1 << 20)));
    }
    ByteCount::with_unit(text).map_err(|error| error.to_string())
}

/// Parses the rate that a path should carry; it must have a unit.
pub fn path_rate(text: &str) -> Result<Rate, String> {
    let rate = Rate::with_unit(text).map_err(|error| error.to_string())?;
    if PATH_RATES.contains(&rate.bits_per_second()) {
        return Ok(rate);
    }
    Err("not a rate from 1 kbit/s to 10 Tbit/s".to_owned())
}

/// Parses the age of a leftover; a bare number is days.
pub fn leftover_age(text: &str) -> Result<Time, String> {
    let age = match text.parse::<u32>() {
        Ok(days) => Time(Duration::from_secs(u64::from(days) * 86_400)),
        Err(_) => Time::with_unit(text).map_err(|error| error.to_string())?,
    };
    Ok(age)
}

/// Parses a path's round trip; it must have a unit.
pub fn path_round_trip(text: &str) -> Result<Time, String> {
    let time = Time::with_unit(text).map_err(|error| error.to_string())?;
    if PATH_ROUND_TRIPS.contains(&time) {
        return Ok(time);
    }
    Err("not a round trip from 1 us to 100 s".to_owned())
}

fn read<T>(text: &str, fits: impl Fn(&T) -> bool, wanted: &str) -> Result<T, String>
where
    T: std::str::FromStr<Err = quantities::QuantityError>,
{
    match text.parse() {
        Ok(value) if fits(&value) => Ok(value),
        Ok(_) => Err(format!("write {wanted}")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_of_perf_parse() {
        let rate = |text| positive_rate(text).map(Rate::bits_per_second);
        for text in [
            "2.4 Gbit/s",
            "2.4G",
            "2.4g",
            "2400M",
            "2400m",
            "2.4e9",
            "2400000000",
            "2400000 kbit/s",
            "0.0024T",
        ] {
            assert_eq!(rate(text), Ok(2.4e9), "{text}");
        }
        for (text, bytes) in [
            ("64K", 65_536),
            ("64k", 65_536),
            ("64KB", 65_536),
            ("64KiB", 65_536),
            ("1.5M", 1_572_864),
            ("1g", 1 << 30),
            ("1TB", 1 << 40),
            ("7", 7),
            ("7B", 7),
        ] {
            assert_eq!(positive_bytes(text), Ok(ByteCount(bytes)), "{text}");
        }
        for (text, millis) in [
            ("180ms", 180),
            ("10", 10_000),
            ("10s", 10_000),
            ("250000us", 250),
            ("2 min", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(
                positive_time(text),
                Ok(Time(Duration::from_millis(millis))),
                "{text}"
            );
        }
        assert_eq!(loss_rate("0.001%").map(Probability::value), Ok(1e-5));
        assert_eq!(loss_rate("8e-4").map(Probability::value), Ok(8e-4));
        for bad in ["0", "-1", "", "fast", "367 days"] {
            assert!(positive_time(bad).is_err(), "{bad}");
        }
        for bad in ["0", "1", "100%", "none", "-1"] {
            assert!(loss_rate(bad).is_err(), "{bad}");
        }
        assert!(positive_rate("0").is_err() && positive_bytes("0").is_err());
    }

    #[test]
    fn bare_memory_sizes_are_mebibytes() {
        for text in ["256", "256MiB", "256 MB", "0.25G"] {
            assert_eq!(memory(text), Ok(ByteCount(256 << 20)), "{text}");
        }
        assert_eq!(memory("0"), Ok(ByteCount(0)));
        for bad in ["", "-1", "1.5", "256 bit"] {
            assert!(memory(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn quantities_of_doctor_parse() {
        let rate = |text| path_rate(text).map(Rate::bits_per_second);
        for (text, bps) in [
            ("10Gbit/s", 1e10),
            ("155 Mbit/s", 155e6),
            ("2.5g", 2.5e9),
            ("1000Mbps", 1e9),
            ("1000 MBIT/S", 1e9),
            ("10 Gb/s", 1e10),
            ("10gbit", 1e10),
            ("2000 bit/s", 2000.0),
            ("2000 b", 2000.0),
        ] {
            assert_eq!(rate(text), Ok(bps), "{text}");
        }
        for bad in [
            "",
            "10",
            "Gbit/s",
            "-1Gbit/s",
            "0Gbit/s",
            "10 parsecs",
            "99Tbit/s",
            "1.2.3Mbit/s",
            "infGbit/s",
            "155 MB/s",
        ] {
            assert!(rate(bad).is_err(), "{bad}");
        }
        let seconds = |text| path_round_trip(text).map(Time::seconds);
        assert_eq!(seconds("100ms"), Ok(0.1));
        assert_eq!(seconds("0.25 s"), Ok(0.25));
        assert_eq!(seconds("7us"), Ok(7e-6));
        for bad in ["", "100", "ms", "-1ms", "0ms", "1h", "1000s"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
