//! Checks that a plan matches its request.

use std::collections::BTreeSet;

use super::{Checker, brute};
use longhaul_circuits::network::NodeId;
use longhaul_circuits::path::{Disjoint, LinkPath};
use longhaul_circuits::request::{CircuitRequest, Demand, ReservationPlan};
use longhaul_circuits::split::RatedPath;

impl Checker<'_> {
    /// Checks that a plan matches the request and fits in addition to all promises.
    pub(super) fn check_granted(
        &self,
        request: &CircuitRequest,
        plan: &ReservationPlan,
    ) -> Result<(), String> {
        let mut over = request.window.start;
        let mut carried: u128 = 0;
        for piece in &plan.0 {
            let length = piece.window.end - piece.window.start;
            if piece.window.start < over || length <= 0 || piece.window.end > request.window.end {
                return Err(format!(
                    "a piece is out of order or out of the window: {:?}",
                    piece.window
                ));
            }
            over = piece.window.end;
            if piece.routes.is_empty() || piece.routes.len() > request.paths {
                return Err(format!(
                    "{} paths where there may be 1 to {}",
                    piece.routes.len(),
                    request.paths
                ));
            }
            let mut needs = vec![0_u64; self.taken.len()];
            let mut rate = 0;
            for route in &piece.routes {
                self.check_path(request, &route.path)?;
                for link in &route.path.0 {
                    needs[link.0 as usize] += route.rate;
                }
                rate += route.rate;
            }
            self.check_explicit(request, &piece.routes)?;
            self.check_disjoint(
                request.diversity,
                &piece
                    .routes
                    .iter()
                    .map(|route| &route.path)
                    .collect::<Vec<_>>(),
            )?;
            let rooms = self.available_rates(request, piece.window);
            if let Some(link) = (0..needs.len()).find(|link| needs[*link] > rooms.room(*link)) {
                return Err(format!(
                    "link {link} has {} left and {} are promised of it",
                    rooms.room(link),
                    needs[link]
                ));
            }
            carried += u128::from(rate) * u128::from(length.unsigned_abs());
            match request.wish {
                Demand::Rate(asked) if asked != rate || piece.window != request.window => {
                    return Err(format!(
                        "{rate} bit/s in {:?} instead of {asked} throughout",
                        piece.window
                    ));
                }
                Demand::Volume {
                    most: Some(most), ..
                } if rate > most => {
                    return Err(format!("{rate} bit/s where the ends can use {most}"));
                }
                _ => {}
            }
        }
        match request.wish {
            Demand::Rate(_) if plan.0.len() != 1 => {
                Err(format!("{} pieces for one rate", plan.0.len()))
            }
            Demand::Volume { bytes, .. } if carried < u128::from(bytes) * 8_000 => Err(format!(
                "carries {carried} bit/s times ms, which is less than {bytes} bytes"
            )),
            _ => Ok(()),
        }
    }

    /// Checks that a path leads from end to end, without a loop, over links that may be used.
    fn check_path(&self, request: &CircuitRequest, path: &LinkPath) -> Result<(), String> {
        let mut at = request.ends.from;
        let mut passed = BTreeSet::from([at]);
        for id in &path.0 {
            let link = self
                .network
                .links()
                .get(id.0 as usize)
                .ok_or("a link that is not there")?;
            if link.from != at || !passed.insert(link.to) || !brute::is_allowed(request, id.0, link)
            {
                return Err(format!("no path that may be used: {path:?}"));
            }
            at = link.to;
        }
        if at != request.ends.to {
            return Err(format!("does not arrive: {path:?}"));
        }
        let links = path.0.iter().map(|id| id.0 as usize).collect::<Vec<_>>();
        if brute::is_within_bounds(self.network, request, &links) {
            Ok(())
        } else {
            Err(format!("breaks a constraint of the request: {path:?}"))
        }
    }

    /// Checks that routes are the explicit ones of a request, if it has any.
    fn check_explicit(&self, request: &CircuitRequest, routes: &[RatedPath]) -> Result<(), String> {
        let named = request.bounds.explicit.iter();
        let mut named: Vec<(Vec<NodeId>, u64)> =
            named.map(|path| (path.nodes.clone(), path.rate)).collect();
        let planned = routes.iter().map(|route| {
            let links = route.path.0.iter();
            let to = links.map(|id| self.network.links()[id.0 as usize].to);
            let nodes = [request.ends.from].into_iter().chain(to).collect();
            (nodes, route.rate)
        });
        let mut planned: Vec<(Vec<NodeId>, u64)> = planned.collect();
        named.sort();
        planned.sort();
        if named.is_empty() || named == planned {
            Ok(())
        } else {
            Err(format!("not the explicit paths: {routes:?}"))
        }
    }

    fn check_disjoint(&self, diversity: Disjoint, paths: &[&LinkPath]) -> Result<(), String> {
        if diversity == Disjoint::No {
            return Ok(());
        }
        let links = |path: &LinkPath| {
            path.0
                .iter()
                .map(|id| self.network.links()[id.0 as usize])
                .collect::<Vec<_>>()
        };
        let mut cables = BTreeSet::new();
        let mut nodes: BTreeSet<NodeId> = BTreeSet::new();
        for path in paths {
            for (place, link) in links(path).iter().enumerate() {
                let shares = place > 0 && diversity == Disjoint::Sites && !nodes.insert(link.from);
                if !cables.insert(link.cable) || shares {
                    return Err(format!("paths are not disjoint: {paths:?}"));
                }
            }
        }
        Ok(())
    }
}
