//! Translates a controller's grants to the planner's terms and to reserved routes of a copy. Pure.

#![deny(clippy::indexing_slicing)] // what is read here comes from a controller

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use longhaul_control_api::reservations::{
    CircuitStanding, LinkDirection, Offers, PathGrant, PathGrants, Reservation, ReservedPath, Wish,
};
use longhaul_deadline::promise::used_until;
use longhaul_deadline::{PathId, PromisedPiece, RefusalOffers, UnixMillis};
use longhaul_proto::{CircuitGrant, Hop, Host, Route};
use longhaul_transfer::{ReservationMark, ReservedRoute};

/// Maximum number of paths distinguished in one copy. A reservation has eight at most, and changes
/// rarely.
const MAX_PATHS: usize = 1024;

/// Shortest time between two requests for grants, in milliseconds.
const MIN_RENEWAL_MS: UnixMillis = 1_000;

/// Returns the moment to request grants again: after half of their remaining time. A controller
/// that is briefly unavailable is thus asked again before they end.
pub fn renewal_due(now: UnixMillis, end: UnixMillis) -> UnixMillis {
    let half = end.saturating_sub(now) / 2;
    now.saturating_add(half.max(MIN_RENEWAL_MS))
}

/// Paths that were granted so far. The index of a path is its number.
#[derive(Debug)]
pub struct GrantedPaths {
    known: Vec<GrantedPath>,
    /// The latest granted routes over depots.
    granted: Vec<DepotRoute>,
    pins: bool,
    push: bool,
    server: Host,
}

#[derive(Debug)]
struct DepotRoute {
    links: Vec<LinkDirection>,
    route: Route,
    grant: Arc<CircuitGrant>,
}

#[derive(Debug, PartialEq)]
struct GrantedPath {
    links: Vec<LinkDirection>,
    ports: Option<RangeInclusive<u16>>,
}

impl GrantedPaths {
    /// Creates an empty set. `push` is true for a copy to `server`; `pins` is true if its streams
    /// can leave from chosen ports.
    pub const fn new(server: Host, pins: bool, push: bool) -> Self {
        Self {
            known: Vec::new(),
            granted: Vec::new(),
            pins,
            push,
            server,
        }
    }

    /// Replaces the grants in force. Invalid ones are ignored.
    pub fn grant(&mut self, grants: &PathGrants) {
        let by_depots = grants
            .items
            .iter()
            .filter_map(|item| self.depot_route(item));
        self.granted = by_depots.collect();
    }

    /// Forgets all grants.
    pub fn forget_grants(&mut self) {
        self.granted.clear();
    }

    fn depot_route(&self, item: &PathGrant) -> Option<DepotRoute> {
        let route = item.route.as_ref()?.parse::<Route>().ok()?;
        // A depot does not dial its own machine.
        let mut hops: Vec<Hop> = route
            .hops()
            .iter()
            .filter(|hop| hop.endpoint.host != self.server)
            .cloned()
            .collect();
        if !self.push {
            // The controller lists hops from sender to receiver, but this end dials from the
            // receiver.
            hops.reverse();
        }
        let route = Route::new(hops).ok()?;
        let grant = item.grant.as_ref()?.parse::<CircuitGrant>().ok()?;
        (!route.is_direct()).then(|| DepotRoute {
            links: item.path.links.clone(),
            route,
            grant: Arc::new(grant),
        })
    }

    /// Returns the granted pieces: those of the held reservation if there is one, and else the
    /// promised ones.
    pub fn pieces(&mut self, reservation: &Reservation) -> Vec<PromisedPiece> {
        let held = reservation.held.as_ref().map(|held| &held.pieces);
        let pieces = held
            .unwrap_or(&reservation.pieces)
            .iter()
            .map(|piece| PromisedPiece {
                start: piece.start_ms,
                end: piece.end_ms,
                paths: piece
                    .paths
                    .iter()
                    .filter_map(|path| Some((self.number(path)?, path.rate_bps as f64)))
                    .collect(),
            });
        pieces.collect()
    }

    fn number(&mut self, path: &ReservedPath) -> Option<PathId> {
        let path = GrantedPath {
            links: path.links.clone(),
            ports: source_ports(path, self.pins),
        };
        let known = self.known.iter().position(|known| *known == path);
        let index = match known {
            Some(index) => index,
            None if self.known.len() < MAX_PATHS => {
                self.known.push(path);
                self.known.len() - 1
            }
            None => return None,
        };
        u32::try_from(index).ok().map(PathId)
    }

    /// Returns the reserved route for a path at a moment. A path with a grant goes over its depots;
    /// otherwise source ports distinguish its streams in the network.
    pub fn reserved_route(&self, path: PathId, now: UnixMillis) -> Option<ReservedRoute> {
        let known = self.known.get(usize::try_from(path.0).ok()?)?;
        let Some(by_depots) = self.over_depots(known) else {
            return Some(ReservedRoute {
                route: Route::direct(),
                mark: ReservationMark::Ports(known.ports.clone()?),
            });
        };
        let (start, end) = (by_depots.grant.start_unix_ms, by_depots.grant.end_unix_ms);
        (start..used_until(start, end))
            .contains(&now)
            .then(|| by_depots.reserved_route())
    }

    fn over_depots(&self, path: &GrantedPath) -> Option<&DepotRoute> {
        self.granted
            .iter()
            .find(|granted| granted.links == path.links)
    }

    /// Returns the paths that a reserved route of this name stands for.
    pub fn paths_of_route(&self, name: &str) -> Vec<PathId> {
        let is_named = |path: &GrantedPath| match (self.over_depots(path), &path.ports) {
            (Some(by_depots), _) => by_depots.reserved_route().name() == name,
            (None, Some(ports)) => {
                let (route, mark) = (Route::direct(), ReservationMark::Ports(ports.clone()));
                ReservedRoute { route, mark }.name() == name
            }
            (None, None) => false,
        };
        let numbered = (0..).map(PathId).zip(&self.known);
        let found = numbered
            .filter(|(_, path)| is_named(path))
            .map(|(id, _)| id);
        found.collect()
    }

    /// Returns the paths that use one of these links.
    pub fn paths_over_links(&self, links: &[LinkDirection]) -> BTreeSet<PathId> {
        let passes = |path: &GrantedPath| path.links.iter().any(|link| links.contains(link));
        let numbered = (0..).map(PathId).zip(&self.known);
        numbered
            .filter(|(_, path)| passes(path))
            .map(|(id, _)| id)
            .collect()
    }
}

impl DepotRoute {
    fn reserved_route(&self) -> ReservedRoute {
        ReservedRoute {
            route: self.route.clone(),
            mark: ReservationMark::Grant(self.grant.clone()),
        }
    }
}

/// Returns true if the nodes of the network hold the whole circuit of a reservation. Then streams
/// are identified by their ports: depots would send streams from addresses that the nodes do not
/// know.
pub fn is_held_by_network(reservation: &Reservation) -> bool {
    reservation.circuit.as_ref().is_some_and(|circuit| {
        let is_managed = matches!(
            circuit.standing,
            CircuitStanding::Waiting | CircuitStanding::SettingUp | CircuitStanding::SetUp
        );
        is_managed && circuit.not_set_up.is_empty()
    })
}

/// Returns the source ports that identify the streams of a path in the network.
fn source_ports(path: &ReservedPath, pins: bool) -> Option<RangeInclusive<u16>> {
    let ports = path.source_ports.filter(|_| pins)?;
    (ports.first > 0 && ports.first <= ports.last).then_some(ports.first..=ports.last)
}

/// Translates the controller's offers to the planner's terms.
pub fn refusal(offers: &Offers) -> RefusalOffers {
    let volume = offers
        .volume
        .as_ref()
        .and_then(|offer| match offer.request.wish {
            Wish::Volume { bytes, .. } => Some(bytes),
            Wish::Rate { .. } => None,
        });
    let later: Option<UnixMillis> = offers.later.as_ref().map(|offer| offer.request.end_ms);
    RefusalOffers { volume, later }
}

#[cfg(test)]
mod tests {
    use longhaul_proto::SigningKey;

    use super::*;

    fn server() -> Host {
        "store.example:7511"
            .parse::<longhaul_proto::Endpoint>()
            .unwrap()
            .host
    }

    fn reservation(pieces: serde_json::Value) -> Reservation {
        serde_json::from_value(serde_json::json!({
            "id": 1, "owner": "k", "owner_name": "ana", "from": "dtn1", "to": "store",
            "wish": {"volume": {"bytes": 5}},
            "start_ms": 1, "end_ms": 9, "paths": 2, "disjoint": "no", "preference": "fewest-hops",
            "pieces": pieces, "created_ms": 0,
            "state": {"reserve": "start", "provision": "provisioned", "life": "created"}
        }))
        .unwrap()
    }

    #[test]
    fn granted_paths_with_ports_become_reserved_routes() {
        let link = |name: &str| serde_json::json!([{"link": name, "from": "west", "to": "east"}]);
        let granted = reservation(serde_json::json!([
            {"start_ms": 1, "end_ms": 5, "paths": [
                {
                    "rate_bps": 10, "links": link("a"),
                    "source_ports": {"first": 10240, "last": 10303}
                },
                {"rate_bps": 5, "links": link("b")}]},
            {"start_ms": 5, "end_ms": 9, "paths": [
                {
                    "rate_bps": 20, "links": link("a"),
                    "source_ports": {"first": 10240, "last": 10303}
                }]}
        ]));
        let mut paths = GrantedPaths::new(server(), true, true);
        let pieces = paths.pieces(&granted);
        let of: Vec<_> = pieces.into_iter().map(|piece| piece.paths).collect();
        assert_eq!(
            of,
            [
                vec![(PathId(0), 10.0), (PathId(1), 5.0)],
                vec![(PathId(0), 20.0)]
            ]
        );
        let pinned = paths.reserved_route(PathId(0), 3).unwrap();
        assert_eq!(pinned.name(), "direct from ports 10240-10303");
        assert_eq!(paths.paths_of_route(&pinned.name()), [PathId(0)]);
        assert_eq!(paths.reserved_route(PathId(1), 3), None);
        let link = |name: &str| LinkDirection {
            link: name.to_owned(),
            from: "west".to_owned(),
            to: "east".to_owned(),
        };
        assert_eq!(
            paths.paths_over_links(&[link("b")]),
            BTreeSet::from([PathId(1)])
        );
        // For example, fetched streams do not leave from ports of this end.
        let mut fetched = GrantedPaths::new(server(), false, false);
        fetched.pieces(&granted);
        assert_eq!(fetched.reserved_route(PathId(0), 3), None);
        // An invalid range of ports.
        let odd = serde_json::json!([{"start_ms": 1, "end_ms": 5, "paths": [
            {"rate_bps": 10, "links": [], "source_ports": {"first": 9, "last": 8}}]}]);
        let mut paths = GrantedPaths::new(server(), true, true);
        paths.pieces(&reservation(odd));
        assert_eq!(paths.reserved_route(PathId(0), 3), None);
    }

    #[test]
    fn a_path_uses_its_granted_depots_while_the_grant_lasts() {
        let [controller, depot, other, holder] = [(); 4].map(|()| SigningKey::generate().unwrap());
        let links = serde_json::json!([{"link": "a", "from": "west", "to": "east"}]);
        let path = serde_json::json!({
            "rate_bps": 10, "links": links, "source_ports": {"first": 10240, "last": 10303}
        });
        let granted =
            reservation(serde_json::json!([{"start_ms": 0, "end_ms": 80_000, "paths": [path]}]));
        let mut grant = CircuitGrant {
            circuit: b"1".to_vec(),
            holder: holder.public(),
            from: "dtn1".to_owned(),
            to: "store".to_owned(),
            start_unix_ms: 0,
            end_unix_ms: 80_000,
            rate: 10,
            sessions: 4,
            depots: vec![depot.public()],
            issuer: controller.public(),
            signature: [0; 64],
        };
        grant.sign(&controller).unwrap();
        let [one, two] = [&depot, &other].map(|key| format!("{}@depot.example:7510", key.public()));
        let at_server = format!("{}@store.example:7510", holder.public());
        let granted_by = |grant: &CircuitGrant| -> PathGrants {
            serde_json::from_value(
                serde_json::json!({"start_ms": 0, "end_ms": 80_000, "items": [
                {
                    "path": path, "depots": ["d"], "route": format!("{one},{two},{at_server}"),
                    "grant": grant.to_text().unwrap()
                }]}),
            )
            .unwrap()
        };
        let grants = granted_by(&grant);
        let mut renewed = grant.clone();
        renewed.end_unix_ms = 140_000;
        renewed.sign(&controller).unwrap();
        for (push, route) in [
            (true, format!("{one},{two}")),
            (false, format!("{two},{one}")),
        ] {
            let mut paths = GrantedPaths::new(server(), push, push);
            paths.pieces(&granted);
            paths.grant(&grants);
            let reserved = paths.reserved_route(PathId(0), 70_000).unwrap();
            assert_eq!(reserved.name(), format!("{route} by circuit 1"));
            assert_eq!(
                reserved.mark,
                ReservationMark::Grant(Arc::new(grant.clone()))
            );
            assert_eq!(paths.paths_of_route(&reserved.name()), [PathId(0)]);
            assert_eq!(
                paths.reserved_route(PathId(0), 79_000),
                None,
                "it is about to end"
            );
            // The controller was away for a while; the next grant is for the same route.
            assert_eq!(
                paths.reserved_route(PathId(0), 100_000),
                None,
                "best effort alone"
            );
            paths.grant(&granted_by(&renewed));
            assert_eq!(
                paths.reserved_route(PathId(0), 100_000).unwrap().name(),
                reserved.name()
            );
            paths.forget_grants();
            assert_eq!(
                paths.reserved_route(PathId(0), 70_000).is_some(),
                push,
                "by its ports, if at all"
            );
        }
        // Invalid grants are ignored.
        let mut odd = grants;
        for item in &mut odd.items {
            item.grant = Some("lhg1:a".to_owned());
        }
        let mut paths = GrantedPaths::new(server(), false, true);
        paths.pieces(&granted);
        paths.grant(&odd);
        assert_eq!(paths.reserved_route(PathId(0), 70_000), None);
    }

    #[test]
    fn grants_are_renewed_at_half_their_time() {
        assert_eq!(renewal_due(100_000, 160_000), 130_000);
        assert_eq!(
            renewal_due(100_000, 100_500),
            101_000,
            "not without a pause"
        );
        assert_eq!(renewal_due(100_000, 0), 101_000, "by a clock that is ahead");
        // Grants of a period that begins later are issued in the minute before.
        let (start, mut now) = (1_000_000, 0);
        while now + 60_000 <= start {
            now = renewal_due(now, start + 60_000);
        }
        assert!(now < start, "{now}");
    }

    #[test]
    fn a_circuit_held_by_the_network_is_recognized() {
        let mut one = reservation(serde_json::json!([]));
        assert!(!is_held_by_network(&one));
        for (standing, not_set_up, is_held) in [
            ("set-up", serde_json::json!([]), true),
            ("setting-up", serde_json::json!([]), true),
            ("set-up", serde_json::json!(["east"]), false),
            ("unmanaged", serde_json::json!([]), false),
        ] {
            let circuit = serde_json::json!({"standing": standing, "not_set_up": not_set_up});
            one.circuit = serde_json::from_value(circuit).unwrap();
            assert_eq!(is_held_by_network(&one), is_held, "{standing}");
        }
    }
}
