//! Base round trip: the smallest of the last ten seconds. If it was not seen for that long, less is
//! kept in flight for a moment, so that the queue of this connection drains and it shows again.

use std::time::Duration;

/// Time after which the base round trip has to be measured again.
const LIFETIME: Duration = Duration::from_secs(10);
/// Samples that exceed the base round trip by less than this part of it confirm it.
const TOLERANCE: u32 = 64;
/// Shortest time of a measurement.
const PROBE_TIME: Duration = Duration::from_millis(200);

/// State of the connection when a round trip was sampled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    /// If true, nothing else was in flight.
    pub was_idle: bool,
    /// Bytes in flight.
    pub bytes: u64,
    /// Bytes in flight during a measurement.
    pub probe_bytes: u64,
    /// Smoothed round trip.
    pub round_trip: Duration,
}

/// Estimate of the round trip without a queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct BaseRoundTrip {
    minimum: Option<Duration>,
    confirmed_at: Duration,
    probe: Option<Probe>,
}

/// Measurement with little in flight.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// Smallest round trip of the measurement.
    minimum: Duration,
    /// End of the measurement. `None` until the amount in flight has shrunk.
    ends_at: Option<Duration>,
}

impl BaseRoundTrip {
    /// Returns the estimate. `None` before the first sample.
    pub fn get(&self) -> Option<Duration> {
        self.minimum
    }

    /// Returns true while less has to be in flight.
    pub fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    /// Adds a sample. If the estimate has expired, begins a measurement, or takes the sample if
    /// nothing else was in flight.
    pub fn add(&mut self, sample: Duration, flight: Flight, now: Duration) {
        let age = now.saturating_sub(self.confirmed_at);
        let is_expired = self.minimum.is_some() && age > LIFETIME;
        if let Some(probe) = &mut self.probe {
            probe.minimum = probe.minimum.min(sample);
            match probe.ends_at {
                None if flight.bytes <= flight.probe_bytes => {
                    probe.ends_at = Some(now.saturating_add(PROBE_TIME.max(flight.round_trip)));
                    probe.minimum = sample;
                }
                Some(ends_at) if now >= ends_at => {
                    let measured = probe.minimum;
                    self.replace(measured, now);
                    return;
                }
                _ => {}
            }
        } else if is_expired && flight.was_idle {
            self.replace(sample, now);
        } else if is_expired {
            self.probe = Some(Probe {
                minimum: sample,
                ends_at: None,
            });
        }
        match self.minimum {
            Some(minimum) if sample > minimum.saturating_add(minimum / TOLERANCE) => {}
            Some(minimum) if sample >= minimum => self.confirmed_at = now,
            _ => {
                self.minimum = Some(sample.max(Duration::from_nanos(1)));
                self.confirmed_at = now;
            }
        }
    }

    fn replace(&mut self, measured: Duration, now: Duration) {
        self.minimum = Some(measured.max(Duration::from_nanos(1)));
        self.confirmed_at = now;
        self.probe = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const BUSY: Flight = Flight {
        was_idle: false,
        bytes: 1000,
        probe_bytes: 500,
        round_trip: Duration::ZERO,
    };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_estimate_is_measured_again_unless_confirmed() {
        let mut base = BaseRoundTrip::default();
        base.add(MS * 100, BUSY, at(0));
        base.add(MS * 101, BUSY, at(8));
        base.add(MS * 110, BUSY, at(18));
        assert_eq!((base.get(), base.is_probing()), (Some(MS * 100), false));
        base.add(MS * 110, BUSY, at(19));
        assert!(base.is_probing());
    }

    #[test]
    fn a_measurement_counts_from_when_little_is_in_flight() {
        let mut base = BaseRoundTrip::default();
        base.add(MS * 100, BUSY, at(0));
        base.add(MS * 150, BUSY, at(11));
        base.add(MS * 149, BUSY, at(12));
        let drained = Flight { bytes: 500, ..BUSY };
        base.add(MS * 130, drained, at(13));
        base.add(MS * 120, drained, at(13) + MS * 199);
        assert!(base.is_probing());
        base.add(MS * 125, drained, at(13) + MS * 200);
        assert_eq!((base.get(), base.is_probing()), (Some(MS * 120), false));
    }

    #[test]
    fn a_sample_after_an_idle_time_is_the_estimate() {
        let mut base = BaseRoundTrip::default();
        base.add(MS * 100, BUSY, at(0));
        base.add(
            MS * 120,
            Flight {
                was_idle: true,
                ..BUSY
            },
            at(60),
        );
        assert_eq!((base.get(), base.is_probing()), (Some(MS * 120), false));
    }
}
