//! Rates that given paths carry together.

use std::collections::BTreeMap;

use microlp::{ComparisonOp, OptimizationDirection, Problem};

use super::{Route, total};
use crate::network::LinkId;
use crate::path::{Field, Path};
use crate::time::Rate;

/// Returns the rates at which these paths carry the most together, in whole bit/s, exactly within
/// what each link has left. Duplicate paths count once.
#[must_use]
pub fn shared(field: &Field<'_>, paths: &[Path]) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::with_capacity(paths.len());
    for path in paths {
        if routes.iter().all(|route| route.path != *path) {
            routes.push(Route {
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
    let mut limits: BTreeMap<&[usize], Rate> = BTreeMap::new();
    for (link, places) in &users {
        let limit = limits.entry(places).or_insert(Rate::MAX);
        *limit = (*limit).min(field.room(*link));
    }
    let alone = limits.keys().all(|places| places.len() == 1);
    if !alone && let Some(rates) = programme(routes.len(), &limits) {
        for (route, rate) in routes.iter_mut().zip(rates) {
            route.rate = rate;
        }
    }
    fitted(field, routes)
}

/// Solves the linear program: the greatest sum of rates within the limits that they share. Rates
/// are rounded down to whole bit/s.
fn programme(count: usize, limits: &BTreeMap<&[usize], Rate>) -> Option<Vec<Rate>> {
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
    let whole = |rate: f64| (rate * scale + 1e-3).floor().max(0.0) as Rate;
    Some(
        rates
            .iter()
            .map(|rate| whole(solution.var_value(*rate)))
            .collect(),
    )
}

/// Corrects rounding errors: reduces rates to what the links have left, then raises them to it.
fn fitted(field: &Field<'_>, mut routes: Vec<Route>) -> Vec<Route> {
    let mut left = field.clone();
    for route in &mut routes {
        route.rate = route.rate.min(left.width(&route.path));
        left.take(&route.path, route.rate);
    }
    for route in &mut routes {
        let more = left.width(&route.path);
        route.rate += more;
        left.take(&route.path, more);
    }
    // If the linear program failed, order the routes by width.
    if total(&routes) == 0 {
        routes.sort_by_key(|route| std::cmp::Reverse(field.width(&route.path)));
    }
    routes
}
