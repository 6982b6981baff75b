//! A model of what one TCP connection carries over a path, and of how long a transfer takes.
//!
//! Rates are of payload. Losses are independent of each other. The congestion window counts full
//! segments. Slow start doubles it every round trip, as in Linux, which counts the segments that an
//! acknowledgement covers.

mod congestion_control;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use congestion_control::{CongestionControl, CongestionControlError};

use crate::{ByteCount, Probability, Rate, Time};

/// Segments that a connection may send before the first acknowledgement (RFC 6928).
pub const INITIAL_WINDOW: u32 = 10;
/// Payload of a segment in bytes, for 1500-byte packets over IPv4 with timestamps.
pub const ETHERNET_MSS: u32 = 1448;

/// Path of one TCP connection: a whole path, or the part between two depots.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hop {
    /// Round-trip time without queueing.
    pub rtt: Duration,
    /// Payload rate of the narrowest link.
    pub rate: Rate,
    /// Probability that a segment is lost.
    pub loss: Probability,
    /// Payload of a full segment, in bytes.
    pub mss: u32,
    /// Largest window that both hosts allow, or `None` if unlimited.
    pub window: Option<ByteCount>,
    /// Congestion control of the sender.
    pub control: CongestionControl,
    /// Window before the first acknowledgement, in segments.
    pub initial_window: u32,
}

/// Long-run rate of a hop, and what limits it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steady {
    /// Payload rate.
    pub rate: Rate,
    /// Limit of the rate.
    pub bound: Bound,
}

/// Limit of a hop's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The narrowest link.
    Rate,
    /// The hosts' largest window.
    Window,
    /// Losses cut the congestion window before it fills the hop.
    Loss,
}

/// Slow start of a transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ramp {
    /// Number of round trips, rounded up to whole ones.
    pub round_trips: u32,
    /// Duration.
    pub time: Duration,
    /// Bytes sent during slow start.
    pub bytes: ByteCount,
}

impl Hop {
    /// Returns a hop without loss or window limit, with CUBIC, segments of [`ETHERNET_MSS`] and
    /// [`INITIAL_WINDOW`].
    #[must_use]
    pub const fn new(rtt: Duration, rate: Rate) -> Self {
        Self {
            rtt,
            rate,
            loss: Probability::ZERO,
            mss: ETHERNET_MSS,
            window: None,
            control: CongestionControl::Cubic,
            initial_window: INITIAL_WINDOW,
        }
    }

    /// Returns the bytes in flight that just fill the hop: rate times round trip.
    #[must_use]
    pub fn bandwidth_delay_product(&self) -> f64 {
        self.rate.bits_per_second() * self.rtt.as_secs_f64() / 8.0
    }

    /// Returns the bandwidth-delay product in segments, at least one.
    #[must_use]
    pub fn full_window(&self) -> f64 {
        (self.bandwidth_delay_product() / self.segment()).max(1.0)
    }

    /// Returns the rate, in bit/s, of a window of `window` bytes: one window per round trip,
    /// whatever the rate of the links. It is infinite if the round trip takes no time.
    #[must_use]
    pub fn carried_by(&self, window: f64) -> f64 {
        match window {
            0.0 => 0.0,
            window => window * 8.0 / self.rtt.as_secs_f64(),
        }
    }

    /// Returns the rate, in bit/s, that the congestion control reaches under the hop's loss: its
    /// average window per round trip, whatever the rate of the links. It is infinite without loss.
    #[must_use]
    pub fn carried_under_loss(&self) -> f64 {
        self.carried_by(self.average_window())
    }

    /// Returns the long-run rate and its limit.
    #[must_use]
    pub fn steady(&self) -> Steady {
        let by_window = self.carried_by(self.largest_window());
        let by_loss = self.carried_under_loss();
        let (least, bound) = if by_window <= by_loss {
            (by_window, Bound::Window)
        } else {
            (by_loss, Bound::Loss)
        };
        match Rate::new(least) {
            Some(rate) if rate < self.rate => Steady { rate, bound },
            _ => Steady {
                rate: self.rate,
                bound: Bound::Rate,
            },
        }
    }

    /// Returns the loss above which the connection carries less than its links do.
    #[must_use]
    pub fn most_loss(&self) -> Probability {
        self.control.most_loss(self.full_window(), self.rtt)
    }

    /// Returns the time from a loss at a full window until the window is full again.
    #[must_use]
    pub fn recovery(&self) -> Duration {
        self.control.recovery(self.full_window(), self.rtt)
    }

    /// Returns the slow start of a transfer of `bytes`, from the first segment on. Connection setup
    /// is not included.
    ///
    /// Slow start ends when the window fills the hop or reaches the hosts' limit. The first loss is
    /// expected after `1 / loss` segments (Cardwell, Savage and Anderson, "Modeling TCP latency",
    /// 2000). From then on, slow start ends at the average window under that loss.
    #[must_use]
    pub fn ramp(&self, bytes: ByteCount) -> Ramp {
        let slow_start = self.slow_start(bytes.0 as f64);
        Ramp {
            round_trips: slow_start.round_trips.ceil() as u32,
            time: self.round_trips(slow_start.round_trips),
            bytes: ByteCount::nearest(slow_start.sent).min(bytes),
        }
    }

    /// Returns the expected duration of a transfer of `bytes`, from its first segment to the
    /// arrival of its last byte, which is half a round trip after it was sent. Connection setup is
    /// not included: one round trip for TCP, plus that of the session on top.
    ///
    /// Within a round trip of slow start, bytes are assumed to leave evenly. In fact they leave in
    /// a burst, so a transfer that ends in slow start may end up to a round trip sooner.
    /// Retransmission timeouts are not modelled; they matter above a few percent of loss.
    #[must_use]
    pub fn time(&self, bytes: ByteCount) -> Duration {
        let bytes = bytes.0 as f64;
        let slow_start = self.slow_start(bytes);
        let left = (bytes - slow_start.sent).max(0.0);
        // Until the first loss, only the link and the hosts' windows limit the rate.
        let before_loss = (self.bytes_to_first_loss() - slow_start.sent).clamp(0.0, left);
        let full = self
            .rate
            .bits_per_second()
            .min(self.carried_by(self.largest_window()));
        let rtt = self.rtt.as_secs_f64();
        Time::from_seconds(
            (slow_start.round_trips + 0.5) * rtt
                + seconds(before_loss, full)
                + seconds(left - before_loss, self.steady().rate.bits_per_second()),
        )
        .0
    }

    /// Doubles the window every round trip until slow start ends or `bytes` are sent.
    fn slow_start(&self, bytes: f64) -> SlowStart {
        let full = self.bandwidth_delay_product().min(self.largest_window());
        let under_loss = full.min(self.average_window());
        let first_loss = self.bytes_to_first_loss();
        let mut window = f64::from(self.initial_window.max(1)) * self.segment();
        let (mut round_trips, mut sent) = (0.0, 0.0);
        loop {
            let limit = if sent < first_loss { full } else { under_loss };
            if window >= limit {
                return SlowStart { round_trips, sent };
            }
            let end = if window > under_loss {
                bytes.min(first_loss)
            } else {
                bytes
            };
            if sent + window >= end {
                return SlowStart {
                    round_trips: round_trips + (end - sent) / window,
                    sent: end,
                };
            }
            sent += window;
            round_trips += 1.0;
            window *= 2.0;
        }
    }

    fn segment(&self) -> f64 {
        f64::from(self.mss.max(1))
    }

    fn largest_window(&self) -> f64 {
        self.window.map_or(f64::INFINITY, |window| window.0 as f64)
    }

    /// Average window under the hop's loss, in bytes.
    fn average_window(&self) -> f64 {
        self.control.average_window(self.loss, self.rtt) * self.segment()
    }

    /// Expected bytes sent up to and including the first lost segment.
    fn bytes_to_first_loss(&self) -> f64 {
        self.segment() / self.loss.value()
    }

    fn round_trips(&self, count: f64) -> Duration {
        Time::from_seconds(count * self.rtt.as_secs_f64()).0
    }
}

struct SlowStart {
    round_trips: f64,
    sent: f64,
}

/// Returns the time that `bytes` take at `rate`, in bit/s.
fn seconds(bytes: f64, rate: f64) -> f64 {
    if bytes > 0.0 { bytes * 8.0 / rate } else { 0.0 }
}
