//! Addresses and ports to listen on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use longhaul_proto::PortRange;

/// Returns the ports to try in order. Without a range this is 0, which takes a free one.
pub(crate) fn candidates(range: Option<PortRange>) -> impl Iterator<Item = u16> {
    range.map_or(0..=0, PortRange::ports)
}

/// Returns every address to listen on at `port`: both families if the system has IPv6, or else
/// IPv4.
pub(crate) fn everywhere(port: u16) -> [SocketAddr; 2] {
    [
        SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port),
        SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port),
    ]
}
