//! Configuration of a depot. Every field has a default that is safe to run with.

use std::fmt::Display;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_accounts::AccountLog;
use longhaul_hop::{GateLimits, ListenerConfig};
use longhaul_policy::{ForwardingTable, HostPattern, Policy};
use longhaul_proto::{DEPOT_PORT, Endpoint, Host, SigningKey, Transport, text::printable};
use longhaul_quic::QuicLimits;
use longhaul_scitags::FlowMarker;
use longhaul_service::MetricsPage;
use longhaul_wishes::CircuitBroker;
use quantities::Rate;

use crate::observe::HopObserver;

/// Configuration of a depot: its listeners, identity, policy and limits.
#[derive(Debug, Clone)]
pub struct DepotConfig {
    /// Addresses to listen on.
    pub listen: Vec<ListenerConfig>,
    /// Key of this depot. It identifies the depot in the list of passed depots, which reveals
    /// loops, and signs its answers.
    pub key: SigningKey,
    /// Policy that decides which principal may connect to which destination.
    pub policy: Policy,
    /// Depots to add before loose hops; none if empty.
    pub forwarding: ForwardingTable,
    /// Address of the OpenMetrics page (`/metrics`, plain HTTP); not served if `None`. Anyone who
    /// can connect to it can read it, so it belongs on loopback.
    pub metrics: Option<SocketAddr>,
    /// Further metrics for that page, besides the depot's own.
    pub extra_metrics: Option<MetricsPage>,
    /// Congestion control towards next hops; the first match applies, else the kernel's default.
    pub next_congestion: Vec<NextCongestion>,
    /// Transport towards next hops for which the route names none; the first match applies, else
    /// TCP.
    pub next_transport: Vec<NextTransport>,
    /// Limits of QUIC connections, which are accepted at the UDP ports of the same numbers and
    /// dialled; no QUIC if `None`.
    pub quic: Option<QuicLimits>,
    /// Limits on the load.
    pub limits: RelayLimits,
    /// Time limits.
    pub timeouts: DepotTimeouts,
    /// Number of threads for sessions; one per processor is recommended. With 0, sessions are tasks
    /// of the runtime that runs the depot.
    pub workers: usize,
    /// Observer of the hops that the depot relays over.
    pub hop_observer: Option<HopObserver>,
    /// Broker that reserves circuits for principals whose rules and delegations permit it;
    /// nobody if `None`.
    pub circuits: Option<Arc<dyn CircuitBroker>>,
    /// Log of the accounts, with one record for each relayed session; none are kept if `None`.
    pub accounts: Option<AccountLog>,
    /// Marks the hops of copies as flows of an experiment; they are not marked if `None`.
    pub marker: Option<FlowMarker>,
    /// If true, reloads the files of the policy and of the forwarding table on SIGHUP. What did not
    /// come from a file stays.
    pub reload_on_hangup: bool,
}

impl DepotConfig {
    /// Returns a depot with key `key` at every local address, port 7510, that allows what `policy`
    /// allows.
    #[must_use]
    pub fn new(key: SigningKey, policy: Policy) -> Self {
        Self {
            listen: vec![ListenerConfig::new(SocketAddr::new(
                IpAddr::V6(Ipv6Addr::UNSPECIFIED),
                DEPOT_PORT,
            ))],
            key,
            policy,
            forwarding: ForwardingTable::default(),
            metrics: None,
            extra_metrics: None,
            next_congestion: Vec::new(),
            next_transport: Vec::new(),
            quic: Some(QuicLimits::default()),
            limits: RelayLimits::default(),
            timeouts: DepotTimeouts::default(),
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            hop_observer: None,
            circuits: None,
            accounts: None,
            marker: None,
            reload_on_hangup: true,
        }
    }
}

/// Congestion control towards some next hops, by the kernel's name.
pub type NextCongestion = NextHopSetting<String>;
/// Transport towards some next hops, unless the route names one.
pub type NextTransport = NextHopSetting<HopTransport>;

/// Transport of a hop, with the rate of a paced one.
///
/// Text: a [`Transport`], or `paced:RATE`, such as `paced:9.5G`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HopTransport {
    /// The transport.
    pub transport: Transport,
    /// Maximum rate of each session of a paced hop, in bit/s with headers. Without one, only the
    /// rate that a session states limits it.
    pub max_rate: Option<u64>,
}

impl From<Transport> for HopTransport {
    fn from(transport: Transport) -> Self {
        Self {
            transport,
            max_rate: None,
        }
    }
}

impl FromStr for HopTransport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rate) = text.strip_prefix("paced:") else {
            let known = text.parse::<Transport>();
            return known.map(Self::from).map_err(|error| error.to_string());
        };
        let rate: Rate = rate
            .parse()
            .map_err(|error| format!("not a rate after `paced:`: {error}"))?;
        match rate.bits_per_second() as u64 {
            0 => Err("a paced hop needs a rate over 0".to_owned()),
            bps => Ok(Self {
                transport: Transport::Paced,
                max_rate: Some(bps),
            }),
        }
    }
}

/// Setting for some next hops.
///
/// Text: `HOP=VALUE`, where HOP is a host pattern ([`HostPattern`]), optionally with a port, such
/// as `*=bbr` or `10.0.0.0/8=cubic`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextHopSetting<T> {
    /// Pattern of the hosts.
    pub host: HostPattern,
    /// Port; any when `None`.
    pub port: Option<u16>,
    /// Value for these hops.
    pub value: T,
}

impl<T> NextHopSetting<T> {
    /// Returns true if this applies to a connection to `address`, to which `endpoint` resolved.
    pub(crate) fn applies(&self, endpoint: &Endpoint, address: SocketAddr) -> bool {
        let host = match (&self.host, &endpoint.host) {
            (HostPattern::Network(network), _) => network.contains(address.ip().to_canonical()),
            (HostPattern::Suffix(suffix), Host::Ip(_)) => suffix.is_empty(),
            (pattern, Host::Name(name)) => pattern.matches_name(name),
            (HostPattern::Name(_), Host::Ip(_)) => false,
        };
        host && self.port.is_none_or(|port| port == endpoint.port)
    }
}

impl<T: FromStr<Err: Display>> FromStr for NextHopSetting<T> {
    type Err = String;

    /// Parses the text. The error is always one printable line.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|problem| printable(problem.as_bytes()))
    }
}

impl<T: FromStr<Err: Display>> NextHopSetting<T> {
    fn read(text: &str) -> Result<Self, String> {
        let (hop, value) = text
            .split_once('=')
            .filter(|(hop, value)| !hop.is_empty() && !value.is_empty())
            .ok_or_else(|| {
                format!("{text:?} is not HOP=NAME: write, for example, depot.example=bbr or *=bbr")
            })?;
        let value = value
            .parse()
            .map_err(|error: T::Err| format!("{text:?}: {error}"))?;
        if let Ok(host) = hop.parse() {
            return Ok(Self {
                host,
                port: None,
                value,
            });
        }
        let (host, port) = hop.rsplit_once(':').unwrap_or((hop, ""));
        let port = port
            .parse()
            .map_err(|_| format!("{hop:?} is neither a host pattern nor one with a port"))?;
        Ok(Self {
            host: host.parse()?,
            port: Some(port),
            value,
        })
    }
}

/// Limits on a depot's load. They hold whatever the peers do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayLimits {
    /// Maximum number of concurrent sessions. One principal (or source, if a rule admits anybody)
    /// may have half of them, two a third each, and so on; others are answered "overloaded".
    /// Sources leave an eighth for listed principals.
    pub sessions: usize,
    /// Maximum number of connections whose OPEN is not verified yet. One more evicts the oldest of
    /// the fullest source, which is reset.
    pub unauthenticated: usize,
    /// Maximum number of concurrent name look-ups, shared among principals like sessions.
    pub lookups: usize,
    /// Requested size of a pipe, in bytes.
    pub pipe_bytes: usize,
    /// Maximum total size of all pipes, in bytes. Beyond it, directions copy instead. The same
    /// limit applies to the buffers of hops that cannot be spliced.
    pub total_pipe_bytes: usize,
}

impl RelayLimits {
    /// Returns the number of descriptors that a depot with these limits may need: two connections
    /// for each session, those that are being set up, and the pipes.
    #[must_use]
    pub fn max_descriptors(&self) -> u64 {
        let pipes = self.total_pipe_bytes / self.pipe_bytes.max(1);
        let connections = self.sessions.saturating_add(pipes).saturating_mul(2);
        let setting_up = self.unauthenticated.saturating_add(self.lookups);
        let all = connections.saturating_add(setting_up);
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    pub(crate) fn gate(&self, timeouts: &DepotTimeouts) -> GateLimits {
        GateLimits {
            newcomers: self.unauthenticated,
            verified: self.sessions,
            reserves_for_keys: true,
            header: timeouts.header,
            least_header: timeouts.least_header,
        }
    }
}

impl Default for RelayLimits {
    fn default() -> Self {
        Self {
            sessions: 4096,
            unauthenticated: 512,
            lookups: 256,
            pipe_bytes: 1 << 20,
            total_pipe_bytes: 64 << 20,
        }
    }
}

/// Time limits of a depot. Each ends in a status or a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DepotTimeouts {
    /// Limit for the whole OPEN, counted from when the connection was accepted.
    pub header: Duration,
    /// Limit for the OPEN when all permits for unverified connections are taken. It is interpolated
    /// while more than half are taken.
    pub least_header: Duration,
    /// Limit for reaching the next hop, including name look-up. The OPEN's own set-up budget
    /// applies if it is shorter.
    pub dial: Duration,
    /// Limit without a byte in either direction. It is checked once per period, so a silent session
    /// lasts one to two periods.
    pub idle: Duration,
    /// Idle limit once one direction has ended.
    pub half_closed: Duration,
    /// Limit for the next TCP to acknowledge sent bytes (TCP_USER_TIMEOUT), and for a silent peer's
    /// TCP to answer keepalives.
    pub unacknowledged: Duration,
    /// Limit for sessions to finish once the depot is told to stop.
    pub drain: Duration,
    /// Limit for a refused initiator to read the reason.
    pub refusal: Duration,
}

impl Default for DepotTimeouts {
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
