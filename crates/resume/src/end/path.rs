//! Round trips of the current connection, and the times of pings.

use std::time::Duration;

/// Interval between pings while data flows, and the first one once it stops.
const MIN_PING_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between pings of an idle stream.
const MAX_PING_INTERVAL: Duration = Duration::from_secs(15);
/// Time without any input, while an answer is outstanding, after which a connection is dead: this
/// many round trips, within these bounds.
const SILENT_ROUND_TRIPS: u32 = 6;
const MIN_SILENCE: Duration = Duration::from_secs(2);
const MAX_SILENCE: Duration = Duration::from_secs(30);
/// The same while no round trip has been measured.
const UNMEASURED_SILENCE: Duration = Duration::from_secs(5);
/// Weight of a new sample of the round trip (RFC 6298).
const SAMPLE_WEIGHT: u32 = 8;

/// Clock of a path.
#[derive(Debug)]
pub(super) struct PathClock {
    smoothed: Option<Duration>,
    minimum: Option<Duration>,
    ping_at: Duration,
    interval: Duration,
    /// Data moved since the last ping.
    active: bool,
    /// Number of the last ping, and when it was sent, until it is answered.
    number: u32,
    outstanding: Option<Duration>,
    /// Number of connections in a row that fell silent. Each doubles the limit, so that a path with
    /// long outages is not abandoned again and again.
    strikes: u32,
}

impl PathClock {
    /// Creates the clock of a first connection; its first ping is due at once.
    pub(super) const fn new(now: Duration) -> Self {
        Self {
            smoothed: None,
            minimum: None,
            ping_at: now,
            interval: MIN_PING_INTERVAL,
            active: true,
            number: 0,
            outstanding: None,
            strikes: 0,
        }
    }

    /// Starts over for another connection.
    pub(super) const fn restart(&mut self, now: Duration) {
        let strikes = self.strikes;
        let number = self.number;
        *self = Self::new(now);
        self.strikes = strikes;
        self.number = number;
    }

    pub(super) const fn round_trip(&self) -> Option<Duration> {
        self.smoothed
    }

    pub(super) const fn min_round_trip(&self) -> Option<Duration> {
        self.minimum
    }

    /// Records that data moved.
    pub(super) fn note_data(&mut self, now: Duration) {
        self.active = true;
        self.ping_at = self.ping_at.min(now.saturating_add(MIN_PING_INTERVAL));
    }

    pub(super) const fn ping_at(&self) -> Duration {
        self.ping_at
    }

    /// Returns true if data moved since the last ping.
    pub(super) const fn is_active(&self) -> bool {
        self.active
    }

    /// Schedules the next ping. Returns true if one is due and none is outstanding.
    pub(super) fn take_due_ping(&mut self, now: Duration) -> bool {
        if self.ping_at > now {
            return false;
        }
        self.interval = match self.active {
            true => MIN_PING_INTERVAL,
            false => self.interval.saturating_mul(2).min(MAX_PING_INTERVAL),
        };
        self.active = false;
        self.ping_at = now.saturating_add(self.interval);
        self.outstanding.is_none()
    }

    /// Returns the number of a ping that is sent now.
    pub(super) const fn start_ping(&mut self, now: Duration) -> u32 {
        self.number = self.number.wrapping_add(1);
        self.outstanding = Some(now);
        self.number
    }

    pub(super) const fn has_outstanding_ping(&self) -> bool {
        self.outstanding.is_some()
    }

    /// Records the answer to a ping.
    pub(super) fn note_pong(&mut self, now: Duration, number: u32) {
        if number != self.number {
            return;
        }
        let Some(sent) = self.outstanding.take() else {
            return;
        };
        let sample = now.saturating_sub(sent);
        self.strikes = 0;
        self.minimum = Some(self.minimum.map_or(sample, |least| least.min(sample)));
        self.smoothed = Some(self.smoothed.map_or(sample, |smoothed| {
            let weighted = smoothed
                .saturating_mul(SAMPLE_WEIGHT.saturating_sub(1))
                .saturating_add(sample);
            weighted.checked_div(SAMPLE_WEIGHT).unwrap_or(sample)
        }));
    }

    /// Records that the connection was abandoned because it was silent.
    pub(super) const fn note_silence(&mut self) {
        self.strikes = self.strikes.saturating_add(1);
    }

    /// Returns the time without input after which the connection is dead.
    pub(super) fn silence_limit(&self) -> Duration {
        let limit = self.smoothed.map_or(UNMEASURED_SILENCE, |round_trip| {
            round_trip.saturating_mul(SILENT_ROUND_TRIPS)
        });
        let doubled = 1u32.checked_shl(self.strikes.min(8)).unwrap_or(1);
        limit
            .max(MIN_SILENCE)
            .saturating_mul(doubled)
            .min(MAX_SILENCE)
    }
}
