use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn rate(text: &str) -> Option<f64> {
    text.parse().ok().map(Rate::bits_per_second)
}

fn bytes(text: &str) -> Option<u64> {
    text.parse().ok().map(|ByteCount(bytes)| bytes)
}

fn time(text: &str) -> Option<Duration> {
    text.parse().ok().map(|Time(time)| time)
}

fn probability(text: &str) -> Option<f64> {
    text.parse().ok().map(Probability::value)
}

#[test]
fn rates_are_decimal() {
    for text in [
        "155 Mbit/s",
        "155Mbit/s",
        "155M",
        "155m",
        "155 mbit",
        "155Mbps",
        "155 Mb/s",
        "155 MBIT/S",
        "0.155 Gbit/s",
        "155000 kbit/s",
        "155e6",
        "155000000 bit/s",
        "1.55e2 Mbit/s",
        " 155  Mbit/s ",
        "0.000155T",
        "155Mps",
        "155M/s",
    ] {
        assert_eq!(rate(text), Some(155e6), "{text}");
    }
    assert_eq!(rate("0 bit/s"), Some(0.0));
    assert_eq!(rate("17.2 Mbit/s"), Some(17.2e6));
}

#[test]
fn a_rate_in_bytes_is_refused() {
    for text in [
        "155 MB/s",
        "10GB",
        "2 GBps",
        "1 B/s",
        "155 MiB/s",
        "10 GBPS",
    ] {
        assert_eq!(rate(text), None, "{text}");
    }
}

#[test]
fn sizes_are_binary_whatever_the_spelling() {
    for text in [
        "64K",
        "64k",
        "64KB",
        "64kB",
        "64KiB",
        "64 KiB",
        "65536",
        "65536 B",
        "65536 bytes",
        "0.0625M",
        "6.5536e4",
    ] {
        assert_eq!(bytes(text), Some(65_536), "{text}");
    }
    assert_eq!(bytes("1.5M"), Some(1_572_864));
    assert_eq!(bytes("2g"), Some(2 << 30));
    assert_eq!(bytes("3 TiB"), Some(3 << 40));
    assert_eq!(bytes("18446744073709551615"), Some(u64::MAX));
    assert_eq!(bytes("16 EiB"), Some(u64::MAX));
    for text in [
        "17 EiB", "64 mb", "64 Kib", "64 kiB", "64 Kbit", "1 e", "64 iB",
    ] {
        assert_eq!(bytes(text), None, "{text}");
    }
}

#[test]
fn times_and_probabilities_are_read() {
    for (text, micros) in [
        ("180ms", 180_000),
        ("1.15 ms", 1150),
        ("10", 10_000_000),
        ("1e-3 s", 1000),
        ("250us", 250),
        ("2000 ns", 2),
        ("1.5 min", 90_000_000),
        ("2h", 7_200_000_000),
        ("2 days", 172_800_000_000),
        ("2d", 172_800_000_000),
    ] {
        assert_eq!(time(text), Some(Duration::from_micros(micros)), "{text}");
    }
    for text in ["53 m", "ms", "1 week", "1e30 s"] {
        assert_eq!(time(text), None, "{text}");
    }
    assert_eq!(probability("0.001%"), Some(1e-5));
    assert_eq!(probability("8e-4"), Some(8e-4));
    assert_eq!(probability("none"), Some(0.0));
    assert_eq!(probability("100%"), Some(1.0));
    for text in ["101%", "1.1", "-0.1", "1 %%", "1 ppm"] {
        assert_eq!(probability(text), None, "{text}");
    }
}

#[test]
fn invalid_quantities_are_refused_in_one_line() {
    let long = "9".repeat(5000);
    for bad in [
        "",
        " ",
        "fast",
        "-1",
        "+1",
        "1e999",
        "NaN",
        "inf",
        "0x10",
        "1..2",
        ".",
        "e5",
        "1e",
        "1e99999999999",
        "µ",
        "1\n2",
        &long,
    ] {
        for refused in [
            bad.parse::<Rate>().map(drop),
            bad.parse::<ByteCount>().map(drop),
            bad.parse::<Time>().map(drop),
            bad.parse::<Probability>().map(drop),
        ] {
            let text = refused.unwrap_err().to_string();
            assert!(!text.contains('\n') && text.len() < 300, "{text}");
        }
    }
}

#[test]
fn files_name_their_units() {
    assert!(Rate::with_unit("155").is_err() && Rate::with_unit("155 M").is_ok());
    assert!(ByteCount::with_unit("155").is_err() && ByteCount::with_unit("155 B").is_ok());
    assert!(Time::with_unit("155").is_err() && Time::with_unit("155 s").is_ok());
}

#[test]
fn quantities_print_with_the_unit_that_fits() {
    let shown = |seconds| Time::from_seconds(seconds).to_string();
    for (found, wanted) in [
        (Rate::nearest(2.4e9).to_string(), "2.4 Gbit/s"),
        (Rate::nearest(999.0).to_string(), "999 bit/s"),
        (Rate::nearest(0.0).to_string(), "0 bit/s"),
        (Rate::nearest(999_960.0).to_string(), "1 Mbit/s"),
        (Rate::nearest(1.234_567e13).to_string(), "12.35 Tbit/s"),
        (Rate::nearest(1.234_567e16).to_string(), "12346 Tbit/s"),
        (format!("{:.3}", Rate::nearest(251_658_240.0)), "252 Mbit/s"),
        (ByteCount(0).to_string(), "0 B"),
        (ByteCount(1023).to_string(), "1023 B"),
        (ByteCount(65_535).to_string(), "64 KiB"),
        (ByteCount(54_000_000).to_string(), "51.5 MiB"),
        (ByteCount(1_048_575).to_string(), "1 MiB"),
        (ByteCount(u64::MAX).to_string(), "16 EiB"),
        (shown(0.0), "0 s"),
        (shown(1e-9), "1 ns"),
        (shown(0.18), "180 ms"),
        (shown(119.999), "2 min"),
        (shown(542.0), "9.033 min"),
        (shown(8.0 * 86_400.0), "8 days"),
        (format!("{:.3}", Time::from_seconds(416.6)), "6.94 min"),
        (Probability::nearest(2.49e-8).to_string(), "2.49e-8"),
        (Probability::nearest(9.999_99e-5).to_string(), "1e-4"),
        (Probability::nearest(0.009_999_99).to_string(), "0.01"),
        (Probability::nearest(0.25).to_string(), "0.25"),
        (Probability::ONE.to_string(), "1"),
        (Probability::ZERO.to_string(), "0"),
    ] {
        assert_eq!(found, wanted);
    }
}

#[test]
fn short_sizes_print_as_du_prints_them() {
    // As `numfmt --to=iec --round=up` prints them.
    for (bytes, expected) in [
        (0, "0"),
        (1023, "1023"),
        (1024, "1.0K"),
        (1025, "1.1K"),
        (10_188, "10K"),
        (1_048_000, "1.0M"),
        (1_048_576, "1.0M"),
        (1_610_612_736, "1.5G"),
        (20 << 30, "20G"),
        (u64::MAX, "16E"),
    ] {
        assert_eq!(ByteCount(bytes).short().to_string(), expected);
    }
    assert_eq!(format!("{:>6}", ByteCount(2048).short()), "  2.0K");
}

#[test]
fn a_rate_is_bytes_in_a_time() {
    let second = Time(Duration::from_secs(1));
    assert_eq!(
        Rate::from_bytes_in(ByteCount(1000), second).bits_per_second(),
        8000.0
    );
    assert_eq!(
        Rate::from_bytes_in(ByteCount(0), Time::default()),
        Rate::ZERO
    );
    assert_eq!(Rate::nearest(f64::NAN), Rate::ZERO);
    assert_eq!(Rate::nearest(f64::INFINITY).bits_per_second(), f64::MAX);
    assert!(Rate::new(f64::NAN).is_none() && Rate::new(-1.0).is_none());
    assert_eq!(Time::from_seconds(f64::INFINITY).0, Duration::MAX);
}

/// Tests that a printed value parses back to the same value, to the printed digits, and prints the
/// same again.
fn reads_back<T: Display + FromStr>(
    value: &T,
    digits: usize,
    grain: f64,
    number: impl Fn(&T) -> f64,
) -> Result<(), TestCaseError> {
    let text = format!("{value:.digits$}");
    let Ok(read) = text.parse::<T>() else {
        return Err(TestCaseError::fail(format!("{text} is not read")));
    };
    let (was, is) = (number(value), number(&read));
    // Half a unit of the last digit, plus the granularity of the values.
    let part = 0.5 * 10f64.powi(1 - digits as i32) + 1e-12;
    prop_assert!(
        (is - was).abs() <= was * part + grain,
        "{} became {}: {}",
        was,
        is,
        text
    );
    prop_assert_eq!(format!("{read:.digits$}"), text);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn rates_read_back(exponent in -12.0..300.0f64, digits in 1..10usize) {
        reads_back(&Rate::nearest(10f64.powf(exponent)), digits, 0.0,
            |rate| rate.bits_per_second())?;
    }

    #[test]
    fn sizes_read_back(bits in 0..64u32, low: u64, digits in 1..10usize) {
        reads_back(&ByteCount(low >> bits), digits, 1.0, |count| count.0 as f64)?;
    }

    #[test]
    fn times_read_back(exponent in -9.0..15.0f64, digits in 1..10usize) {
        reads_back(&Time::from_seconds(10f64.powf(exponent)), digits, 1e-9, |time| time.seconds())?;
    }

    #[test]
    fn probabilities_read_back(exponent in -320.0..0.0f64, digits in 1..10usize) {
        // The smallest numbers have fewer significant digits.
        prop_assume!(exponent > -300.0 || digits < 3);
        reads_back(&Probability::nearest(10f64.powf(exponent)), digits, 0.0,
            |probability| probability.value())?;
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,24}", number in "[0-9.eE+-]{0,12}",
        unit in "[a-zA-Z/%]{0,6}") {
        for text in [text, format!("{number}{unit}")] {
            let _ = (text.parse::<Rate>(), text.parse::<ByteCount>(), text.parse::<Time>(),
                text.parse::<Probability>());
        }
    }
}
