//! The route to a host: `RTM_GETROUTE`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::fact::{CommandName, Fact};
use crate::facts::{HostRoute, NetworkDevice};
use longhaul_netlink::{
    NetlinkAnswer, NetlinkSocket, attributes, find, parse_text, parse_u32, put,
};

const GET_ROUTE: u16 = 26;
const NEW_ROUTE: u16 = 24;
/// `struct rtmsg`.
const HEADER: usize = 12;

/// Addresses that only the default route covers: they are in documentation networks (RFC 5737, RFC
/// 3849), which no specific route names.
const DEFAULT_ROUTE_HOSTS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// Returns the route to `host`, or the default route.
pub(super) fn read(
    connection: &mut NetlinkSocket,
    host: Option<IpAddr>,
    links: &[(u32, NetworkDevice)],
) -> Fact<HostRoute> {
    let mut ask = |to: IpAddr| {
        let answer = connection
            .get(GET_ROUTE, &question(to))
            .map_err(|error| error.to_string())?;
        route(&answer, host, links)
            .ok_or_else(|| "it leads over no device that is up, except loopback".to_owned())
    };
    match host {
        Some(host) => ask(host)
            .map_err(|why| format!("no route to {host}: {why}"))
            .into(),
        None => {
            let [v4, v6] = DEFAULT_ROUTE_HOSTS;
            ask(v4)
                .or_else(|_| ask(v6))
                .map_err(|why| format!("no default route: {why}"))
                .into()
        }
    }
}

fn question(to: IpAddr) -> Vec<u8> {
    let (family, bits, address) = match to {
        IpAddr::V4(v4) => (libc::AF_INET, 32, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6, 128, v6.octets().to_vec()),
    };
    let mut body = vec![0; HEADER];
    if let [first, second, ..] = body.as_mut_slice() {
        *first = u8::try_from(family).unwrap_or_default();
        *second = bits;
    }
    put(&mut body, 1, &address); // RTA_DST
    body
}

fn route(
    (kind, payload): &NetlinkAnswer,
    host: Option<IpAddr>,
    links: &[(u32, NetworkDevice)],
) -> Option<HostRoute> {
    if *kind != NEW_ROUTE {
        return None;
    }
    let found = attributes(payload, HEADER);
    let device = find(&found, 4).and_then(parse_u32)?; // RTA_OIF
    let link = links.iter().find(|(index, _)| *index == device)?;
    let metrics = find(&found, 8)
        .map(|value| attributes(value, 0))
        .unwrap_or_default(); // RTA_METRICS
    let name = |of: &[u8]| parse_text(of).and_then(|text| CommandName::new(text).ok());
    Some(HostRoute {
        to: host,
        device: link.1.name.clone(),
        gateway: find(&found, 5).and_then(address), // RTA_GATEWAY
        source: find(&found, 7).and_then(address),  // RTA_PREFSRC
        mtu: find(&metrics, 2).and_then(parse_u32), // RTAX_MTU
        congestion: find(&metrics, 16).and_then(name), // RTAX_CC_ALGO
    })
}

/// Parses an address, by its length.
pub(super) fn address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => value.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
        16 => value
            .first_chunk::<16>()
            .map(|octets| IpAddr::from(*octets)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::links;
    use super::*;
    use longhaul_netlink::ROUTE;

    #[test]
    fn the_kernels_route_is_read_and_loopback_excluded() {
        let mut connection = NetlinkSocket::open(ROUTE).unwrap();
        let links = links::read(&mut connection).unwrap();
        let there = read(&mut connection, Some(Ipv4Addr::LOCALHOST.into()), &links);
        assert!(
            matches!(&there, Fact::Unknown(why) if why.as_str().contains("127.0.0.1")),
            "{there:?}"
        );
        match read(&mut connection, None, &links) {
            Fact::Known(route) => assert!(links.iter().any(|(_, link)| link.name == route.device)),
            Fact::Unknown(why) => assert!(why.as_str().contains("no default route"), "{why}"),
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = (route(&(NEW_ROUTE, bytes.clone()), None, &[]), address(&bytes));
        }
    }
}
