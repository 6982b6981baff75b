//! The Internet2 Land Speed Record: the rules of the contest of 2003, and its unit.
//!
//! An attempt must transfer at least 100 megabytes over at least 100 kilometres of terrestrial
//! distance, with at least two router hops in each direction. It is rated in bit-metres per second.
//! The rules about hardware on sale and production networks are for people to judge.

use std::fmt;

use quantities::{ByteCount, Rate};
use serde::Serialize;

/// Minimum number of bytes that must be transferred.
pub const LEAST_BYTES: u64 = 100_000_000;
/// Minimum terrestrial distance, in kilometres.
pub const LEAST_KM: f64 = 100.0;
/// Minimum number of router hops in each direction.
pub const LEAST_HOPS: u32 = 2;

/// Course of an attempt, as stated by the person who makes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Course {
    /// Terrestrial distance, in kilometres.
    pub km: f64,
    /// Number of router hops in each direction.
    pub hops: u32,
}

/// One attempt, judged by the rules.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Attempt {
    /// Rate times distance, in terabit-metres per second.
    pub terabit_metres_per_second: f64,
    /// True if it keeps the rules that can be checked.
    pub valid: bool,
    /// Rules that it breaks.
    pub broken: Vec<BrokenRule>,
}

/// A rule that an attempt breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BrokenRule {
    /// Fewer than [`LEAST_BYTES`] were transferred.
    TooFewBytes,
    /// The distance is less than [`LEAST_KM`].
    TooShort,
    /// There are fewer than [`LEAST_HOPS`] router hops.
    TooFewHops,
}

impl fmt::Display for BrokenRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooFewBytes => "less than 100,000,000 bytes arrived",
            Self::TooShort => "the distance is under 100 km",
            Self::TooFewHops => "fewer than two router hops each way",
        })
    }
}

impl Attempt {
    /// Judges an attempt in which `bytes` arrived at `rate` over `course`.
    #[must_use]
    pub fn judge(bytes: ByteCount, rate: Rate, course: Course) -> Self {
        let rules = [
            (bytes.0 >= LEAST_BYTES, BrokenRule::TooFewBytes),
            (course.km >= LEAST_KM, BrokenRule::TooShort),
            (course.hops >= LEAST_HOPS, BrokenRule::TooFewHops),
        ];
        let broken: Vec<_> = rules
            .into_iter()
            .filter_map(|(kept, rule)| (!kept).then_some(rule))
            .collect();
        let metres = course.km * 1e3;
        Self {
            terabit_metres_per_second: rate.bits_per_second() * metres / 1e12,
            valid: broken.is_empty(),
            broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(bytes: u64, bits_per_second: f64, km: f64, hops: u32) -> Attempt {
        Attempt::judge(
            ByteCount(bytes),
            Rate::nearest(bits_per_second),
            Course { km, hops },
        )
    }

    #[test]
    fn the_records_come_out_as_published() {
        // February 2003: 2.38 Gbit/s over 10,037 km.
        let record = judged(1_000_000_000_000, 2.38e9, 10_037.0, 4);
        assert_eq!(record.terabit_metres_per_second.round(), 23_888.0);
        assert!(record.valid);
        // November 2002: 10,136.15 over 10,978 km, at a rate printed as 0.93 Gbit/s (rounded up:
        // 0.9233 gives the figure).
        let former = judged(1_000_000_000, 0.923_314e9, 10_978.0, 4);
        assert!((former.terabit_metres_per_second - 10_136.15).abs() < 0.1);
    }

    #[test]
    fn each_rule_counts_at_its_bound() {
        assert!(judged(100_000_000, 1e6, 100.0, 2).valid);
        assert_eq!(
            judged(99_999_999, 1e6, 100.0, 2).broken,
            [BrokenRule::TooFewBytes]
        );
        assert_eq!(
            judged(100_000_000, 1e6, 99.9, 2).broken,
            [BrokenRule::TooShort]
        );
        assert_eq!(
            judged(100_000_000, 1e6, 100.0, 1).broken,
            [BrokenRule::TooFewHops]
        );
        assert_eq!(judged(0, 0.0, f64::NAN, 0).broken.len(), 3);
    }
}
