//! Six sites, a link between every two of them, and the changes of these links, all derived from a
//! seed. Pure.
//!
//! Facts about real paths that the model follows:
//! - Between American cities, the median round trip is 2.1 times that of light in fibre over the
//!   great circle; some take 3 times and more (Bozkurt et al., "Why Is the Internet So Slow?!", PAM
//!   2017). So the path by a third site is often no longer, as Savage et al. found ("Detour", 1999:
//!   for 30 to 80 % of pairs).
//! - Losses and throughput of a path stay within a factor of three for minutes, then change at once
//!   (Zhang, Duffield, Paxson, Shenker, "On the Constancy of Internet Path Properties", IMW 2001).
//! - Losses in quiet times are between 0.0003 % and 0.03 %, as on the papers' own paths.

use std::fmt::Write as _;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Sites with their degrees north and east: distant ones of ESnet's map.
pub const SITES: [(&str, f64, f64); 6] = [
    ("san-diego", 32.72, -117.16),
    ("denver", 39.74, -104.98),
    ("houston", 29.76, -95.37),
    ("chicago", 41.88, -87.63),
    ("knoxville", 35.96, -83.92),
    ("new-york", 40.71, -74.01),
];

/// Number of sites at which a copy neither begins nor ends.
pub const DETOURS: usize = SITES.len() - 2;

/// Interval between small changes of a link's rate, in seconds.
const STEP_SECONDS: u32 = 5;
/// Length of the trace, after which it starts over.
pub const TRACE_SECONDS: u32 = 3600;
const STEPS: usize = (TRACE_SECONDS / STEP_SECONDS) as usize;

/// Distance that light travels in fibre in a millisecond, in km.
const FIBRE_KM_PER_MS: f64 = 204.0;
const EARTH_RADIUS_KM: f64 = 6371.0;
/// Bounds of the ratio of a path's delay to that of light in fibre over the great circle.
const LEAST_STRETCH: f64 = 1.2;
const GREATEST_STRETCH: f64 = 3.0;

/// Rates of links, in Mbit/s.
const RATES_MBPS: [f64; 3] = [50.0, 100.0, 200.0];
/// Bounds of the losses in quiet times, in percent.
const LEAST_LOSS_PERCENT: f64 = 0.0003;
const GREATEST_LOSS_PERCENT: f64 = 0.03;

/// Mean lengths of quiet and busy times, in seconds.
const QUIET_SECONDS: f64 = 300.0;
const BUSY_SECONDS: f64 = 90.0;
/// Share of the rate that is left in busy times; the next constant is the factor of the losses.
const BUSY_RATE: f64 = 0.35;
const BUSY_LOSS: f64 = 20.0;
/// Standard deviation of the logarithm of the rate within a time, and the share that a step keeps
/// of the deviation before it.
const RATE_DEVIATION: f64 = 0.15;
const RATE_MEMORY: f64 = 0.9;

/// Size of the smallest copy, in bytes. Each further size is twice the one before, up to 256 MiB.
/// All sizes are equally likely.
const LEAST_BYTES: u64 = 64 << 10;
const DOUBLINGS: u32 = 12;
/// Time before the next copy, in seconds, in addition to the time of the bytes at the rate of the
/// slots. All routes keep the same times, so a copy meets the same state of the links on each.
const SLOT_SECONDS: f64 = 1.0;
const SLOT_MBPS: f64 = 60.0;

/// State of a link in one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// Rate in Mbit/s.
    pub rate_mbps: f64,
    /// Losses in percent.
    pub loss_percent: f64,
}

/// A link and its trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Numbers of the two sites, the smaller first.
    pub ends: (usize, usize),
    /// One-way delay, in milliseconds.
    pub delay_ms: f64,
    states: Vec<State>,
}

/// A planned copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Number of the site that has the file.
    pub from: usize,
    /// Number of the site that fetches the file.
    pub to: usize,
    /// Size of the copy.
    pub bytes: u64,
    /// Start of the copy, in seconds after that of the first.
    pub at_s: f64,
}

impl Transfer {
    /// Returns the numbers of the sites at which the copy neither begins nor ends.
    pub fn between(&self) -> impl Iterator<Item = usize> + use<> {
        let (from, to) = (self.from, self.to);
        (0..SITES.len()).filter(move |&site| site != from && site != to)
    }
}

impl Link {
    /// Returns the state of the link at a time in seconds after the trace's beginning.
    pub fn state_at(&self, seconds: f64) -> State {
        self.states[(seconds / f64::from(STEP_SECONDS)) as usize % STEPS]
    }

    /// Stops the link for `seconds`, from a time in seconds after the trace's beginning.
    pub fn fail(&mut self, from_s: f64, seconds: f64) {
        let step = |seconds: f64| (seconds / f64::from(STEP_SECONDS)) as usize;
        for state in self
            .states
            .iter_mut()
            .take(step(from_s + seconds))
            .skip(step(from_s))
        {
            state.rate_mbps = 0.0;
        }
    }

    /// Returns the name of the link's device.
    pub fn name(&self) -> String {
        format!("l{}{}", self.ends.0, self.ends.1)
    }

    /// Returns the trace in the format of `wanbed`, for a lab that starts `from_s` seconds into it.
    pub fn trace(&self, from_s: f64) -> String {
        let mut text = String::from("at, rate, delay, loss\n");
        let first = (from_s / f64::from(STEP_SECONDS)) as usize % STEPS;
        let (before, behind) = self.states.split_at(first);
        for (step, state) in behind.iter().chain(before).enumerate() {
            let State {
                rate_mbps,
                loss_percent,
            } = state;
            let _ = writeln!(
                text,
                "{} s, {rate_mbps:.2} Mbit/s,, {loss_percent:.6}%",
                step * STEP_SECONDS as usize
            );
        }
        text
    }
}

/// Returns the links of a seed.
pub fn links(seed: u64) -> Vec<Link> {
    let pairs = (0..SITES.len()).flat_map(|from| (from + 1..SITES.len()).map(move |to| (from, to)));
    pairs
        .enumerate()
        .map(|(number, ends)| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed * 1000 + number as u64);
            let stretch = uniform(&mut random, LEAST_STRETCH, GREATEST_STRETCH);
            let delay_ms = great_circle_km(ends.0, ends.1) / FIBRE_KM_PER_MS * stretch;
            Link {
                ends,
                delay_ms,
                states: states(&mut random),
            }
        })
        .collect()
}

fn states(random: &mut Xoshiro256PlusPlus) -> Vec<State> {
    let rate_mbps = RATES_MBPS[random.random_range(0..RATES_MBPS.len())];
    let loss_percent = log_uniform(random, LEAST_LOSS_PERCENT, GREATEST_LOSS_PERCENT);
    let chance = |mean_seconds: f64| 1.0 - (-f64::from(STEP_SECONDS) / mean_seconds).exp();
    let mut busy = random.random::<f64>() < BUSY_SECONDS / (BUSY_SECONDS + QUIET_SECONDS);
    let mut deviation = 0.0;
    let mut next = || {
        let leaves = chance(if busy { BUSY_SECONDS } else { QUIET_SECONDS });
        busy ^= random.random::<f64>() < leaves;
        let fresh = RATE_DEVIATION * (1.0 - RATE_MEMORY * RATE_MEMORY).sqrt() * normal(random);
        deviation = RATE_MEMORY * deviation + fresh;
        let (rate, loss) = if busy {
            (BUSY_RATE, BUSY_LOSS)
        } else {
            (1.0, 1.0)
        };
        State {
            rate_mbps: rate_mbps * rate * f64::exp(deviation),
            loss_percent: loss_percent * loss,
        }
    };
    (0..STEPS).map(|_| next()).collect()
}

/// Returns the sizes of copies, in bytes.
pub fn sizes() -> impl Iterator<Item = u64> {
    (0..=DOUBLINGS).map(|doublings| LEAST_BYTES << doublings)
}

/// Returns the copies of a seed, in their order.
pub fn transfers(seed: u64, number: usize) -> Vec<Transfer> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed * 1000 + 999);
    let mut at_s = 0.0;
    (0..number)
        .map(|_| {
            let (from, to) = ends(&mut random);
            let bytes = LEAST_BYTES << random.random_range(0..=DOUBLINGS);
            let transfer = Transfer {
                from,
                to,
                bytes,
                at_s,
            };
            at_s += slot_seconds(bytes, SLOT_MBPS);
            transfer
        })
        .collect()
}

/// Returns the numbers of two random sites.
pub fn ends(random: &mut Xoshiro256PlusPlus) -> (usize, usize) {
    let from = random.random_range(0..SITES.len());
    (
        from,
        (from + random.random_range(1..SITES.len())) % SITES.len(),
    )
}

/// Returns the length of a copy's slot for `bytes`, in seconds, at `mbps`.
pub fn slot_seconds(bytes: u64, mbps: f64) -> f64 {
    SLOT_SECONDS + bytes as f64 * 8.0 / (mbps * 1e6)
}

fn uniform(random: &mut Xoshiro256PlusPlus, least: f64, greatest: f64) -> f64 {
    least + (greatest - least) * random.random::<f64>()
}

fn log_uniform(random: &mut Xoshiro256PlusPlus, least: f64, greatest: f64) -> f64 {
    uniform(random, least.ln(), greatest.ln()).exp()
}

/// Returns an approximately normal deviate: the sum of twelve uniform ones.
fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

/// Returns the distance of two sites by the haversine formula.
fn great_circle_km(from: usize, to: usize) -> f64 {
    let [(_, lat1, lon1), (_, lat2, lon2)] = [SITES[from], SITES[to]];
    let half = |a: f64, b: f64| ((b - a).to_radians() / 2.0).sin().powi(2);
    let across =
        half(lat1, lat2) + lat1.to_radians().cos() * lat2.to_radians().cos() * half(lon1, lon2);
    2.0 * EARTH_RADIUS_KM * across.sqrt().asin()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of links, one for each pair of sites.
    const LINKS: usize = SITES.len() * (SITES.len() - 1) / 2;

    #[test]
    fn same_seed_repeats_and_another_differs() {
        assert_eq!(links(7), links(7));
        assert_ne!(links(7), links(8));
        assert_eq!(transfers(7, 20), transfers(7, 20));
        assert_eq!(links(7).len(), LINKS);
    }

    #[test]
    fn paths_are_as_long_as_between_these_cities() {
        // San Diego to New York: 3,910 km.
        assert!((great_circle_km(0, 5) - 3910.0).abs() < 20.0);
        for link in links(3) {
            let light = great_circle_km(link.ends.0, link.ends.1) / FIBRE_KM_PER_MS;
            assert!(
                link.delay_ms >= light * LEAST_STRETCH && link.delay_ms <= light * GREATEST_STRETCH
            );
        }
    }

    #[test]
    fn detours_pass_every_other_site_once() {
        for transfer in transfers(5, 50) {
            let between: Vec<usize> = transfer.between().collect();
            assert_eq!(between.len(), DETOURS);
            assert!(between.is_sorted_by(|one, other| one < other));
            assert!(!between.contains(&transfer.from) && !between.contains(&transfer.to));
        }
    }

    #[test]
    fn busy_times_come_and_go() {
        let links = links(11);
        let busiest = |link: &Link| {
            link.states
                .iter()
                .map(|state| state.loss_percent)
                .fold(0.0, f64::max)
        };
        let quietest = |link: &Link| {
            link.states
                .iter()
                .map(|state| state.loss_percent)
                .fold(1.0, f64::min)
        };
        assert!(
            links
                .iter()
                .filter(|link| busiest(link) > 10.0 * quietest(link))
                .count()
                > LINKS / 2
        );
        assert!(links[0].trace(0.0).lines().count() == STEPS + 1);
        let rate = |trace: String| {
            trace
                .lines()
                .nth(1)
                .map(|line| line.split(',').nth(1).map(str::to_owned))
        };
        let later = format!(" {:.2} Mbit/s", links[0].state_at(300.0).rate_mbps);
        assert_eq!(rate(links[0].trace(300.0)), Some(Some(later)));
    }

    #[test]
    fn copies_have_all_sizes_and_go_everywhere() {
        let all = transfers(5, 400);
        assert!(
            all.iter()
                .all(|one| one.from != one.to && one.from < SITES.len() && one.to < SITES.len())
        );
        assert!(sizes().all(|size| all.iter().any(|one| one.bytes == size)));
        assert_eq!(sizes().last(), Some(256 << 20));
        assert!(all.windows(2).all(|pair| pair[0].at_s < pair[1].at_s));
    }
}
