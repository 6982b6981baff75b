//! Promised copy times, from the figures of the routes. Pure.
//!
//! A copy starts on the direct route, and chosen routes join it. So its time is not that of a
//! chosen route alone.
#![deny(clippy::indexing_slicing)] // what is read here comes from the network, or from a file

use longhaul_control_api::forecasts::Spread;
use longhaul_control_api::routes::DirectTime;

/// Size in bytes from which on a copy uses its chosen routes from the start. A smaller copy goes
/// direct until it proves to last long enough. So its time is anything between those of the two.
pub const MIN_BYTES_TO_JOIN_AT_ONCE: u64 = 16 << 20;

/// Returns the promise for a copy of `bytes` bytes. `chosen` is the time of the chosen routes
/// together, and `direct` that of the direct route alone, which runs alongside.
#[must_use]
pub fn alongside_direct(chosen: Spread, direct: Option<Spread>, bytes: u64) -> Spread {
    let Some(direct) = direct else { return chosen };
    if bytes < MIN_BYTES_TO_JOIN_AT_ONCE {
        return Spread {
            p10: chosen.p10.min(direct.p10),
            p50: f64::midpoint(chosen.p50, direct.p50),
            p90: chosen.p90.max(direct.p90),
        };
    }
    // In the best case they share nothing, and their rates add up.
    let both = Spread {
        p10: 1.0 / (1.0 / chosen.p10 + 1.0 / direct.p10),
        ..chosen
    };
    if_sound(both).unwrap_or(chosen)
}

/// Returns the time of `bytes` bytes by the direct route, interpolated between two sizes of a
/// table. Below the smallest it is that size's time; above the largest, it grows in proportion.
/// Returns `None` if there are no sizes, or invalid ones.
#[must_use]
pub fn direct_time(times: &[DirectTime], bytes: u64) -> Option<Spread> {
    let is_sound = times
        .iter()
        .all(|time| time.bytes > 0 && is_sound(&time.seconds));
    if !is_sound || !times.is_sorted_by(|one, other| one.bytes < other.bytes) {
        return None;
    }
    let above = times.partition_point(|time| time.bytes < bytes);
    let (low, high) = (
        above.checked_sub(1).and_then(|below| times.get(below)),
        times.get(above),
    );
    match (low, high) {
        (_, Some(exact)) if exact.bytes == bytes => Some(exact.seconds),
        (Some(low), Some(high)) => {
            let log = |bytes: u64| (bytes as f64).ln();
            let way = (log(bytes) - log(low.bytes)) / (log(high.bytes) - log(low.bytes));
            let between = |of: fn(&Spread) -> f64| {
                let (low, high) = (of(&low.seconds).ln(), of(&high.seconds).ln());
                (high - low).mul_add(way, low).exp()
            };
            if_sound(Spread {
                p10: between(|seconds| seconds.p10),
                p50: between(|seconds| seconds.p50),
                p90: between(|seconds| seconds.p90),
            })
        }
        (None, Some(least)) => Some(least.seconds),
        (Some(most), None) => if_sound(times_as_long(
            &most.seconds,
            bytes as f64 / most.bytes as f64,
        )),
        (None, None) => None,
    }
}

/// Scales a time from `typical` bytes to `bytes`, if it grows with the size as that of the direct
/// route does.
#[must_use]
pub fn scale_time(
    seconds: &Spread,
    typical: u64,
    bytes: u64,
    times: &[DirectTime],
) -> Option<Spread> {
    let (here, there) = (direct_time(times, bytes)?, direct_time(times, typical)?);
    if_sound(times_as_long(seconds, here.p50 / there.p50))
}

/// Returns the time over several routes at once, if their rates add up.
#[must_use]
pub fn combined_time(all: &[Spread]) -> Option<Spread> {
    let sum = |of: fn(&Spread) -> f64| 1.0 / all.iter().map(|one| 1.0 / of(one)).sum::<f64>();
    if_sound(Spread {
        p10: sum(|one| one.p10),
        p50: sum(|one| one.p50),
        p90: sum(|one| one.p90),
    })
}

fn times_as_long(seconds: &Spread, factor: f64) -> Spread {
    Spread {
        p10: seconds.p10 * factor,
        p50: seconds.p50 * factor,
        p90: seconds.p90 * factor,
    }
}

fn if_sound(seconds: Spread) -> Option<Spread> {
    is_sound(&seconds).then_some(seconds)
}

/// Returns true if these can be three quantiles of a time or a rate.
pub(crate) fn is_sound(spread: &Spread) -> bool {
    spread.p10 > 0.0
        && spread.p10 <= spread.p50
        && spread.p50 <= spread.p90
        && spread.p90.is_finite()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)] // a test may panic

    use proptest::prelude::*;

    use super::*;

    fn spread(p50: f64) -> Spread {
        Spread {
            p10: p50 / 2.0,
            p50,
            p90: p50 * 2.0,
        }
    }

    fn times() -> [DirectTime; 2] {
        [(1 << 20, 1.0), (1 << 22, 2.0)].map(|(bytes, p50)| DirectTime {
            bytes,
            seconds: spread(p50),
        })
    }

    #[test]
    fn times_are_interpolated_between_two_sizes() {
        let at = |bytes| direct_time(&times(), bytes).unwrap().p50;
        let near =
            |one: f64, other: f64| assert!((one / other - 1.0).abs() < 1e-9, "{one} {other}");
        near(at(1 << 20), 1.0);
        near(at(1 << 21), 2f64.sqrt());
        near(at(1 << 22), 2.0);
        near(at(1 << 10), 1.0);
        near(at(1 << 24), 8.0);
        assert_eq!(direct_time(&[], 1), None);
        let [one, other] = times();
        assert_eq!(direct_time(&[other, one], 1 << 21), None, "not by size");
    }

    #[test]
    fn small_copies_lie_between_and_large_ones_follow_routes() {
        let small = alongside_direct(spread(1.0), Some(spread(3.0)), 1 << 20);
        assert_eq!((small.p10, small.p50, small.p90), (0.5, 2.0, 6.0));
        let large = alongside_direct(spread(1.0), Some(spread(3.0)), MIN_BYTES_TO_JOIN_AT_ONCE);
        assert_eq!((large.p10, large.p50, large.p90), (0.375, 1.0, 2.0));
        assert_eq!(alongside_direct(spread(1.0), None, 1), spread(1.0));
    }

    #[test]
    fn a_route_scales_with_the_size_like_the_direct_one() {
        let by = scale_time(&spread(0.5), 1 << 20, 1 << 22, &times()).unwrap();
        assert!((by.p50 - 1.0).abs() < 1e-9);
        assert_eq!(scale_time(&spread(0.5), 1 << 20, 1 << 22, &[]), None);
        assert_eq!(
            combined_time(&[spread(1.0), spread(1.0)]),
            Some(spread(0.5))
        );
        assert_eq!(combined_time(&[]), None);
    }

    proptest! {
        #[test]
        fn promises_are_always_ordered(
            bytes: u64,
            typical: u64,
            sizes in prop::collection::vec(any::<u64>(), 0..5),
            figures in prop::collection::vec(
                prop_oneof![Just(0.0), Just(f64::NAN), Just(f64::MAX), 1e-9..1e9f64],
                18
            ),
        ) {
            let mut figures = figures.into_iter();
            let mut next = || {
                let mut three: Vec<f64> = figures.by_ref().take(3).collect();
                three.sort_by(f64::total_cmp);
                Spread { p10: three[0], p50: three[1], p90: three[2] }
            };
            let chosen = next();
            let times: Vec<DirectTime> = sizes
                .into_iter()
                .map(|bytes| DirectTime { bytes, seconds: next() })
                .collect();
            let found = direct_time(&times, bytes);
            let all = [
                found,
                scale_time(&chosen, typical, bytes, &times),
                combined_time(&[chosen, chosen]),
            ];
            for promised in all.into_iter().flatten() {
                prop_assert!(is_sound(&promised), "{promised:?}");
            }
            if is_sound(&chosen) {
                let promised = alongside_direct(chosen, found, bytes);
                prop_assert!(is_sound(&promised), "{promised:?}");
            }
        }
    }
}
