//! Computes each stream's share of what is left, so that all finish together.
//!
//! A stream delivers in the order in which it took work. A slow stream that has taken much would
//! finish last, with all others idle. What is left is therefore divided as water fills vessels of
//! different widths. At the time when everything could be delivered, each stream has delivered what
//! it carries and its share of the rest. A stream that carries more than it delivers by then takes
//! no more.

use std::time::Duration;

/// Half-life of the weight of answered bytes.
const HALF_LIFE: Duration = Duration::from_millis(500);

/// Delivery rate of a stream: bytes answered divided by the time that it took, with exponential
/// decay of both.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct DeliveryRate {
    bytes: f64,
    seconds: f64,
    /// Time up to which the sums extend.
    at: Duration,
}

impl DeliveryRate {
    /// Notes that the stream carries something again. The idle time does not count.
    pub(super) fn resume(&mut self, now: Duration) {
        self.at = self.at.max(now);
    }

    /// Counts `bytes` that were answered.
    pub(super) fn delivered(&mut self, bytes: u64, now: Duration) {
        *self = self.waited(now);
        self.bytes += bytes as f64;
    }

    /// Returns the rate in bytes per second, or `None` before the first answer. It falls while no
    /// answer arrives.
    pub(super) fn at(&self, now: Duration) -> Option<f64> {
        self.waited(now).latest()
    }

    /// Returns the rate at the latest answer, in bytes per second.
    pub(super) fn latest(&self) -> Option<f64> {
        (self.seconds > 0.0 && self.bytes > 0.0).then(|| self.bytes / self.seconds)
    }

    fn waited(self, now: Duration) -> Self {
        let waited = now.saturating_sub(self.at).as_secs_f64();
        let kept = HALF_LIFE.as_secs_f64() / (HALF_LIFE.as_secs_f64() + waited);
        Self {
            bytes: self.bytes * kept,
            seconds: self.seconds * kept + waited,
            at: self.at.max(now),
        }
    }
}

/// Load of a stream that takes work.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamLoad {
    /// Unanswered bytes that it carries.
    pub in_flight: u64,
    /// Delivery rate in bytes per second, or `None` if unknown.
    pub rate: Option<f64>,
}

/// Returns how many of the `unsent` bytes `own` should take while the `others` take their shares. A
/// stream of unknown rate counts like the mean of the others. If no rate is known, all count alike,
/// and none is refused.
pub(super) fn share(own: StreamLoad, others: impl Iterator<Item = StreamLoad>, unsent: u64) -> u64 {
    let mut all: Vec<StreamLoad> = others.collect();
    all.push(own);
    let known: Vec<f64> = all.iter().filter_map(|one| one.rate).collect();
    if known.is_empty() {
        return unsent.div_ceil(all.len() as u64);
    }
    // At least one byte per second, as it is a divisor.
    let mean = (known.iter().sum::<f64>() / known.len() as f64).max(1.0);
    let rate = |one: &StreamLoad| one.rate.unwrap_or(mean).max(1.0);
    all.sort_by(|one, other| {
        (one.in_flight as f64 / rate(one)).total_cmp(&(other.in_flight as f64 / rate(other)))
    });
    let (mut bytes, mut rates, mut level) = (unsent as f64, 0.0, f64::INFINITY);
    for one in &all {
        if one.in_flight as f64 / rate(one) >= level {
            break;
        }
        bytes += one.in_flight as f64;
        rates += rate(one);
        level = bytes / rates;
    }
    // Less than a byte is a rounding error.
    let share = rate(&own) * level - own.in_flight as f64;
    if share > 0.01 { share.ceil() as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn load(in_flight: u64, rate: f64) -> StreamLoad {
        StreamLoad {
            in_flight,
            rate: (rate > 0.0).then_some(rate),
        }
    }

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn rate_is_that_of_recent_answers() {
        let mut rate = DeliveryRate::default();
        assert_eq!(rate.at(millis(0)), None);
        rate.resume(millis(100));
        for answer in 1..=100 {
            rate.delivered(1_000, millis(100 + 10 * answer));
        }
        let steady = rate.at(millis(1_100)).unwrap();
        assert!((99e3..101e3).contains(&steady), "{steady}");
        assert!(
            rate.at(millis(3_100)).unwrap() < 0.25 * steady,
            "no answers for 2 s"
        );
        rate.resume(millis(3_100));
        assert_eq!(
            rate.at(millis(3_100)),
            Some(steady),
            "there was nothing to answer"
        );
    }

    #[test]
    fn overloaded_stream_takes_no_more() {
        let (fast, slow) = (load(1_000, 1_000.0), load(1_000, 100.0));
        // The fast stream alone delivers all of it within 6 s.
        assert_eq!(share(slow, [fast].into_iter(), 5_000), 0);
        assert_eq!(share(fast, [slow].into_iter(), 5_000), 5_000);
        // Of 20,000 more, each takes a part.
        let parts =
            share(slow, [fast].into_iter(), 20_000) + share(fast, [slow].into_iter(), 20_000);
        assert!(share(slow, [fast].into_iter(), 20_000) > 0);
        assert!((19_998..=20_000).contains(&parts), "{parts}");
    }

    #[test]
    fn new_stream_takes_the_mean_share() {
        let (new, other) = (load(0, 0.0), load(0, 500.0));
        assert_eq!(share(new, [other].into_iter(), 1_000), 500);
        assert_eq!(share(load(9_000, 0.0), [new].into_iter(), 1_000), 500);
    }

    proptest! {
        /// Everything is dealt out, and a stream that carries nothing always gets some.
        #[test]
        fn shares_add_up_to_what_is_left(
            streams in prop::collection::vec((0u64..1 << 24, 0.0f64..1e9), 1..64),
            unsent in 1u64 << 16..1 << 34,
        ) {
            let all: Vec<StreamLoad> = streams
                .iter()
                .map(|(in_flight, rate)| load(*in_flight, *rate))
                .collect();
            let shares: Vec<u64> = (0..all.len())
                .map(|own| {
                    let others = all.iter().enumerate().filter(|(other, _)| *other != own);
                    share(all[own], others.map(|(_, one)| *one), unsent)
                })
                .collect();
            let sum: u64 = shares.iter().sum();
            let rounding = all.len() as u64 + unsent / 1_000_000;
            prop_assert!(sum <= unsent + rounding && sum + rounding >= unsent, "{sum} of {unsent}");
            for (one, share) in all.iter().zip(&shares) {
                prop_assert!(
                    one.in_flight > 0 || *share > 0 || one.rate.is_some_and(|rate| rate < 1e6)
                );
            }
        }
    }
}
