//! One rate over several paths: the widest first, then what a small linear programme makes of the
//! best candidates, then a search; and the cut that shows why no more goes.
//!
//! Which paths carry the most, where only so many may be used, is a hard question (Baier, Köhler
//! and Skutella, 2005: the k-splittable flow). So an answer says how it is known: by the routes, by
//! a cut, by a search that went through everything, or not at all.

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

/// Most paths that one request is divided over.
pub const MAX_PATHS: usize = 8;

/// A path, and what goes over it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    /// The path.
    pub path: Path,
    /// In bit/s.
    pub rate: Rate,
}

/// What goes over all routes together, in bit/s.
#[must_use]
pub fn total(routes: &[Route]) -> Rate {
    routes
        .iter()
        .map(|route| route.rate)
        .fold(0, Rate::saturating_add)
}

/// What is asked of the paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Where they begin and end.
    pub ends: Ends,
    /// How many there may be, from 1 to [`MAX_PATHS`].
    pub paths: usize,
    /// What they must not share.
    pub diversity: Diversity,
    /// Which is better, where one will do.
    pub preference: Preference,
}

/// Links that everything between two ends has to pass, and what can pass them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// All usable links that lead from one side to the other.
    pub links: Vec<LinkId>,
    /// The most that so many paths carry through it, in bit/s: the sum of what is left on that many
    /// of its widest links.
    pub rate: Rate,
}

/// How it is known that no more goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// This cut lets no more through.
    Cut(Cut),
    /// All choices of so many paths were looked at; all paths together would carry this much, in
    /// bit/s.
    Searched(Rate),
    /// It isn't: not all choices were looked at, because there are too many. All paths together
    /// would carry this much, in bit/s.
    Unknown(Rate),
}

/// Less than what was wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Short {
    /// The most that was found.
    pub routes: Vec<Route>,
    /// How it is known that there is no more.
    pub known: Known,
}

/// Routes that carry `want` bit/s together, or the most that was found, which is less.
///
/// # Errors
/// [`Short`], where it is less.
pub fn reach(field: &Field<'_>, ask: &Ask, want: Rate) -> Result<Vec<Route>, Short> {
    let widest = || candidates::greedy(field, ask, want);
    found(field, ask, want, widest, || {
        Some(bound(field, ask.ends, ask.paths, want)).filter(|cut| cut.rate < want)
    })
}

/// [`reach`], where `widest` gives what goes over the widest paths, and `narrower` looks for a cut
/// that is narrower than what is wanted: only if those don't carry that much.
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
        // How far it falls short is known already; what is nearest to it is still worth an offer.
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

/// The most that goes, up to `want` bit/s, as far as it is found; and what can't be passed.
#[must_use]
pub fn most(field: &Field<'_>, ask: &Ask, want: Rate) -> (Vec<Route>, Rate) {
    // What goes over the widest paths spares the search for cuts that can't be narrower: a flow for
    // each.
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
    // They carry no more than the limit, so they are its own as well. No cut is narrower than the
    // narrowest.
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

/// Routes without what is above `want` in all: the narrowest give way first, and those that carry
/// nothing are left out.
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
