//! Quantities as a person reads them.

/// A rate in bit/s, to three digits.
pub fn rate(bps: f64) -> String {
    let (value, unit) = match bps {
        b if b >= 1e9 => (b / 1e9, "Gbit/s"),
        b if b >= 1e6 => (b / 1e6, "Mbit/s"),
        b if b >= 1e3 => (b / 1e3, "kbit/s"),
        b => (b, "bit/s"),
    };
    format!("{} {unit}", digits(value))
}

/// Bytes, in units of 1024.
pub fn bytes(bytes: f64) -> String {
    let (value, unit) = match bytes {
        b if b >= f64::from(1u32 << 30) => (b / f64::from(1u32 << 30), "GiB"),
        b if b >= f64::from(1u32 << 20) => (b / f64::from(1u32 << 20), "MiB"),
        b if b >= 1024.0 => (b / 1024.0, "KiB"),
        b => (b, "bytes"),
    };
    format!("{} {unit}", digits(value))
}

/// A span of time in seconds.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 120.0 => format!("{} min", digits(s / 60.0)),
        s if s >= 1.0 => format!("{} s", digits(s)),
        s if s >= 1e-3 => format!("{} ms", digits(s * 1e3)),
        s => format!("{} us", digits(s * 1e6)),
    }
}

/// Three digits, and no zeros behind the point.
fn digits(value: f64) -> String {
    let decimals = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_enough() {
        assert_eq!(rate(251_658_240.0), "252 Mbit/s");
        assert_eq!(rate(1e9), "1 Gbit/s");
        assert_eq!(rate(5_242_800.0), "5.24 Mbit/s");
        assert_eq!(rate(0.0), "0 bit/s");
        assert_eq!(bytes(6_291_456.0), "6 MiB");
        assert_eq!(bytes(65_535.0), "64 KiB");
        assert_eq!(seconds(0.1), "100 ms");
        assert_eq!(seconds(416.6), "6.94 min");
        assert_eq!(seconds(0.000_02), "20 us");
        assert_eq!(seconds(34.36), "34.4 s");
    }
}
