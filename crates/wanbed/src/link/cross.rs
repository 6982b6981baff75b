//! Cross traffic at the bottleneck: bursts of packets at a constant rate, with pauses between them.
//! The lengths of bursts and pauses are drawn from exponential distributions, so the long-run rate
//! is the rate of a burst times `on / (on + off)`.

use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;

use super::Nanos;
use super::random::exponential;
use crate::spec::CrossSpec;

/// Arrival times of cross traffic.
#[derive(Debug, Clone)]
pub struct Cross {
    on: Duration,
    off: Duration,
    random: Xoshiro256PlusPlus,
    /// Size of each packet, in bytes.
    packet: u32,
    /// Nanoseconds between two packets of a burst: not rounded, or the rate would be wrong.
    spacing: f64,
    /// Time of the next packet, and the rest of the burst after it. Time before the link started
    /// does not count.
    next: f64,
    left: f64,
}

impl Cross {
    /// Returns the traffic of `spec` in packets of `packet` bytes. It begins with a pause.
    #[must_use]
    pub fn new(spec: &CrossSpec, packet: u32, random: Xoshiro256PlusPlus) -> Self {
        let mut cross = Self {
            on: spec.on,
            off: spec.off,
            random,
            packet,
            spacing: f64::from(packet) * 8e9 / spec.rate.bits_per_second().max(1) as f64,
            next: 0.0,
            left: 0.0,
        };
        cross.advance(0.0);
        cross
    }

    /// Returns the size of each packet, in bytes.
    #[must_use]
    pub fn packet(&self) -> u32 {
        self.packet
    }

    /// Returns the time of the next packet.
    #[must_use]
    pub fn next_arrival(&self) -> Nanos {
        self.next as Nanos
    }

    /// Takes that packet, and moves on to the next.
    pub fn arrived(&mut self) {
        self.advance(self.spacing);
    }

    /// Advances by `within` nanoseconds of bursts. If a burst is too short, the rest is carried
    /// over to the next one, so that short bursts carry as much as long ones.
    fn advance(&mut self, mut within: f64) {
        while self.left <= within {
            within -= self.left;
            self.next += self.left + self.draw(self.off);
            self.left = self.draw(self.on);
        }
        self.next += within;
        self.left -= within;
    }

    fn draw(&mut self, mean: Duration) -> f64 {
        mean.as_nanos() as f64 * exponential(&mut self.random)
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::{Process, sequence};
    use super::*;
    use crate::spec::BitRate;

    fn arrivals(rate: u64, on_us: u64, off_us: u64, until: Nanos, seed: u64) -> Vec<Nanos> {
        let spec = CrossSpec {
            rate: BitRate(rate),
            on: Duration::from_micros(on_us),
            off: Duration::from_micros(off_us),
        };
        let mut cross = Cross::new(&spec, 1500, sequence(seed, Process::Cross, 0));
        let next = || {
            let at = cross.next_arrival();
            cross.arrived();
            at
        };
        std::iter::repeat_with(next)
            .take_while(|at| *at < until)
            .collect()
    }

    #[test]
    fn the_mean_rate_is_the_rate_of_bursts_times_their_share() {
        // Bursts of many packets, bursts of less than one packet on average, and no pauses.
        for (on, off, seconds, tolerance) in [
            (200_000, 800_000, 4_000, 0.08),
            (500, 2_000, 100, 0.03),
            (100_000, 0, 100, 0.001),
        ] {
            let all = arrivals(12_000_000, on, off, seconds * 1_000_000_000, 3);
            let expected = 1_000.0 * seconds as f64 * on as f64 / (on + off) as f64;
            let ratio = all.len() as f64 / expected;
            assert!((ratio - 1.0).abs() < tolerance, "{on} {off}: {ratio}");
        }
    }

    #[test]
    fn bursts_and_pauses_have_their_mean_lengths() {
        // A packet each millisecond in a burst.
        let all = arrivals(12_000_000, 200_000, 800_000, 8_000_000_000_000, 4);
        let pauses: Vec<f64> = all
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64 / 1e6)
            .filter(|gap| *gap > 1.001)
            .collect();
        let mean = pauses.iter().sum::<f64>() / pauses.len() as f64;
        assert!((mean - 801.0).abs() < 40.0, "{mean}");
        let burst = all.len() as f64 / pauses.len() as f64;
        assert!((burst - 200.0).abs() < 10.0, "{burst}");
    }

    #[test]
    fn time_goes_forward_and_repeats_by_seed() {
        let all = arrivals(1_000_000_000, 300, 300, 1_000_000_000, 5);
        assert!(all.windows(2).all(|pair| pair[0] <= pair[1]) && all.len() > 30_000);
        assert_eq!(all, arrivals(1_000_000_000, 300, 300, 1_000_000_000, 5));
        assert_ne!(all, arrivals(1_000_000_000, 300, 300, 1_000_000_000, 6));
    }
}
