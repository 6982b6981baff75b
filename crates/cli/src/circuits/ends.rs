//! The ends of a connection on the controller's map, by its addresses. Pure.

use std::net::{IpAddr, SocketAddr};

use longhaul_control_api::map::Map;
use longhaul_policy::HostPattern;
use longhaul_proto::Host;
use longhaul_wishes::FlowDirection;

/// Ends of a circuit around a connection, in the direction of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CircuitEnds {
    /// Name of the end that sends.
    pub from: String,
    /// Its address.
    pub from_address: Option<IpAddr>,
    /// Name of the end that receives.
    pub to: String,
    /// Its address.
    pub to_address: Option<IpAddr>,
}

/// An end of the connection is not on the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} is not on the controller's map: its operator adds a host or a depot with that address"
)]
pub struct UnknownEnd(IpAddr);

/// Finds the ends of a connection from `local` to `peer`.
///
/// # Errors
/// [`UnknownEnd`].
pub fn find(
    map: &Map,
    direction: FlowDirection,
    local: SocketAddr,
    peer: SocketAddr,
) -> Result<CircuitEnds, UnknownEnd> {
    let (from, to) = match direction {
        FlowDirection::Send => (local, peer),
        FlowDirection::Receive => (peer, local),
    };
    let [from, to] = [from, to].map(|end| end.ip().to_canonical());
    let name = |address| name(map, address).ok_or(UnknownEnd(address));
    Ok(CircuitEnds {
        from: name(from)?,
        from_address: Some(from),
        to: name(to)?,
        to_address: Some(to),
    })
}

/// Returns the name of the host or depot with an address.
fn name(map: &Map, address: IpAddr) -> Option<String> {
    let is_it = |pattern: &String| {
        let pattern = pattern.parse::<HostPattern>();
        pattern.is_ok_and(|pattern| pattern.matches(Some(address), None))
    };
    let mut hosts = map.hosts.iter();
    if let Some(host) = hosts.find(|host| host.addresses.iter().any(is_it)) {
        return Some(host.name.clone());
    }
    let mut depots = map.depots.iter();
    let depot = depots.find(|depot| {
        let mut hosts = depot.addresses.iter().map(|at| &at.endpoint.host);
        hosts.any(|host| *host == Host::Ip(address))
    });
    depot.map(|depot| depot.name.clone())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn hosts_and_depots_are_found_by_address() {
        let key = "lhk1:aeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaq";
        let map: Map = serde_json::from_value(serde_json::json!({
            "sites": [{"name": "west"}],
            "hosts": [{"name": "dtn1", "site": "west", "addresses": ["192.0.2.0/24"]}],
            "depots": [{
                "name": "near", "key": key, "site": "west",
                "addresses": [{"endpoint": "198.51.100.1:7510"}]
            }]
        }))
        .unwrap();
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (host, depot) = (at("192.0.2.7:40000"), at("[::ffff:198.51.100.1]:7510"));
        let sent = find(&map, FlowDirection::Send, host, depot).unwrap();
        assert_eq!((&*sent.from, &*sent.to), ("dtn1", "near"));
        assert_eq!(sent.to_address, Some("198.51.100.1".parse().unwrap()));
        let received = find(&map, FlowDirection::Receive, host, depot).unwrap();
        assert_eq!((&*received.from, &*received.to), ("near", "dtn1"));
        let unknown = find(&map, FlowDirection::Send, host, at("203.0.113.1:80")).unwrap_err();
        assert!(
            unknown
                .to_string()
                .contains("203.0.113.1 is not on the controller's map")
        );
    }
}
