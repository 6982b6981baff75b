//! The plots of the record's slides: the course of one kernel TCP stream (Reno) over 622 Mbit/s,
//! with one lost packet, or with a slow-start threshold that an earlier stream has left.
//!
//! A metric of the sender's route caps the congestion window at the bandwidth-delay product. The
//! slides' hosts had buffers of that size for the same purpose. But Linux lets the congestion
//! window grow to twice of what buffers permit, so that a loss would not show.

mod page;
mod run;
mod samples;

use std::time::Duration;

use anyhow::Result;
use quantities::path::{CongestionControl, Hop, INITIAL_WINDOW};
use quantities::{Probability, Rate};
use serde::{Deserialize, Serialize};
use wanbed::Lab;

use crate::network::Network;
use crate::tools::Tools;
pub use page::add_to;
pub use samples::CourseSamples;

/// Rate of the link, in bit/s of IP bytes.
const LINK_RATE: f64 = 622e6;
/// Bytes of a packet that are not payload: the headers of IPv4 and of TCP with timestamps.
const HEADERS: u32 = 52;
/// Round trip of the slides' link, in milliseconds (`scenarios/lsr-622.toml`).
const SLIDES_RTT_MS: u32 = 120;
/// Time since the lab came up at which the packet is lost, in seconds. By then the stream has
/// started, however busy the machine, and has its full rate.
const LOSS_AT: f64 = 10.0;
/// Time of a second loss, which lowers the threshold of a remembering sender further.
const SECOND_LOSS_AT: f64 = 12.0;
/// Maximum duration of a stream, in seconds.
const MAX_SECONDS: f64 = 120.0;
/// Duration of the stream after an earlier one, in seconds.
const SLOW_START_SECONDS: f64 = 40.0;

/// Stream whose course is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "course", rename_all = "kebab-case")]
pub enum Course {
    /// One packet of a stream at full rate is lost.
    OneLoss {
        /// Round trip, in milliseconds.
        rtt_ms: u32,
        /// Size of packets, in bytes.
        mtu: u32,
    },
    /// A stream starts after another to the same host, which had losses.
    SlowStart {
        /// Treatment of what TCP remembers of the earlier stream.
        threshold: Threshold,
    },
}

/// Slow-start threshold of a new stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Threshold {
    /// The one that the earlier stream has left.
    Remembered,
    /// None, because the cache was flushed.
    Flushed,
}

impl Course {
    /// The slides' plot of one loss, with jumbo packets, which recover within the plot.
    const JUMBO: Self = Self::OneLoss {
        rtt_ms: SLIDES_RTT_MS,
        mtu: 9000,
    };
    /// The same with packets of the usual size.
    const ETHERNET: Self = Self::OneLoss {
        rtt_ms: SLIDES_RTT_MS,
        mtu: 1500,
    };
    const REMEMBERED: Self = Self::SlowStart {
        threshold: Threshold::Remembered,
    };
    const FLUSHED: Self = Self::SlowStart {
        threshold: Threshold::Flushed,
    };

    /// Returns all courses.
    pub fn all() -> Vec<Self> {
        let more = [
            (20, 9000),
            (40, 9000),
            (60, 9000),
            (80, 9000),
            (20, 1500),
            (40, 1500),
        ];
        let more = more.map(|(rtt_ms, mtu)| Self::OneLoss { rtt_ms, mtu });
        [Self::JUMBO, Self::ETHERNET, Self::REMEMBERED, Self::FLUSHED]
            .into_iter()
            .chain(more)
            .collect()
    }

    /// Returns the duration of the run, in seconds.
    pub fn seconds(&self) -> f64 {
        match self {
            Self::OneLoss { .. } => self.stream_seconds(),
            Self::SlowStart { .. } => SECOND_LOSS_AT + 2.0 + SLOW_START_SECONDS,
        }
    }

    /// Returns the duration of the recorded stream, in seconds: a quarter longer than the recovery
    /// is expected to take, if there is time for that.
    fn stream_seconds(&self) -> f64 {
        match self {
            Self::OneLoss { .. } => {
                let recovery = self.hop().recovery().as_secs_f64();
                (LOSS_AT + 1.25 * recovery + 3.0).min(MAX_SECONDS).ceil()
            }
            Self::SlowStart { .. } => SLOW_START_SECONDS,
        }
    }

    fn rtt_and_mtu(&self) -> (u32, u32) {
        match *self {
            Self::OneLoss { rtt_ms, mtu } => (rtt_ms, mtu),
            Self::SlowStart { .. } => (SLIDES_RTT_MS, 9000),
        }
    }

    /// Returns the model of its path.
    fn hop(&self) -> Hop {
        let (rtt_ms, mtu) = self.rtt_and_mtu();
        hop(f64::from(rtt_ms), mtu)
    }

    /// Returns the largest congestion window, in segments: the bandwidth-delay product.
    fn window(&self) -> u32 {
        self.hop().full_window().floor() as u32
    }

    /// Returns the network, in which the stream meets its losses.
    ///
    /// # Errors
    /// The scenario cannot be read.
    pub fn network(&self, tools: &Tools) -> Result<Network> {
        let (rtt_ms, mtu) = self.rtt_and_mtu();
        let network = Network::load(tools, "lsr-622.toml")?
            .set("links.stm4.delay", format!("{} us", rtt_ms * 500))
            .set("links.stm4.mtu", mtu.to_string());
        let (drops, forgets_threshold) = match self {
            Self::OneLoss { .. } => (format!("{LOSS_AT} s"), 1),
            Self::SlowStart { .. } => (format!("[\"{LOSS_AT} s\", \"{SECOND_LOSS_AT} s\"]"), 0),
        };
        // The cap of the window works through the sender's memory of hosts, which must be on.
        let memory = format!(
            "{{ tcp_no_metrics_save = 0, tcp_no_ssthresh_metrics_save = {forgets_threshold} }}"
        );
        Ok(network
            .set("links.stm4.forward.drop_at", drops)
            .set("nodes.geneva.sysctl", memory))
    }

    /// Records the stream.
    ///
    /// # Errors
    /// A program did not start, or failed, or the stream met other losses than intended.
    pub fn run(&self, lab: &Lab) -> Result<CourseSamples> {
        run::record(self, lab)
    }
}

/// Returns the model of a path, which `longhaul perf --plan` uses, too.
fn hop(rtt_ms: f64, mtu: u32) -> Hop {
    let mss = mtu - HEADERS;
    Hop {
        rtt: Duration::from_secs_f64(rtt_ms / 1e3),
        rate: Rate::nearest(LINK_RATE * f64::from(mss) / f64::from(mtu)),
        loss: Probability::nearest(0.0),
        mss,
        window: None,
        control: CongestionControl::Reno,
        initial_window: INITIAL_WINDOW,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumbo_packets_recover_within_the_plot() {
        // 622 Mbit/s x 120 ms hold 1036 packets of 9000 bytes; half of them return one a round
        // trip.
        assert_eq!(Course::JUMBO.window(), 1036);
        assert_eq!(Course::JUMBO.stream_seconds(), 91.0);
        assert_eq!(Course::ETHERNET.window(), 6220);
        assert_eq!(Course::ETHERNET.stream_seconds(), MAX_SECONDS);
    }

    #[test]
    fn runs_take_two_minutes_at_most() {
        assert!(
            Course::all()
                .iter()
                .all(|course| course.seconds() <= MAX_SECONDS)
        );
    }
}
