//! Limits of a measurement server, and of the request rate of each key.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use longhaul_session::PublicKey;

use crate::wire::{Hello, Length, MAX_STREAMS, VERSION};

/// Limits of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasurementLimits {
    /// Maximum number of streams in each direction of one measurement.
    pub streams: u16,
    /// Maximum duration of a measurement. It also ends one whose length is a number of bytes.
    pub time: Duration,
    /// Maximum number of concurrent measurements. One key may have half of them, and at least one.
    pub concurrent: usize,
    /// Maximum number of measurements that one key may begin within [`REQUEST_WINDOW`].
    pub per_minute: u32,
}

/// Period over which requests are counted.
pub const REQUEST_WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of keys whose requests are remembered. If that many were seen within
/// [`REQUEST_WINDOW`], other keys are refused.
const MAX_KEYS: usize = 1024;

impl Default for MeasurementLimits {
    fn default() -> Self {
        Self {
            streams: MAX_STREAMS,
            time: Duration::from_secs(3600),
            concurrent: 4,
            per_minute: 60,
        }
    }
}

/// Reason why a measurement is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MeasurementRefusal {
    /// The client has an incompatible release.
    #[error("it supports only version {VERSION} of the measurement protocol")]
    Version,
    /// The number of streams is zero or too large. Lower `-P`.
    #[error("it accepts 1 to {0} streams")]
    Streams(u16),
    /// The length is zero or too large.
    #[error("it accepts measurements of up to {} s", .0.as_secs())]
    Length(Duration),
    /// Too many measurements are running.
    #[error("it already runs {0} measurements; retry later")]
    Busy(usize),
    /// The key has sent too many requests.
    #[error("this key already started {0} measurements within a minute; retry in a minute")]
    TooOften(u32),
}

impl MeasurementLimits {
    /// Checks that a measurement is within the limits.
    ///
    /// # Errors
    /// The limit that it exceeds.
    pub fn check(&self, hello: &Hello) -> Result<(), MeasurementRefusal> {
        let [oldest, newest] = hello.versions;
        if !(oldest..=newest).contains(&VERSION) {
            return Err(MeasurementRefusal::Version);
        }
        let most = self.streams.min(MAX_STREAMS);
        if !(1..=most).contains(&hello.streams) {
            return Err(MeasurementRefusal::Streams(most));
        }
        let (least, time) = match hello.length {
            Length::Milliseconds(ms) => (ms, ms.saturating_add(hello.omit_ms)),
            Length::Bytes(bytes) => (bytes, hello.omit_ms),
        };
        match least == 0 || u128::from(time) > self.time.as_millis() {
            true => Err(MeasurementRefusal::Length(self.time)),
            false => Ok(()),
        }
    }
}

/// Counts of recent requests per key.
#[derive(Debug, Default)]
pub(crate) struct RequestCounter {
    /// Start of each key's period, and the number of measurements begun since.
    keys: HashMap<PublicKey, (Instant, u32)>,
}

impl RequestCounter {
    /// Counts a request of `key` at `now`, or refuses it.
    pub(crate) fn count(
        &mut self,
        key: PublicKey,
        now: Instant,
        limits: &MeasurementLimits,
    ) -> Result<(), MeasurementRefusal> {
        let too_often = MeasurementRefusal::TooOften(limits.per_minute);
        if !self.keys.contains_key(&key) && self.keys.len() >= MAX_KEYS {
            self.keys
                .retain(|_, (began, _)| now.saturating_duration_since(*began) < REQUEST_WINDOW);
            if self.keys.len() >= MAX_KEYS {
                return Err(too_often);
            }
        }
        let (began, count) = self.keys.entry(key).or_insert((now, 0));
        if now.saturating_duration_since(*began) >= REQUEST_WINDOW {
            (*began, *count) = (now, 0);
        }
        if *count >= limits.per_minute {
            return Err(too_often);
        }
        *count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{FlowDirection, MeasurementToken, Protection};

    fn hello(streams: u16, length: Length) -> Hello {
        Hello {
            versions: [1, 3],
            token: MeasurementToken::random().unwrap(),
            streams,
            direction: FlowDirection::Forward,
            length,
            omit_ms: 0,
            protection: Protection::Tls,
            right_size: false,
        }
    }

    #[test]
    fn each_bound_holds() {
        let limits = MeasurementLimits {
            streams: 8,
            time: Duration::from_secs(10),
            ..MeasurementLimits::default()
        };
        let second = Length::Milliseconds(1000);
        assert_eq!(
            limits.check(&hello(8, Length::Milliseconds(10_000))),
            Ok(())
        );
        assert_eq!(limits.check(&hello(1, Length::Bytes(1))), Ok(()));
        for streams in [0, 9, u16::MAX] {
            assert_eq!(
                limits.check(&hello(streams, second)),
                Err(MeasurementRefusal::Streams(8))
            );
        }
        for length in [
            Length::Milliseconds(0),
            Length::Milliseconds(10_001),
            Length::Milliseconds(u64::MAX),
            Length::Bytes(0),
        ] {
            assert_eq!(
                limits.check(&hello(1, length)),
                Err(MeasurementRefusal::Length(limits.time))
            );
        }
        let old = Hello {
            versions: [2, 9],
            ..hello(1, second)
        };
        assert_eq!(limits.check(&old), Err(MeasurementRefusal::Version));
    }

    #[test]
    fn the_request_rate_is_limited_per_key() {
        let limits = MeasurementLimits {
            per_minute: 2,
            ..MeasurementLimits::default()
        };
        let (one, other) = (
            PublicKey::from_bytes([1; 32]),
            PublicKey::from_bytes([2; 32]),
        );
        let mut requests = RequestCounter::default();
        let start = Instant::now();
        assert!(requests.count(one, start, &limits).is_ok());
        assert!(requests.count(one, start, &limits).is_ok());
        assert_eq!(
            requests.count(one, start + REQUEST_WINDOW / 2, &limits),
            Err(MeasurementRefusal::TooOften(2))
        );
        assert!(requests.count(other, start, &limits).is_ok());
        assert!(requests.count(one, start + REQUEST_WINDOW, &limits).is_ok());
    }

    #[test]
    fn the_memory_for_keys_is_bounded() {
        let limits = MeasurementLimits::default();
        let mut requests = RequestCounter::default();
        let start = Instant::now();
        let key = |n: u32| {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&n.to_be_bytes());
            PublicKey::from_bytes(bytes)
        };
        for n in 0..MAX_KEYS as u32 {
            assert!(requests.count(key(n), start, &limits).is_ok());
        }
        assert!(requests.count(key(u32::MAX), start, &limits).is_err());
        assert!(
            requests
                .count(key(u32::MAX), start + REQUEST_WINDOW, &limits)
                .is_ok()
        );
        assert_eq!(requests.keys.len(), 1);
    }
}
