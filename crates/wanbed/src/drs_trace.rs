//! A series for the path that the DRS paper measured between Los Alamos and New York every 20 s.
//! The paper does not print the series, so this one is synthetic: seeded, and with exactly the
//! printed statistics.
//!
//! - bottleneck: 0.026 to 28.5 Mbit/s, mean 17.2;
//! - round trip: 119 to 475 ms, mean 157.
//!
//! The paper also says that 1.74 Mbit is the bandwidth-delay product's 66th percentile. The series
//! does not fit that: the product of these two means is 2.7 Mbit. With bottleneck and round trip
//! drawn independently, the 66th percentile is near 2.8 Mbit.
//!
//! Values wander (each depends on the one before) and are mapped to a distribution with the given
//! minimum, mean and maximum.

use std::fmt::Write as _;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Seconds between two steps.
const STEP: usize = 20;
/// Correlation of a value with the one before.
const MEMORY: f64 = 0.6;

/// Minimum, mean and maximum.
#[derive(Debug, Clone, Copy)]
struct Range {
    least: f64,
    mean: f64,
    greatest: f64,
}

const BOTTLENECK_MBIT: Range = Range {
    least: 0.026,
    mean: 17.2,
    greatest: 28.5,
};
const RTT_MS: Range = Range {
    least: 119.0,
    mean: 157.0,
    greatest: 475.0,
};

/// Returns the text of the trace file, with `steps` steps (at least 3), and half the round trip as
/// each direction's delay.
pub fn write(seed: u64, steps: usize) -> String {
    let steps = steps.clamp(3, 100_000);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let rates = series(&mut random, steps, BOTTLENECK_MBIT);
    let delays = series(&mut random, steps, RTT_MS);
    let mut text = format!(
        "# Made up by `wanbed trace-drs --seed {seed} --steps {steps}`: the DRS paper gives \
         statistics of its path (bottleneck\n\
         # 0.026 to 28.5, mean 17.2 Mbit/s; round trip 119 to 475, mean 157 ms; a sample every 20 \
         s) but not the series. The 66th\n\
         # percentile it names for the bandwidth-delay product, 1.74 Mbit, is not fitted: here it \
         is near 2.8 Mbit.\n\
         at, rate, delay, loss\n"
    );
    for (index, (rate, rtt)) in rates.iter().zip(&delays).enumerate() {
        let _ = writeln!(
            text,
            "{} s, {rate:.4} Mbit/s, {:.3} ms,",
            index * STEP,
            rtt / 2.0
        );
    }
    text
}

/// Returns a wandering series whose minimum, mean and maximum are exactly those of the range.
fn series(random: &mut Xoshiro256PlusPlus, steps: usize, range: Range) -> Vec<f64> {
    let mut state = 0.0;
    let wander: Vec<f64> = (0..steps)
        .map(|_| {
            // The sum of twelve uniform numbers is nearly normally distributed.
            let normal: f64 = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
            state = MEMORY * state + (1.0 - MEMORY * MEMORY).sqrt() * normal;
            state
        })
        .collect();
    // Ranks make the values uniform from 0 to 1, however they wander.
    let mut order: Vec<usize> = (0..steps).collect();
    order.sort_by(|&a, &b| wander[a].total_cmp(&wander[b]));
    let mut even = vec![0.0; steps];
    for (rank, &index) in order.iter().enumerate() {
        even[index] = rank as f64 / (steps - 1) as f64;
    }
    // A power of a uniform value keeps 0 and 1 and moves the mean; bisection finds the exponent.
    let wanted = (range.mean - range.least) / (range.greatest - range.least);
    let mean = |power: f64| even.iter().map(|value| value.powf(power)).sum::<f64>() / steps as f64;
    let (mut low, mut high) = (1e-3_f64, 1e3_f64);
    for _ in 0..200 {
        let middle = (low * high).sqrt();
        if mean(middle) > wanted {
            low = middle
        } else {
            high = middle
        }
    }
    even.iter()
        .map(|value| range.least + (range.greatest - range.least) * value.powf(high))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(text: &str) -> (Vec<f64>, Vec<f64>) {
        let number = |cell: &str| {
            cell.split_whitespace()
                .next()
                .unwrap()
                .parse::<f64>()
                .unwrap()
        };
        let rows = text.lines().filter(|line| !line.starts_with(['#', 'a']));
        rows.map(|row| {
            let cells: Vec<&str> = row.split(',').collect();
            (number(cells[1]), 2.0 * number(cells[2]))
        })
        .unzip()
    }

    #[test]
    fn trace_has_the_statistics_of_the_paper() {
        for seed in 1..20 {
            let (rates, rtts) = columns(&write(seed, 180));
            for (values, range, near) in [(&rates, BOTTLENECK_MBIT, 0.01), (&rtts, RTT_MS, 0.1)] {
                let least = values.iter().copied().fold(f64::INFINITY, f64::min);
                let greatest = values.iter().copied().fold(0.0, f64::max);
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                assert!(
                    (least - range.least).abs() < near,
                    "seed {seed}: least {least}"
                );
                assert!(
                    (greatest - range.greatest).abs() < near,
                    "seed {seed}: greatest {greatest}"
                );
                assert!((mean - range.mean).abs() < near, "seed {seed}: mean {mean}");
            }
        }
    }

    #[test]
    fn trace_file_of_the_scenario_is_up_to_date() {
        assert_eq!(
            write(1, 180),
            include_str!("../../../scenarios/drs-trace.csv")
        );
    }

    #[test]
    fn a_seed_repeats_and_another_differs() {
        assert_eq!(write(3, 50), write(3, 50));
        assert_ne!(columns(&write(3, 50)), columns(&write(4, 50)));
    }
}
