//! Synthetic series from statistics that others have published. Each family names the source of
//! each number; numbers without a source are marked as ours.

use longhaul_routing::forecast::ForecastQuantity;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

/// Number of values of a series.
pub const LENGTH: usize = 3000;

/// A kind of series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Rate that on/off sources with heavy tails leave of a link.
    HeavyTails,
    /// Rate that the load of a day leaves of a link.
    Diurnal,
    /// The DRS paper's bottleneck.
    Wandering,
    /// A rate that a Markov chain switches between levels.
    Regimes,
    /// Round trips over routes that change.
    Routes,
    /// Losses, in episodes.
    Losses,
}

impl Family {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 6] = [
        Self::HeavyTails,
        Self::Diurnal,
        Self::Wandering,
        Self::Regimes,
        Self::Routes,
        Self::Losses,
    ];

    /// Returns its title, as the head of a row.
    pub const fn title(self) -> &'static str {
        match self {
            Self::HeavyTails => "rate left by heavy-tailed on/off sources",
            Self::Diurnal => "rate left by the load of days",
            Self::Wandering => "rate of the DRS paper's path",
            Self::Regimes => "rate that a Markov chain modulates",
            Self::Routes => "round trip over routes that change",
            Self::Losses => "loss in episodes",
        }
    }

    /// Returns the quantity that is forecast.
    pub const fn quantity(self) -> ForecastQuantity {
        match self {
            Self::HeavyTails | Self::Diurnal | Self::Wandering | Self::Regimes => {
                ForecastQuantity::Rate
            }
            Self::Routes => ForecastQuantity::RoundTrip,
            Self::Losses => ForecastQuantity::Loss,
        }
    }

    /// Seconds between values.
    pub const fn period(self) -> f64 {
        match self {
            Self::HeavyTails => 1.0,
            Self::Diurnal => 120.0,
            Self::Wandering => 20.0,
            Self::Regimes | Self::Routes | Self::Losses => 60.0,
        }
    }

    /// Returns the values of a seed, in the quantity's unit.
    pub fn values(self, seed: u64) -> Vec<f64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ ((self as u64 + 1) << 32));
        match self {
            Self::HeavyTails => heavy_tails(&mut random),
            Self::Diurnal => diurnal(&mut random),
            Self::Wandering => wandering(seed),
            Self::Regimes => regimes(&mut random),
            Self::Routes => routes(&mut random),
            Self::Losses => losses(&mut random),
        }
    }
}

type Random = Xoshiro256PlusPlus;

/// Draws a uniform number above 0 and up to 1.
fn even(random: &mut Random) -> f64 {
    1.0 - random.random::<f64>()
}

fn exponential(random: &mut Random, mean: f64) -> f64 {
    -mean * even(random).ln()
}

fn pareto(random: &mut Random, least: f64, tail: f64) -> f64 {
    least * even(random).powf(-1.0 / tail)
}

/// Draws a normal number, by Box and Muller.
fn normal(random: &mut Random) -> f64 {
    (-2.0 * even(random).ln()).sqrt() * (std::f64::consts::TAU * even(random)).cos()
}

fn heavy_tails(random: &mut Random) -> Vec<f64> {
    const SOURCES: usize = 50;
    const SHORTEST: f64 = 0.5;
    let mut load = vec![0.0; LENGTH];
    for _ in 0..SOURCES {
        let mut on = random.random::<bool>();
        // The first period began before the series, so part of it is over.
        let mut at = -pareto(random, SHORTEST, if on { 1.7 } else { 1.2 }) * random.random::<f64>();
        while at < LENGTH as f64 {
            let until = at + pareto(random, SHORTEST, if on { 1.7 } else { 1.2 });
            if on {
                let (from, to) = (at.max(0.0), until.clamp(0.0, LENGTH as f64));
                let seconds = load.iter_mut().enumerate().skip(from as usize);
                for (second, load) in seconds.take_while(|(second, _)| (*second as f64) < to) {
                    let shared = to.min(second as f64 + 1.0) - from.max(second as f64);
                    *load += 30e6 * shared.max(0.0);
                }
            }
            at = until;
            on = !on;
        }
    }
    load.iter().map(|load| (1e9 - load).max(10e6)).collect()
}

fn diurnal(random: &mut Random) -> Vec<f64> {
    let noise = fractional_noise(random, 0.8);
    (0..LENGTH)
        .map(|step| {
            let hour = (step as f64 * 120.0 / 3600.0) % 24.0;
            // From a third at six to the whole at noon, and back until six.
            let share = if (6.0..12.0).contains(&hour) {
                1.0 / 3.0 + 2.0 / 3.0 * (hour - 6.0) / 6.0
            } else {
                1.0 - 2.0 / 3.0 * ((hour + 12.0) % 24.0) / 18.0
            };
            let load = 5e9 * share * (1.0 + 0.1 * noise[step]);
            (10e9 - load).clamp(1e8, 1e10)
        })
        .collect()
}

/// Returns noise of variance one whose autocorrelation falls like that of fractional Gaussian
/// noise. It is a sum of first-order processes, each twice as slow as the one before, weighted by
/// the Hurst parameter.
fn fractional_noise(random: &mut Random, hurst: f64) -> Vec<f64> {
    const SCALES: i32 = 10;
    let weight = |scale: i32| 2.0_f64.powf((2.0 * hurst - 2.0) * f64::from(scale));
    let all: f64 = (0..SCALES).map(weight).sum();
    let mut noise = vec![0.0; LENGTH];
    for scale in 0..SCALES {
        let kept = (-1.0 / 2.0_f64.powi(scale)).exp();
        let mut state = normal(random);
        for value in &mut noise {
            state = kept * state + (1.0 - kept * kept).sqrt() * normal(random);
            *value += state * (weight(scale) / all).sqrt();
        }
    }
    noise
}

fn wandering(seed: u64) -> Vec<f64> {
    let text = wanbed::drs_trace::write(seed, LENGTH);
    let rate = |line: &str| {
        let field = line.split(',').nth(1)?.trim().strip_suffix(" Mbit/s")?;
        Some(1e6 * field.parse::<f64>().ok()?)
    };
    text.lines().filter_map(rate).collect()
}

fn regimes(random: &mut Random) -> Vec<f64> {
    let mut left = 0.0;
    let mut level = 0;
    (0..LENGTH)
        .map(|_| {
            if left <= 0.0 {
                level = (level + 1 + usize::from(random.random::<bool>())) % 3;
                left = exponential(random, 20.0);
            }
            left -= 1.0;
            100e6 * (level + 1) as f64 / 3.0 * (0.1 * normal(random)).exp()
        })
        .collect()
}

fn routes(random: &mut Random) -> Vec<f64> {
    let minutes = match random.random::<f64>() {
        drawn if drawn < 0.09 => 30.0,
        drawn if drawn < 0.13 => 120.0,
        drawn if drawn < 0.32 => 720.0,
        _ => 4320.0,
    };
    let mut left = 0.0;
    let mut base = 0.0;
    (0..LENGTH)
        .map(|_| {
            if left <= 0.0 {
                base = 0.119 * (475.0 / 119.0_f64).powf(random.random::<f64>());
                left = exponential(random, minutes);
            }
            left -= 1.0;
            base * (1.0 + exponential(random, 0.04))
        })
        .collect()
}

fn losses(random: &mut Random) -> Vec<f64> {
    const PROBES: u32 = 200;
    let mut left = 0.0;
    let mut lossy = true;
    let mut chance = 0.0;
    (0..LENGTH)
        .map(|_| {
            if left <= 0.0 {
                lossy = !lossy;
                chance = if lossy {
                    0.01 * 10.0_f64.powf(random.random::<f64>())
                } else {
                    0.0
                };
                left = exponential(random, if lossy { 10.0 } else { 30.0 });
            }
            left -= 1.0;
            let lost = (0..PROBES)
                .filter(|_| random.random::<f64>() < chance)
                .count();
            lost as f64 / f64::from(PROBES)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_possible_and_depend_on_the_seed_alone() {
        for family in Family::ALL {
            let values = family.values(1);
            assert_eq!(values.len(), LENGTH, "{family:?}");
            assert_eq!(values, family.values(1));
            assert_ne!(values, family.values(2));
            let (least, most) = family.quantity().range();
            assert!(
                values.iter().all(|value| (least..=most).contains(value)),
                "{family:?}"
            );
        }
    }

    /// Returns the slope of the logarithm of the variance of means over the logarithm of the number
    /// of values in each: twice the Hurst parameter minus two.
    fn hurst(values: &[f64]) -> f64 {
        let variance = |of: usize| {
            let means: Vec<f64> = values
                .chunks_exact(of)
                .map(|some| some.iter().sum::<f64>() / of as f64)
                .collect();
            let mean = means.iter().sum::<f64>() / means.len() as f64;
            means
                .iter()
                .map(|value| (value - mean).powi(2))
                .sum::<f64>()
                / means.len() as f64
        };
        1.0 + (variance(64) / variance(4)).log2() / (2.0 * 4.0)
    }

    #[test]
    fn self_similar_series_are_self_similar() {
        let mean = |of: &dyn Fn(u64) -> Vec<f64>| {
            (1..=20).map(|seed| hurst(&of(seed))).sum::<f64>() / 20.0
        };
        let tails = mean(&|seed| Family::HeavyTails.values(seed));
        // On such short series the estimate falls below the limit.
        assert!((0.75..1.0).contains(&tails), "{tails}");
        let noise = mean(&|seed| fractional_noise(&mut Random::seed_from_u64(seed), 0.8));
        assert!((0.72..0.88).contains(&noise), "{noise}");
    }

    #[test]
    fn a_day_triples_and_routes_mostly_stay() {
        let day = Family::Diurnal.values(3);
        let load = |hour: usize| 10e9 - day[hour * 30..hour * 30 + 15].iter().sum::<f64>() / 15.0;
        let ratio = load(12) / load(6);
        assert!((2.0..4.0).contains(&ratio), "{ratio}");
        let jumps = |seed| {
            let values = Family::Routes.values(seed);
            let lows: Vec<f64> = values
                .chunks(30)
                .map(|some| some.iter().copied().fold(1.0, f64::min))
                .collect();
            lows.windows(2)
                .filter(|pair| (pair[0] / pair[1]).ln().abs() > 0.1)
                .count()
        };
        let steady = (1..=50).filter(|seed| jumps(*seed) <= 3).count();
        assert!((20..=45).contains(&steady), "{steady}");
    }
}
