//! Conditions of a path under which a number of streams was learned, and the test whether a path
//! still has them.

use std::time::Duration;

/// Factor by which a round-trip time may differ from the one at learning, and the difference that
/// is always tolerated.
const RTT_FACTOR: f64 = 1.25;
const RTT_SLACK: Duration = Duration::from_millis(2);
/// Factor by which a window may differ.
const WINDOW_FACTOR: u64 = 2;
/// Lost segments per million from which a path has random losses.
const LOSSY_PPM: u64 = 100;

/// Conditions of a path. Zero means unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PathConditions {
    /// Minimum round-trip time.
    pub rtt: Duration,
    /// Maximum window of one stream, in bytes.
    pub window: u64,
    /// Lost segments per million. Unknown when a copy begins.
    pub loss_ppm: u64,
    /// Hash of the addresses at both ends of the first hop.
    pub addresses: u64,
}

/// A number of streams, and the conditions under which it was learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LearnedStreams {
    pub streams: u32,
    pub conditions: PathConditions,
}

impl PathConditions {
    /// Returns true if a path with `measured` conditions at the beginning of a copy may be the
    /// same.
    pub(crate) fn agree(&self, measured: &Self) -> bool {
        let (short, long) = (self.rtt.min(measured.rtt), self.rtt.max(measured.rtt));
        let is_known = |ours: u64, theirs: u64| ours != 0 && theirs != 0;
        let is_near = !short.is_zero() && long <= short.mul_f64(RTT_FACTOR) + RTT_SLACK;
        let (small, large) = (
            self.window.min(measured.window),
            self.window.max(measured.window),
        );
        let window_agrees = !is_known(small, large) || large <= small.saturating_mul(WINDOW_FACTOR);
        let addresses_agree =
            !is_known(self.addresses, measured.addresses) || self.addresses == measured.addresses;
        is_near && window_agrees && addresses_agree
    }

    /// Returns true if the path has random losses.
    pub(crate) fn is_lossy(&self) -> bool {
        self.loss_ppm >= LOSSY_PPM
    }

    /// Converts the conditions for storage.
    pub(crate) fn to_numbers(self) -> [u64; 4] {
        let micros = u64::try_from(self.rtt.as_micros()).unwrap_or(u64::MAX);
        [micros, self.window, self.loss_ppm, self.addresses]
    }

    /// Restores stored conditions.
    pub(crate) fn from_numbers([micros, window, loss_ppm, addresses]: [u64; 4]) -> Self {
        Self {
            rtt: Duration::from_micros(micros),
            window,
            loss_ppm,
            addresses,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_the_same_only_while_measurements_agree() {
        let learned = PathConditions {
            rtt: Duration::from_millis(100),
            window: 65_536,
            loss_ppm: 1000,
            addresses: 7,
        };
        let agrees = |change: fn(&mut PathConditions)| {
            let mut measured = PathConditions {
                loss_ppm: 0,
                ..learned
            };
            change(&mut measured);
            learned.agree(&measured)
        };
        assert!(agrees(|_| ()));
        assert!(agrees(|measured| measured.rtt = Duration::from_millis(110)));
        assert!(agrees(|measured| measured.window = 0));
        assert!(agrees(|measured| measured.addresses = 0));
        assert!(!agrees(|measured| measured.rtt = Duration::from_millis(60)));
        assert!(!agrees(|measured| measured.rtt = Duration::from_millis(140)));
        assert!(!agrees(|measured| measured.rtt = Duration::ZERO));
        assert!(!agrees(|measured| measured.window = 4 << 20));
        assert!(!agrees(|measured| measured.addresses = 8));
        assert_eq!(PathConditions::from_numbers(learned.to_numbers()), learned);
    }
}
