//! What a controller has granted, in the planner's terms, and which ways of a copy follow from it. Pure.

#![deny(clippy::indexing_slicing)] // what is read here comes from a controller

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use longhaul_control_api::reservations::{LinkDirection, Offers, Reservation, ReservedPath, Wish};
use longhaul_deadline::{Moment, PathId, Piece, Refusal};
use longhaul_proto::Route;
use longhaul_transfer::Pinned;

/// Most paths that are told apart in one copy: a reservation has eight at most, and changes few times.
const MAX_PATHS: usize = 1024;

/// Paths that were granted so far; their places are their numbers.
#[derive(Debug)]
pub struct Paths {
    known: Vec<Path>,
    pins: bool,
}

#[derive(Debug, PartialEq)]
struct Path {
    links: Vec<LinkDirection>,
    ports: Option<RangeInclusive<u16>>,
}

impl Paths {
    /// None so far, of a copy that can have its streams leave from ports of its own, or not.
    pub const fn new(pins: bool) -> Self {
        Self {
            known: Vec::new(),
            pins,
        }
    }

    /// What is granted: what is held, if anything is, and else what is promised.
    pub fn pieces(&mut self, reservation: &Reservation) -> Vec<Piece> {
        let held = reservation.held.as_ref().map(|held| &held.pieces);
        let pieces = held.unwrap_or(&reservation.pieces).iter().map(|piece| Piece {
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
        let path = Path {
            links: path.links.clone(),
            ports: ports_of(path, self.pins),
        };
        let known = self.known.iter().position(|known| *known == path);
        let place = match known {
            Some(place) => place,
            None if self.known.len() < MAX_PATHS => {
                self.known.push(path);
                self.known.len() - 1
            }
            None => return None,
        };
        u32::try_from(place).ok().map(PathId)
    }

    /// The way by which a copy uses a path; none where the network does not tell its streams from others by their ports.
    pub fn pinned(&self, path: PathId) -> Option<Pinned> {
        let path = self.known.get(usize::try_from(path.0).ok()?)?;
        Some(Pinned {
            route: Route::direct(),
            ports: path.ports.clone()?,
        })
    }

    /// The paths that a way stands for, by the way's name.
    pub fn named(&self, name: &str) -> Vec<PathId> {
        let all = (0..).map(PathId).take(self.known.len());
        all.filter(|path| self.pinned(*path).is_some_and(|pinned| pinned.name() == name))
            .collect()
    }

    /// The paths that pass one of these links.
    pub fn over(&self, links: &[LinkDirection]) -> BTreeSet<PathId> {
        let passes = |path: &Path| path.links.iter().any(|link| links.contains(link));
        let numbered = (0..).map(PathId).zip(&self.known);
        numbered
            .filter(|(_, path)| passes(path))
            .map(|(id, _)| id)
            .collect()
    }
}

/// The source ports by which the network knows the streams of a path.
fn ports_of(path: &ReservedPath, pins: bool) -> Option<RangeInclusive<u16>> {
    let ports = path.source_ports.filter(|_| pins)?;
    (ports.first > 0 && ports.first <= ports.last).then_some(ports.first..=ports.last)
}

/// What could be had, in the planner's terms.
pub fn refusal(offers: &Offers) -> Refusal {
    let volume = offers.volume.as_ref().and_then(|offer| match offer.request.wish {
        Wish::Volume { bytes, .. } => Some(bytes),
        Wish::Rate { .. } => None,
    });
    let later: Option<Moment> = offers.later.as_ref().map(|offer| offer.request.end_ms);
    Refusal { volume, later }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reservation(pieces: serde_json::Value) -> Reservation {
        serde_json::from_value(serde_json::json!({
            "id": 1, "owner": "k", "owner_name": "ana", "from": "dtn1", "to": "store", "wish": {"volume": {"bytes": 5}},
            "start_ms": 1, "end_ms": 9, "paths": 2, "disjoint": "no", "preference": "fewest-hops", "pieces": pieces, "created_ms": 0,
            "state": {"reserve": "start", "provision": "provisioned", "life": "created"}
        }))
        .unwrap()
    }

    #[test]
    fn granted_paths_are_ways_where_they_have_ports() {
        let link = |name: &str| serde_json::json!([{"link": name, "from": "west", "to": "east"}]);
        let granted = reservation(serde_json::json!([
            {"start_ms": 1, "end_ms": 5, "paths": [
                {"rate_bps": 10, "links": link("a"), "source_ports": {"first": 10240, "last": 10303}}, {"rate_bps": 5, "links": link("b")}]},
            {"start_ms": 5, "end_ms": 9, "paths": [
                {"rate_bps": 20, "links": link("a"), "source_ports": {"first": 10240, "last": 10303}}]}
        ]));
        let mut paths = Paths::new(true);
        let pieces = paths.pieces(&granted);
        let of: Vec<_> = pieces.into_iter().map(|piece| piece.paths).collect();
        assert_eq!(
            of,
            [vec![(PathId(0), 10.0), (PathId(1), 5.0)], vec![(PathId(0), 20.0)]]
        );
        let pinned = paths.pinned(PathId(0)).unwrap();
        assert_eq!(pinned.name(), "direct from ports 10240-10303");
        assert_eq!(paths.named(&pinned.name()), [PathId(0)]);
        assert_eq!(paths.pinned(PathId(1)), None);
        let link = |name: &str| LinkDirection {
            link: name.to_owned(),
            from: "west".to_owned(),
            to: "east".to_owned(),
        };
        assert_eq!(paths.over(&[link("b")]), BTreeSet::from([PathId(1)]));
        // What is fetched, for instance, does not leave from ports of this end.
        let mut fetched = Paths::new(false);
        fetched.pieces(&granted);
        assert_eq!(fetched.pinned(PathId(0)), None);
        // Ports that are none.
        let odd = serde_json::json!([{"start_ms": 1, "end_ms": 5, "paths": [
            {"rate_bps": 10, "links": [], "source_ports": {"first": 9, "last": 8}}]}]);
        let mut paths = Paths::new(true);
        paths.pieces(&reservation(odd));
        assert_eq!(paths.pinned(PathId(0)), None);
    }
}
