//! Departure times: packets leave in quanta that the network card can segment, and quanta are
//! spaced so that their average is the pacing rate.

use std::time::Duration;

use crate::delivery::carried_bytes;

/// Longest time that a quantum takes at the pacing rate, and the longest delay of the sender that
/// it may make up for.
const QUANTUM: Duration = Duration::from_millis(1);
/// Part of the base round trip that a quantum takes at most. A queue of a tenth of the
/// bandwidth-delay product has to hold several.
const QUANTUM_SHARE: u32 = 32;
/// Base round trips up to which quanta take the longest time nevertheless. Within a site, queues
/// are longer than the bandwidth-delay product, and small quanta would cost processor time.
const SITE_ROUND_TRIP: Duration = Duration::from_millis(2);
/// Packets of the smallest quantum.
const MIN_QUANTUM_PACKETS: u32 = 2;
/// Bytes of the largest quantum: what the kernel segments at once.
const MAX_QUANTUM_BYTES: u32 = 64 * 1024;

/// Schedule of departures.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pacer {
    /// Time by which everything that was sent is paid for at the pacing rate.
    paid_until: Duration,
    /// Time of the next quantum. `None` before the first packet.
    departure: Option<Duration>,
    /// Bytes of the current quantum that may still leave.
    quantum_left: u32,
}

impl Pacer {
    /// Notes a packet. `rate` is in bytes per second.
    pub fn on_sent(&mut self, bytes: u32, rate: u64, quantum_bytes: u32, now: Duration) {
        let cost = u64::from(bytes).saturating_mul(1_000_000_000) / rate.max(1);
        let earned_since = self.paid_until.max(now.saturating_sub(QUANTUM));
        self.paid_until = earned_since.saturating_add(Duration::from_nanos(cost));
        self.quantum_left = self.quantum_left.saturating_sub(bytes);
        if self.quantum_left == 0 {
            self.departure = Some(self.paid_until);
            self.quantum_left = quantum_bytes;
        }
    }

    /// Returns the time before which no packet may leave.
    pub fn departure(&self) -> Option<Duration> {
        self.departure
    }
}

/// Returns the bytes that are sent at once at a rate, on a path with a base round trip.
pub(crate) fn quantum_bytes(rate: u64, base: Duration, max_datagram_bytes: u32) -> u32 {
    let time = if base <= SITE_ROUND_TRIP {
        QUANTUM
    } else {
        QUANTUM.min(base / QUANTUM_SHARE)
    };
    let bytes = carried_bytes(rate, time);
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    bytes
        .min(MAX_QUANTUM_BYTES)
        .max(max_datagram_bytes.saturating_mul(MIN_QUANTUM_PACKETS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(100);

    /// Sends packets of 1,000 bytes at the earliest times after `start`, and returns the time of
    /// the last one. The sender wakes `late` after each departure.
    fn send(pacer: &mut Pacer, packets: u32, start: Duration, late: Duration) -> Duration {
        let mut now = start;
        for _ in 0..packets {
            let departure = pacer.departure().unwrap_or_default();
            if departure > now {
                now = departure + late;
            }
            pacer.on_sent(1000, 10_000_000, quantum_bytes(10_000_000, BASE, 1000), now);
        }
        now
    }

    #[test]
    fn late_wake_ups_do_not_lower_the_rate() {
        let mut pacer = Pacer::default();
        let start = Duration::from_secs(1);
        let elapsed = send(&mut pacer, 10_000, start, Duration::from_micros(300)) - start;
        assert!((0.99..1.01).contains(&elapsed.as_secs_f64()), "{elapsed:?}");
    }

    #[test]
    fn an_idle_time_earns_one_quantum_only() {
        let mut pacer = Pacer::default();
        send(&mut pacer, 100, Duration::from_secs(1), Duration::ZERO);
        let start = Duration::from_secs(60);
        let elapsed = send(&mut pacer, 100, start, Duration::ZERO) - start;
        assert!(elapsed >= Duration::from_millis(7), "{elapsed:?}");
    }

    #[test]
    fn quanta_are_a_millisecond_within_bounds() {
        assert_eq!(quantum_bytes(100, BASE, 1472), 2944);
        assert_eq!(quantum_bytes(20_000_000, BASE, 1472), 20_000);
        assert_eq!(quantum_bytes(20_000_000, BASE / 10, 1472), 6_250);
        assert_eq!(quantum_bytes(20_000_000, BASE / 100, 1472), 20_000);
        assert_eq!(quantum_bytes(u64::MAX, BASE, 1472), 64 * 1024);
    }
}
