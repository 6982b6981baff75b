//! Classification of addresses by where they lead, as far as a relay must care.
//!
//! The ranges are those of the IANA special-purpose address registries (RFC 6890, RFC 8190), each
//! with the document that reserves it.
#![deny(clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::network::Network;

/// Addresses of the depot's machine, as its interfaces have them. They are an input of the policy;
/// [`crate::OwnAddressReader`] reads them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnAddresses(BTreeSet<IpAddr>);

impl OwnAddresses {
    fn contain(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    /// Returns true if every address of `network` is one of these.
    fn cover(&self, network: &Network) -> bool {
        let within = self.0.iter().filter(|address| network.contains(**address));
        network
            .size()
            .is_some_and(|size| within.count() as u64 == size)
    }
}

impl FromIterator<IpAddr> for OwnAddresses {
    fn from_iter<T: IntoIterator<Item = IpAddr>>(addresses: T) -> Self {
        Self(
            addresses
                .into_iter()
                .map(|address| address.to_canonical())
                .collect(),
        )
    }
}

/// Class of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// A globally reachable address.
    Global,
    /// An address of a network that is not global, or whose use is unknown. Names from outside must
    /// not lead there.
    Private,
    /// An address of this machine's loopback or link, or an IPv6 address that carries an inside
    /// address. Only a network within this range grants it.
    Local(Network),
    /// An address of this machine. Only a network that consists of the machine's own addresses
    /// grants it.
    Own,
    /// Not a TCP destination: multicast, unspecified, broadcast, reserved.
    Never,
}

const LOCAL: [Network; 4] = [
    Network::v4(127, 0, 0, 0, 8),    // loopback: RFC 1122, section 3.2.1.3
    Network::v4(169, 254, 0, 0, 16), // link-local: RFC 3927
    Network::v6([0, 0, 0, 0, 0, 0, 0, 1], 128), // loopback: RFC 4291
    Network::v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), // link-local: RFC 4291
];

const NEVER: [Network; 6] = [
    Network::v4(0, 0, 0, 0, 8), // this network, and unspecified: RFC 791, RFC 1122, section 3.2.1.3
    // Multicast, reserved, broadcast: RFC 5771, RFC 1112, section 4, RFC 919.
    Network::v4(224, 0, 0, 0, 3),
    // Unspecified and deprecated IPv4-compatible addresses: RFC 4291, section 2.5.5.1. Loopback is
    // matched before.
    Network::v6([0; 8], 96),
    Network::v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), // discard-only: RFC 6666
    Network::v6([0x100, 0, 0, 1, 0, 0, 0, 0], 64), // dummy prefix, never a destination: RFC 9780
    Network::v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), // multicast: RFC 4291
];

/// The IPv6 ranges lie in [`GLOBAL_UNICAST`], as the rest of IPv6 is private anyway.
const PRIVATE: [Network; 14] = [
    Network::v4(10, 0, 0, 0, 8),     // RFC 1918
    Network::v4(172, 16, 0, 0, 12),  // RFC 1918
    Network::v4(192, 168, 0, 0, 16), // RFC 1918
    Network::v4(100, 64, 0, 0, 10),  // shared address space of carriers: RFC 6598
    // Protocol assignments (DS-Lite, PCP, TURN, NAT64 discovery): RFC 6890, section 2.1.
    Network::v4(192, 0, 0, 0, 24),
    Network::v4(192, 0, 2, 0, 24),    // documentation: RFC 5737
    Network::v4(198, 51, 100, 0, 24), // documentation: RFC 5737
    Network::v4(203, 0, 113, 0, 24),  // documentation: RFC 5737
    Network::v4(192, 88, 99, 0, 24),  // 6to4 relay anycast, deprecated: RFC 7526
    Network::v4(198, 18, 0, 0, 15),   // benchmarking: RFC 2544
    // Protocol assignments (RFC 2928). Among them are benchmarking (2001:2::/48, RFC 5180), ORCHIDs
    // (2001:10::/28, RFC 4843, and 2001:20::/28, RFC 7343), which name hosts and are not routed,
    // and drones (2001:30::/28, RFC 9374).
    Network::v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
    Network::v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), // documentation: RFC 3849
    Network::v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),     // 6to4: RFC 3056
    Network::v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),     // documentation: RFC 9637
];

/// IPv6 range that IANA assigns for global unicast (RFC 4291, section 2.4, and the IANA registry of
/// the IPv6 address space). Outside it, addresses are unique local (fc00::/7, RFC 4193), site-local
/// (fec0::/10, RFC 3879), for translators (64:ff9b:1::/48, RFC 8215), for segment routing
/// (5f00::/16, RFC 9602), or unassigned.
const GLOBAL_UNICAST: Network = Network::v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// Range of IPv6 addresses with embedded IPv4 addresses. A translator or tunnel forwards to the
/// embedded address.
struct Carrier {
    range: Network,
    /// Bit positions of the embedded IPv4 addresses, from the first bit, with the mask they are
    /// XORed with.
    at: &'static [(u8, u32)],
    /// Class of the address if all embedded addresses are global.
    at_best: Reach,
}

const CARRIERS: [Carrier; 4] = [
    // NAT64 with its well-known prefix (RFC 6052). IPv6-only hosts reach IPv4 hosts through it, so
    // names resolve to such addresses.
    Carrier {
        range: Network::v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96),
        at: &[(96, 0)],
        at_best: Reach::Global,
    },
    // IPv4-translated (RFC 2765, section 2.1, RFC 7915): within the domain of one translator.
    Carrier {
        range: Network::v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96),
        at: &[(96, 0)],
        at_best: Reach::Private,
    },
    // 6to4 (RFC 3056), deprecated by RFC 7526: the embedded address is the site's router.
    Carrier {
        range: Network::v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),
        at: &[(16, 0)],
        at_best: Reach::Private,
    },
    // Teredo (RFC 4380, section 4): the server, and the client's NAT with inverted bits.
    Carrier {
        range: Network::v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32),
        at: &[(32, 0), (96, u32::MAX)],
        at_best: Reach::Private,
    },
];

/// Returns true if a rule grants `address`. The rule names `network`, or, if that is `None`, the
/// name that was resolved to the address.
pub(super) fn leads(network: Option<&Network>, address: IpAddr, own: &OwnAddresses) -> bool {
    let address = address.to_canonical();
    let Some(network) = network else {
        return Reach::of(address, own) == Reach::Global;
    };
    network.contains(address)
        && match Reach::of(address, own) {
            Reach::Global | Reach::Private => true,
            Reach::Local(range) => network.is_within(&range),
            Reach::Own => own.cover(network),
            Reach::Never => false,
        }
}

/// Returns true if `address` is local to this machine, however it is written: a loopback or
/// link-local address, one of `own`, or one that is never a TCP destination (unspecified,
/// multicast, reserved).
///
/// Callers on other machines are never connected to a local address, unless a rule names it
/// ([`HostPattern::names_address`](crate::HostPattern::names_address)). Depots, off-ramps, on-ramps
/// and probes all use this definition, after name resolution.
#[must_use]
pub fn is_local(address: IpAddr, own: &OwnAddresses) -> bool {
    matches!(
        Reach::of(address.to_canonical(), own),
        Reach::Local(_) | Reach::Own | Reach::Never
    )
}

/// Returns true if no address in `network` is ever a destination.
pub(super) fn leads_nowhere(network: &Network) -> bool {
    // The IPv6 loopback address lies within one of these ranges.
    NEVER.iter().any(|never| network.is_within(never))
        && !LOCAL.iter().any(|local| network.is_within(local))
}

impl Reach {
    /// Classifies an address in canonical form (not an IPv4-mapped IPv6 address).
    fn of(address: IpAddr, own: &OwnAddresses) -> Self {
        let (itself, _) = Self::as_it_stands(address, own);
        let IpAddr::V6(v6) = address else {
            return itself;
        };
        let Some(carrier) = CARRIERS
            .iter()
            .find(|carrier| carrier.range.contains(address))
        else {
            return itself;
        };
        if itself == Self::Own {
            return itself;
        }
        let carried = carrier.at.iter().map(|&(at, mask)| {
            let (reach, range) = Self::as_it_stands(carried(v6, at, mask).into(), own);
            match reach {
                Self::Global => carrier.at_best,
                Self::Never => Self::Never,
                // As narrow as a rule for the embedded address would have to be. A rule for the
                // whole carrier range must not grant inside addresses.
                _ => Self::Local(Network::around(address, at.saturating_add(range))),
            }
        });
        carried.fold(carrier.at_best, Self::stricter)
    }

    /// Classifies an address without regard to embedded ones. Also returns the prefix length of the
    /// range that decided.
    fn as_it_stands(address: IpAddr, own: &OwnAddresses) -> (Self, u8) {
        let within = |networks: &[Network]| {
            networks
                .iter()
                .copied()
                .find(|network| network.contains(address))
        };
        if let Some(loopback) = within(&LOCAL).filter(|_| address.is_loopback()) {
            (Self::Local(loopback), loopback.prefix())
        } else if let Some(never) = within(&NEVER) {
            (Self::Never, never.prefix())
        } else if own.contain(address) {
            (Self::Own, if address.is_ipv4() { 32 } else { 128 })
        } else if let Some(link) = within(&LOCAL) {
            (Self::Local(link), link.prefix())
        } else if let Some(private) = within(&PRIVATE) {
            (Self::Private, private.prefix())
        } else if address.is_ipv6() && !GLOBAL_UNICAST.contains(address) {
            (Self::Private, 0)
        } else {
            (Self::Global, 0)
        }
    }

    fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Local(one), Self::Local(another)) if one.prefix() >= another.prefix() => {
                Self::Local(one)
            }
            (one, another) if one.rank() > another.rank() => one,
            (_, another) => another,
        }
    }

    const fn rank(self) -> u8 {
        match self {
            Self::Global => 0,
            Self::Private => 1,
            Self::Local(_) => 2,
            Self::Own => 3,
            Self::Never => 4,
        }
    }
}

/// Returns the IPv4 address embedded in `address` at bit `at`, XORed with `mask`.
fn carried(address: Ipv6Addr, at: u8, mask: u32) -> Ipv4Addr {
    let shifted = address.to_bits() >> 96u8.saturating_sub(at);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the last 32 bits are what is wanted"
    )]
    Ipv4Addr::from_bits(shifted as u32 ^ mask)
}

#[cfg(test)]
mod tests;
