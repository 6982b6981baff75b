//! What has to hold for a flow to fill a long path: window, recovery, loss, streams and depots.
//!
//! Rates here are of payload. `W` is the bandwidth-delay product in segments, `R` the round trip, `p` the chance that a segment is
//! lost, independently of others.
//!
//! - One segment more a round trip after a window that was cut in half: back after `C * R^2 / (2 * MSS)`, as the slides of the Land
//!   Speed Record of 2003 have it. A receiver that acknowledges every second segment doubles that on stacks that count
//!   acknowledgements instead of bytes; today's Linux counts segments.
//! - What a Reno flow carries under loss: Mathis, Semke, Mahdavi and Ott, "The macroscopic behavior of the TCP congestion
//!   avoidance algorithm", 1997.
//! - What a CUBIC flow carries, and how long it takes back to its window: RFC 9438, sections 4.2 and 5.1.

mod model;
mod remedy;

use std::time::Duration;

use serde::Serialize;

pub use model::Control;
pub use remedy::{Depots, MOST_HOPS, MOST_STREAMS, Remedy};

use crate::units::{Bytes, LossRate, Rate, Time};

/// Headers of IPv4 and TCP, timestamps included, in bytes.
pub const HEADERS: u32 = 40 + 12;
/// Segments that a connection may send before the first acknowledgement (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;
/// What light covers in fibre in a millisecond of *round trip*, in kilometres of way: 200,000 km/s, there and back.
const KM_PER_MS: f64 = 100.0;

/// What is wanted of which path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// The rate to reach, of payload.
    pub rate: Rate,
    /// The round trip.
    pub rtt: Time,
    /// The path MTU.
    pub mtu: Mtu,
    /// The congestion control of the hosts.
    pub control: Control,
    /// The largest window of the hosts, where there is one.
    pub window: Option<Bytes>,
    /// The chance that a segment is lost, where it is known.
    pub loss: Option<LossRate>,
}

/// A path MTU in bytes: 576 to 65535.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtu(u16);

/// What the target needs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// The rate to reach, in bit/s.
    pub rate_bps: f64,
    /// The round trip, in seconds.
    pub rtt_s: f64,
    /// Payload of a segment, in bytes.
    pub mss_bytes: u32,
    /// Congestion control of the hosts.
    pub control: Control,
    /// Bandwidth-delay product: the window that just fills the path, in bytes.
    pub window_bytes: u64,
    /// The same, in segments.
    pub window_segments: f64,
    /// From the first segment to a full window in slow start, in seconds.
    pub slow_start_s: f64,
    /// From one loss back to the full window, in seconds.
    pub recovery_s: f64,
    /// The loss rate beyond which one flow stays below the target.
    pub most_loss: f64,
    /// At the target rate, seconds between losses at that loss rate.
    pub between_losses_s: f64,
    /// What one stream reaches with the hosts' window and the loss given, in bit/s.
    pub one_stream_bps: f64,
    /// What holds that stream, if anything does.
    pub held_by: Option<HeldBy>,
    /// What reaches the target where one stream does not.
    pub remedy: Option<Remedy>,
}

/// What keeps one stream below the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldBy {
    /// The hosts' window is smaller than the bandwidth-delay product.
    Window,
    /// Losses cut the congestion window before it is wide enough.
    Loss,
}

/// An MTU that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no MTU for this: give 576 to 65535 bytes, most paths have 1500 or 9000")]
pub struct MtuError(pub u32);

impl Mtu {
    /// `bytes` as an MTU.
    ///
    /// # Errors
    /// [`MtuError`] when it is outside 576 to 65535.
    pub fn new(bytes: u32) -> Result<Self, MtuError> {
        match u16::try_from(bytes) {
            Ok(mtu @ 576..) => Ok(Self(mtu)),
            _ => Err(MtuError(bytes)),
        }
    }

    /// Payload of a full segment over IPv4 with timestamps.
    #[must_use]
    pub const fn mss(self) -> Segment {
        Segment(self.0 as u32 - HEADERS)
    }
}

/// Payload of a full segment, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment(pub u32);

impl Segment {
    /// In bits.
    #[must_use]
    pub fn bits(self) -> f64 {
        f64::from(self.0) * 8.0
    }
}

impl Target {
    /// Works it out.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let mss = self.mtu.mss();
        let segments = window_segments(self.rate, self.rtt.0, mss);
        let most_loss = self.control.most_loss(segments, self.rtt.0);
        let segments_per_second = self.rate.bits_per_second() / mss.bits();
        let one_stream = self.one_stream(self.rtt.0, self.loss);
        let held_by = self.held_by();
        Plan {
            rate_bps: self.rate.bits_per_second(),
            rtt_s: self.rtt.0.as_secs_f64(),
            mss_bytes: mss.0,
            control: self.control,
            window_bytes: (self.rate.bits_per_second() * self.rtt.0.as_secs_f64() / 8.0).ceil() as u64,
            window_segments: segments,
            slow_start_s: slow_start(segments, self.rtt.0).as_secs_f64(),
            recovery_s: self.control.recovery(segments, self.rtt.0).as_secs_f64(),
            most_loss,
            between_losses_s: 1.0 / (most_loss * segments_per_second),
            one_stream_bps: one_stream,
            held_by,
            remedy: held_by.map(|_| Remedy::of(self)),
        }
    }

    /// What one stream carries over a path or hop of this round trip and loss, in bit/s; the target at most.
    pub(crate) fn one_stream(&self, rtt: Duration, loss: Option<LossRate>) -> f64 {
        let by_window = self.by_window(rtt);
        let by_loss = self.by_loss(rtt, loss);
        self.rate.bits_per_second().min(by_window).min(by_loss)
    }

    fn by_window(&self, rtt: Duration) -> f64 {
        self.window
            .map_or(f64::INFINITY, |window| window.0 as f64 * 8.0 / rtt.as_secs_f64())
    }

    fn by_loss(&self, rtt: Duration, loss: Option<LossRate>) -> f64 {
        loss.map_or(f64::INFINITY, |loss| {
            self.control.average_window(loss, rtt) * self.mtu.mss().bits() / rtt.as_secs_f64()
        })
    }

    fn held_by(&self) -> Option<HeldBy> {
        let (window, loss) = (self.by_window(self.rtt.0), self.by_loss(self.rtt.0, self.loss));
        match window.min(loss) < self.rate.bits_per_second() {
            true if window <= loss => Some(HeldBy::Window),
            true => Some(HeldBy::Loss),
            false => None,
        }
    }
}

/// Segments in flight that fill a path: rate times round trip.
fn window_segments(rate: Rate, rtt: Duration, mss: Segment) -> f64 {
    (rate.bits_per_second() * rtt.as_secs_f64() / mss.bits()).max(1.0)
}

/// Slow start doubles the window every round trip from [`INITIAL_WINDOW`] on.
fn slow_start(window_segments: f64, rtt: Duration) -> Duration {
    let doublings = (window_segments / INITIAL_WINDOW).log2().max(0.0).ceil();
    seconds(doublings * rtt.as_secs_f64())
}

/// Seconds as a duration; what is too long for one becomes the longest.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
