//! What one TCP connection carries over a path, and how long a transfer takes.
//!
//! Rates are of payload. Losses are independent of each other. The congestion window counts full
//! segments; slow start doubles it every round trip, as Linux does, which counts the segments that
//! an acknowledgement covers.

mod congestion_control;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use congestion_control::{CongestionControl, CongestionControlError};

use crate::{ByteCount, Probability, Rate, Time};

/// Segments that a connection may send before the first acknowledgement (RFC 6928).
pub const INITIAL_WINDOW: u32 = 10;
/// Payload of a segment, in bytes, over IPv4 with timestamps where packets have 1500 bytes.
pub const ETHERNET_MSS: u32 = 1448;

/// One TCP connection's way: a whole path, or what lies between two depots.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hop {
    /// The round trip, without queues.
    pub rtt: Duration,
    /// What the narrowest link carries, of payload.
    pub rate: Rate,
    /// The chance that a segment is lost.
    pub loss: Probability,
    /// Payload of a full segment, in bytes.
    pub mss: u32,
    /// The largest window that both hosts allow, where there is one.
    pub window: Option<ByteCount>,
    /// The sender's congestion control.
    pub control: CongestionControl,
    /// The window before the first acknowledgement, in segments.
    pub initial_window: u32,
}

/// What a hop carries in the long run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steady {
    /// The rate, of payload.
    pub rate: Rate,
    /// What holds it there.
    pub bound: Bound,
}

/// What bounds the rate of a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The narrowest link.
    Rate,
    /// The hosts' largest window.
    Window,
    /// Losses cut the congestion window before it fills the hop.
    Loss,
}

/// The slow start of a transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ramp {
    /// Round trips, the last one of which may not be used up.
    pub round_trips: u32,
    /// How long it takes.
    pub time: Duration,
    /// What is sent meanwhile.
    pub bytes: ByteCount,
}

impl Hop {
    /// A hop without loss or limit of windows, with CUBIC, segments of [`ETHERNET_MSS`] and
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

    /// Bytes in flight that just fill the hop: rate times round trip.
    #[must_use]
    pub fn bandwidth_delay_product(&self) -> f64 {
        self.rate.bits_per_second() * self.rtt.as_secs_f64() / 8.0
    }

    /// The same in segments; never less than one.
    #[must_use]
    pub fn full_window(&self) -> f64 {
        (self.bandwidth_delay_product() / self.segment()).max(1.0)
    }

    /// What a window of so many bytes carries: one window a round trip, whatever the rate of the
    /// links. Infinite without a round trip.
    #[must_use]
    pub fn carried_by(&self, window: f64) -> f64 {
        match window {
            0.0 => 0.0,
            window => window * 8.0 / self.rtt.as_secs_f64(),
        }
    }

    /// What losses let the congestion control carry, in bit/s, whatever the rate of the links: its
    /// average window each round trip. Infinite where nothing is lost.
    #[must_use]
    pub fn carried_under_loss(&self) -> f64 {
        self.carried_by(self.average_window())
    }

    /// What it carries in the long run.
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

    /// The loss beyond which it carries less than its links do.
    #[must_use]
    pub fn most_loss(&self) -> Probability {
        self.control.most_loss(self.full_window(), self.rtt)
    }

    /// From one loss at a full window back to it.
    #[must_use]
    pub fn recovery(&self) -> Duration {
        self.control.recovery(self.full_window(), self.rtt)
    }

    /// The slow start of a transfer of so many bytes, from the first segment on; set-up of the
    /// connection is left out.
    ///
    /// It ends when the window reaches what fills the hop or the hosts allow; after the first loss,
    /// which is expected once `1 / loss` segments were sent (Cardwell, Savage and Anderson,
    /// "Modeling TCP latency", 2000), at the average window under that loss.
    #[must_use]
    pub fn ramp(&self, bytes: ByteCount) -> Ramp {
        let slow_start = self.slow_start(bytes.0 as f64);
        Ramp {
            round_trips: slow_start.round_trips.ceil() as u32,
            time: self.round_trips(slow_start.round_trips),
            bytes: ByteCount::nearest(slow_start.sent).min(bytes),
        }
    }

    /// How long a transfer of so many bytes is expected to take, from its first segment to the
    /// arrival of its last byte, half a round trip after that was sent. Set-up of the connection is
    /// left out: one round trip for TCP, and what the session on top needs.
    ///
    /// Within a round trip of slow start bytes are taken to leave evenly. They leave in a burst, so
    /// a transfer that ends in slow start may end up to a round trip sooner. Retransmission
    /// timeouts are left out, which matters above some percent of loss.
    #[must_use]
    pub fn time(&self, bytes: ByteCount) -> Duration {
        let bytes = bytes.0 as f64;
        let slow_start = self.slow_start(bytes);
        let left = (bytes - slow_start.sent).max(0.0);
        // Until the first loss the hop is as full as the hosts allow.
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

    /// Doubles the window every round trip, until it ends or `bytes` are sent.
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

    /// Under the hop's loss, in bytes.
    fn average_window(&self) -> f64 {
        self.control.average_window(self.loss, self.rtt) * self.segment()
    }

    /// What is sent until the first loss, itself included, on average.
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

/// How long so many bytes take at a rate in bit/s.
fn seconds(bytes: f64, rate: f64) -> f64 {
    if bytes > 0.0 { bytes * 8.0 / rate } else { 0.0 }
}
