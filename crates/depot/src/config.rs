//! What an operator may say about a depot. Every field has a default that is safe to run with.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use longhaul_hop::{GateLimits, Listen};
use longhaul_metrics::Page;
use longhaul_policy::{HostPattern, Policy};
use longhaul_proto::{DEPOT_PORT, Endpoint, Host, SigningKey, text::printable};

use crate::observe::HopObserver;

/// A depot: where it listens, who it is, whom it serves.
#[derive(Debug, Clone)]
pub struct DepotConfig {
    /// Where to listen.
    pub listen: Vec<Listen>,
    /// Who this depot is: in the list of depots passed, by which it knows a loop, and in its
    /// answers, which it signs.
    pub key: SigningKey,
    /// Who may go where.
    pub policy: Policy,
    /// Where to serve the OpenMetrics page (`/metrics`, plain HTTP): nowhere when `None`. Anyone
    /// who can connect there can read it, so loopback is the place for it.
    pub metrics: Option<SocketAddr>,
    /// What stands on that page beside the depot's own metrics.
    pub metrics_beside: Option<Page>,
    /// Congestion control towards next hops; the first that matches counts, else the kernel's
    /// default.
    pub next_congestion: Vec<NextCongestion>,
    /// How much it takes on.
    pub limits: Limits,
    /// How long it waits.
    pub timeouts: Timeouts,
    /// Threads that sessions run on: one for each processor is right. With 0, sessions are tasks of
    /// the runtime that runs the depot.
    pub workers: usize,
    /// Who learns of the hops that are relayed over.
    pub hop_observer: Option<HopObserver>,
    /// Read the policy's file again on SIGHUP. A policy that did not come from a file stays.
    pub reload_on_hangup: bool,
}

impl DepotConfig {
    /// A depot with key `key` at every address of this machine, port 7510, that allows what
    /// `policy` allows.
    #[must_use]
    pub fn new(key: SigningKey, policy: Policy) -> Self {
        Self {
            listen: vec![Listen::at(SocketAddr::new(
                IpAddr::V6(Ipv6Addr::UNSPECIFIED),
                DEPOT_PORT,
            ))],
            key,
            policy,
            metrics: None,
            metrics_beside: None,
            next_congestion: Vec::new(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            hop_observer: None,
            reload_on_hangup: true,
        }
    }
}

/// Congestion control towards some next hops. Text: `HOP=NAME`, where HOP is a host pattern
/// ([`HostPattern`]) with a port or without, such as `*=bbr` or `10.0.0.0/8=cubic`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextCongestion {
    /// Which hosts.
    pub host: HostPattern,
    /// Which port; any when `None`.
    pub port: Option<u16>,
    /// The kernel's name of the algorithm.
    pub name: String,
}

impl NextCongestion {
    /// Whether this is for a connection to `address`, which `endpoint` led to.
    pub(crate) fn applies(&self, endpoint: &Endpoint, address: SocketAddr) -> bool {
        let host = match (&self.host, &endpoint.host) {
            (HostPattern::Network(network), _) => network.contains(address.ip().to_canonical()),
            (HostPattern::Suffix(suffix), Host::Ip(_)) => suffix.is_empty(),
            (pattern, Host::Name(name)) => pattern.names(name),
            (HostPattern::Name(_), Host::Ip(_)) => false,
        };
        host && self.port.is_none_or(|port| port == endpoint.port)
    }
}

impl FromStr for NextCongestion {
    type Err = String;

    /// The error is one printable line, whatever the text is.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|problem| printable(problem.as_bytes()))
    }
}

impl NextCongestion {
    fn read(text: &str) -> Result<Self, String> {
        let (hop, name) = text
            .split_once('=')
            .filter(|(hop, name)| !hop.is_empty() && !name.is_empty())
            .ok_or_else(|| {
                format!("{text:?} is not HOP=NAME: write, say, depot.example=bbr, or *=bbr")
            })?;
        if let Ok(host) = hop.parse() {
            return Ok(Self {
                host,
                port: None,
                name: name.to_owned(),
            });
        }
        let (host, port) = hop.rsplit_once(':').unwrap_or((hop, ""));
        let port = port
            .parse()
            .map_err(|_| format!("{hop:?} is neither a host pattern nor one with a port"))?;
        Ok(Self {
            host: host.parse()?,
            port: Some(port),
            name: name.to_owned(),
        })
    }
}

/// Bounds. They hold whatever the peers do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Sessions at a time. One principal (or source, where a rule lets anybody in) may have half of
    /// them, two a third each, and so on; further ones are answered "overloaded".
    pub sessions: usize,
    /// Connections at a time whose OPEN has not been verified. For one more, the oldest of the
    /// fullest source is reset.
    pub unauthenticated: usize,
    /// Name look-ups at a time, shared among principals as sessions are.
    pub lookups: usize,
    /// Size to ask for when a pipe is made, bytes.
    pub pipe: usize,
    /// All pipes together, bytes. Directions that find none copy instead.
    pub pipes: usize,
}

impl Limits {
    pub(crate) fn gate(&self, timeouts: &Timeouts) -> GateLimits {
        GateLimits {
            newcomers: self.unauthenticated,
            verified: self.sessions,
            header: timeouts.header,
            least_header: timeouts.least_header,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 4096,
            unauthenticated: 512,
            lookups: 256,
            pipe: 1 << 20,
            pipes: 64 << 20,
        }
    }
}

/// Waits. Each ends in a status or a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// For the whole OPEN, from the moment the connection was accepted.
    pub header: Duration,
    /// The same when all places for connections without a verified OPEN are taken; in between while
    /// more than half are.
    pub least_header: Duration,
    /// For reaching the next hop, name look-up included; the OPEN's own set-up budget counts when
    /// it is shorter.
    pub dial: Duration,
    /// For any byte to move either way. It is looked at once in this time, so a silent session
    /// lasts for one to two of it.
    pub idle: Duration,
    /// The same once one direction has ended.
    pub half_closed: Duration,
    /// For sent bytes to be acknowledged by the next TCP (TCP_USER_TIMEOUT), and for a silent
    /// peer's TCP to answer keepalives.
    pub unacknowledged: Duration,
    /// For sessions to finish once the depot is told to stop.
    pub drain: Duration,
    /// For a refused initiator to read why.
    pub refusal: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            header: Duration::from_secs(10),
            least_header: Duration::from_secs(2),
            dial: Duration::from_secs(10),
            idle: Duration::from_secs(3600),
            half_closed: Duration::from_secs(600),
            unacknowledged: Duration::from_secs(180),
            drain: Duration::from_secs(60),
            refusal: Duration::from_secs(2),
        }
    }
}
