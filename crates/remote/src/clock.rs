//! Offset between the clocks of two hosts, measured over the login that also exchanges their keys.
//!
//! The far side reads its clock when it reports that it is ready and when it is asked to serve. The
//! client's clock is read at the same two moments (RFC 5905, section 8). The login authenticates
//! both ends, and the round trip bounds the error.

use longhaul_hop::unix_ms;
use serde::{Deserialize, Serialize};

/// Maximum round trip over the login for a usable offset. Its error is at most half of that, which
/// is half of what an OPEN may be ahead (LH-SIGN-2).
const MAX_ROUND_TRIP_MS: i128 = 10_000;

/// The client's clock at two moments of the login, in milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientClock {
    /// When the far side's first answer arrived.
    pub ready_ms: u64,
    /// When the far side was asked to serve.
    pub asked_ms: u64,
}

impl ClientClock {
    /// Reads this host's clock. `ready_ms` is its reading when the far side's first answer arrived.
    pub(crate) fn read(ready_ms: u64) -> Self {
        Self {
            ready_ms,
            asked_ms: unix_ms(),
        }
    }

    /// Converts the moments to another clock, which read `theirs_ms` when this one read `ours_ms`.
    pub(crate) fn to_clock(self, theirs_ms: u64, ours_ms: u64) -> Self {
        let shift = |ms: u64| match theirs_ms.checked_sub(ours_ms) {
            Some(ahead) => ms.saturating_add(ahead),
            None => ms.saturating_sub(ours_ms.saturating_sub(theirs_ms)),
        };
        Self {
            ready_ms: shift(self.ready_ms),
            asked_ms: shift(self.asked_ms),
        }
    }

    /// Returns the milliseconds by which the client's clock is ahead of the far side's. The far
    /// side reported at `said_ms` that it was ready, and was asked to serve at `heard_ms`. `None`
    /// if the round trip took too long, or a clock was set in between.
    pub(crate) fn offset_from(self, said_ms: u64, heard_ms: u64) -> Option<i64> {
        let (said, heard) = (i128::from(said_ms), i128::from(heard_ms));
        let (ready, asked) = (i128::from(self.ready_ms), i128::from(self.asked_ms));
        let round_trip = (heard - said) - (asked - ready);
        if !(0..=MAX_ROUND_TRIP_MS).contains(&round_trip) {
            return None;
        }
        i64::try_from(((ready - said) + (asked - heard)) / 2).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: u64 = 1_800_000_000_000;
    const DAY: i64 = 86_400_000;

    proptest! {
        #[test]
        fn offset_is_off_by_half_a_round_trip_at_most(
            ahead in -3 * DAY..3 * DAY, there in 0..9000_u64, here in 0..100_000_u64,
            back in 0..9000_u64,
        ) {
            // The far side's clock is taken as true.
            let client = |ms: u64| ms.saturating_add_signed(ahead);
            let clock = ClientClock {
                ready_ms: client(NOW + there),
                asked_ms: client(NOW + there + here),
            };
            let measured = clock.offset_from(NOW, NOW + there + here + back);
            match there + back {
                0..=10_000 => {
                    let error = measured.unwrap().abs_diff(ahead);
                    prop_assert!(error <= (there + back).div_ceil(2), "{error}");
                }
                _ => prop_assert_eq!(measured, None),
            }
        }

        #[test]
        fn any_clock_readings_are_handled(ready_ms: u64, asked_ms: u64, said: u64, heard: u64) {
            let clock = ClientClock { ready_ms, asked_ms };
            let _ = clock.offset_from(said, heard);
            let _ = clock.to_clock(said, heard);
        }
    }

    #[test]
    fn clock_set_during_the_login_gives_no_offset() {
        let clock = ClientClock {
            ready_ms: NOW + 60_000,
            asked_ms: NOW,
        };
        assert_eq!(clock.offset_from(NOW, NOW), None);
        assert_eq!(clock.offset_from(NOW, NOW - 61_000), None);
    }

    #[test]
    fn readings_move_to_another_hosts_clock() {
        let clock = ClientClock {
            ready_ms: 5000,
            asked_ms: 7000,
        };
        let moved = |theirs, ours| {
            let clock = clock.to_clock(theirs, ours);
            (clock.ready_ms, clock.asked_ms)
        };
        assert_eq!(moved(300, 100), (5200, 7200));
        assert_eq!(moved(100, 300), (4800, 6800));
    }
}
