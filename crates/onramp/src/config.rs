//! Configuration of an on-ramp: its identity, its rules and its listeners.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_config::routes::Author;
use longhaul_policy::Network;
use longhaul_proto::{Endpoint, PublicKey};
use longhaul_session::{Identity, ResumeLimits};
use longhaul_wishes::CircuitBroker;

use crate::destination::SessionWish;
use crate::spread::PathShares;

/// Default maximum of concurrent connections of all entries. One source has half of them at most.
const DEFAULT_MAX_CONNECTIONS: usize = 8192;
/// Default time limit for a connection's set-up before its first byte, including a fallback.
const DEFAULT_SET_UP_TIMEOUT: Duration = Duration::from_secs(20);
/// Default time limit for connections to finish once the on-ramp is told to stop.
const DEFAULT_DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Configuration of an on-ramp.
#[derive(Debug, Clone)]
pub struct OnrampConfig {
    /// Identity that opens the sessions.
    pub identity: Arc<Identity>,
    /// File of the rules: `routes.toml`. A missing file has no rules.
    pub routes: PathBuf,
    /// Author of the rules. Only those of this machine's own user may name local addresses for
    /// guests.
    pub author: Author,
    /// File of the servers whose keys are known.
    pub known_hosts: PathBuf,
    /// File of further keys, besides this user's own, that may have sessions with programs that
    /// listen here: one per line. A missing file has none.
    pub authorized_keys: PathBuf,
    /// Path of the Unix socket for programs with a hook or the C API. If its directory is missing,
    /// it is created for this user only.
    pub socket: Option<PathBuf>,
    /// Addresses of the SOCKS proxy.
    pub socks: Vec<SocketAddr>,
    /// Addresses of the HTTP proxy.
    pub http: Vec<SocketAddr>,
    /// Ports that each lead to one destination.
    pub forwards: Vec<Forward>,
    /// Addresses to which a firewall redirects connections (nftables `redirect`).
    pub redirect: Vec<SocketAddr>,
    /// Addresses to which a firewall hands connections over unchanged (nftables `tproxy`).
    pub tproxy: Vec<SocketAddr>,
    /// Address of the OpenMetrics page (`/metrics`, plain HTTP); not served if `None`. Anyone who
    /// can connect to it can read it.
    pub metrics: Option<SocketAddr>,
    /// Clients that may use SOCKS and HTTP.
    pub guests: GuestPolicy,
    /// Maximum number of concurrent connections of all entries over TCP, of which one source
    /// address has half at most. The same number applies to programs at the Unix socket.
    pub connections: usize,
    /// Rule for the number of connections of each reserved path.
    pub shares: PathShares,
    /// Time limit for a connection's set-up before its first byte, including a fallback.
    pub set_up: Duration,
    /// Time limit for connections to finish once the on-ramp is told to stop.
    pub drain: Duration,
    /// How sessions with off-ramps are resumed over another route; they end with their connection
    /// if `None`.
    pub resume: Option<ResumeLimits>,
    /// Key of the only controller at which this user's delegations are valid; any if `None`.
    pub controller: Option<PublicKey>,
    /// Broker that reserves circuits for connections. Without it, all are best effort.
    pub circuits: Option<Arc<dyn CircuitBroker>>,
}

/// A port that leads to one destination.
#[derive(Debug, Clone)]
pub struct Forward {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Destination.
    pub to: Endpoint,
    /// Stated use of its connections.
    pub wish: SessionWish,
}

/// Clients that may use the proxies.
#[derive(Debug, Clone, Default)]
pub struct GuestPolicy {
    /// User and password for SOCKS5 and HTTP (RFC 1929, RFC 7617); not required if `None`.
    pub login: Option<ProxyLogin>,
    /// Networks from which connections are accepted, at any entry.
    ///
    /// If it is empty, clients with the password may come from anywhere, and a proxy without a
    /// password serves this machine only.
    pub networks: Vec<Network>,
}

impl GuestPolicy {
    /// Returns true if a connection from this address is accepted.
    pub(crate) fn admits(&self, from: IpAddr) -> bool {
        let from = from.to_canonical();
        self.networks.is_empty()
            || from.is_loopback()
            || self.networks.iter().any(|network| network.contains(from))
    }

    /// Returns true if a proxy at this address would serve anybody who reaches it.
    pub(crate) fn is_open_at(&self, address: SocketAddr) -> bool {
        !address.ip().to_canonical().is_loopback()
            && self.login.is_none()
            && self.networks.is_empty()
    }

    /// Returns true if the user and password are right, or if none are required.
    pub(crate) fn check_login(&self, user: &[u8], password: &[u8]) -> bool {
        self.login.as_ref().is_none_or(|login| {
            // Compares both in any case, in a time that depends only on the lengths.
            constant_time_eq(user, login.user.as_bytes())
                & constant_time_eq(password, login.password.as_bytes())
        })
    }
}

/// Returns true if both are equal. The time taken does not reveal where they differ.
fn constant_time_eq(given: &[u8], expected: &[u8]) -> bool {
    let differences = given
        .iter()
        .zip(expected)
        .fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differences) == 0 && given.len() == expected.len()
}

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyLogin {
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
}

impl std::fmt::Debug for ProxyLogin {
    /// Omits the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl OnrampConfig {
    /// Creates a configuration without entries.
    #[must_use]
    pub fn new(
        identity: Arc<Identity>,
        routes: PathBuf,
        known_hosts: PathBuf,
        authorized_keys: PathBuf,
    ) -> Self {
        Self {
            identity,
            routes,
            author: Author::User,
            known_hosts,
            authorized_keys,
            socket: None,
            socks: Vec::new(),
            http: Vec::new(),
            forwards: Vec::new(),
            redirect: Vec::new(),
            tproxy: Vec::new(),
            metrics: None,
            guests: GuestPolicy::default(),
            connections: DEFAULT_MAX_CONNECTIONS,
            shares: PathShares::default(),
            set_up: DEFAULT_SET_UP_TIMEOUT,
            drain: DEFAULT_DRAIN_TIMEOUT,
            resume: Some(ResumeLimits::default()),
            controller: None,
            circuits: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_admitted_by_network_and_login() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let (here, there) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        let mut guests = GuestPolicy::default();
        assert!(!guests.is_open_at(here) && guests.is_open_at(there));
        guests.networks = vec!["192.0.2.0/24".parse().unwrap()];
        assert!(!guests.is_open_at(there));
        assert!(
            guests.admits(ip("192.0.2.9"))
                && guests.admits(ip("::ffff:192.0.2.9"))
                && guests.admits(ip("::1"))
        );
        assert!(!guests.admits(ip("198.51.100.1")));
        assert!(guests.check_login(b"any", b""));
        guests.login = Some(ProxyLogin {
            user: "u".to_owned(),
            password: "secret".to_owned(),
        });
        assert!(guests.check_login(b"u", b"secret"));
        for (user, password) in [
            ("u", "secre"),
            ("u", "secrets"),
            ("v", "secret"),
            ("", ""),
            ("u", ""),
        ] {
            assert!(
                !guests.check_login(user.as_bytes(), password.as_bytes()),
                "{user} {password}"
            );
        }
        assert!(!format!("{guests:?}").contains("secret"));
    }
}
