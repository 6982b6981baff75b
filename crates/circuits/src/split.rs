//! Division of one rate over several paths, and the cut that shows why no more fits. It tries the
//! widest paths, then a small linear program over the best candidates, then a search.
//!
//! Finding the paths that carry the most, when only so many may be used, is a hard problem (Baier,
//! Köhler and Skutella, 2005: the k-splittable flow). Therefore an answer names its evidence: the
//! routes, a cut, a complete search, or none.

mod bound;
mod candidates;
mod explicit;
mod rates;
mod search;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::network::LinkId;
use crate::path::{BandwidthField, Disjoint, LinkPath, PathBounds, PathEnds, Preference};
use crate::proof::{PartialFit, Proof};
use crate::time::BitsPerSecond;

pub(crate) use bound::minimum_cut;
pub use bound::narrowest_cut;
use bound::narrowest_cut_above;
pub use candidates::greedy as widest_first;
pub(crate) use candidates::greedy_behind as widest_behind;
pub(crate) use explicit::assign_links;
pub use rates::joint_rates;

/// Maximum number of paths of one request.
pub const MAX_PATHS: usize = 8;

/// A path with the rate that it carries.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RatedPath {
    /// The path.
    pub path: LinkPath,
    /// Rate in bit/s.
    pub rate: BitsPerSecond,
}

/// Returns the rate of all routes together, in bit/s.
#[must_use]
pub fn total_rate(routes: &[RatedPath]) -> BitsPerSecond {
    routes
        .iter()
        .map(|route| route.rate)
        .fold(0, BitsPerSecond::saturating_add)
}

/// Constraints on the paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathConstraints {
    /// Ends of the paths.
    pub ends: PathEnds,
    /// Maximum number of paths, from 1 to [`MAX_PATHS`].
    pub paths: usize,
    /// Resources that they must not share.
    pub diversity: Disjoint,
    /// Criterion for the path, if one suffices.
    pub preference: Preference,
    /// Constraints on each path.
    pub bounds: PathBounds,
}

impl PathConstraints {
    /// Returns the best path that has `at_least` bit/s left.
    fn best_path(&self, field: &BandwidthField<'_>, at_least: BitsPerSecond) -> Option<LinkPath> {
        match self.bounds.is_bounded() {
            true => self
                .bounds
                .best_path(field, self.ends, at_least, self.preference),
            false => field.best_path(self.ends, at_least, self.preference),
        }
    }

    /// Returns the path with the most bandwidth left on its fullest link, and that rate.
    fn widest_path(&self, field: &BandwidthField<'_>) -> Option<(LinkPath, BitsPerSecond)> {
        match self.bounds.is_bounded() {
            true => self.bounds.widest_path(field, self.ends),
            false => field.widest_path(self.ends),
        }
    }
}

/// Links that every path between two ends crosses, and what they can carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// All usable links from one side to the other.
    pub links: Vec<LinkId>,
    /// Most that the allowed number of paths carries across the cut, in bit/s: the sum of what is
    /// left on that many of its widest links.
    pub rate: BitsPerSecond,
}

/// Finds routes that carry `want` bit/s together.
///
/// # Errors
/// [`PartialFit`] if less was found. It holds the best routes.
pub fn find_routes(
    field: &BandwidthField<'_>,
    ask: &PathConstraints,
    want: BitsPerSecond,
) -> Result<Vec<RatedPath>, PartialFit<Vec<RatedPath>>> {
    let widest = || candidates::greedy(field, ask, want);
    find_routes_with(field, ask, want, widest, || {
        Some(narrowest_cut(field, ask.ends, ask.paths, want)).filter(|cut| cut.rate < want)
    })
}

/// Implements [`find_routes`]. `widest` returns the routes over the widest paths. `narrower` looks
/// for a cut below `want`; it is called only if those routes carry less.
fn find_routes_with(
    field: &BandwidthField<'_>,
    ask: &PathConstraints,
    want: BitsPerSecond,
    widest: impl FnOnce() -> Vec<RatedPath>,
    narrower: impl FnOnce() -> Option<Cut>,
) -> Result<Vec<RatedPath>, PartialFit<Vec<RatedPath>>> {
    if !ask.bounds.explicit.is_empty() {
        return explicit::explicit_routes(field, ask);
    }
    if let Some(path) = ask.best_path(field, want) {
        return Ok(vec![RatedPath { path, rate: want }]);
    }
    let mut best = widest();
    if total_rate(&best) >= want {
        return Ok(best);
    }
    if let Some(cut) = narrower() {
        // The shortfall is known; the nearest rate is still worth an offer.
        if ask.paths > 1 && total_rate(&best) < cut.rate {
            keep_better(&mut best, candidates::improved_routes(field, ask, cut.rate));
        }
        let Cut { links, rate } = cut;
        let until = None;
        return Err(PartialFit {
            found: best,
            proof: Proof::Cut { links, rate, until },
        });
    }
    keep_better(&mut best, candidates::improved_routes(field, ask, want));
    if total_rate(&best) >= want {
        return Ok(best);
    }
    let (found, complete) = search::search(field, ask, want, total_rate(&best));
    keep_better(&mut best, found);
    if total_rate(&best) >= want {
        return Ok(best);
    }
    if ask.bounds.is_bounded() {
        let found = total_rate(&best);
        return Err(PartialFit {
            found: best,
            proof: Proof::Constrained { found, complete },
        });
    }
    let proof = match complete {
        true => Proof::Searched {
            all: minimum_cut(field, ask.ends).rate,
        },
        false => Proof::Unknown,
    };
    Err(PartialFit { found: best, proof })
}

/// Finds the highest rate up to `want` bit/s. Returns the routes, and an upper bound of what any
/// routes carry.
#[must_use]
pub fn max_rate_routes(
    field: &BandwidthField<'_>,
    ask: &PathConstraints,
    want: BitsPerSecond,
) -> (Vec<RatedPath>, BitsPerSecond) {
    // The rate of the widest paths saves searching for cuts below it, each of which costs a flow.
    let widest = candidates::greedy(field, ask, want);
    let reached = total_rate(&widest);
    let limit = match reached < want {
        true => narrowest_cut_above(field, ask.ends, ask.paths, 0, reached)
            .rate
            .min(want),
        false => want,
    };
    if limit == 0 {
        return (Vec::new(), 0);
    }
    // They carry no more than the limit, so they are also the widest paths for it. No cut is
    // narrower than the narrowest.
    match find_routes_with(field, ask, limit, || widest, || None) {
        Ok(routes) => (routes, limit),
        Err(PartialFit {
            found,
            proof: Proof::Searched { .. } | Proof::Constrained { complete: true, .. },
        }) => {
            let rate = total_rate(&found);
            (found, rate)
        }
        Err(PartialFit { found, .. }) => (found, limit),
    }
}

fn keep_better(best: &mut Vec<RatedPath>, other: Vec<RatedPath>) {
    if total_rate(&other) > total_rate(best) {
        *best = other;
    }
}

/// Trims routes to `want` bit/s in total, the narrowest first, and removes those that carry
/// nothing.
fn trim(mut routes: Vec<RatedPath>, want: BitsPerSecond) -> Vec<RatedPath> {
    routes.sort_by(|one, other| {
        other
            .rate
            .cmp(&one.rate)
            .then_with(|| one.path.cmp(&other.path))
    });
    let mut left = want;
    for route in &mut routes {
        route.rate = route.rate.min(left);
        left -= route.rate;
    }
    routes.retain(|route| route.rate > 0);
    routes
}
