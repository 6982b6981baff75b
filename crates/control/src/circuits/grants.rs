//! Grants of the paths of a reservation, for the depots on them.

use std::collections::BTreeSet;

use longhaul_control_api::map::{Depot, DepotAddress, Map, Transport};
use longhaul_control_api::reservations::{
    LifeState, PathGrant, PathGrants, ProvisionState, Reservation, ReservedPath,
};
use longhaul_proto::text::printable;
use longhaul_proto::{CircuitGrant, Endpoint, Hop, MAX_GRANT_DEPOTS, PublicKey, Route, SigningKey};

use crate::reservations::streams::PORTS_OF_PATH;

/// Longest name of an end in a grant, in bytes.
const MAX_END_BYTES: usize = 64;

/// Why nothing is granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoGrants {
    /// It is not to be used now.
    #[error("reservation {0} is not provisioned: longhaul reservations {0} provision")]
    Released(u64),
    /// Nothing of it is to come.
    #[error("nothing of reservation {0} is left: reserve anew")]
    Over(u64),
    /// It can't be signed.
    #[error("the grant can't be made: {0}")]
    Sign(String),
}

/// Grants for the stretch of time that lasts, or comes next.
///
/// # Errors
/// [`NoGrants`].
pub fn grants(
    reservation: &Reservation,
    map: &Map,
    holder: PublicKey,
    signer: &SigningKey,
    now_ms: u64,
) -> Result<PathGrants, NoGrants> {
    let state = reservation.state;
    if state.life != LifeState::Created {
        return Err(NoGrants::Over(reservation.id));
    }
    let is_wanted = matches!(
        state.provision,
        Some(ProvisionState::Provisioning | ProvisionState::Provisioned)
    );
    if !is_wanted {
        return Err(NoGrants::Released(reservation.id));
    }
    let mut pieces = reservation.pieces.iter();
    let piece = pieces.find(|piece| piece.end_ms > now_ms);
    let piece = piece.ok_or(NoGrants::Over(reservation.id))?;
    let is_one = piece.paths.len() == 1;
    let items = piece.paths.iter().zip(1..).map(|(path, place): (_, usize)| {
        let on_it = OnPath::of(path, map);
        let circuit = match is_one {
            true => reservation.id.to_string(),
            false => format!("{}.{place}", reservation.id),
        };
        let mut grant = CircuitGrant {
            circuit: circuit.into_bytes(),
            holder,
            from: end(&reservation.from),
            to: end(&reservation.to),
            start_unix_ms: piece.start_ms,
            end_unix_ms: piece.end_ms,
            rate: path.rate_bps,
            // As many as have source ports.
            sessions: PORTS_OF_PATH,
            depots: on_it.keys().into_iter().collect(),
            issuer: signer.public(),
            signature: [0; 64],
        };
        let text = match grant.depots.is_empty() {
            true => None,
            false => {
                grant
                    .sign(signer)
                    .map_err(|error| NoGrants::Sign(error.to_string()))?;
                let text = grant.to_text();
                Some(text.map_err(|error| NoGrants::Sign(error.to_string()))?)
            }
        };
        Ok(PathGrant {
            path: path.clone(),
            depots: on_it.names(),
            route: on_it.route().map(|route| route.to_string()),
            grant: text,
        })
    });
    Ok(PathGrants {
        start_ms: piece.start_ms,
        end_ms: piece.end_ms,
        items: items.collect::<Result<_, NoGrants>>()?,
    })
}

/// The depots at the sites of a path.
struct OnPath<'a> {
    /// In the order in which the bytes pass the sites; of one site, in the map's order.
    all: Vec<&'a Depot>,
}

impl<'a> OnPath<'a> {
    fn of(path: &ReservedPath, map: &'a Map) -> Self {
        let first = path.links.first().map(|link| &link.from);
        let sites = first.into_iter().chain(path.links.iter().map(|link| &link.to));
        let at = |site| {
            map.depots
                .iter()
                .filter(move |depot| depot.site.as_ref() == Some(site))
        };
        Self {
            all: sites.flat_map(at).collect(),
        }
    }

    /// Those that a way passes: of each site the first that can be reached and is not known to be away.
    fn passed(&self) -> Vec<&'a Depot> {
        let mut passed: Vec<&Depot> = Vec::new();
        for depot in &self.all {
            let is_there = address(depot).is_some() && depot.state.usable();
            let is_new = passed.last().is_none_or(|last| last.site != depot.site);
            if is_there && is_new {
                passed.push(depot);
            }
        }
        passed
    }

    /// Those that the grant is for, by key.
    fn keys(&self) -> BTreeSet<PublicKey> {
        // Where there are more than one grant has room for, those that ways pass come first.
        let passed = self.passed();
        let others = self.all.iter().copied();
        let mut keys = BTreeSet::new();
        for depot in passed.into_iter().chain(others) {
            if keys.len() < MAX_GRANT_DEPOTS {
                keys.insert(depot.key);
            }
        }
        keys
    }

    fn names(&self) -> Vec<String> {
        let keys = self.keys();
        let granted = self.all.iter().filter(|depot| keys.contains(&depot.key));
        granted.map(|depot| depot.name.clone()).collect()
    }

    /// The way over them; none without depots, and beyond what a route has room for (LH-ROUTE-4).
    fn route(&self) -> Option<Route> {
        let hops = self.passed().into_iter().filter_map(|depot| {
            Some(Hop {
                endpoint: address(depot)?.clone(),
                strict: true,
                key: Some(depot.key),
            })
        });
        let route = Route::new(hops.collect()).ok()?;
        (!route.is_direct()).then_some(route)
    }
}

/// Where a depot is dialled.
fn address(depot: &Depot) -> Option<&Endpoint> {
    let takes_tcp = |address: &&DepotAddress| address.transports.contains(&Transport::Tcp);
    Some(&depot.addresses.iter().find(takes_tcp)?.endpoint)
}

/// An end's name as grants have it.
fn end(name: &str) -> String {
    let mut name = printable(name.as_bytes());
    let mut most = MAX_END_BYTES.min(name.len());
    while !name.is_char_boundary(most) {
        most -= 1;
    }
    name.truncate(most);
    name
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_path_has_a_grant_for_the_depots_on_it() {
        let [signer, depot, other] = [(); 3].map(|()| SigningKey::generate().unwrap());
        let map: Map = serde_json::from_value(json!({
            "sites": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
            "depots": [
                {"name": "on-it", "key": depot.public().to_string(), "site": "b", "addresses": []},
                {"name": "elsewhere", "key": other.public().to_string(), "site": "c", "addresses": []},
            ],
        }))
        .unwrap();
        let reservation = |provision: &str| -> Reservation {
            serde_json::from_value(json!({
                "id": 12, "owner": "k", "owner_name": "ana", "from": "dtn1", "to": "store", "wish": {"rate": {"rate_bps": 5}},
                "start_ms": 0, "end_ms": 100, "paths": 1, "disjoint": "no", "preference": "fewest-hops", "created_ms": 0,
                "pieces": [
                    {"start_ms": 0, "end_ms": 50, "paths": [{"rate_bps": 4, "links": [{"link": "ab", "from": "a", "to": "b"}]}]},
                    {"start_ms": 50, "end_ms": 100, "paths": [{"rate_bps": 5, "links": [{"link": "ab", "from": "a", "to": "b"}]}]},
                ],
                "state": {"reserve": "start", "provision": provision, "life": "created"},
            }))
            .unwrap()
        };
        let holder = other.public();
        let found = grants(&reservation("provisioned"), &map, holder, &signer, 60).unwrap();
        assert_eq!(
            (found.start_ms, found.items[0].depots.clone()),
            (50, vec!["on-it".to_owned()])
        );
        assert_eq!(found.items[0].route, None, "nobody knows where it listens");
        let grant: CircuitGrant = found.items[0].grant.as_ref().unwrap().parse().unwrap();
        assert_eq!((grant.rate, &grant.circuit[..]), (5, &b"12"[..]));
        let trusts = |issuer: &PublicKey| *issuer == signer.public();
        assert_eq!(grant.check(&holder, &depot.public(), 60, trusts), Ok(()));
        let none =
            |reservation: &Reservation, now| grants(reservation, &map, holder, &signer, now).unwrap_err();
        assert_eq!(none(&reservation("released"), 60), NoGrants::Released(12));
        assert_eq!(none(&reservation("provisioned"), 100), NoGrants::Over(12));
    }

    #[test]
    fn a_way_passes_one_depot_of_each_site_in_the_order_of_the_path() {
        let path: ReservedPath = serde_json::from_value(json!({"rate_bps": 4, "links": [
            {"link": "ca", "from": "c", "to": "a"}, {"link": "ab", "from": "a", "to": "b"}]}))
        .unwrap();
        let keys = [(); 5].map(|()| SigningKey::generate().unwrap().public());
        let depot = |at: usize, name: &str, site: &str, is_stale: bool| {
            let state = match is_stale {
                true => json!({"state": "stale", "heard": 0.0, "until": 1.0}),
                false => json!({"state": "listed"}),
            };
            json!({"name": name, "key": keys[at].to_string(), "site": site, "state": state,
                "addresses": [{"endpoint": format!("{name}.example:7510")}]})
        };
        let map: Map = serde_json::from_value(json!({
            "sites": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}],
            "depots": [depot(0, "a0", "a", true), depot(1, "a1", "a", false), depot(2, "a2", "a", false), depot(3, "c0", "c", false),
                depot(4, "d0", "d", false)],
        }))
        .unwrap();
        let on_it = OnPath::of(&path, &map);
        assert_eq!(on_it.names(), ["c0", "a0", "a1", "a2"]);
        let [c0, a1] = [(3, "c0"), (1, "a1")]
            .map(|(at, name): (usize, &str)| format!("{}@{name}.example:7510", keys[at]));
        let way = on_it.route().map(|route| route.to_string());
        assert_eq!(way, Some(format!("{c0},{a1}")));
        let nowhere = OnPath { all: Vec::new() };
        assert_eq!(nowhere.route(), None);
    }
}
