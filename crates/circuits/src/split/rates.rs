//! Rates that given paths carry together.

use std::collections::BTreeMap;

use microlp::{ComparisonOp, OptimizationDirection, Problem};

use super::{RatedPath, total_rate};
use crate::network::LinkId;
use crate::path::{BandwidthField, LinkPath};
use crate::time::BitsPerSecond;

/// Returns the rates at which these paths carry the most together, in whole bit/s, exactly within
/// what each link has left. Duplicate paths count once.
#[must_use]
pub fn joint_rates(field: &BandwidthField<'_>, paths: &[LinkPath]) -> Vec<RatedPath> {
    let mut routes: Vec<RatedPath> = Vec::with_capacity(paths.len());
    for path in paths {
        if routes.iter().all(|route| route.path != *path) {
            routes.push(RatedPath {
                path: path.clone(),
                rate: 0,
            });
        }
    }
    let mut users: BTreeMap<LinkId, Vec<usize>> = BTreeMap::new();
    for (place, route) in routes.iter().enumerate() {
        for link in &route.path.0 {
            users.entry(*link).or_default().push(place);
        }
    }
    // Of the links that bind the same paths, only the fullest counts.
    let mut limits: BTreeMap<&[usize], BitsPerSecond> = BTreeMap::new();
    for (link, places) in &users {
        let limit = limits.entry(places).or_insert(BitsPerSecond::MAX);
        *limit = (*limit).min(field.room(*link));
    }
    let alone = limits.keys().all(|places| places.len() == 1);
    if !alone && let Some(rates) = solve_linear_program(routes.len(), &limits) {
        for (route, rate) in routes.iter_mut().zip(rates) {
            route.rate = rate;
        }
    }
    fit_to_links(field, routes)
}

/// Solves the linear program: the greatest sum of rates within the limits that they share. Rates
/// are rounded down to whole bit/s.
fn solve_linear_program(
    count: usize,
    limits: &BTreeMap<&[usize], BitsPerSecond>,
) -> Option<Vec<BitsPerSecond>> {
    // The solver works best with numbers near 1.
    let scale = limits.values().copied().max().filter(|scale| *scale > 0)? as f64;
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let rates: Vec<_> = (0..count)
        .map(|_| problem.add_var(1.0, (0.0, 1.0)))
        .collect();
    for (places, limit) in limits {
        let terms: Vec<_> = places
            .iter()
            .filter_map(|place| Some((*rates.get(*place)?, 1.0)))
            .collect();
        problem.add_constraint(terms, ComparisonOp::Le, *limit as f64 / scale);
    }
    let solution = problem.solve().ok()?.into_solution().ok()?;
    // A float beyond the integers saturates; `fitted` ensures that links are not exceeded.
    let whole = |rate: f64| (rate * scale + 1e-3).floor().max(0.0) as BitsPerSecond;
    Some(
        rates
            .iter()
            .map(|rate| whole(solution.var_value(*rate)))
            .collect(),
    )
}

/// Corrects rounding errors: reduces rates to what the links have left, then raises them to it.
fn fit_to_links(field: &BandwidthField<'_>, mut routes: Vec<RatedPath>) -> Vec<RatedPath> {
    let mut left = field.clone();
    for route in &mut routes {
        route.rate = route.rate.min(left.width(&route.path));
        left.deduct(&route.path, route.rate);
    }
    for route in &mut routes {
        let more = left.width(&route.path);
        route.rate += more;
        left.deduct(&route.path, more);
    }
    // If the linear program failed, order the routes by width.
    if total_rate(&routes) == 0 {
        routes.sort_by_key(|route| std::cmp::Reverse(field.width(&route.path)));
    }
    routes
}
