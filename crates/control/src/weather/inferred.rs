//! Inferred forecasts of hops between sites that were not measured themselves, or not lately. They
//! are taken from measurements between depots of the same two sites. So the direct route between
//! two hosts is known before their first transfer, and stays known between transfers.
//!
//! A depot must not influence traffic that does not pass it. So only paths that both depots have
//! reported count. For the direct route the better report counts, for a route over a depot the
//! worse one. A depot that lies can make others go directly, and no more.

use longhaul_routing::route::NodeId;
use longhaul_routing::route::expected::rate_uncertainty;
use longhaul_routing::route::map::HopForecast;
use longhaul_routing::route::trust::{better_of, worse_of};

use super::RoutingState;

/// Maximum number of hops that are inferred at a time.
const MAX_INFERRED_HOPS: usize = 100_000;

/// Function that combines two reports of one path.
type Combine = fn(&HopForecast, &HopForecast) -> HopForecast;

impl RoutingState {
    /// Infers the hops that routes from some ends to others may use.
    pub(super) fn infer(&mut self, starts: &[NodeId], ends: &[NodeId], now: f64) {
        self.refresh_hops(now);
        let depots: Vec<NodeId> = self
            .depots
            .known
            .iter()
            .filter(|(_, place)| place.relay.is_some())
            .filter_map(|(name, _)| self.ids.get(name).copied())
            .collect();
        for from in starts {
            for depot in depots.iter().filter(|depot| *depot != from) {
                self.infer_hop((*from, *depot), worse_of, now);
            }
        }
        for to in ends {
            for depot in depots.iter().filter(|depot| *depot != to) {
                self.infer_hop((*depot, *to), worse_of, now);
            }
        }
        // Direct hops come last, as either end may be a depot, too.
        for from in starts {
            for to in ends {
                self.infer_hop((*from, *to), better_of, now);
            }
        }
        // Adds hops that did not exist before.
        self.refresh_hops(now);
    }

    fn infer_hop(&mut self, ends: (NodeId, NodeId), combine: Combine, now: f64) {
        let Some(between) = self.between_sites(ends, combine, now) else {
            return;
        };
        let own = self.measured.get(&ends);
        let best = match own {
            Some(own) if rate_uncertainty(own, now) <= rate_uncertainty(&between, now) => *own,
            _ => between,
        };
        match self.hops.hop(ends.0, ends.1) {
            Some(hop) => _ = self.hops.update(hop, &best),
            None if self.inferred.len() < MAX_INFERRED_HOPS => {
                self.inferred.insert(ends, best);
                self.has_new = true;
            }
            None => {}
        }
    }

    /// Returns the measurements between depots of the two sites, of the pair with the least doubt.
    fn between_sites(
        &self,
        (from, to): (NodeId, NodeId),
        combine: Combine,
        now: f64,
    ) -> Option<HopForecast> {
        let (here, there) = (self.site_of(from)?, self.site_of(to)?);
        if here == there {
            return None;
        }
        let (here, there) = (
            self.depots.at_site.get(here)?,
            self.depots.at_site.get(there)?,
        );
        let pairs = here
            .iter()
            .flat_map(|one| there.iter().map(move |other| (one, other)));
        let known = pairs.filter_map(|(one, other)| {
            let pair = (*self.ids.get(one)?, *self.ids.get(other)?);
            // Measurements of the hop itself are known anyway.
            let is_other = pair != (from, to);
            let (one, other) = self
                .reports
                .both_reports(pair.0, pair.1)
                .filter(|_| is_other)?;
            Some(combine(one, other))
        });
        known.min_by(|one, other| {
            rate_uncertainty(one, now).total_cmp(&rate_uncertainty(other, now))
        })
    }

    fn site_of(&self, id: NodeId) -> Option<&str> {
        let name = self.names.get(usize::try_from(id.0).ok()?)?;
        self.depots.sites.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests;
