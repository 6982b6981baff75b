//! Random sequences of a link. Each process of each direction has its own, so that turning one
//! process on or off changes nothing about the others.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Process that draws the numbers. New ones go to the end, because the position selects the
/// sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    /// Loss of segments.
    Loss,
    /// Variation of the delay.
    Jitter,
    /// Segments that are held up.
    Reorder,
    /// Beginnings and ends of bursts of cross traffic.
    Cross,
}

/// Returns the sequence of one process in the direction `direction` (0 or 1) of the link with this
/// seed. Sequences of one seed do not overlap: processes are 2^192 numbers apart, directions 2^128.
#[must_use]
pub fn sequence(seed: u64, process: Process, direction: u32) -> Xoshiro256PlusPlus {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    for _ in 0..process as u32 {
        random.long_jump();
    }
    for _ in 0..direction {
        random.jump();
    }
    random
}

/// Draws the number of failures before the first success, if each try succeeds with `probability`.
/// It takes one draw by inversion instead of one for each try.
pub fn geometric(random: &mut Xoshiro256PlusPlus, probability: f64) -> u64 {
    if probability <= 0.0 {
        return u64::MAX;
    }
    // 1 - u is in (0, 1]: the logarithm is finite. With probability 1 the divisor is -infinity: 0
    // failures.
    let u: f64 = random.random();
    ((-u).ln_1p() / (-probability).ln_1p()) as u64
}

/// Draws an exponentially distributed number with mean 1.
pub fn exponential(random: &mut Xoshiro256PlusPlus) -> f64 {
    let u: f64 = random.random();
    -(-u).ln_1p()
}

/// Draws standard normal numbers until one is within two deviations. Its mean is 0, its standard
/// deviation [`TRUNCATED_NORMAL_DEVIATION`].
pub fn truncated_normal(random: &mut Xoshiro256PlusPlus) -> f64 {
    loop {
        // Box and Muller (1958). 1 - u is in (0, 1].
        let (u, v): (f64, f64) = (random.random(), random.random());
        let normal = (-2.0 * (-u).ln_1p()).sqrt() * (std::f64::consts::TAU * v).cos();
        if normal.abs() <= TRUNCATED_NORMAL_BOUND {
            return normal;
        }
    }
}

/// Maximum magnitude of a [`truncated_normal`].
pub const TRUNCATED_NORMAL_BOUND: f64 = 2.0;
/// Standard deviation of a [`truncated_normal`]: with density f and distribution F of the standard
/// normal, sqrt(1 - 2 * 2 f(2) / (2 F(2) - 1)).
pub const TRUNCATED_NORMAL_DEVIATION: f64 = 0.879_626;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_differ_by_process_and_direction_and_repeat_by_seed() {
        let processes = [
            Process::Loss,
            Process::Jitter,
            Process::Reorder,
            Process::Cross,
        ];
        let first = |seed, process, direction| sequence(seed, process, direction).random::<u64>();
        let all = |seed| -> Vec<u64> {
            processes
                .iter()
                .flat_map(|process| [first(seed, *process, 0), first(seed, *process, 1)])
                .collect()
        };
        let (mut one, again, other) = (all(1), all(1), all(2));
        assert_eq!(one, again);
        assert!(one.iter().all(|number| !other.contains(number)));
        one.sort_unstable();
        one.dedup();
        assert_eq!(one.len(), 8);
    }

    #[test]
    fn distributions_have_their_moments() {
        let mut random = sequence(3, Process::Jitter, 0);
        let count = 200_000;
        let moments = |values: &[f64]| {
            let mean = values.iter().sum::<f64>() / f64::from(count);
            let variance = values
                .iter()
                .map(|value| (value - mean).powi(2))
                .sum::<f64>()
                / f64::from(count);
            (mean, variance.sqrt())
        };
        let normal: Vec<f64> = (0..count).map(|_| truncated_normal(&mut random)).collect();
        let (mean, deviation) = moments(&normal);
        assert!(mean.abs() < 0.01, "{mean}");
        assert!(
            (deviation - TRUNCATED_NORMAL_DEVIATION).abs() < 0.005,
            "{deviation}"
        );
        assert!(
            normal
                .iter()
                .all(|value| value.abs() <= TRUNCATED_NORMAL_BOUND)
        );
        let waits: Vec<f64> = (0..count).map(|_| exponential(&mut random)).collect();
        let (mean, deviation) = moments(&waits);
        assert!(
            (mean - 1.0).abs() < 0.012 && (deviation - 1.0).abs() < 0.02,
            "{mean} {deviation}"
        );
        assert!(waits.iter().all(|wait| wait.is_finite() && *wait >= 0.0));
    }
}
