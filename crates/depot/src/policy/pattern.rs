//! What a rule says of a host: a network of addresses, or a name.

use std::net::IpAddr;
use std::str::FromStr;

use longhaul_proto::text::printable;

/// A pattern for hosts: `10.0.0.0/8`, `2001:db8::/32`, `192.0.2.7`, `dtn.example.org`, `*.example.org`, or `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// Addresses in this network, whatever name led to them.
    Network(Network),
    /// This name, in lower case.
    Name(String),
    /// Names that end in this (it begins with a dot), or, if it is empty, all names.
    Suffix(String),
}

/// An IP network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// What kind of place an address is, as far as a relay must care (RFC 6890 and the IANA registries it set up).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Anywhere in the world.
    Global,
    /// A private or transitional network: a name from outside has no business to lead there.
    Private,
    /// This machine or its link; only a rule that names such addresses leads there.
    Local(Network),
    /// No TCP destination at all: multicast, unspecified, broadcast, reserved.
    Never,
}

impl Network {
    const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Self {
        Self {
            address: IpAddr::V4(std::net::Ipv4Addr::new(a, b, c, d)),
            prefix,
        }
    }

    const fn v6(first: u16, second: u16, last: u16, prefix: u8) -> Self {
        Self {
            address: IpAddr::V6(std::net::Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, last)),
            prefix,
        }
    }

    /// Whether `address` lies in this network. IPv4 and IPv6 never meet: map addresses to their canonical form first.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (bits(self.address), bits(address)) {
            ((ours, 32), (theirs, 32)) => top(ours, 32, self.prefix) == top(theirs, 32, self.prefix),
            ((ours, 128), (theirs, 128)) => top(ours, 128, self.prefix) == top(theirs, 128, self.prefix),
            _ => false,
        }
    }

    /// Whether every address of this network lies in `other`.
    fn is_within(&self, other: &Self) -> bool {
        self.prefix >= other.prefix && other.contains(self.address)
    }
}

/// The address as a number, and how many bits it has.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
}

fn top(address: u128, width: u8, prefix: u8) -> u128 {
    address
        .checked_shr(u32::from(width.saturating_sub(prefix)))
        .unwrap_or(0)
}

const LOCAL: [Network; 4] = [
    Network::v4(127, 0, 0, 0, 8),
    Network::v4(169, 254, 0, 0, 16),
    Network::v6(0, 0, 1, 128),
    Network::v6(0xfe80, 0, 0, 10),
];

const PRIVATE: [Network; 9] = [
    Network::v4(10, 0, 0, 0, 8),
    Network::v4(172, 16, 0, 0, 12),
    Network::v4(192, 168, 0, 0, 16),
    Network::v4(100, 64, 0, 0, 10),
    Network::v4(198, 18, 0, 0, 15),
    Network::v6(0xfc00, 0, 0, 7),
    // Addresses that carry an IPv4 address: NAT64 (RFC 6052), its local form (RFC 8215), 6to4 (RFC 3056).
    Network::v6(0x64, 0xff9b, 0, 32),
    Network::v6(0x2002, 0, 0, 16),
    // Site-local, deprecated (RFC 3879).
    Network::v6(0xfec0, 0, 0, 10),
];

const NEVER: [Network; 5] = [
    Network::v4(0, 0, 0, 0, 8),
    Network::v4(224, 0, 0, 0, 3),
    Network::v6(0xff00, 0, 0, 8),
    Network::v6(0, 0, 0, 128),
    // IPv4-compatible, deprecated (RFC 4291, section 2.5.5.1); the loopback address inside is told apart before.
    Network::v6(0, 0, 0, 96),
];

impl Reach {
    /// Of a canonical address (no IPv4-mapped IPv6).
    pub(crate) fn of(address: IpAddr) -> Self {
        let within =
            |networks: &[Network]| networks.iter().copied().find(|network| network.contains(address));
        if let Some(network) = within(&LOCAL) {
            Self::Local(network)
        } else if within(&NEVER).is_some() {
            Self::Never
        } else if within(&PRIVATE).is_some() {
            Self::Private
        } else {
            Self::Global
        }
    }
}

impl HostPattern {
    /// Whether this pattern lets a connection go to `address`, which `name` led to, if a name did.
    ///
    /// A network grants its addresses, but those of this machine and its link only if it is itself such a network:
    /// `0.0.0.0/0` does not mean loopback. A name grants what it leads to only out in the world, so that whoever
    /// writes the zone cannot point it at the depot's neighbours; add the network to the rule to allow those.
    pub(crate) fn grants(&self, address: IpAddr, name: Option<&str>) -> bool {
        let address = address.to_canonical();
        match (self, Reach::of(address)) {
            (_, Reach::Never) => false,
            (Self::Network(network), Reach::Local(local)) => {
                network.contains(address) && network.is_within(&local)
            }
            (Self::Network(network), Reach::Global | Reach::Private) => network.contains(address),
            (_, Reach::Global) => name.is_some_and(|name| self.names(name)),
            (_, Reach::Local(_) | Reach::Private) => false,
        }
    }

    /// Whether this pattern names `name`; a network names none.
    pub(crate) fn names(&self, name: &str) -> bool {
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

    /// Whether a name could be granted by this pattern once it is resolved. Asked before any look-up.
    pub(crate) fn might_grant(&self, name: &str) -> bool {
        matches!(self, Self::Network(_)) || self.names(name)
    }
}

impl FromStr for HostPattern {
    type Err = String;

    /// The error is one printable line, whatever the text is.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|problem| printable(problem.as_bytes()))
    }
}

impl HostPattern {
    fn read(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Suffix(String::new()));
        }
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        if let Ok(address) = address
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<IpAddr>()
        {
            return network(text, address, prefix).map(Self::Network);
        }
        if prefix.is_some() {
            return Err(format!(
                "{text:?} is no network: write ADDRESS/BITS, such as 10.0.0.0/8"
            ));
        }
        let (suffix, name) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        match longhaul_proto::Host::parse(name) {
            Ok(longhaul_proto::Host::Name(name)) => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                Ok(if suffix {
                    Self::Suffix(format!(".{name}"))
                } else {
                    Self::Name(name)
                })
            }
            _ => Err(format!(
                "{text:?} is no host pattern: write a network (10.0.0.0/8), an address, a name, *.domain or *"
            )),
        }
    }
}

fn network(text: &str, address: IpAddr, prefix: Option<&str>) -> Result<Network, String> {
    let (number, width) = bits(address);
    if address.to_canonical() != address {
        return Err(format!(
            "{text:?} is an IPv4 address in IPv6 clothes: write it as IPv4"
        ));
    }
    let prefix = match prefix {
        None => width,
        Some(prefix) => prefix
            .parse()
            .ok()
            .filter(|prefix| *prefix <= width)
            .ok_or_else(|| {
                format!("{text:?} has an ill-formed prefix: write 0 to {width} after the slash")
            })?,
    };
    let network = Network { address, prefix };
    let kept = top(number, width, prefix)
        .checked_shl(u32::from(width - prefix))
        .unwrap_or(0);
    if kept != number {
        return Err(format!(
            "{text:?} has bits set after its prefix: write the network's first address"
        ));
    }
    Ok(network)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HostPattern {
        text.parse().expect(text)
    }

    fn grants(text: &str, address: &str, name: Option<&str>) -> bool {
        pattern(text).grants(address.parse().expect(address), name)
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
        assert!(!grants("::/0", "10.0.0.1", None), "the families do not meet");
        assert!(grants("192.0.2.7", "192.0.2.7", None));
        assert!(!grants("192.0.2.7", "192.0.2.8", None));
    }

    #[test]
    fn this_machine_must_be_named_as_such() {
        for (wide, narrow, address) in [
            ("0.0.0.0/0", "127.0.0.0/8", "127.0.0.1"),
            ("0.0.0.0/0", "127.0.0.1", "::ffff:127.0.0.1"),
            ("0.0.0.0/0", "169.254.0.0/16", "169.254.169.254"),
            ("::/0", "::1", "::1"),
            ("::/0", "fe80::/10", "fe80::1"),
        ] {
            assert!(!grants(wide, address, None), "{wide} must not mean {address}");
            assert!(grants(narrow, address, None), "{narrow} means {address}");
        }
    }

    #[test]
    fn some_addresses_are_no_destination() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "::",
            "ff02::1",
            "::7f00:1",
        ] {
            for text in [
                "0.0.0.0/0",
                "::/0",
                "224.0.0.0/4",
                "0.0.0.0",
                "::",
                "ff02::/16",
                "*",
            ] {
                assert!(!grants(text, address, Some("n")), "{text} granted {address}");
            }
        }
    }

    #[test]
    fn a_name_does_not_lead_inside() {
        assert!(grants("*.example.org", "198.51.100.1", Some("dtn.example.org")));
        assert!(grants("dtn.example.org", "2001:db8::1", Some("DTN.Example.org.")));
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
        ] {
            assert!(!grants("*", address, Some("rebound.example.org")), "{address}");
        }
    }

    #[test]
    fn suffixes_match_whole_labels() {
        assert!(pattern("*.example.org").names("a.b.example.org"));
        assert!(!pattern("*.example.org").names("example.org"));
        assert!(!pattern("*.example.org").names("badexample.org"));
        assert!(pattern("*").names("anything"));
        assert!(!pattern("example.org").names("an.example.org"));
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
        ] {
            assert!(text.parse::<HostPattern>().is_err(), "{text}");
        }
    }
}
