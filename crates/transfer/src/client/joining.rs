//! Decides whether a copy lasts long enough for another route to help.
//!
//! A route that joins a copy takes two round trips to open and a third to receive its first work,
//! and then begins with small windows. Until it has brought a block, the direct route has carried a
//! few more windows. Only what is left by then can move to the new route. If nothing is left, its
//! streams carry blocks that the direct ones would have brought sooner, and the copy waits for
//! them. Therefore a copy that is nearly over gets no other route, even if a quicker one is
//! offered. A copy that losses or a window hold back has many round trips left, however small it
//! is.
//!
//! This module has no clock and no sockets; the supervisor feeds it.

use std::collections::VecDeque;
use std::time::Duration;

/// Minimum number of round trips of the direct route that a copy must have left. Two open the
/// route, one brings the first work, and in four a block of 64 KiB gets through slow start. One
/// more allows for a chain that is longer than the direct route.
const MIN_LEFT_RTTS: u32 = 8;
/// Initial window of a connection, in segments (RFC 6928).
const FIRST_FLIGHT_SEGMENTS: u64 = 10;
/// Payload of a segment in bytes, if unknown.
const DEFAULT_MSS_BYTES: u64 = 1448;
/// Maximum growth of the window from one round trip to the next: slow start doubles it.
const MAX_WINDOW_GROWTH: f64 = 2.0;

/// Observation of a copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct JoinObservation {
    /// Time since the copy began.
    pub now: Duration,
    /// Round-trip time, or zero if unknown.
    pub rtt: Duration,
    /// Bytes that the connections have moved.
    pub moved: u64,
    /// Bytes that were found and are not in place.
    pub left: u64,
    /// Number of streams that are open or opening.
    pub streams: usize,
    /// Payload of a segment in bytes, or zero if unknown.
    pub mss: u32,
}

/// Decides when a copy lasts long enough to open another route.
#[derive(Debug, Default)]
pub(super) struct JoinPolicy {
    /// Bytes moved at the observations of the last two round trips, and at the one before.
    looks: VecDeque<(Duration, u64)>,
}

impl JoinPolicy {
    /// Records an observation, and returns true if another route is worth opening now.
    pub(super) fn observe(&mut self, view: &JoinObservation) -> bool {
        self.looks.push_back((view.now, view.moved));
        if view.rtt.is_zero() {
            return false;
        }
        let before = |rtts: u32| view.now.saturating_sub(view.rtt.saturating_mul(rtts));
        while self.looks.get(1).is_some_and(|(at, _)| *at <= before(2)) {
            self.looks.pop_front();
        }
        view.left as f64 > self.bytes_before_join(view, before(1), before(2))
    }

    /// Returns the bytes that are carried before another route would bring something, if windows
    /// continue to grow as they did.
    fn bytes_before_join(
        &self,
        view: &JoinObservation,
        last: Duration,
        one_before: Duration,
    ) -> f64 {
        let mss = match view.mss {
            0 => DEFAULT_MSS_BYTES,
            mss => u64::from(mss),
        };
        let first_flights =
            (FIRST_FLIGHT_SEGMENTS * mss).saturating_mul(view.streams.max(1) as u64);
        let latest = view.moved.saturating_sub(self.moved_at(last).unwrap_or(0));
        let earlier = self.moved_at(last).zip(self.moved_at(one_before));
        let earlier = earlier.map_or(0, |(last, before)| last.saturating_sub(before));
        let (each, growth) = match (latest, earlier) {
            // If the last round trip or the one before carried nothing, its growth is unknown.
            (_, 0) => (latest.max(first_flights), MAX_WINDOW_GROWTH),
            _ => (
                latest,
                (latest as f64 / earlier as f64).clamp(1.0, MAX_WINDOW_GROWTH),
            ),
        };
        let rtts = (1..=MIN_LEFT_RTTS).map(|rtt| growth.powf(f64::from(rtt)));
        each as f64 * rtts.sum::<f64>()
    }

    /// Returns the bytes moved by time `at`, interpolated between two observations. Returns `None`
    /// before the first.
    fn moved_at(&self, at: Duration) -> Option<u64> {
        let behind = self.looks.iter().position(|(then, _)| *then > at);
        let behind = behind.unwrap_or(self.looks.len());
        let (since, before) = *self.looks.get(behind.checked_sub(1)?)?;
        let Some((until, after)) = self.looks.get(behind) else {
            return Some(before);
        };
        let part = (at - since).as_secs_f64() / (*until - since).as_secs_f64();
        Some(before + (after.saturating_sub(before) as f64 * part) as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RTT: Duration = Duration::from_millis(80);
    const OBSERVE_INTERVAL: Duration = Duration::from_millis(25);

    /// Returns the bytes left when another route is first worth opening. The copy has `bytes`
    /// bytes, and its connections move `per_rtt(n)` bytes in round trip n. Returns `None` if no
    /// route is ever worth opening.
    fn bytes_left_at_join(bytes: u64, streams: usize, per_rtt: impl Fn(u32) -> u64) -> Option<u64> {
        let mut joining = JoinPolicy::default();
        let (mut moved, mut now) = (0.0, Duration::ZERO);
        while (moved as u64) < bytes {
            let view = JoinObservation {
                now,
                rtt: RTT,
                moved: moved as u64,
                left: bytes - moved as u64,
                streams,
                mss: 1448,
            };
            if joining.observe(&view) {
                return Some(view.left);
            }
            let rtt = (now.as_secs_f64() / RTT.as_secs_f64()) as u32;
            moved += per_rtt(rtt) as f64 * OBSERVE_INTERVAL.as_secs_f64() / RTT.as_secs_f64();
            now += OBSERVE_INTERVAL;
        }
        None
    }

    /// Returns the slow start of some streams, up to the path's capacity per round trip.
    fn slow_start(streams: u64, most: u64) -> impl Fn(u32) -> u64 {
        move |rtt| ((streams * 14_480) << rtt.min(20)).min(most)
    }

    #[test]
    fn copies_within_slow_start_get_no_other_route() {
        // 100 Mbit/s carry a megabyte in 80 ms.
        for bytes in [64 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20] {
            assert_eq!(
                bytes_left_at_join(bytes, 8, slow_start(8, 1_000_000)),
                None,
                "{bytes}"
            );
            assert_eq!(
                bytes_left_at_join(bytes, 1, slow_start(1, 1_000_000)),
                None,
                "{bytes}"
            );
        }
    }

    #[test]
    fn small_copies_limited_by_the_path_get_a_route_soon() {
        // A window of 64 KiB.
        let left = bytes_left_at_join(2 << 20, 1, slow_start(1, 65_536)).unwrap();
        assert!(left > 1 << 20, "{left}");
        // Losses leave about two segments per round trip of the path's capacity.
        let left = bytes_left_at_join(512 << 10, 1, slow_start(1, 20_000)).unwrap();
        assert!(left > 400 << 10, "{left}");
    }

    #[test]
    fn large_copies_get_a_route_while_most_is_left() {
        let left = bytes_left_at_join(15 << 20, 8, slow_start(8, 1_000_000)).unwrap();
        assert!(left > 8 << 20, "{left}");
    }

    #[test]
    fn no_route_is_opened_before_the_path_is_measured() {
        let mut joining = JoinPolicy::default();
        let view = JoinObservation {
            now: Duration::from_secs(3),
            rtt: Duration::ZERO,
            moved: 0,
            left: u64::MAX,
            streams: 1,
            mss: 0,
        };
        assert!(!joining.observe(&view));
    }

    proptest! {
        /// When another route is opened, the direct one still has work at its current rate until
        /// the other one brings something.
        #[test]
        fn copies_with_another_route_have_round_trips_left(
            bytes in 1u64 << 10..1 << 26,
            streams in 1usize..32,
            most in 3_000u64..5_000_000,
        ) {
            let slow_start = slow_start(streams as u64, most);
            if let Some(left) = bytes_left_at_join(bytes, streams, slow_start) {
                let pace = most.min(streams as u64 * 14_480);
                prop_assert!(left >= u64::from(MIN_LEFT_RTTS) * pace * 9 / 10, "{left} {pace}");
            }
        }
    }
}
