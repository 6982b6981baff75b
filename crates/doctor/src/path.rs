//! The path that costs are reckoned on.

use std::net::SocketAddr;
use std::time::Duration;

use quantities::{
    Rate, Time,
    path::{ETHERNET_MSS, Hop},
};
use serde::{Deserialize, Serialize};

use crate::fact::{Fact, Name};
use crate::facts::Facts;

/// A path between this machine and another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Path {
    /// What it should carry, in bit/s.
    pub rate_bps: f64,
    /// Where that number comes from.
    pub rate_from: Source,
    /// Round-trip time, in seconds.
    pub rtt_seconds: f64,
    /// Where that number comes from.
    pub rtt_from: Source,
    /// What was measured towards a host, if one was named.
    pub measured: Option<Measured>,
}

/// Where a number comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The command line.
    Given,
    /// A measurement towards the host.
    Measured,
    /// The rate of the device that leads there.
    Device,
    /// A table path, taken for want of better.
    Default,
}

/// What a path of which nothing is known is taken to be: 1 Gbit/s.
pub const DEFAULT_RATE_BPS: f64 = 1e9;
/// And 100 ms, about an ocean's crossing and back.
pub const DEFAULT_RTT_SECONDS: f64 = 0.1;
/// Shorter round trips, in seconds, are taken for this one: nothing is divided by zero.
const LEAST_RTT_SECONDS: f64 = 1e-6;
/// The least segment that a kernel sends, in bytes.
const LEAST_MSS: u32 = 48;

impl Path {
    /// A path of which nothing is known.
    pub const fn table() -> Self {
        Self {
            rate_bps: DEFAULT_RATE_BPS,
            rate_from: Source::Default,
            rtt_seconds: DEFAULT_RTT_SECONDS,
            rtt_from: Source::Default,
            measured: None,
        }
    }

    /// Takes the rate of the device that leads there, where it is known.
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
            (self.rate_bps, self.rate_from) = (mbps as f64 * 1e6, Source::Device);
        }
    }

    /// One stream's way over it, with its largest segment (1448 bytes unless it was measured).
    pub fn hop(&self) -> Hop {
        let negotiated = self
            .measured
            .as_ref()
            .and_then(|measured| measured.negotiated.known());
        let rtt = Time::from_seconds(self.rtt_seconds.max(LEAST_RTT_SECONDS)).0;
        Hop {
            mss: negotiated.map_or(ETHERNET_MSS, |negotiated| {
                negotiated.send_mss.max(LEAST_MSS)
            }),
            ..Hop::new(rtt, Rate::nearest(self.rate_bps))
        }
    }
}

/// What was measured towards a host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// The host, as it was reached.
    pub address: SocketAddr,
    /// The least of several round trips.
    pub rtt: Duration,
    /// What a connection to it agreed on; unknown when none came about.
    pub negotiated: Fact<Negotiated>,
    /// The path MTU.
    pub mtu: Fact<PathMtu>,
    /// How far the clocks lie apart, if the host was asked.
    pub skew: Option<Skew>,
}

/// What two hosts agreed on when a connection was set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Negotiated {
    /// Timestamps.
    pub timestamps: bool,
    /// Selective acknowledgement.
    pub sack: bool,
    /// Window scaling.
    pub window_scaling: bool,
    /// The congestion control of this end.
    pub congestion: Option<Name>,
    /// Largest segment this end sends, in bytes of payload.
    pub send_mss: u32,
}

/// The largest packet that arrives, and how TCP learns of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathMtu {
    /// The largest packet known to arrive, in bytes with the IP header.
    pub bytes: u32,
    /// The largest that this end would send, in bytes with the IP header.
    pub first_hop: u32,
    /// How TCP learns of a smaller one.
    pub discovery: Discovery,
    /// How it was found.
    pub method: ProbeMethod,
}

/// How a sender learns that its packets are too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discovery {
    /// It needn't: its largest packets arrive.
    NotNeeded,
    /// Routers say so (ICMP "fragmentation needed", "packet too big").
    Works,
    /// Not at all: large packets vanish without a word.
    BlackHole,
}

/// What the path MTU was probed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeMethod {
    /// Full segments over connections of their own.
    Tcp,
    /// Datagrams to a port where nothing listens, so that the host itself answers.
    Udp,
}

/// How far two clocks lie apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Skew {
    /// The far clock less this one, in seconds.
    pub seconds: f64,
    /// It may be off by so much (half the round trip).
    pub uncertainty_seconds: f64,
}
