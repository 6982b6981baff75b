//! Candidate paths, and the rates that they carry.

use super::{MAX_PATHS, PathConstraints, RatedPath, joint_rates, total_rate, trim};
use crate::path::flow::Residual;
use crate::path::{BandwidthField, Disjoint, LinkPath, disjoint_paths, k_best_paths};
use crate::time::BitsPerSecond;

/// Maximum number of candidate paths in the linear program.
const MAX_CANDIDATES: usize = 24;

/// Number of candidates of each kind.
const CANDIDATES_PER_KIND: usize = 6;

/// Chooses the widest path of what the previous ones leave, repeatedly, up to `want` bit/s in
/// total.
#[must_use]
pub fn greedy(
    field: &BandwidthField<'_>,
    ask: &PathConstraints,
    want: BitsPerSecond,
) -> Vec<RatedPath> {
    greedy_behind(&[], field, ask, want)
}

/// Continues the greedy choice behind known first routes.
#[must_use]
pub(crate) fn greedy_behind(
    first: &[RatedPath],
    field: &BandwidthField<'_>,
    ask: &PathConstraints,
    want: BitsPerSecond,
) -> Vec<RatedPath> {
    let mut left = field.clone();
    let mut routes: Vec<RatedPath> = first.to_vec();
    for route in first {
        left.deduct(&route.path, route.rate);
        left.remove_conflicts(&route.path, ask.diversity);
    }
    while routes.len() < ask.paths && total_rate(&routes) < want {
        let Some((path, width)) = ask.widest_path(&left) else {
            break;
        };
        let rate = width.min(want - total_rate(&routes));
        left.deduct(&path, rate);
        left.remove_conflicts(&path, ask.diversity);
        // The same path is chosen again only if it was not filled, which ends the loop.
        routes.push(RatedPath { path, rate });
    }
    routes
}

/// Finds better routes than the greedy choice, without a search.
pub(super) fn improved_routes(
    field: &BandwidthField<'_>,
    ask: &PathConstraints,
    want: BitsPerSecond,
) -> Vec<RatedPath> {
    if ask.bounds.is_bounded() {
        return equal_rate_bounded(field, ask, want);
    }
    let mut best = equal_rate_routes(field, ask, want);
    if total_rate(&best) >= want || ask.paths < 2 {
        return best;
    }
    let paths = match ask.diversity {
        Disjoint::No => candidate_paths(field, ask, want),
        Disjoint::Links | Disjoint::Sites => {
            super::keep_better(&mut best, disjoint_routes(field, ask, want));
            return best;
        }
    };
    let all = joint_rates(field, &paths);
    let mut chosen = trim(all, BitsPerSecond::MAX);
    chosen.truncate(ask.paths);
    let chosen: Vec<LinkPath> = chosen.into_iter().map(|route| route.path).collect();
    super::keep_better(&mut best, trim(joint_rates(field, &chosen), want));
    best
}

/// Finds routes of equal rates, with the smallest number of paths that works. A flow decides
/// exactly whether there are that many.
fn equal_rate_routes(
    field: &BandwidthField<'_>,
    ask: &PathConstraints,
    want: BitsPerSecond,
) -> Vec<RatedPath> {
    for count in 2..=ask.paths.min(MAX_PATHS) {
        let part = want
            .div_ceil(BitsPerSecond::try_from(count).unwrap_or(BitsPerSecond::MAX))
            .max(1);
        let paths = match ask.diversity {
            Disjoint::No => unit_flow_paths(field, ask, part, count),
            diversity => disjoint_paths(field, ask.ends, part, ask.preference, diversity, count),
        };
        if paths.len() == count {
            let routes = paths
                .into_iter()
                .map(|path| RatedPath { path, rate: part })
                .collect();
            return trim(merge_same_path(routes), want);
        }
    }
    Vec::new()
}

/// Finds routes of equal rates within constraints: the best path of what the previous ones leave.
fn equal_rate_bounded(
    field: &BandwidthField<'_>,
    ask: &PathConstraints,
    want: BitsPerSecond,
) -> Vec<RatedPath> {
    for count in 2..=ask.paths.min(MAX_PATHS) {
        let part = want
            .div_ceil(BitsPerSecond::try_from(count).unwrap_or(BitsPerSecond::MAX))
            .max(1);
        let mut left = field.clone();
        let mut routes = Vec::new();
        while routes.len() < count
            && let Some(path) = ask.best_path(&left, part)
        {
            left.deduct(&path, part);
            left.remove_conflicts(&path, ask.diversity);
            routes.push(RatedPath { path, rate: part });
        }
        if routes.len() == count {
            return trim(merge_same_path(routes), want);
        }
    }
    Vec::new()
}

/// Merges routes over the same path.
fn merge_same_path(routes: Vec<RatedPath>) -> Vec<RatedPath> {
    let mut merged: Vec<RatedPath> = Vec::with_capacity(routes.len());
    for route in routes {
        match merged.iter_mut().find(|known| known.path == route.path) {
            Some(known) => known.rate = known.rate.saturating_add(route.rate),
            None => merged.push(route),
        }
    }
    merged
}

/// Returns the paths of a flow of up to `most` units, each of the same rate.
fn unit_flow_paths(
    field: &BandwidthField<'_>,
    ask: &PathConstraints,
    part: BitsPerSecond,
    most: usize,
) -> Vec<LinkPath> {
    let network = field.network();
    let mut residual = Residual::from_field(field, |room| room / part.max(1));
    let enough = BitsPerSecond::try_from(most).unwrap_or(BitsPerSecond::MAX);
    residual.augment(ask.ends.from.index(), ask.ends.to.index(), enough);
    let mut flow = BandwidthField::new(network, |link| Some(residual.flow(link.index())));
    let mut paths = Vec::new();
    while paths.len() < most {
        let Some((path, _)) = flow.widest_path(ask.ends) else {
            break;
        };
        flow.deduct(&path, 1);
        paths.push(path);
    }
    paths
}

/// Returns the widest paths of the maximum flow, the greedy choice, and the best paths by
/// preference.
fn candidate_paths(
    field: &BandwidthField<'_>,
    ask: &PathConstraints,
    want: BitsPerSecond,
) -> Vec<LinkPath> {
    let network = field.network();
    let mut paths: Vec<LinkPath> = greedy(field, ask, BitsPerSecond::MAX)
        .into_iter()
        .map(|route| route.path)
        .collect();
    let mut residual = Residual::from_field(field, |room| room);
    residual.augment(
        ask.ends.from.index(),
        ask.ends.to.index(),
        BitsPerSecond::MAX,
    );
    let mut flow = BandwidthField::new(network, |link| Some(residual.flow(link.index())));
    for _ in 0..CANDIDATES_PER_KIND {
        let Some((path, width)) = flow.widest_path(ask.ends) else {
            break;
        };
        flow.deduct(&path, width);
        paths.push(path);
    }
    let part = want
        / BitsPerSecond::try_from(ask.paths)
            .unwrap_or(BitsPerSecond::MAX)
            .max(1);
    for at_least in [1, part / 2, part] {
        paths.extend(k_best_paths(
            field,
            ask.ends,
            at_least,
            ask.preference,
            CANDIDATES_PER_KIND,
        ));
    }
    paths.sort_by_key(|path| std::cmp::Reverse(field.width(path)));
    let mut kept: Vec<LinkPath> = Vec::new();
    for path in paths {
        if kept.len() < MAX_CANDIDATES && !kept.contains(&path) {
            kept.push(path);
        }
    }
    kept
}

/// Finds disjoint routes: for each rate that some link has left, the paths that have at least that
/// much. Returns the best set.
fn disjoint_routes(
    field: &BandwidthField<'_>,
    ask: &PathConstraints,
    want: BitsPerSecond,
) -> Vec<RatedPath> {
    let mut best: Vec<RatedPath> = Vec::new();
    let limit = field.widest_path(ask.ends).map_or(0, |(_, width)| width);
    for at_least in field
        .distinct_rates()
        .into_iter()
        .filter(|room| *room <= limit)
    {
        for count in 2..=ask.paths {
            let paths = disjoint_paths(
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
                .map(|path| RatedPath {
                    rate: field.width(&path),
                    path,
                })
                .collect();
            super::keep_better(&mut best, trim(routes, want));
            if total_rate(&best) >= want {
                return best;
            }
        }
    }
    best
}
