//! Hops between sites that nobody has measured himself, or not lately: they are taken for what
//! depots of the same two sites measured between each other. So the direct way between two hosts is
//! known before their first transfer, and stays known between two of them.
//!
//! A depot must not steer what does not pass it. So only what both depots have reported of a path
//! counts; for the direct way, what the kinder of them says, and for a way by a depot what the
//! gloomier one says. A depot that lies can have others go directly, and no more.

use longhaul_weather::route::NodeId;
use longhaul_weather::route::expected::doubt;
use longhaul_weather::route::map::HopForecast;
use longhaul_weather::route::trust::{better_of, worse_of};

use super::Weather;

/// The most hops that are inferred at a time.
const MAX_INFERRED: usize = 100_000;

/// What is made of two reports of one path.
type Combine = fn(&HopForecast, &HopForecast) -> HopForecast;

impl Weather {
    /// Brings the hops that routes from some ends to others may take to what is known of their
    /// sites.
    pub(super) fn infer(&mut self, starts: &[NodeId], ends: &[NodeId], now: f64) {
        self.renew(now);
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
        // The direct ways come last: either end may be a depot too.
        for from in starts {
            for to in ends {
                self.infer_hop((*from, *to), better_of, now);
            }
        }
        // Hops that were not there before.
        self.renew(now);
    }

    fn infer_hop(&mut self, ends: (NodeId, NodeId), combine: Combine, now: f64) {
        let Some(between) = self.between_sites(ends, combine, now) else {
            return;
        };
        let own = self.measured.get(&ends);
        let best = match own {
            Some(own) if doubt(own, now) <= doubt(&between, now) => *own,
            _ => between,
        };
        match self.hops.hop(ends.0, ends.1) {
            Some(hop) => _ = self.hops.update(hop, &best),
            None if self.inferred.len() < MAX_INFERRED => {
                self.inferred.insert(ends, best);
                self.has_new = true;
            }
            None => {}
        }
    }

    /// What depots of the two sites measured, the pair of them that is surest.
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
            // What was measured of the hop itself is known without this.
            let is_other = pair != (from, to);
            let (one, other) = self.reports.both(pair.0, pair.1).filter(|_| is_other)?;
            Some(combine(one, other))
        });
        known.min_by(|one, other| doubt(one, now).total_cmp(&doubt(other, now)))
    }

    fn site_of(&self, id: NodeId) -> Option<&str> {
        let name = self.names.get(usize::try_from(id.0).ok()?)?;
        self.depots.sites.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests;
