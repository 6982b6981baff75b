//! What an operator may say about an off-ramp. Every field has a default that is safe to run with.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use drs::Mode;
use longhaul_hop::{GateLimits, Listen};
use longhaul_policy::Policy;
use longhaul_proto::OFFRAMP_PORT;
use longhaul_session::{Buffers, Identity, SESSION_BYTES, Silence};

/// An off-ramp: where it listens, who it is, whom it lets where.
#[derive(Debug, Clone)]
pub struct OfframpConfig {
    /// Where to listen.
    pub listen: Vec<Listen>,
    /// Who this off-ramp is: initiators know it by its key.
    pub identity: Arc<Identity>,
    /// Which servers are for whom: its rules with `servers`.
    pub policy: Policy,
    /// Where to serve the OpenMetrics page (`/metrics`, plain HTTP): nowhere when `None`. Anyone
    /// who can connect there can read it, so loopback is the place for it.
    pub metrics: Option<SocketAddr>,
    /// How much it takes on.
    pub limits: Limits,
    /// How long it waits.
    pub timeouts: Timeouts,
    /// What right-sizing may do to the hops that sessions come in on.
    pub sizing: Mode,
    /// Read the policy's file again on SIGHUP. A policy that did not come from a file stays.
    pub reload_on_hangup: bool,
}

impl OfframpConfig {
    /// An off-ramp at every address of this machine, port 7512, that lets go where `policy` allows.
    #[must_use]
    pub fn new(identity: Arc<Identity>, policy: Policy) -> Self {
        Self {
            listen: vec![Listen::at(SocketAddr::new(
                IpAddr::V6(Ipv6Addr::UNSPECIFIED),
                OFFRAMP_PORT,
            ))],
            identity,
            policy,
            metrics: None,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            sizing: Mode::Auto,
            reload_on_hangup: true,
        }
    }
}

/// Bounds. They hold whatever the peers do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Sessions at a time, from the verified OPEN on. One principal (or source, where a rule lets
    /// anybody in) may have half of them, two a third each, and so on; further ones are answered
    /// "overloaded".
    pub sessions: usize,
    /// Connections at a time whose OPEN has not been verified. For one more, the oldest of the
    /// fullest source is reset.
    pub unauthenticated: usize,
    /// Name look-ups at a time, shared among principals as sessions are.
    pub lookups: usize,
    /// Buffers of all sessions together, bytes, beside what TLS holds ([`Limits::memory`]).
    /// Sessions that find none have small ones.
    pub buffers: usize,
}

impl Limits {
    /// The most memory that sessions take, in bytes: their buffers, and what TLS reads ahead and
    /// has not sent.
    #[must_use]
    pub const fn memory(&self) -> usize {
        self.buffers
            .saturating_add(self.sessions.saturating_mul(SESSION_BYTES))
    }

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
            sessions: 2048,
            unauthenticated: 512,
            lookups: 256,
            buffers: Buffers::DEFAULT_TOTAL,
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
    /// For reaching the server, name look-up included; the OPEN's own set-up budget counts when it
    /// is shorter.
    pub dial: Duration,
    /// For the TLS handshake.
    pub handshake: Duration,
    /// For any byte to move either way. It is looked at once in this time, so a silent session
    /// lasts for one to two of it.
    pub idle: Duration,
    /// The same once one direction has ended.
    pub half_closed: Duration,
    /// For sent bytes to be acknowledged by the other TCP (TCP_USER_TIMEOUT), and for a silent
    /// peer's TCP to answer keepalives.
    pub unacknowledged: Duration,
    /// For sessions to finish once the off-ramp is told to stop.
    pub drain: Duration,
}

impl Timeouts {
    pub(crate) const fn silence(&self) -> Silence {
        Silence {
            open: self.idle,
            half_closed: self.half_closed,
        }
    }
}

impl Default for Timeouts {
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
