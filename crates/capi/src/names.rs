//! Names and the addresses that they resolved to, remembered for the connections that follow.

use std::net::IpAddr;

use longhaul_ramp_protocol::MAX_NAME_BYTES;

/// Maximum number of remembered addresses. The oldest are dropped first.
const MAX_ADDRESSES: usize = 128;

/// The most recent addresses that names resolved to.
pub struct ResolvedNames {
    /// Addresses with their names, oldest first.
    known: Vec<(IpAddr, String)>,
}

impl ResolvedNames {
    /// Returns an empty list.
    pub const fn new() -> Self {
        Self { known: Vec::new() }
    }

    /// Remembers that `name` resolved to `address`. Ignores a name that is empty, an address, or
    /// longer than [`MAX_NAME_BYTES`].
    pub fn remember(&mut self, name: &str, address: IpAddr) {
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.parse::<IpAddr>().is_ok() {
            return;
        }
        let address = address.to_canonical();
        self.known.retain(|(known, _)| *known != address);
        if self.known.len() >= MAX_ADDRESSES {
            self.known.remove(0);
        }
        self.known.push((address, name.to_owned()));
    }

    /// Returns the last name that resolved to `address`.
    pub fn name_of(&self, address: IpAddr) -> Option<&str> {
        let address = address.to_canonical();
        let mut known = self.known.iter();
        known.find_map(|(known, name)| (*known == address).then_some(name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_last_name_of_an_address_is_remembered() {
        let mut names = ResolvedNames::new();
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        names.remember("a.example", address);
        names.remember("b.example", address);
        assert_eq!(names.name_of(address), Some("b.example"));
        assert_eq!(
            names.name_of("::ffff:192.0.2.1".parse().unwrap()),
            Some("b.example")
        );
        assert_eq!(names.name_of("192.0.2.2".parse().unwrap()), None);
    }

    #[test]
    fn invalid_names_are_not_remembered() {
        let mut names = ResolvedNames::new();
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        for name in ["", "192.0.2.1", "::1", &"x".repeat(MAX_NAME_BYTES + 1)] {
            names.remember(name, address);
            assert_eq!(names.name_of(address), None);
        }
    }

    #[test]
    fn oldest_addresses_are_dropped_first() {
        let mut names = ResolvedNames::new();
        let address = |n: usize| IpAddr::V4(Ipv4Addr::from(u32::try_from(n).unwrap()));
        for n in 0..=MAX_ADDRESSES {
            names.remember("name.example", address(n));
        }
        assert_eq!(names.name_of(address(0)), None);
        assert_eq!(names.name_of(address(1)), Some("name.example"));
        assert_eq!(names.known.len(), MAX_ADDRESSES);
    }
}
