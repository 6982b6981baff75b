//! Candidate paths, and the rates that they carry.

use super::{Ask, MAX_PATHS, Route, shared, total, trimmed};
use crate::flow::Residual;
use crate::path::{Diversity, Field, Path, disjoint, several};
use crate::time::Rate;

/// Maximum number of candidate paths in the linear program.
const MAX_CANDIDATES: usize = 24;

/// Number of candidates of each kind.
const OF_A_KIND: usize = 6;

/// Chooses the widest path of what the previous ones leave, repeatedly, up to `want` bit/s in
/// total.
#[must_use]
pub fn greedy(field: &Field<'_>, ask: &Ask, want: Rate) -> Vec<Route> {
    greedy_behind(&[], field, ask, want)
}

/// Continues the greedy choice behind known first routes.
#[must_use]
pub(crate) fn greedy_behind(
    first: &[Route],
    field: &Field<'_>,
    ask: &Ask,
    want: Rate,
) -> Vec<Route> {
    let mut left = field.clone();
    let mut routes: Vec<Route> = first.to_vec();
    for route in first {
        left.take(&route.path, route.rate);
        left.part_from(&route.path, ask.diversity);
    }
    while routes.len() < ask.paths && total(&routes) < want {
        let Some((path, width)) = left.widest(ask.ends) else {
            break;
        };
        let rate = width.min(want - total(&routes));
        left.take(&path, rate);
        left.part_from(&path, ask.diversity);
        // The same path is chosen again only if it was not filled, which ends the loop.
        routes.push(Route { path, rate });
    }
    routes
}

/// Finds better routes than the greedy choice, without a search.
pub(super) fn improved(field: &Field<'_>, ask: &Ask, want: Rate) -> Vec<Route> {
    let mut best = even(field, ask, want);
    if total(&best) >= want || ask.paths < 2 {
        return best;
    }
    let paths = match ask.diversity {
        Diversity::Any => candidates(field, ask, want),
        Diversity::Links | Diversity::Nodes => {
            super::better(&mut best, apart(field, ask, want));
            return best;
        }
    };
    let all = shared(field, &paths);
    let mut chosen = trimmed(all, Rate::MAX);
    chosen.truncate(ask.paths);
    let chosen: Vec<Path> = chosen.into_iter().map(|route| route.path).collect();
    super::better(&mut best, trimmed(shared(field, &chosen), want));
    best
}

/// Finds routes of equal rates, with the smallest number of paths that works. A flow decides
/// exactly whether there are that many.
fn even(field: &Field<'_>, ask: &Ask, want: Rate) -> Vec<Route> {
    for count in 2..=ask.paths.min(MAX_PATHS) {
        let part = want
            .div_ceil(Rate::try_from(count).unwrap_or(Rate::MAX))
            .max(1);
        let paths = match ask.diversity {
            Diversity::Any => flow_of(field, ask, part, count),
            diversity => disjoint(field, ask.ends, part, ask.preference, diversity, count),
        };
        if paths.len() == count {
            let routes = paths
                .into_iter()
                .map(|path| Route { path, rate: part })
                .collect();
            return trimmed(merged(routes), want);
        }
    }
    Vec::new()
}

/// Merges routes over the same path.
fn merged(routes: Vec<Route>) -> Vec<Route> {
    let mut merged: Vec<Route> = Vec::with_capacity(routes.len());
    for route in routes {
        match merged.iter_mut().find(|known| known.path == route.path) {
            Some(known) => known.rate = known.rate.saturating_add(route.rate),
            None => merged.push(route),
        }
    }
    merged
}

/// Returns the paths of a flow of up to `most` units, each of the same rate.
fn flow_of(field: &Field<'_>, ask: &Ask, part: Rate, most: usize) -> Vec<Path> {
    let network = field.network();
    let mut residual = Residual::of(field, |room| room / part.max(1));
    let enough = Rate::try_from(most).unwrap_or(Rate::MAX);
    residual.fill(ask.ends.from.index(), ask.ends.to.index(), enough);
    let mut flow = Field::new(network, |link| Some(residual.flow(link.index())));
    let mut paths = Vec::new();
    while paths.len() < most {
        let Some((path, _)) = flow.widest(ask.ends) else {
            break;
        };
        flow.take(&path, 1);
        paths.push(path);
    }
    paths
}

/// Returns the widest paths of the maximum flow, the greedy choice, and the best paths by
/// preference.
fn candidates(field: &Field<'_>, ask: &Ask, want: Rate) -> Vec<Path> {
    let network = field.network();
    let mut paths: Vec<Path> = greedy(field, ask, Rate::MAX)
        .into_iter()
        .map(|route| route.path)
        .collect();
    let mut residual = Residual::of(field, |room| room);
    residual.fill(ask.ends.from.index(), ask.ends.to.index(), Rate::MAX);
    let mut flow = Field::new(network, |link| Some(residual.flow(link.index())));
    for _ in 0..OF_A_KIND {
        let Some((path, width)) = flow.widest(ask.ends) else {
            break;
        };
        flow.take(&path, width);
        paths.push(path);
    }
    let part = want / Rate::try_from(ask.paths).unwrap_or(Rate::MAX).max(1);
    for at_least in [1, part / 2, part] {
        paths.extend(several(
            field,
            ask.ends,
            at_least,
            ask.preference,
            OF_A_KIND,
        ));
    }
    paths.sort_by_key(|path| std::cmp::Reverse(field.width(path)));
    let mut kept: Vec<Path> = Vec::new();
    for path in paths {
        if kept.len() < MAX_CANDIDATES && !kept.contains(&path) {
            kept.push(path);
        }
    }
    kept
}

/// Finds disjoint routes: for each rate that some link has left, the paths that have at least that
/// much. Returns the best set.
fn apart(field: &Field<'_>, ask: &Ask, want: Rate) -> Vec<Route> {
    let mut best: Vec<Route> = Vec::new();
    let limit = field.widest(ask.ends).map_or(0, |(_, width)| width);
    for at_least in field.rooms().into_iter().filter(|room| *room <= limit) {
        for count in 2..=ask.paths {
            let paths = disjoint(
                field,
                ask.ends,
                at_least,
                ask.preference,
                ask.diversity,
                count,
            );
            if paths.len() < count {
                break;
            }
            let routes = paths
                .into_iter()
                .map(|path| Route {
                    rate: field.width(&path),
                    path,
                })
                .collect();
            super::better(&mut best, trimmed(routes, want));
            if total(&best) >= want {
                return best;
            }
        }
    }
    best
}
