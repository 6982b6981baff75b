//! Requirements for a flow to fill a long path: window, recovery, loss, streams and depots.
//!
//! Rates here are of payload. The formulas and their sources are those of [`quantities::path`].

mod remedy;

use std::time::Duration;

use quantities::{
    ByteCount, Probability, Rate, Time,
    path::{CongestionControl, Hop, RateBound},
};
use serde::{Serialize, Serializer};

pub use remedy::{DepotPlan, MAX_ROUTE_HOPS, MAX_SUGGESTED_STREAMS, Remedy};

/// Size of the IPv4 and TCP headers with timestamps, in bytes.
pub const HEADER_BYTES: u32 = 40 + 12;
/// Kilometres of fibre per millisecond of *round trip*: 200,000 km/s, there and back.
const KM_PER_MS: f64 = 100.0;

/// A target rate and the path on which to reach it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlanTarget {
    /// Payload rate to reach; greater than zero.
    pub rate: Rate,
    /// Round-trip time; greater than zero.
    pub rtt: Time,
    /// The path MTU.
    pub mtu: Mtu,
    /// Congestion control of the hosts.
    pub control: CongestionControl,
    /// Maximum window of the hosts, if it is limited.
    pub window: Option<ByteCount>,
    /// Probability of losing a segment, if known.
    pub loss: Option<Probability>,
}

/// A path MTU in bytes: 576 to 65535.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtu(u16);

/// Requirements of a target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathPlan {
    /// Payload rate to reach, in bit/s.
    pub rate_bps: f64,
    /// Round-trip time, in seconds.
    pub rtt_s: f64,
    /// Payload of a segment, in bytes.
    pub mss_bytes: u32,
    /// Congestion control of the hosts.
    #[serde(serialize_with = "name")]
    pub control: CongestionControl,
    /// Bandwidth-delay product: the window that just fills the path, in bytes.
    pub window_bytes: u64,
    /// Bandwidth-delay product in segments.
    pub window_segments: f64,
    /// Time from the first segment to a full window in slow start, in seconds.
    pub slow_start_s: f64,
    /// Time from one loss back to the full window, in seconds.
    pub recovery_s: f64,
    /// Maximum loss rate at which one flow still reaches the target.
    pub most_loss: f64,
    /// Time between losses at the target rate and that loss rate, in seconds.
    pub between_losses_s: f64,
    /// Rate of one stream with the hosts' window and the given loss, in bit/s.
    pub one_stream_bps: f64,
    /// Limit that keeps that stream below the target, if any.
    pub held_by: Option<StreamLimit>,
    /// Remedies, if one stream does not reach the target.
    pub remedy: Option<Remedy>,
}

/// Limit that keeps one stream below the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamLimit {
    /// The hosts' window is smaller than the bandwidth-delay product.
    Window,
    /// Losses cut the congestion window before it is wide enough.
    Loss,
}

/// Error for an MTU out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a usable MTU: give 576 to 65535 bytes; most paths have 1500 or 9000")]
pub struct MtuError(pub u32);

impl Mtu {
    /// Returns `bytes` as an MTU.
    ///
    /// # Errors
    /// [`MtuError`] when it is outside 576 to 65535.
    pub fn new(bytes: u32) -> Result<Self, MtuError> {
        match u16::try_from(bytes) {
            Ok(mtu @ 576..) => Ok(Self(mtu)),
            _ => Err(MtuError(bytes)),
        }
    }

    /// Returns the payload of a full segment over IPv4 with timestamps, in bytes.
    #[must_use]
    pub const fn mss(self) -> u32 {
        self.0 as u32 - HEADER_BYTES
    }
}

impl PlanTarget {
    /// Calculates the plan.
    #[must_use]
    pub fn plan(&self) -> PathPlan {
        // The requirements do not depend on the limits of the hosts.
        let wanted = Hop {
            mss: self.mtu.mss(),
            control: self.control,
            ..Hop::new(self.rtt.0, self.rate)
        };
        let one_stream = self.hop(self.rtt.0, self.loss).steady_rate();
        let held_by = StreamLimit::from_bound(one_stream.bound);
        let most_loss = wanted.max_harmless_loss().value();
        let segments_per_second = self.rate.bits_per_second() / 8.0 / f64::from(wanted.mss);
        PathPlan {
            rate_bps: self.rate.bits_per_second(),
            rtt_s: self.rtt.seconds(),
            mss_bytes: wanted.mss,
            control: self.control,
            window_bytes: wanted.bandwidth_delay_product().ceil() as u64,
            window_segments: wanted.full_window(),
            slow_start_s: wanted
                .slow_start_phase(ByteCount(u64::MAX))
                .time
                .as_secs_f64(),
            recovery_s: wanted.recovery().as_secs_f64(),
            most_loss,
            between_losses_s: 1.0 / (most_loss * segments_per_second),
            one_stream_bps: one_stream.rate.bits_per_second(),
            held_by,
            remedy: held_by.map(|_| Remedy::for_target(self)),
        }
    }

    /// Returns the whole path, or a hop of it, with the hosts' window.
    fn hop(&self, rtt: Duration, loss: Option<Probability>) -> Hop {
        Hop {
            loss: loss.unwrap_or_default(),
            mss: self.mtu.mss(),
            window: self.window,
            control: self.control,
            ..Hop::new(rtt, self.rate)
        }
    }
}

impl StreamLimit {
    fn from_bound(bound: RateBound) -> Option<Self> {
        match bound {
            RateBound::Rate => None,
            RateBound::Window => Some(Self::Window),
            RateBound::Loss => Some(Self::Loss),
        }
    }
}

fn name<S: Serializer>(control: &CongestionControl, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(control.name())
}

#[cfg(test)]
mod tests;
