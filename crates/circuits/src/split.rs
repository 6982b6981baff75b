//! Division of one rate over several paths, and the cut that shows why no more fits. It tries the
//! widest paths, then a small linear program over the best candidates, then a search.
//!
//! Finding the paths that carry the most, when only so many may be used, is a hard problem (Baier,
//! Köhler and Skutella, 2005: the k-splittable flow). Therefore an answer names its evidence: the
//! routes, a cut, a complete search, or none.

mod bound;
mod candidates;
mod rates;
mod search;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::network::LinkId;
use crate::path::{Diversity, Ends, Field, Path, Preference};
use crate::time::Rate;

pub use bound::bound;
use bound::bound_of_reached;
pub(crate) use bound::minimum_cut;
pub use candidates::greedy as widest_first;
pub(crate) use candidates::greedy_behind as widest_behind;
pub use rates::shared;

/// Maximum number of paths of one request.
pub const MAX_PATHS: usize = 8;

/// A path with the rate that it carries.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    /// The path.
    pub path: Path,
    /// Rate in bit/s.
    pub rate: Rate,
}

/// Returns the rate of all routes together, in bit/s.
#[must_use]
pub fn total(routes: &[Route]) -> Rate {
    routes
        .iter()
        .map(|route| route.rate)
        .fold(0, Rate::saturating_add)
}

/// Constraints on the paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Ends of the paths.
    pub ends: Ends,
    /// Maximum number of paths, from 1 to [`MAX_PATHS`].
    pub paths: usize,
    /// Resources that they must not share.
    pub diversity: Diversity,
    /// Criterion for the path, if one suffices.
    pub preference: Preference,
}

/// Links that every path between two ends crosses, and what they can carry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// All usable links from one side to the other.
    pub links: Vec<LinkId>,
    /// Most that the allowed number of paths carries across the cut, in bit/s: the sum of what is
    /// left on that many of its widest links.
    pub rate: Rate,
}

/// Evidence that no more fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// This cut carries no more.
    Cut(Cut),
    /// Every choice of that many paths was tried. All paths together would carry this rate, in
    /// bit/s.
    Searched(Rate),
    /// Missing evidence: there are too many choices to try them all. All paths together would carry
    /// this rate, in bit/s.
    Unknown(Rate),
}

/// A rate that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Short {
    /// Routes with the highest rate that was found.
    pub routes: Vec<Route>,
    /// Evidence that no more fits.
    pub known: Known,
}

/// Finds routes that carry `want` bit/s together.
///
/// # Errors
/// [`Short`] if less was found. It holds the best routes.
pub fn reach(field: &Field<'_>, ask: &Ask, want: Rate) -> Result<Vec<Route>, Short> {
    let widest = || candidates::greedy(field, ask, want);
    found(field, ask, want, widest, || {
        Some(bound(field, ask.ends, ask.paths, want)).filter(|cut| cut.rate < want)
    })
}

/// Implements [`reach`]. `widest` returns the routes over the widest paths. `narrower` looks for a
/// cut below `want`; it is called only if those routes carry less.
fn found(
    field: &Field<'_>,
    ask: &Ask,
    want: Rate,
    widest: impl FnOnce() -> Vec<Route>,
    narrower: impl FnOnce() -> Option<Cut>,
) -> Result<Vec<Route>, Short> {
    if let Some(path) = field.best(ask.ends, want, ask.preference) {
        return Ok(vec![Route { path, rate: want }]);
    }
    let mut best = widest();
    if total(&best) >= want {
        return Ok(best);
    }
    if let Some(cut) = narrower() {
        // The shortfall is known; the nearest rate is still worth an offer.
        if ask.paths > 1 && total(&best) < cut.rate {
            better(&mut best, candidates::improved(field, ask, cut.rate));
        }
        return Err(Short {
            routes: best,
            known: Known::Cut(cut),
        });
    }
    better(&mut best, candidates::improved(field, ask, want));
    if total(&best) >= want {
        return Ok(best);
    }
    let (found, complete) = search::search(field, ask, want, total(&best));
    better(&mut best, found);
    if total(&best) >= want {
        return Ok(best);
    }
    let all = minimum_cut(field, ask.ends).rate;
    let known = if complete {
        Known::Searched(all)
    } else {
        Known::Unknown(all)
    };
    Err(Short {
        routes: best,
        known,
    })
}

/// Finds the highest rate up to `want` bit/s. Returns the routes, and an upper bound of what any
/// routes carry.
#[must_use]
pub fn most(field: &Field<'_>, ask: &Ask, want: Rate) -> (Vec<Route>, Rate) {
    // The rate of the widest paths saves searching for cuts below it, each of which costs a flow.
    let widest = candidates::greedy(field, ask, want);
    let reached = total(&widest);
    let limit = match reached < want {
        true => bound_of_reached(field, ask.ends, ask.paths, 0, reached)
            .rate
            .min(want),
        false => want,
    };
    if limit == 0 {
        return (Vec::new(), 0);
    }
    // They carry no more than the limit, so they are also the widest paths for it. No cut is
    // narrower than the narrowest.
    match found(field, ask, limit, || widest, || None) {
        Ok(routes) => (routes, limit),
        Err(Short {
            routes,
            known: Known::Searched(_),
        }) => {
            let found = total(&routes);
            (routes, found)
        }
        Err(Short { routes, .. }) => (routes, limit),
    }
}

fn better(best: &mut Vec<Route>, other: Vec<Route>) {
    if total(&other) > total(best) {
        *best = other;
    }
}

/// Trims routes to `want` bit/s in total, the narrowest first, and removes those that carry
/// nothing.
fn trimmed(mut routes: Vec<Route>, want: Rate) -> Vec<Route> {
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
