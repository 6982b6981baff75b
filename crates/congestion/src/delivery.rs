//! Samples of the delivery rate, and rounds, from stamps that packets carry.
//!
//! A sample is the amount delivered between the sending of a packet and its acknowledgement,
//! divided by the time in which it was sent or acknowledged, whichever took longer.

use std::time::Duration;

/// State of the connection when a packet was sent. The caller keeps it with the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketStamp {
    delivered_bytes: u64,
    delivered_at: Duration,
    first_sent_at: Duration,
    app_limited: bool,
    /// Bytes in flight, with this packet.
    pub(crate) in_flight_bytes: u32,
    /// Relation of the pacing rate to the bandwidth.
    pub(crate) pressure: Pressure,
}

impl PacketStamp {
    /// Bytes that had been delivered when the packet was sent.
    pub(crate) fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }
}

/// Relation of the pacing rate to the estimated bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// Above the bandwidth: a queue grows.
    Rising,
    /// At the bandwidth, or before the bandwidth is known.
    Steady,
    /// Below the bandwidth: a queue of this connection shrinks, so it cannot overflow.
    Falling,
}

/// Delivery rate that one acknowledgement shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateSample {
    /// Bytes per second.
    pub rate: u64,
    /// If true, the sender had too little data, so the path may be faster.
    pub app_limited: bool,
}

/// Progress that one acknowledgement shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    /// `None` if the acknowledgement came too soon to measure a rate.
    pub sample: Option<RateSample>,
    /// If true, the acknowledgement ends a round: its packet was sent after the last round ended.
    pub round_ended: bool,
}

/// Counter of delivered bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeliveryTracker {
    delivered_bytes: u64,
    delivered_at: Duration,
    first_sent_at: Duration,
    /// Samples are limited by the application until this many bytes are delivered.
    app_limited_until: Option<u64>,
    round_ends_at_bytes: u64,
}

impl DeliveryTracker {
    /// Returns the number of delivered bytes.
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// Returns the stamp of a packet. `in_flight_bytes` does not count the packet.
    pub fn stamp(
        &mut self,
        now: Duration,
        bytes: u32,
        in_flight_bytes: u32,
        app_limited: bool,
        pressure: Pressure,
    ) -> PacketStamp {
        if in_flight_bytes == 0 {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        let in_flight_bytes = in_flight_bytes.saturating_add(bytes);
        if app_limited {
            let until = self.delivered_bytes.saturating_add(in_flight_bytes.into());
            self.app_limited_until = Some(until);
        }
        PacketStamp {
            delivered_bytes: self.delivered_bytes,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            app_limited: self.app_limited_until.is_some(),
            in_flight_bytes,
            pressure,
        }
    }

    /// Counts delivered bytes. Intervals shorter than `base_round_trip` give no sample.
    pub fn on_ack(
        &mut self,
        newest_sent_at: Duration,
        bytes: u64,
        newest: &PacketStamp,
        base_round_trip: Duration,
        now: Duration,
    ) -> Delivery {
        self.delivered_bytes = self.delivered_bytes.saturating_add(bytes);
        self.delivered_at = self.delivered_at.max(now);
        self.first_sent_at = self.first_sent_at.max(newest_sent_at);
        if self
            .app_limited_until
            .is_some_and(|until| self.delivered_bytes > until)
        {
            self.app_limited_until = None;
        }
        let send_elapsed = newest_sent_at.saturating_sub(newest.first_sent_at);
        let ack_elapsed = now.saturating_sub(newest.delivered_at);
        let elapsed = send_elapsed.max(ack_elapsed);
        let delivered = self.delivered_bytes.saturating_sub(newest.delivered_bytes);
        let measurable = !elapsed.is_zero() && elapsed >= base_round_trip;
        let round_ended = newest.delivered_bytes >= self.round_ends_at_bytes;
        if round_ended {
            self.round_ends_at_bytes = self.delivered_bytes;
        }
        Delivery {
            sample: measurable.then(|| RateSample {
                rate: rate(delivered, elapsed),
                app_limited: newest.app_limited,
            }),
            round_ended,
        }
    }

    /// Notes that bytes left the network without being delivered.
    pub fn on_removed(&mut self, bytes: u64) {
        if let Some(until) = &mut self.app_limited_until {
            *until = until.saturating_sub(bytes);
        }
    }
}

/// Nanoseconds of a second.
const SECOND_NANOS: u64 = 1_000_000_000;

/// Returns the rate of an amount in a time, in bytes per second.
pub(crate) fn rate(bytes: u64, elapsed: Duration) -> u64 {
    scale(bytes, SECOND_NANOS, nanos(elapsed))
}

/// Returns the amount that a rate carries in a time.
pub(crate) fn carried_bytes(rate: u64, elapsed: Duration) -> u64 {
    scale(rate, nanos(elapsed), SECOND_NANOS)
}

/// Returns a duration in nanoseconds. 64 bits hold 584 years.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns `value * factor / divisor`. Common values need no division of 128 bits, which takes
/// longer than the rest of an event.
fn scale(value: u64, factor: u64, divisor: u64) -> u64 {
    let divisor = divisor.max(1);
    match value.checked_mul(factor) {
        Some(product) => product / divisor,
        None => {
            let product = u128::from(value) * u128::from(factor);
            u64::try_from(product / u128::from(divisor)).unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn rate_counts_the_slower_of_sending_and_acks() {
        let mut tracker = DeliveryTracker::default();
        let first = tracker.stamp(MS, 1000, 0, false, Pressure::Steady);
        let second = tracker.stamp(MS * 2, 1000, 1000, false, Pressure::Steady);
        tracker.on_ack(MS, 1000, &first, MS, MS * 11);
        let delivery = tracker.on_ack(MS * 2, 1000, &second, MS, MS * 11);
        // Both were delivered within the 10 ms since the connection began.
        assert_eq!(delivery.sample.map(|sample| sample.rate), Some(200_000));
    }

    #[test]
    fn a_round_ends_when_its_own_packets_are_acked() {
        let mut tracker = DeliveryTracker::default();
        let first = tracker.stamp(MS, 1000, 0, false, Pressure::Steady);
        let second = tracker.stamp(MS, 1000, 1000, false, Pressure::Steady);
        assert!(tracker.on_ack(MS, 1000, &first, MS, MS * 11).round_ended);
        let third = tracker.stamp(MS * 11, 1000, 1000, false, Pressure::Steady);
        assert!(!tracker.on_ack(MS, 1000, &second, MS, MS * 12).round_ended);
        assert!(
            tracker
                .on_ack(MS * 11, 1000, &third, MS, MS * 21)
                .round_ended
        );
    }

    #[test]
    fn samples_are_app_limited_until_the_flight_is_delivered() {
        let mut tracker = DeliveryTracker::default();
        let limited = tracker.stamp(MS, 1000, 0, true, Pressure::Steady);
        let next = tracker.stamp(MS, 1000, 1000, false, Pressure::Steady);
        assert!(limited.app_limited && next.app_limited);
        tracker.on_ack(MS, 2000, &next, MS, MS * 11);
        assert!(
            !tracker
                .stamp(MS * 11, 1000, 0, false, Pressure::Steady)
                .app_limited
        );
    }
}
