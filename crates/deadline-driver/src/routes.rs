//! The reserved routes of a copy: which of them carry streams, and which have failed. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use longhaul_deadline::PathId;
use longhaul_transfer::{ReservationMark, ReservedRoute};
use quantities::Rate;
use serde::Serialize;

/// Time without a stream after which a route over depots has failed, while other streams are open.
/// Attempts are at most 4 s apart.
const FAILED_AFTER: Duration = Duration::from_secs(5);
/// Maximum number of reserved routes in the report.
const MAX_REPORTED_ROUTES: usize = 64;

/// A reserved route in the report of a copy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReservedRouteReport {
    /// Name of the route as in `routes`, which holds what it carried.
    pub route: String,
    /// Highest rate that was reserved on it at once, in bit/s.
    pub rate_bps: f64,
    /// Latest reason why a stream was not opened or was lost; null if none was.
    pub error: Option<String>,
    /// True if it failed and no stream was open on it since.
    pub failed: bool,
}

impl ReservedRouteReport {
    /// Formats one line for people.
    pub fn line(&self) -> String {
        let rate = Rate::nearest(self.rate_bps);
        let said = match (&self.error, self.failed) {
            (Some(error), true) => format!("; failed: {error}"),
            (Some(error), false) => format!("; a stream was lost: {error}"),
            (None, true) => "; failed".to_owned(),
            (None, false) => String::new(),
        };
        format!("{}: {rate}{said}", self.route)
    }
}

/// Streams of a copy at one moment.
#[derive(Debug, Default)]
pub struct StreamStates {
    /// Names of the routes with an open stream.
    pub open: BTreeSet<String>,
    /// Latest reason of a lost stream, by the name of its route.
    pub lost: BTreeMap<String, String>,
}

/// A change in whether a reserved route works.
#[derive(Debug, PartialEq, Eq)]
pub struct RouteChange {
    pub path: PathId,
    pub works: bool,
    /// Description for people.
    pub line: String,
}

/// The reserved routes of a copy, by name.
#[derive(Debug, Default)]
pub struct ReservedRoutes {
    routes: BTreeMap<String, RouteState>,
}

#[derive(Debug)]
struct RouteState {
    rate_bps: f64,
    /// Time since when it has no stream.
    without: Option<Instant>,
    /// True if its failure was reported since the promise last changed.
    failed: bool,
    /// True if it failed, whatever was promised since.
    had_failed: bool,
    error: Option<String>,
}

impl ReservedRoutes {
    /// Examines the routes in use, each with its rate in bit/s, and returns the changes.
    pub fn update(
        &mut self,
        now: Instant,
        used: &[(PathId, ReservedRoute, f64)],
        streams: &StreamStates,
    ) -> Vec<RouteChange> {
        let names: Vec<String> = used.iter().map(|(_, route, _)| route.name()).collect();
        let others_open = streams.open.iter().any(|open| !names.contains(open));
        for (name, route) in &mut self.routes {
            if !names.contains(name) {
                (route.without, route.failed) = (None, false);
            }
        }
        let mut changed = Vec::new();
        for ((path, reserved, rate_bps), name) in used.iter().zip(names) {
            if self.routes.len() >= MAX_REPORTED_ROUTES && !self.routes.contains_key(&name) {
                continue;
            }
            let route = self
                .routes
                .entry(name.clone())
                .or_insert_with(|| RouteState {
                    rate_bps: 0.0,
                    without: None,
                    failed: false,
                    had_failed: false,
                    error: None,
                });
            route.rate_bps = route.rate_bps.max(*rate_bps);
            if let Some(lost) = streams.lost.get(&name) {
                route.error = Some(lost.clone());
            }
            if streams.open.contains(&name) {
                route.without = None;
                route.had_failed = false;
                if std::mem::take(&mut route.failed) {
                    changed.push(RouteChange {
                        path: *path,
                        works: true,
                        line: format!("{name} carries data again"),
                    });
                }
                continue;
            }
            // Port-marked streams take the same path as all others: if that fails, so does the
            // copy.
            let is_by_depots = matches!(reserved.mark, ReservationMark::Grant(_));
            if !is_by_depots || !others_open {
                route.without = None;
                continue;
            }
            let since = *route.without.get_or_insert(now);
            if now.duration_since(since) >= FAILED_AFTER
                && !std::mem::replace(&mut route.failed, true)
            {
                route.had_failed = true;
                let why = route.error.as_deref().unwrap_or("no stream opens");
                changed.push(RouteChange {
                    path: *path,
                    works: false,
                    line: format!("{name} carries no data: {why}"),
                });
            }
        }
        changed
    }

    /// Restarts the detection of failures after the promise changed.
    pub fn reset_failures(&mut self) {
        for route in self.routes.values_mut() {
            (route.without, route.failed) = (None, false);
        }
    }

    /// Returns the reserved routes for the report.
    pub fn report(&self) -> Vec<ReservedRouteReport> {
        let routes = self.routes.iter().map(|(name, route)| ReservedRouteReport {
            route: name.clone(),
            rate_bps: route.rate_bps,
            error: route.error.clone(),
            failed: route.had_failed,
        });
        routes.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_proto::{CircuitGrant, PublicKey};

    use super::*;

    fn reserved_route() -> ReservedRoute {
        let grant = CircuitGrant {
            circuit: b"7".to_vec(),
            holder: PublicKey::from_bytes([1; 32]),
            from: "a".to_owned(),
            to: "b".to_owned(),
            start_unix_ms: 0,
            end_unix_ms: 9,
            rate: 5,
            sessions: 1,
            depots: vec![PublicKey::from_bytes([2; 32])],
            issuer: PublicKey::from_bytes([3; 32]),
            signature: [0; 64],
        };
        ReservedRoute {
            route: "192.0.2.1:7510".parse().unwrap(),
            mark: ReservationMark::Grant(Arc::new(grant)),
        }
    }

    #[test]
    fn a_route_without_streams_fails_and_recovers_with_one() {
        let (mut routes, used, name) = (
            ReservedRoutes::default(),
            [(PathId(3), reserved_route(), 5.0)],
            reserved_route().name(),
        );
        let begun = Instant::now();
        let mut streams = StreamStates {
            open: BTreeSet::from(["direct".to_owned()]),
            lost: BTreeMap::from([(name.clone(), "grant refused".to_owned())]),
        };
        let at = |routes: &mut ReservedRoutes, seconds: u64, streams: &StreamStates| {
            routes.update(begun + Duration::from_secs(seconds), &used, streams)
        };
        assert_eq!(at(&mut routes, 0, &streams), []);
        assert_eq!(at(&mut routes, 4, &streams), []);
        let failed = at(&mut routes, 5, &streams);
        assert_eq!((failed[0].path, failed[0].works), (PathId(3), false));
        assert_eq!(
            failed[0].line,
            format!("{name} carries no data: grant refused")
        );
        assert_eq!(at(&mut routes, 20, &streams), [], "it is reported once");
        assert!(
            routes.report()[0]
                .line()
                .ends_with("5 bit/s; failed: grant refused"),
            "{}",
            routes.report()[0].line()
        );
        // The promise changes, and the copy ends before the failure is detected again.
        routes.reset_failures();
        assert_eq!(at(&mut routes, 21, &streams), []);
        assert!(routes.report()[0].failed);
        assert_eq!(at(&mut routes, 26, &streams).len(), 1);
        // The route is no longer meant to carry anything.
        assert_eq!(
            routes.update(begun + Duration::from_secs(27), &[], &streams),
            []
        );
        assert!(routes.report()[0].failed);
        assert_eq!(at(&mut routes, 28, &streams), []);
        assert_eq!(at(&mut routes, 33, &streams).len(), 1);
        streams.open.insert(name);
        assert!(at(&mut routes, 34, &streams)[0].works);
        assert!(!routes.report()[0].failed);
        // A copy without any stream says nothing about its routes.
        assert_eq!(at(&mut routes, 40, &StreamStates::default()), []);
        assert_eq!(at(&mut routes, 60, &StreamStates::default()), []);
    }
}
