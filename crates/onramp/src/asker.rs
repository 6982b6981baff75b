//! Who asks for a connection, as far as that decides where it may lead and on whose account it
//! goes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use longhaul_config::routes::RouteRule;
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
    /// The client whose connection comes from `peer`.
    pub(crate) fn at(peer: IpAddr) -> Self {
        let peer = peer.to_canonical();
        match peer.is_loopback() {
            true => Self::Machine,
            false => Self::Guest(peer),
        }
    }

    /// The account of its connections and of its lines in the log.
    pub(crate) fn payer(self) -> Payer {
        Payer::source(match self {
            Self::Machine => Ipv4Addr::LOCALHOST.into(),
            Self::Guest(address) => address,
        })
    }
}

/// Keeps those of `addresses` that the asker may be connected to. A guest reaches a local address
/// ([`is_local`]) only if one of `rules` names it.
pub(crate) fn reachable(
    asker: Asker,
    mut addresses: Vec<SocketAddr>,
    rules: &[RouteRule],
    own: &OwnAddresses,
) -> Vec<SocketAddr> {
    if asker != Asker::Machine {
        addresses.retain(|address| !is_local(address.ip(), own) || is_named(*address, rules, own));
    }
    addresses
}

/// Returns true if a rule for the port of `address` has a network that grants the address.
fn is_named(address: SocketAddr, rules: &[RouteRule], own: &OwnAddresses) -> bool {
    rules.iter().any(|rule| {
        let ports = rule.ports();
        (ports.is_empty() || ports.iter().any(|ports| ports.contains(&address.port())))
            && rule.to().iter().any(|to| to.names_address(address.ip(), own))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longhaul_config::routes::RouteTable;

    use super::*;

    const OWN: &str = "192.0.2.7";
    const GUEST: Asker = Asker::Guest(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 99)));

    fn reaches(asker: Asker, rules: &str, address: &str) -> bool {
        let rules = RouteTable::parse(rules, Path::new("routes.toml")).unwrap();
        let own: OwnAddresses = [OWN.parse::<IpAddr>().unwrap()].into_iter().collect();
        let address = SocketAddr::new(address.parse().unwrap(), 80);
        !reachable(asker, vec![address], rules.rules(), &own).is_empty()
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
                assert!(!reaches(GUEST, rules, local), "{local} by {rules:?}");
            }
            assert!(reaches(Asker::Machine, "", local), "{local}");
        }
        for elsewhere in ["192.0.2.8", "10.0.0.1", "198.51.100.1", "2001:db8::1"] {
            assert!(reaches(GUEST, "", elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn rules_name_single_local_addresses_and_ports() {
        assert!(reaches(GUEST, &rule("127.0.0.1"), "127.0.0.1"));
        assert!(reaches(GUEST, &rule("127.0.0.0/8"), "::ffff:127.0.0.2"));
        assert!(reaches(GUEST, &rule(OWN), OWN));
        assert!(!reaches(GUEST, &rule("192.0.2.0/24"), OWN));
        assert!(!reaches(GUEST, &rule("127.0.0.2"), "127.0.0.1"));
        let other_port = "[[route]]\nto = [\"127.0.0.1\"]\nports = [81]\n";
        assert!(!reaches(GUEST, other_port, "127.0.0.1"));
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
