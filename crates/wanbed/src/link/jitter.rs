//! Delay that varies about its mean, in one of two ways.
//!
//! *In order*: the delay is a function of time. Every twelve standard deviations of time there is a
//! point with a delay drawn from a truncated normal distribution. Between two points the delay
//! follows a straight line. The delays of neighbouring points differ by less than half of their
//! distance in time. So no packet overtakes another, and packets arrive at most 1.9 times as fast
//! as without jitter. Independent draws for each packet would not do: in order, each packet would
//! wait for the slowest one before it, and at a high rate all would have the maximum delay.
//!
//! *With reordering*: each segment has an independent draw from the same distribution.
//!
//! In both ways the deviation over time is as asked. The mean is the delay asked, unless that is
//! less than the amplitude: then the mean is the amplitude, so that the delay is never negative.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Nanos;
use super::random::{TRUNCATED_NORMAL_BOUND, TRUNCATED_NORMAL_DEVIATION, truncated_normal};
use crate::spec::JitterSpec;

/// Time between two points, in standard deviations of the delay. It makes jitter a function of
/// time, and bounds its slope.
const DEVIATIONS_PER_STEP: u64 = 12;

/// Varying part of a direction's delay.
#[derive(Debug, Clone)]
pub struct Jitter {
    kind: Kind,
    /// Standard deviation of the draws before truncation, in nanoseconds.
    scale: f64,
    /// Difference between the mean and the delay asked.
    shift: Nanos,
    random: Xoshiro256PlusPlus,
}

#[derive(Debug, Clone)]
enum Kind {
    OverTime {
        /// Time between two points.
        step: Nanos,
        /// Seed of the points.
        seed: u64,
        /// Number of the point before the last requested time, its delay and that of the next one,
        /// in nanoseconds.
        section: Option<(u64, f64, f64)>,
    },
    BySegment,
}

/// Returns the maximum difference of a delay of `spec` from the mean.
#[must_use]
pub fn amplitude(spec: &JitterSpec) -> Nanos {
    (scale(spec) * TRUNCATED_NORMAL_BOUND).ceil() as Nanos
}

/// Returns the time between two independent delays of a jitter that keeps the order.
#[must_use]
pub fn correlation_time(spec: &JitterSpec) -> Nanos {
    DEVIATIONS_PER_STEP * spec.deviation.as_nanos() as Nanos
}

fn scale(spec: &JitterSpec) -> f64 {
    // Averaged over a straight line, the variance between two independent points is two thirds of
    // theirs.
    let interpolated = if spec.reorder {
        1.0
    } else {
        (2.0_f64 / 3.0).sqrt()
    };
    spec.deviation.as_nanos() as f64 / (TRUNCATED_NORMAL_DEVIATION * interpolated)
}

impl Jitter {
    /// Returns the jitter of `spec` about delays of at least `least`.
    #[must_use]
    pub fn new(spec: &JitterSpec, least: Nanos, mut random: Xoshiro256PlusPlus) -> Self {
        let kind = if spec.reorder {
            Kind::BySegment
        } else {
            Kind::OverTime {
                step: correlation_time(spec).max(1),
                seed: random.random(),
                section: None,
            }
        };
        Self {
            kind,
            scale: scale(spec),
            shift: amplitude(spec).saturating_sub(least),
            random,
        }
    }

    /// Returns true if packets may overtake each other.
    #[must_use]
    pub fn overtakes(&self) -> bool {
        matches!(self.kind, Kind::BySegment)
    }

    /// Returns the arrival time of the next segment, which would arrive at `mean` without jitter.
    /// If the order is kept, a later `mean` does not give an earlier result.
    pub fn arrival(&mut self, mean: Nanos) -> Nanos {
        let off = match &mut self.kind {
            Kind::BySegment => self.scale * truncated_normal(&mut self.random),
            Kind::OverTime {
                step,
                seed,
                section,
            } => {
                let (number, within) = (mean / *step, mean % *step);
                let (_, from, to) = match *section {
                    Some(section) if section.0 == number => section,
                    _ => *section.insert((
                        number,
                        self.scale * point(*seed, number),
                        self.scale * point(*seed, number + 1),
                    )),
                };
                from + (to - from) * (within as f64 / *step as f64)
            }
        };
        (mean + self.shift).saturating_add_signed(off.floor() as i64)
    }

    /// Returns a time before which nothing arrives that would arrive at `mean` without jitter.
    #[must_use]
    pub fn earliest(&self, mean: Nanos) -> Nanos {
        let amplitude = (self.scale * TRUNCATED_NORMAL_BOUND).ceil() as Nanos;
        (mean + self.shift).saturating_sub(amplitude)
    }
}

/// Returns the point of this number. Points are not drawn in sequence, because a link may be quiet
/// for hours.
fn point(seed: u64, number: u64) -> f64 {
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15); // 2^64 over the golden ratio
    truncated_normal(&mut Xoshiro256PlusPlus::seed_from_u64(seed ^ spread))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::random::{Process, sequence};
    use super::*;

    const MS: Nanos = 1_000_000;

    fn jitter(deviation: Nanos, reorder: bool, least: Nanos, seed: u64) -> Jitter {
        let spec = JitterSpec {
            deviation: Duration::from_nanos(deviation),
            reorder,
        };
        Jitter::new(&spec, least, sequence(seed, Process::Jitter, 0))
    }

    /// Returns mean and standard deviation, in milliseconds, of what is added to the mean arrival.
    fn moments(jitter: &mut Jitter, times: impl Iterator<Item = Nanos>) -> (f64, f64) {
        let added: Vec<f64> = times
            .map(|mean| (jitter.arrival(mean) as f64 - mean as f64) / MS as f64)
            .collect();
        let count = added.len() as f64;
        let mean = added.iter().sum::<f64>() / count;
        let variance = added
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / count;
        (mean, variance.sqrt())
    }

    #[test]
    fn the_deviation_is_the_one_asked_at_any_packet_rate() {
        for (deviation, reorder) in [(MS, false), (5 * MS, false), (MS, true), (5 * MS, true)] {
            for spacing in [12_000, MS, 7 * MS] {
                let mut jitter = jitter(deviation, reorder, 100 * MS, 5);
                let span = 4_000 * 12 * deviation;
                let step = spacing.max(span / 200_000);
                let times = (100 * MS..span.max(40_000 * spacing)).step_by(step as usize);
                let (mean, measured) = moments(&mut jitter, times);
                let asked = deviation as f64 / MS as f64;
                assert!(
                    (measured / asked - 1.0).abs() < 0.06,
                    "{asked} {reorder} {spacing}: {measured}"
                );
                assert!(
                    mean.abs() < 0.06 * asked,
                    "{asked} {reorder} {spacing}: mean {mean}"
                );
            }
        }
    }

    #[test]
    fn a_short_delay_gets_longer_rather_than_negative() {
        let mut short = jitter(MS, false, MS / 2, 5);
        let spec = JitterSpec {
            deviation: Duration::from_millis(1),
            reorder: false,
        };
        let shift = (amplitude(&spec) - MS / 2) as f64 / MS as f64;
        let (mean, _) = moments(&mut short, (MS / 2..40_000 * MS).step_by(MS as usize));
        assert!((mean - shift).abs() < 0.06, "{mean} for {shift}");
        assert!((2.7..2.9).contains(&(amplitude(&spec) as f64 / MS as f64)));
    }

    #[test]
    fn quiet_hours_cost_nothing_and_a_time_has_one_delay() {
        let mut one = jitter(MS, false, 10 * MS, 7);
        let mut two = jitter(MS, false, 10 * MS, 7);
        let late = 20 * 3_600_000 * MS + 12_345;
        (10 * MS..2_000 * MS).step_by(1_000_000).for_each(|mean| {
            one.arrival(mean);
        });
        assert_eq!(one.arrival(late), two.arrival(late));
        assert_ne!(
            one.arrival(late),
            jitter(MS, false, 10 * MS, 8).arrival(late)
        );
    }

    proptest! {
        #[test]
        fn without_reordering_no_packet_overtakes_and_none_is_early(
            deviation in 1_000_u64..10_000_000, least in 0_u64..20_000_000, seed in any::<u64>(),
            gaps in prop::collection::vec(0_u64..30_000_000, 1..300),
        ) {
            let mut jitter = jitter(deviation, false, least, seed);
            let (mut mean, mut last, mut last_mean) = (least, 0, 0);
            for gap in gaps {
                mean += gap;
                let earliest = jitter.earliest(mean);
                let due = jitter.arrival(mean);
                prop_assert!(due >= last && due >= earliest && due >= mean - least);
                // The slope is below one half: packets come less than twice as fast.
                prop_assert!(last_mean == 0 || due - last + 2 >= (mean - last_mean) / 2);
                (last, last_mean) = (due, mean);
            }
        }

        #[test]
        fn reordering_jitter_respects_the_earliest_time(mean in 0_u64..20_000_000,
            least in 0_u64..20_000_000, seed in any::<u64>()) {
            let mut jitter = jitter(MS, true, least, seed);
            for _ in 0..100 {
                let earliest = jitter.earliest(least + mean);
                prop_assert!(jitter.arrival(least + mean) >= earliest.max(mean));
            }
        }
    }
}
