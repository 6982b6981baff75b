//! Configuration of an off-ramp. Every field has a default that is safe to run with.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use drs::Mode;
use longhaul_accounts::AccountLog;
use longhaul_hop::{BufferPool, GateLimits, IdleLimits, ListenerConfig};
use longhaul_policy::Policy;
use longhaul_proto::OFFRAMP_PORT;
use longhaul_session::{Identity, ResumeLimits, SESSION_BYTES};

/// Configuration of an off-ramp: its listeners, identity, policy and limits.
#[derive(Debug, Clone)]
pub struct OfframpConfig {
    /// Addresses to listen on.
    pub listen: Vec<ListenerConfig>,
    /// Identity of this off-ramp; initiators know it by its key.
    pub identity: Arc<Identity>,
    /// Policy that decides which principal may connect to which server: its rules with `servers`.
    pub policy: Policy,
    /// Address of the OpenMetrics page (`/metrics`, plain HTTP); not served if `None`. Anyone who
    /// can connect to it can read it, so it belongs on loopback.
    pub metrics: Option<SocketAddr>,
    /// Limits on the load.
    pub limits: OfframpLimits,
    /// Time limits.
    pub timeouts: OfframpTimeouts,
    /// Right-sizing mode for the hops on which sessions arrive.
    pub sizing: Mode,
    /// Limits of resumable sessions. If `None`, they end with their connection.
    pub resume: Option<ResumeLimits>,
    /// Log of the accounts, with one record for each session; none are kept if `None`.
    pub accounts: Option<AccountLog>,
    /// If true, reloads the policy's file on SIGHUP. A policy that did not come from a file stays.
    pub reload_on_hangup: bool,
}

impl OfframpConfig {
    /// Returns an off-ramp at every local address, port 7512, that connects to servers as `policy`
    /// allows.
    #[must_use]
    pub fn new(identity: Arc<Identity>, policy: Policy) -> Self {
        Self {
            listen: vec![ListenerConfig::new(SocketAddr::new(
                IpAddr::V6(Ipv6Addr::UNSPECIFIED),
                OFFRAMP_PORT,
            ))],
            identity,
            policy,
            metrics: None,
            limits: OfframpLimits::default(),
            timeouts: OfframpTimeouts::default(),
            sizing: Mode::Auto,
            resume: Some(ResumeLimits::default()),
            accounts: None,
            reload_on_hangup: true,
        }
    }
}

/// Limits on an off-ramp's load. They hold whatever the peers do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfframpLimits {
    /// Maximum number of concurrent sessions, counted from the verified OPEN. One principal (or
    /// source, if a rule admits anybody) may have half of them, two a third each, and so on; others
    /// are answered "overloaded". Sources leave an eighth for listed principals.
    pub sessions: usize,
    /// Maximum number of connections whose OPEN is not verified yet. One more evicts the oldest of
    /// the fullest source, which is reset.
    pub unauthenticated: usize,
    /// Maximum number of concurrent name look-ups, shared among principals like sessions.
    pub lookups: usize,
    /// Total buffer memory of all sessions in bytes, in addition to TLS
    /// ([`OfframpLimits::memory`]). When it is exhausted, sessions use small buffers.
    pub buffers: usize,
}

impl OfframpLimits {
    /// Returns the maximum memory of all sessions, in bytes: their buffers, and the data that TLS
    /// has read ahead or not sent.
    #[must_use]
    pub const fn memory(&self) -> usize {
        self.buffers
            .saturating_add(self.sessions.saturating_mul(SESSION_BYTES))
    }

    pub(crate) fn gate(&self, timeouts: &OfframpTimeouts) -> GateLimits {
        GateLimits {
            newcomers: self.unauthenticated,
            verified: self.sessions,
            reserves_for_keys: true,
            header: timeouts.header,
            least_header: timeouts.least_header,
        }
    }
}

impl Default for OfframpLimits {
    fn default() -> Self {
        Self {
            sessions: 2048,
            unauthenticated: 512,
            lookups: 256,
            buffers: BufferPool::DEFAULT_TOTAL_BYTES,
        }
    }
}

/// Time limits of an off-ramp. Each ends in a status or a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfframpTimeouts {
    /// Limit for the whole OPEN, counted from when the connection was accepted.
    pub header: Duration,
    /// Limit for the OPEN when all permits for unverified connections are taken. It is interpolated
    /// while more than half are taken.
    pub least_header: Duration,
    /// Limit for reaching the server, including name look-up. The OPEN's own set-up budget applies
    /// if it is shorter.
    pub dial: Duration,
    /// Limit for the TLS handshake.
    pub handshake: Duration,
    /// Limit without a byte in either direction. It is checked once per period, so a silent session
    /// lasts one to two periods.
    pub idle: Duration,
    /// Idle limit once one direction has ended.
    pub half_closed: Duration,
    /// Limit for the peer's TCP to acknowledge sent bytes (TCP_USER_TIMEOUT), and to answer
    /// keepalives.
    pub unacknowledged: Duration,
    /// Limit for sessions to finish once the off-ramp is told to stop.
    pub drain: Duration,
}

impl OfframpTimeouts {
    pub(crate) const fn idle_limits(&self) -> IdleLimits {
        IdleLimits {
            open: self.idle,
            half_closed: self.half_closed,
        }
    }
}

impl Default for OfframpTimeouts {
    fn default() -> Self {
        Self {
            header: Duration::from_secs(10),
            least_header: Duration::from_secs(2),
            dial: Duration::from_secs(10),
            handshake: Duration::from_secs(20),
            idle: Duration::from_secs(3600),
            half_closed: Duration::from_secs(600),
            unacknowledged: Duration::from_secs(180),
            drain: Duration::from_secs(60),
        }
    }
}
