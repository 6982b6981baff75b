//! What kind of place an address is, as far as a relay must care.
//!
//! The ranges are those of the IANA special-purpose address registries (RFC 6890, RFC 8190), each
//! with the document that sets it aside.
#![deny(clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::network::Network;

/// The addresses of the machine that a depot runs on, as its interfaces have them. An input of the
/// policy: what reads them is [`crate::OwnAddressReader`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnAddresses(BTreeSet<IpAddr>);

impl OwnAddresses {
    fn contain(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    /// Whether every address of `network` is one of these.
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

/// What kind of place an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Anywhere in the world.
    Global,
    /// A network that is not for the whole world, or of which nobody knows what is there: a name
    /// from outside has no business to lead there.
    Private,
    /// This machine's loopback, its link, or an address inside the machine or the private networks
    /// around it that is written as an IPv6 address: only a network within this range leads there.
    Local(Network),
    /// An address of this machine: only a network of nothing but its own addresses leads there.
    Own,
    /// No TCP destination at all: multicast, unspecified, broadcast, reserved.
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
    Network::v4(224, 0, 0, 0, 3), // multicast, reserved, broadcast: RFC 5771, RFC 1112, section 4, RFC 919
    // Unspecified, and IPv4-compatible addresses, deprecated: RFC 4291, section 2.5.5.1. Loopback
    // is distinguished before.
    Network::v6([0; 8], 96),
    Network::v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), // discard-only: RFC 6666
    Network::v6([0x100, 0, 0, 1, 0, 0, 0, 0], 64), // dummy prefix, never a destination: RFC 9780
    Network::v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), // multicast: RFC 4291
];

/// Those of IPv6 lie in [`GLOBAL_UNICAST`]: all the rest of IPv6 is private anyway.
const PRIVATE: [Network; 14] = [
    Network::v4(10, 0, 0, 0, 8),      // RFC 1918
    Network::v4(172, 16, 0, 0, 12),   // RFC 1918
    Network::v4(192, 168, 0, 0, 16),  // RFC 1918
    Network::v4(100, 64, 0, 0, 10),   // shared address space of carriers: RFC 6598
    Network::v4(192, 0, 0, 0, 24), // protocol assignments (DS-Lite, PCP, TURN, NAT64 discovery): RFC 6890, section 2.1
    Network::v4(192, 0, 2, 0, 24), // documentation: RFC 5737
    Network::v4(198, 51, 100, 0, 24), // documentation: RFC 5737
    Network::v4(203, 0, 113, 0, 24), // documentation: RFC 5737
    Network::v4(192, 88, 99, 0, 24), // 6to4 relay anycast, deprecated: RFC 7526
    Network::v4(198, 18, 0, 0, 15), // benchmarking: RFC 2544
    // Protocol assignments (RFC 2928); among them benchmarking (2001:2::/48, RFC 5180), ORCHIDs
    // (2001:10::/28, RFC 4843, and 2001:20::/28, RFC 7343), which name hosts and route nowhere, and
    // drones (2001:30::/28, RFC 9374).
    Network::v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
    Network::v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), // documentation: RFC 3849
    Network::v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),     // 6to4: RFC 3056
    Network::v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),     // documentation: RFC 9637
];

/// All that IANA gives out of IPv6 for the whole world (RFC 4291, section 2.4, and the IANA
/// registry of the IPv6 address space). What lies outside is unique local (fc00::/7, RFC 4193),
/// site-local (fec0::/10, RFC 3879), for translators (64:ff9b:1::/48, RFC 8215), for segment
/// routing (5f00::/16, RFC 9602), or not assigned.
const GLOBAL_UNICAST: Network = Network::v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// IPv6 addresses that carry IPv4 addresses at known places. Whatever translates or unwraps them
/// goes on to what they carry.
struct Carrier {
    range: Network,
    /// The bits at which IPv4 addresses begin, counted from the first, and what they are XORed
    /// with.
    at: &'static [(u8, u32)],
    /// What the address is when all that it carries is global.
    at_best: Reach,
}

const CARRIERS: [Carrier; 4] = [
    // NAT64 under its well-known prefix (RFC 6052): how an IPv6-only host reaches the IPv4 world,
    // so names lead there.
    Carrier {
        range: Network::v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96),
        at: &[(96, 0)],
        at_best: Reach::Global,
    },
    // IPv4-translated (RFC 2765, section 2.1, RFC 7915): within one translator's domain.
    Carrier {
        range: Network::v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96),
        at: &[(96, 0)],
        at_best: Reach::Private,
    },
    // 6to4 (RFC 3056), deprecated by RFC 7526: the router of the site.
    Carrier {
        range: Network::v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),
        at: &[(16, 0)],
        at_best: Reach::Private,
    },
    // Teredo (RFC 4380, section 4): the server, and the client's NAT, whose bits are inverted.
    Carrier {
        range: Network::v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32),
        at: &[(32, 0), (96, u32::MAX)],
        at_best: Reach::Private,
    },
];

/// Whether `network` may lead to `address` as a rule that names the network, or, if it is `None`,
/// as a rule that names the name that led there.
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
/// Nobody who asks from elsewhere is connected to a local address, unless a rule names it
/// ([`HostPattern::names_address`](crate::HostPattern::names_address)). Depots, off-ramps, on-ramps
/// and probes all decide by this definition, after name resolution.
#[must_use]
pub fn is_local(address: IpAddr, own: &OwnAddresses) -> bool {
    matches!(
        Reach::of(address.to_canonical(), own),
        Reach::Local(_) | Reach::Own | Reach::Never
    )
}

/// Whether nothing in `network` is ever a destination.
pub(super) fn leads_nowhere(network: &Network) -> bool {
    // Loopback stands within a range of those.
    NEVER.iter().any(|never| network.is_within(never))
        && !LOCAL.iter().any(|local| network.is_within(local))
}

impl Reach {
    /// Of an address in canonical form (no IPv4-mapped IPv6).
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
                // As narrow as a rule for the carried address would have to be, so that no rule for
                // the carrying range opens what is inside.
                _ => Self::Local(Network::around(address, at.saturating_add(range))),
            }
        });
        carried.fold(carrier.at_best, Self::stricter)
    }

    /// What an address is, whatever it carries; and the prefix of the range that says so, in bits.
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

/// The IPv4 address in `address` that begins at bit `at`, with `mask` taken off.
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
