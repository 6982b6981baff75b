//! What an on-ramp is told: who it is, what its rules are, where it listens.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_config::routes::Author;
use longhaul_policy::Network;
use longhaul_proto::Endpoint;
use longhaul_session::Identity;

use crate::destination::Wish;

/// Connections carried at once, all entries together. One source has half of them at most.
const CONNECTIONS: usize = 8192;
/// Time for all that comes before the first byte of a connection, a fall-back included.
const SET_UP: Duration = Duration::from_secs(20);
/// How long connections may take to finish once the on-ramp is told to stop.
const DRAIN: Duration = Duration::from_secs(60);

/// What an on-ramp is told.
#[derive(Debug, Clone)]
pub struct OnrampConfig {
    /// Who opens the sessions.
    pub identity: Arc<Identity>,
    /// The rules: `routes.toml`. A file that is not there has none.
    pub routes: PathBuf,
    /// Author of the rules. Only those of this machine's own user may name local addresses for
    /// guests.
    pub author: Author,
    /// The servers whose keys are known.
    pub known_hosts: PathBuf,
    /// The keys, besides this user's own, that may have sessions with programs that listen here:
    /// one a line. A file that is not there has none.
    pub authorized_keys: PathBuf,
    /// Where programs ask that have a hook or the C API: a path whose directory is made, for its
    /// user alone, if it is not there.
    pub socket: Option<PathBuf>,
    /// Where SOCKS is spoken.
    pub socks: Vec<SocketAddr>,
    /// Where HTTP is spoken.
    pub http: Vec<SocketAddr>,
    /// Ports that lead to one destination each.
    pub forwards: Vec<Forward>,
    /// Where connections come that a firewall redirects (nftables `redirect`).
    pub redirect: Vec<SocketAddr>,
    /// Where connections come that a firewall hands over as they are (nftables `tproxy`).
    pub tproxy: Vec<SocketAddr>,
    /// Where to serve the OpenMetrics page (`/metrics`, plain HTTP): nowhere when `None`. Who can
    /// connect there can read it.
    pub metrics: Option<SocketAddr>,
    /// Who may use SOCKS and HTTP.
    pub guests: Guests,
    /// Connections carried at once for all entries over TCP, of which one source address has half
    /// at most; and the same number for programs that ask at the socket.
    pub connections: usize,
    /// Time for all that comes before the first byte of a connection, a fall-back included.
    pub set_up: Duration,
    /// How long connections may take to finish once the on-ramp is told to stop.
    pub drain: Duration,
}

/// A port that leads to one destination.
#[derive(Debug, Clone)]
pub struct Forward {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where it leads.
    pub to: Endpoint,
    /// What its connections are for.
    pub wish: Wish,
}

/// Who may use the proxies.
#[derive(Debug, Clone, Default)]
pub struct Guests {
    /// The user and password that SOCKS5 and HTTP ask for (RFC 1929, RFC 7617); none are asked for
    /// if `None`.
    pub login: Option<Login>,
    /// Networks that connections may come from, to whatever entry. Where it is empty, who gives the
    /// password may come from anywhere, and what needs no password is for this machine alone if it
    /// is a proxy.
    pub networks: Vec<Network>,
}

impl Guests {
    /// Whether a connection from there is let in.
    pub(crate) fn may(&self, from: IpAddr) -> bool {
        let from = from.to_canonical();
        self.networks.is_empty()
            || from.is_loopback()
            || self.networks.iter().any(|network| network.contains(from))
    }

    /// Whether a proxy at this address would serve anybody who reaches it.
    pub(crate) fn leave_open(&self, address: SocketAddr) -> bool {
        !address.ip().to_canonical().is_loopback()
            && self.login.is_none()
            && self.networks.is_empty()
    }

    /// Whether these are the user and password, if there are any.
    pub(crate) fn log_in(&self, user: &[u8], password: &[u8]) -> bool {
        self.login.as_ref().is_none_or(|login| {
            // Both are compared whatever the first gives, in a time that depends on lengths alone.
            same(user, login.user.as_bytes()) & same(password, login.password.as_bytes())
        })
    }
}

/// Whether both are the same, without saying by the time it takes where they differ.
fn same(given: &[u8], expected: &[u8]) -> bool {
    let differences = given
        .iter()
        .zip(expected)
        .fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differences) == 0 && given.len() == expected.len()
}

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
}

impl std::fmt::Debug for Login {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl OnrampConfig {
    /// One without entries.
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
            guests: Guests::default(),
            connections: CONNECTIONS,
            set_up: SET_UP,
            drain: DRAIN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_come_in() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let (here, there) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        let mut guests = Guests::default();
        assert!(!guests.leave_open(here) && guests.leave_open(there));
        guests.networks = vec!["192.0.2.0/24".parse().unwrap()];
        assert!(!guests.leave_open(there));
        assert!(
            guests.may(ip("192.0.2.9"))
                && guests.may(ip("::ffff:192.0.2.9"))
                && guests.may(ip("::1"))
        );
        assert!(!guests.may(ip("198.51.100.1")));
        assert!(guests.log_in(b"any", b""));
        guests.login = Some(Login {
            user: "u".to_owned(),
            password: "secret".to_owned(),
        });
        assert!(guests.log_in(b"u", b"secret"));
        for (user, password) in [
            ("u", "secre"),
            ("u", "secrets"),
            ("v", "secret"),
            ("", ""),
            ("u", ""),
        ] {
            assert!(
                !guests.log_in(user.as_bytes(), password.as_bytes()),
                "{user} {password}"
            );
        }
        assert!(!format!("{guests:?}").contains("secret"));
    }
}
