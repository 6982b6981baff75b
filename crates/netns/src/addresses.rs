//! Addresses inside the namespace.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// IPv4 address of the program. 192.0.0.0/29 is reserved for use within a host (RFC 7335, section
/// 4), so no destination has one of these addresses.
pub const PROGRAM_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 2);

/// IPv6 address of the program: a unique local address (RFC 4193).
pub const PROGRAM_V6: Ipv6Addr = Ipv6Addr::new(0xfd6c, 0x6f6e, 0x6768, 0x6175, 0, 0, 0, 2);

/// Addresses of the name servers, in the order of the host's; glibc uses at most three (`MAXNS`).
pub const RESOLVERS: [Ipv4Addr; 3] = [
    Ipv4Addr::new(192, 0, 0, 3),
    Ipv4Addr::new(192, 0, 0, 4),
    Ipv4Addr::new(192, 0, 0, 5),
];

/// Port of DNS.
pub const DNS_PORT: u16 = 53;

/// Returns true if the host may send to this address. Excluded are:
///
/// - loopback, `::`, and 0.0.0.0/8, by which a program would reach the host itself
/// - IPv4-mapped IPv6 addresses, to which the host would send as to the IPv4 address
/// - IPv6 link-local addresses, for which the interface is not known
/// - multicast, and the IPv4 broadcast address
/// - the program's own addresses, and those of its name servers
/// - port 0
pub fn may_leave(to: SocketAddr) -> bool {
    let ip = to.ip();
    let local = match ip {
        IpAddr::V4(ip) => ip.is_broadcast() || ip.octets().first() == Some(&0) || is_inside(ip),
        IpAddr::V6(ip) => {
            ip.is_unicast_link_local() || ip == PROGRAM_V6 || ip.to_canonical() != IpAddr::V6(ip)
        }
    };
    !local && !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast() && to.port() != 0
}

fn is_inside(ip: Ipv4Addr) -> bool {
    ip == PROGRAM_V4 || RESOLVERS.contains(&ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_and_multicast_addresses_are_excluded() {
        for near in [
            "127.0.0.1:80",
            "127.8.9.1:53",
            "0.0.0.0:80",
            "0.1.2.3:80",
            "255.255.255.255:67",
            "224.0.0.251:5353",
            "192.0.0.2:80",
            "192.0.0.3:80",
            "192.0.2.1:0",
            "[::1]:80",
            "[::]:80",
            "[fe80::1]:80",
            "[ff02::1]:80",
            "[::ffff:127.0.0.1]:80",
            "[::ffff:192.0.2.1]:80",
        ] {
            assert!(!may_leave(near.parse().unwrap()), "{near}");
        }
        for far in [
            "192.0.2.1:80",
            "10.0.0.1:1",
            "169.254.169.254:80",
            "[2001:db8::1]:80",
            "[fd00::1]:80",
        ] {
            assert!(may_leave(far.parse().unwrap()), "{far}");
        }
    }
}
