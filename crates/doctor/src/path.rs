//! The path for which costs are calculated.

use std::net::SocketAddr;
use std::time::Duration;

use quantities::{
    Rate, Time,
    path::{ETHERNET_MSS, Hop},
};
use serde::{Deserialize, Serialize};

use crate::fact::{CommandName, Fact};
use crate::facts::Facts;

/// A path between this machine and another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AssessedPath {
    /// Required rate, in bit/s.
    pub rate_bps: f64,
    /// Source of the rate.
    pub rate_from: NumberSource,
    /// Round-trip time, in seconds.
    pub rtt_seconds: f64,
    /// Source of the round-trip time.
    pub rtt_from: NumberSource,
    /// Measurements towards a host, if one was named.
    pub measured: Option<PathMeasurement>,
}

/// Source of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NumberSource {
    /// The command line.
    Given,
    /// A measurement towards the host.
    Measured,
    /// The rate of the device that leads there.
    Device,
    /// An assumed path, for lack of better information.
    Default,
}

/// Rate of a path about which nothing is known: 1 Gbit/s.
pub const DEFAULT_RATE_BPS: f64 = 1e9;
/// Round trip of such a path: 100 ms, about an ocean's crossing and back.
pub const DEFAULT_RTT_SECONDS: f64 = 0.1;
/// Minimum round trip, in seconds, so that nothing is divided by zero.
const MIN_RTT_SECONDS: f64 = 1e-6;
/// Smallest segment that a kernel sends, in bytes.
const MIN_MSS_BYTES: u32 = 48;

impl AssessedPath {
    /// Creates a path about which nothing is known.
    pub const fn assumed() -> Self {
        Self {
            rate_bps: DEFAULT_RATE_BPS,
            rate_from: NumberSource::Default,
            rtt_seconds: DEFAULT_RTT_SECONDS,
            rtt_from: NumberSource::Default,
            measured: None,
        }
    }

    /// Takes the rate of the device that leads there, if it is known.
    pub fn take_rate_of(&mut self, facts: &Facts) {
        let device = facts.route.known().map(|route| &route.device);
        let link = facts
            .links
            .known()
            .and_then(|links| links.iter().find(|link| Some(&link.name) == device));
        if let Some(&mbps) = link
            .and_then(|link| link.speed_mbps.known())
            .filter(|mbps| **mbps > 0)
        {
            (self.rate_bps, self.rate_from) = (mbps as f64 * 1e6, NumberSource::Device);
        }
    }

    /// Returns the path of one stream, with its segment size (1448 bytes unless it was measured).
    pub fn hop(&self) -> Hop {
        let negotiated = self
            .measured
            .as_ref()
            .and_then(|measured| measured.negotiated.known());
        let rtt = Time::from_seconds(self.rtt_seconds.max(MIN_RTT_SECONDS)).0;
        Hop {
            mss: negotiated.map_or(ETHERNET_MSS, |negotiated| {
                negotiated.send_mss.max(MIN_MSS_BYTES)
            }),
            ..Hop::new(rtt, Rate::nearest(self.rate_bps))
        }
    }
}

/// Measurements towards a host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathMeasurement {
    /// Address at which the host was reached.
    pub address: SocketAddr,
    /// Minimum of several round trips.
    pub rtt: Duration,
    /// Options that a connection to it negotiated; unknown without a connection.
    pub negotiated: Fact<Negotiated>,
    /// The path MTU.
    pub mtu: Fact<PathMtu>,
    /// QUIC to the server, if the host was asked; unknown if QUIC does not reach it.
    pub quic: Option<Fact<QuicPath>>,
    /// Difference of the clocks, if the host was asked.
    pub skew: Option<Skew>,
}

/// A QUIC connection to the server, after some questions and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct QuicPath {
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Packets that this end sent.
    pub sent_packets: u64,
    /// Number of these that were lost.
    pub lost_packets: u64,
}

/// Options that two hosts negotiated for a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Negotiated {
    /// Timestamps.
    pub timestamps: bool,
    /// Selective acknowledgement.
    pub sack: bool,
    /// Window scaling.
    pub window_scaling: bool,
    /// The congestion control of this end.
    pub congestion: Option<CommandName>,
    /// Largest segment this end sends, in bytes of payload.
    pub send_mss: u32,
}

/// The largest packet that arrives, and how TCP learns of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathMtu {
    /// The largest packet known to arrive, in bytes with the IP header.
    pub bytes: u32,
    /// The largest packet that this end would send, in bytes with the IP header.
    pub first_hop: u32,
    /// Mechanism by which TCP learns of a smaller limit.
    pub discovery: Discovery,
    /// Method of the measurement.
    pub method: ProbeMethod,
}

/// Mechanism by which a sender learns that its packets are too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discovery {
    /// Not needed: its largest packets arrive.
    NotNeeded,
    /// Routers report it (ICMP "fragmentation needed", "packet too big").
    Works,
    /// Not at all: large packets vanish silently.
    BlackHole,
}

/// Method of probing the path MTU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeMethod {
    /// Full segments over connections of their own.
    Tcp,
    /// Datagrams to a port where nothing listens, so that the host itself answers.
    Udp,
}

/// Difference of two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Skew {
    /// The far clock minus this one, in seconds.
    pub seconds: f64,
    /// Maximum error (half the round trip).
    pub uncertainty_seconds: f64,
}
