//! The two ends of a copy on the controller's map.

use std::net::IpAddr;

use longhaul_control_api::map::Map;
use longhaul_control_api::routes::TableQuery;
use longhaul_control_client::{ClientError, ControllerClient};
use longhaul_policy::HostPattern;
use longhaul_proto::Endpoint;

/// Names of both ends on the controller's map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapEnds {
    /// The end that sends.
    pub from: String,
    /// The end that receives.
    pub to: String,
}

/// Reasons why the ends are unknown.
#[derive(Debug, thiserror::Error)]
pub enum EndsError {
    /// The controller did not answer.
    #[error(transparent)]
    Asked(#[from] ClientError),
    /// This machine is not on the map. The controller's operator adds a host with its address, or
    /// grants this key under the name of a host.
    #[error(
        "this machine is not on the controller's map: ask its operator to add a host with its \
         address, or to grant this key the name of a host"
    )]
    NotOnMap,
}

/// Finds the ends. This machine is the host under whose name the controller knows its key, or else
/// the host with one of its addresses. The server is the host with its name, or with one of its
/// addresses.
///
/// # Errors
/// [`EndsError`].
pub async fn find(
    controller: &ControllerClient,
    server: &Endpoint,
    push: bool,
) -> Result<MapEnds, EndsError> {
    let map = controller.map().await?.map;
    let query = TableQuery {
        limit: Some(1),
        ..TableQuery::default()
    };
    let called = match controller.table(&query).await {
        Ok(table) => Some(table.from),
        // A key that may reserve need not have the right to ask for routes.
        Err(ClientError::Refused(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let called = called.filter(|name| is_on_map(&map, name));
    let own = match called {
        Some(own) => own,
        None => host_with_addresses(&map, &own_addresses()).ok_or(EndsError::NotOnMap)?,
    };
    let host = server.host.to_string();
    let far = match knows(&map, &host) {
        true => host,
        false => {
            let found = tokio::net::lookup_host((host.as_str(), server.port)).await;
            let found: Vec<IpAddr> = found
                .map(|found| found.map(|at| at.ip()).collect())
                .unwrap_or_default();
            // A host that is not on the map is refused by the controller, in its own words.
            host_with_addresses(&map, &found).unwrap_or(host)
        }
    };
    Ok(match push {
        true => MapEnds { from: own, to: far },
        false => MapEnds { from: far, to: own },
    })
}

fn own_addresses() -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let outside = interfaces
        .iter()
        .filter(|interface| !interface.is_loopback());
    outside.map(if_addrs::Interface::ip).collect()
}

/// Returns true if the map has a host, or a depot at a site, of that name.
fn is_on_map(map: &Map, name: &str) -> bool {
    map.host(name).is_some() || map.depot(name).is_some_and(|depot| depot.site.is_some())
}

fn knows(map: &Map, host: &str) -> bool {
    let address = host.parse().ok();
    let name = Some(host).filter(|_| address.is_none());
    is_on_map(map, host) || map.site(host).is_some() || known_by(map, address, name).is_some()
}

fn host_with_addresses(map: &Map, addresses: &[IpAddr]) -> Option<String> {
    addresses
        .iter()
        .find_map(|address| known_by(map, Some(*address), None))
}

fn known_by(map: &Map, address: Option<IpAddr>, name: Option<&str>) -> Option<String> {
    let is_it = |pattern: &String| {
        let pattern = pattern.parse::<HostPattern>();
        pattern.is_ok_and(|pattern| pattern.matches(address, name))
    };
    let host = map
        .hosts
        .iter()
        .find(|host| host.addresses.iter().any(&is_it))?;
    Some(host.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_found_by_name_and_by_address() {
        let map: Map = serde_json::from_value(serde_json::json!({
            "sites": [{"name": "west"}],
            "hosts": [{
                "name": "dtn1", "site": "west", "addresses": ["192.0.2.0/24", "*.west.example"]
            }]
        }))
        .unwrap();
        for known in ["dtn1", "west", "192.0.2.7", "a.west.example"] {
            assert!(knows(&map, known), "{known}");
        }
        for unknown in ["dtn2", "198.51.100.1", "west.example"] {
            assert!(!knows(&map, unknown), "{unknown}");
        }
        let addresses = ["198.51.100.1", "192.0.2.9"].map(|text| text.parse().unwrap());
        assert_eq!(
            host_with_addresses(&map, &addresses).as_deref(),
            Some("dtn1")
        );
        assert_eq!(host_with_addresses(&map, &addresses[..1]), None);
    }
}
