//! IP networks: an address with a prefix length.
#![deny(clippy::indexing_slicing)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// IP network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// First address of the network; all bits after the prefix are zero.
    address: IpAddr,
    /// Length of the prefix, at most the width of the address.
    prefix: u8,
}

impl Network {
    pub(super) const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            prefix,
        }
    }

    pub(super) const fn v6(groups: [u16; 8], prefix: u8) -> Self {
        let [a, b, c, d, e, f, g, h] = groups;
        Self {
            address: IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)),
            prefix,
        }
    }

    /// Creates the network of the first `prefix` bits of `address`. A longer prefix than the
    /// address has gives the address alone.
    pub(super) fn containing(address: IpAddr, prefix: u8) -> Self {
        let (number, width) = bits(address);
        let prefix = prefix.min(width);
        let first = top(number, width, prefix)
            .checked_shl(u32::from(width.saturating_sub(prefix)))
            .unwrap_or(0);
        let address = match address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(
                u32::try_from(first).unwrap_or(u32::MAX),
            )),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(first)),
        };
        Self { address, prefix }
    }

    /// Returns true if `address` lies in this network. IPv4 and IPv6 never match each other:
    /// convert addresses to their canonical form first.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (bits(self.address), bits(address)) {
            ((ours, 32), (theirs, 32)) => {
                top(ours, 32, self.prefix) == top(theirs, 32, self.prefix)
            }
            ((ours, 128), (theirs, 128)) => {
                top(ours, 128, self.prefix) == top(theirs, 128, self.prefix)
            }
            _ => false,
        }
    }

    /// Returns true if every address of this network lies in `other`.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.prefix >= other.prefix && other.contains(self.address)
    }

    /// Returns the network's first address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the length of the prefix, in bits.
    #[must_use]
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Returns the number of addresses; `None` if there are 2^64 or more.
    pub(super) fn address_count(&self) -> Option<u64> {
        let (_, width) = bits(self.address);
        1u64.checked_shl(u32::from(width.saturating_sub(self.prefix)))
    }
}

/// Returns the address as a number, with its width in bits.
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

impl FromStr for Network {
    type Err = String;

    /// Parses `ADDRESS/BITS` or `ADDRESS`. The address may be in brackets.
    fn from_str(text: &str) -> Result<Self, String> {
        let no_network =
            || format!("{text:?} is not a network: write ADDRESS/BITS, such as 10.0.0.0/8");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let bare = address
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let address: IpAddr = bare.unwrap_or(address).parse().map_err(|_| no_network())?;
        if address.to_canonical() != address {
            return Err(format!(
                "{text:?} is an IPv4 address in IPv6 form: write it as IPv4"
            ));
        }
        let (_, width) = bits(address);
        let prefix = match prefix {
            None => width,
            Some(prefix) => prefix
                .parse()
                .ok()
                .filter(|bits| *bits <= width && prefix.bytes().all(|byte| byte.is_ascii_digit()))
                .ok_or_else(|| {
                    format!(
                        "{text:?} has an invalid prefix length: write 0 to {width} after the \
                        slash"
                    )
                })?,
        };
        let network = Self::containing(address, prefix);
        if network.address != address {
            return Err(format!(
                "{text:?} has bits set after its prefix: write the network's first address"
            ));
        }
        Ok(network)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn network_contains_addresses_with_its_prefix(
            address: u128,
            other: u128,
            prefix in 0u8..=128,
        ) {
            let (address, other) = (Ipv6Addr::from_bits(address), Ipv6Addr::from_bits(other));
            let network = Network::containing(address.into(), prefix);
            prop_assert!(network.contains(address.into()));
            let shared = (address.to_bits() ^ other.to_bits()).leading_zeros();
            prop_assert_eq!(network.contains(other.into()), shared >= u32::from(prefix));
        }

        #[test]
        fn a_network_is_within_itself_and_wider_ones(
            address: u32,
            prefix in 0u8..=32,
            wider in 0u8..=32,
        ) {
            let address = IpAddr::V4(Ipv4Addr::from_bits(address));
            let network = Network::containing(address, prefix);
            let other = Network::containing(address, wider);
            prop_assert_eq!(network.is_within(&other), wider <= prefix);
            prop_assert_eq!(network.address_count(), Some(1 << (32 - prefix)));
        }
    }

    #[test]
    fn network_is_written_with_its_first_address() {
        for text in [
            "10.0.0.1/8",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "x/8",
            "/8",
            "",
            "2001:db8::1/64",
            "::/129",
            "::ffff:10.0.0.0/104",
        ] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
        for text in [
            "10.0.0.0/8",
            "0.0.0.0/0",
            "::/0",
            "::1",
            "192.0.2.7",
            "192.0.2.7/32",
        ] {
            assert!(text.parse::<Network>().is_ok(), "{text}");
        }
        assert_eq!(
            "::/64"
                .parse::<Network>()
                .map(|network| network.address_count()),
            Ok(None)
        );
    }
}
