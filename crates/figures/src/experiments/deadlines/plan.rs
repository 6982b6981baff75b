//! Plan of the copies, always the same for one seed.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::ROUTED_BPS;

/// Sizes of copies, in bytes.
pub const SIZES: [u64; 4] = [64 << 20, 128 << 20, 192 << 20, 256 << 20];
/// Numbers of others' flows next to a copy.
const OTHERS: [u32; 4] = [0, 4, 8, 16];
/// Range of the time to a deadline, relative to the time that the link takes for the copy alone:
/// the minimum is impossible, the maximum is easy.
const FACTORS: (f64, f64) = (0.7, 7.0);
/// Additional time of every copy, to connect and to verify, in seconds.
const SET_UP_S: f64 = 2.0;

/// One copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// Its size.
    pub bytes: u64,
    /// Seconds from its start to its deadline.
    pub deadline_s: f64,
    /// Number of others' flows at the same time.
    pub others: u32,
}

/// Returns this many copies.
pub fn copies(seed: u64, count: usize) -> Vec<Wanted> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut one = || {
        let bytes = SIZES[random.random_range(0..SIZES.len())];
        let others = OTHERS[random.random_range(0..OTHERS.len())];
        let (least, most) = FACTORS;
        let factor = least * (most / least).powf(random.random_range(0.0..1.0));
        Wanted {
            bytes,
            // Whole seconds, as `--by` takes them.
            deadline_s: (SET_UP_S + factor * least_seconds(bytes)).ceil(),
            others,
        }
    };
    (0..count).map(|_| one()).collect()
}

/// Returns the time that the link takes for `bytes` without other traffic, in seconds.
pub fn least_seconds(bytes: u64) -> f64 {
    bytes as f64 * 8.0 / ROUTED_BPS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_deadlines_are_out_of_reach_and_some_are_easy() {
        let all = copies(1, 200);
        assert_eq!(all, copies(1, 200));
        let over = |factor: f64| {
            let so = |one: &&Wanted| one.deadline_s > factor * least_seconds(one.bytes);
            all.iter().filter(so).count()
        };
        assert!(
            over(1.0) < 200 && over(4.0) > 20 && over(8.0) < 20,
            "{} {} {}",
            over(1.0),
            over(4.0),
            over(8.0)
        );
    }
}
