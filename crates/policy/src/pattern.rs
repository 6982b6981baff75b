//! Host patterns of rules: a network of addresses, or a name.
#![deny(clippy::indexing_slicing)]

use std::net::IpAddr;
use std::str::FromStr;

use longhaul_proto::Host;
use longhaul_proto::text::printable;

use crate::network::Network;
use crate::reach::{OwnAddresses, is_granted, is_never_granted};

/// Pattern for hosts: `10.0.0.0/8`, `2001:db8::/32`, `192.0.2.7`, `dtn.example.org`,
/// `*.example.org`, or `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// Addresses in this network, whatever name they were resolved from.
    Network(Network),
    /// Exactly this name, in lower case.
    Name(String),
    /// Names with this suffix, which begins with a dot; if empty, all names.
    Suffix(String),
}

impl HostPattern {
    /// Returns true if a connection may go to `address`, which was resolved from `name`, if given.
    ///
    /// A network grants its addresses. It grants addresses of this machine and its link only if it
    /// is itself such a network: `0.0.0.0/0` includes neither loopback nor the machine's own
    /// addresses (`own`). A name grants only global addresses, so that the owner of its zone cannot
    /// point it at the depot's neighbours. Add the network to the rule to allow those.
    #[must_use]
    pub fn grants(&self, address: IpAddr, name: Option<&str>, own: &OwnAddresses) -> bool {
        match self {
            Self::Network(network) => is_granted(Some(network), address, own),
            _ => name.is_some_and(|name| self.matches_name(name)) && is_granted(None, address, own),
        }
    }

    /// Returns true if this pattern is a network that grants `address` itself: a local address
    /// ([`is_local`](crate::is_local)) only if the network is that narrow. Names grant no address.
    #[must_use]
    pub fn names_address(&self, address: IpAddr, own: &OwnAddresses) -> bool {
        matches!(self, Self::Network(network) if is_granted(Some(network), address, own))
    }

    /// Returns true if the pattern matches a host with this address or this name. A match alone
    /// grants nothing.
    #[must_use]
    pub fn matches(&self, address: Option<IpAddr>, name: Option<&str>) -> bool {
        match self {
            Self::Network(network) => {
                address.is_some_and(|address| network.contains(address.to_canonical()))
            }
            _ => name.is_some_and(|name| self.matches_name(name)),
        }
    }

    /// Returns true if a connection may go to `host` as written, without resolving it.
    pub(crate) fn grants_as_written(&self, host: &Host, own: &OwnAddresses) -> bool {
        match host {
            Host::Ip(address) => self.grants(*address, None, own),
            Host::Name(name) => self.matches_name(name),
        }
    }

    /// Returns true if this pattern could allow a connection to `host` once it is resolved. Called
    /// before any look-up.
    ///
    /// An address is either granted or not. A name could be granted by a pattern that names it, or
    /// by any network: `192.0.2.0/24` must grant `dtn.example.org` if that resolves into it, which
    /// only a look-up shows. As a consequence, a key listed in a rule with a network can have any
    /// name resolved. That is bounded by the permits for look-ups, not here. This includes networks
    /// of loopback or link-local addresses, as `localhost` is a name, too. It excludes networks
    /// that never grant anything, such as multicast.
    #[must_use]
    pub fn might_grant(&self, host: &Host, own: &OwnAddresses) -> bool {
        match (self, host) {
            (Self::Network(network), Host::Name(_)) => !is_never_granted(network),
            _ => self.grants_as_written(host, own),
        }
    }

    /// Returns true if this pattern matches `name`. A network matches no name.
    #[must_use]
    pub fn matches_name(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name);
        match self {
            Self::Network(_) => false,
            Self::Name(exact) => exact.eq_ignore_ascii_case(name),
            Self::Suffix(suffix) => {
                name.len() > suffix.len()
                    && name
                        .get(name.len() - suffix.len()..)
                        .is_some_and(|end| end.eq_ignore_ascii_case(suffix))
            }
        }
    }
}

impl FromStr for HostPattern {
    type Err = String;

    /// The error is one printable line, whatever the text contains.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|problem| printable(problem.as_bytes()))
    }
}

impl HostPattern {
    fn read(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Suffix(String::new()));
        }
        if text.contains('/') || text.starts_with('[') || text.parse::<IpAddr>().is_ok() {
            return text.parse().map(Self::Network);
        }
        let (suffix, name) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        match Host::parse(name) {
            Ok(Host::Name(name)) => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                Ok(if suffix {
                    Self::Suffix(format!(".{name}"))
                } else {
                    Self::Name(name)
                })
            }
            _ => Err(format!(
                "{text:?} is not a host pattern: write a network (10.0.0.0/8), an address, a \
                 name, *.domain or *"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HostPattern {
        text.parse().expect(text)
    }

    fn grants(text: &str, address: &str, name: Option<&str>) -> bool {
        pattern(text).grants(
            address.parse().expect(address),
            name,
            &OwnAddresses::default(),
        )
    }

    #[test]
    fn networks_grant_their_addresses() {
        assert!(grants("10.0.0.0/8", "10.255.0.1", None));
        assert!(!grants("10.0.0.0/8", "11.0.0.1", None));
        assert!(
            grants("10.0.0.0/8", "::ffff:10.1.2.3", None),
            "mapped addresses are the addresses they map"
        );
        assert!(grants("0.0.0.0/0", "198.51.100.1", Some("any.example")));
        assert!(grants("2001:db8::/32", "2001:db8::5", None));
        assert!(
            !grants("::/0", "10.0.0.1", None),
            "the families do not meet"
        );
        assert!(grants("192.0.2.7", "192.0.2.7", None));
        assert!(!grants("192.0.2.7", "192.0.2.8", None));
    }

    #[test]
    fn names_do_not_grant_inside_addresses() {
        assert!(grants("*.example.org", "20.0.0.1", Some("dtn.example.org")));
        assert!(grants(
            "dtn.example.org",
            "2600::1",
            Some("DTN.Example.org.")
        ));
        for address in [
            "10.0.0.1",
            "192.168.0.1",
            "172.31.255.255",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "fd00::1",
            "::1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
            "::ffff:10.0.0.1",
            "::ffff:0:10.0.0.1",
        ] {
            assert!(
                !grants("*", address, Some("rebound.example.org")),
                "{address}"
            );
        }
    }

    #[test]
    fn suffixes_match_whole_labels() {
        assert!(pattern("*.example.org").matches_name("a.b.example.org"));
        assert!(!pattern("*.example.org").matches_name("example.org"));
        assert!(!pattern("*.example.org").matches_name("badexample.org"));
        assert!(pattern("*").matches_name("anything"));
        assert!(!pattern("example.org").matches_name("an.example.org"));
    }

    #[test]
    fn ill_formed_patterns_are_refused() {
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "a b",
            "*.",
            "*.*",
            "x/8",
            "::ffff:10.0.0.0/104",
            "10.0.0.0/-1",
            "[10.0.0.0/8]",
            "[dtn.example.org]",
        ] {
            assert!(text.parse::<HostPattern>().is_err(), "{text}");
        }
    }

    #[test]
    fn no_look_up_for_networks_that_grant_nothing() {
        let name = Host::parse("dtn.example.org").expect("name");
        let might = |text: &str| pattern(text).might_grant(&name, &OwnAddresses::default());
        for text in [
            "192.0.2.0/24",
            "127.0.0.0/8",
            "fe80::/10",
            "::1",
            "0.0.0.0/0",
            "dtn.example.org",
            "*.example.org",
            "*",
        ] {
            assert!(might(text), "{text}");
        }
        for text in [
            "224.0.0.0/4",
            "239.1.2.3",
            "0.0.0.0",
            "::",
            "ff02::/16",
            "100::/64",
            "other.example.org",
            "*.example.com",
        ] {
            assert!(!might(text), "{text}");
        }
    }
}
