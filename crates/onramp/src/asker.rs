//! The client that asks for a connection. It determines which destinations are allowed, and the
//! account that is charged.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use longhaul_config::routes::{Author, RouteRule, RouteTable};
use longhaul_hop::Payer;
use longhaul_policy::{OwnAddresses, is_local};

/// A client of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A program on this machine. It reaches the machine's local addresses without the on-ramp.
    Machine,
    /// A guest: a client at this address, on another machine.
    Guest(IpAddr),
}

impl Asker {
    /// Returns the client whose connection comes from `peer`.
    pub(crate) fn at(peer: IpAddr) -> Self {
        let peer = peer.to_canonical();
        match peer.is_loopback() {
            true => Self::Machine,
            false => Self::Guest(peer),
        }
    }

    /// Returns the account of its connections and of its log lines.
    pub(crate) fn payer(self) -> Payer {
        Payer::source(match self {
            Self::Machine => Ipv4Addr::LOCALHOST.into(),
            Self::Guest(address) => address,
        })
    }
}

/// Limit on the addresses that a guest may reach. A local one ([`is_local`]) is allowed only if a
/// rule of this machine's own user names it.
pub(crate) struct GuestReach {
    pub(crate) rules: Arc<RouteTable>,
    pub(crate) own: Arc<OwnAddresses>,
}

impl GuestReach {
    pub(crate) fn admits(&self, address: SocketAddr) -> bool {
        let naming = match self.rules.author() {
            Author::User => self.rules.rules(),
            Author::Controller => &[],
        };
        !is_local(address.ip(), &self.own) || is_named(address, naming, &self.own)
    }

    pub(crate) fn admitted(&self, mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
        addresses.retain(|address| self.admits(*address));
        addresses
    }
}

/// Returns true if a rule for the port of `address` has a network that grants the address.
fn is_named(address: SocketAddr, rules: &[RouteRule], own: &OwnAddresses) -> bool {
    rules.iter().any(|rule| {
        let ports = rule.ports();
        (ports.is_empty() || ports.iter().any(|ports| ports.contains(&address.port())))
            && rule
                .to()
                .iter()
                .any(|to| to.names_address(address.ip(), own))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const OWN: &str = "192.0.2.7";

    fn reaches(rules: &str, address: &str) -> bool {
        let rules = RouteTable::parse(rules, Path::new("routes.toml")).unwrap();
        let own: OwnAddresses = [OWN.parse::<IpAddr>().unwrap()].into_iter().collect();
        let reach = GuestReach {
            rules: Arc::new(rules),
            own: Arc::new(own),
        };
        reach.admits(SocketAddr::new(address.parse().unwrap(), 80))
    }

    fn rule(to: &str) -> String {
        format!("[[route]]\nto = [\"{to}\"]\nports = [80]\n")
    }

    #[test]
    fn guests_reach_no_local_address_in_any_form() {
        for local in [
            "127.0.0.1",
            "127.66.0.1",
            "::1",
            "0.0.0.0",
            "::",
            "169.254.169.254",
            "fe80::1",
            "::ffff:127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "2002:7f00:1::1",
            OWN,
            "::ffff:192.0.2.7",
            "64:ff9b::192.0.2.7",
            "224.0.0.1",
        ] {
            for rules in [
                "",
                &rule("0.0.0.0/0"),
                &rule("::/0"),
                &rule("*"),
                &rule("localhost"),
            ] {
                assert!(!reaches(rules, local), "{local} by {rules:?}");
            }
        }
        for elsewhere in ["192.0.2.8", "10.0.0.1", "198.51.100.1", "2001:db8::1"] {
            assert!(reaches("", elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn rules_name_single_local_addresses_and_ports() {
        assert!(reaches(&rule("127.0.0.1"), "127.0.0.1"));
        assert!(reaches(&rule("127.0.0.0/8"), "::ffff:127.0.0.2"));
        assert!(reaches(&rule(OWN), OWN));
        assert!(!reaches(&rule("192.0.2.0/24"), OWN));
        assert!(!reaches(&rule("127.0.0.2"), "127.0.0.1"));
        let other_port = "[[route]]\nto = [\"127.0.0.1\"]\nports = [81]\n";
        assert!(!reaches(other_port, "127.0.0.1"));
    }

    #[test]
    fn loopback_clients_are_programs_of_this_machine() {
        for peer in ["127.0.0.1", "::1", "::ffff:127.0.0.9"] {
            assert_eq!(Asker::at(peer.parse().unwrap()), Asker::Machine, "{peer}");
        }
        for peer in [OWN, "fe80::1", "10.0.0.1"] {
            assert_ne!(Asker::at(peer.parse().unwrap()), Asker::Machine, "{peer}");
        }
    }
}
