//! Observes a reservation: its state and grants at the controller, and the copy's own verdicts.

use std::time::{Duration, Instant};

use longhaul_control_api::reservations::{CircuitStanding, LifeState, Reservation};
use longhaul_copy_api::RouteVerdict;
use longhaul_deadline::{PathId, PlannerEvent, Promise, UnixMillis};
use longhaul_hop::unix_ms;
use longhaul_transfer::{ReservedRoute, RouteStanding};

use super::{CopyReservation, GrantsDue};
use crate::granted::{is_held_by_network, renewal_due};
use crate::sampler::ConcurrentReservation;

/// Interval between queries for the state of a reservation.
const STATE_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Delay before grants that were not issued are requested again.
const GRANT_RETRY_DELAY: Duration = Duration::from_secs(5);

impl CopyReservation {
    /// Asks the controller for the state of the paths, once per [`STATE_POLL_INTERVAL`]. Paths over
    /// a link with too little capacity have failed.
    pub async fn poll_state(&mut self) -> Vec<PlannerEvent> {
        let is_due = self
            .polled
            .is_some_and(|at| at.elapsed() >= STATE_POLL_INTERVAL);
        let (Some(id), Some((controller, ..)), true) = (self.id, &self.controller, is_due) else {
            return Vec::new();
        };
        let found = controller.reservation(id).await;
        self.polled = Some(Instant::now());
        match found {
            Ok(reservation) => self.evaluate_state(&reservation),
            Err(_) => Vec::new(),
        }
    }

    /// Forgets a reservation that has ended for any reason.
    fn forget_lost(&mut self) -> Vec<PlannerEvent> {
        self.id = None;
        self.polled = None;
        self.failed.clear();
        self.forget_grants();
        if let Some(record) = self.record.take() {
            record.forget();
        }
        vec![PlannerEvent::Lost]
    }

    fn evaluate_state(&mut self, reservation: &Reservation) -> Vec<PlannerEvent> {
        if reservation.state.life != LifeState::Created {
            return self.forget_lost();
        }
        let circuit = reservation.circuit.as_ref();
        let failed =
            match circuit.is_some_and(|circuit| circuit.standing == CircuitStanding::Failed) {
                true => {
                    let pieces = self.paths.pieces(reservation);
                    let paths = pieces.iter().flat_map(|piece| &piece.paths);
                    paths.map(|(path, _)| *path).collect()
                }
                false => self.paths.paths_over_links(&reservation.impaired),
            };
        let new = failed.symmetric_difference(&self.failed);
        let events = new.map(|path| PlannerEvent::Path {
            path: *path,
            works: !failed.contains(path),
        });
        let events = events.collect();
        self.failed = failed;
        events
    }

    /// Converts the copy's new verdicts on its granted routes to events.
    pub fn take_verdicts(&mut self, judged: &[RouteVerdict]) -> Vec<PlannerEvent> {
        let mut events = Vec::new();
        for one in judged.iter().skip(self.judged) {
            let works = match one.standing {
                RouteStanding::Late | RouteStanding::Stalled | RouteStanding::Gone => false,
                RouteStanding::Even | RouteStanding::Better | RouteStanding::Slower => true,
                RouteStanding::Joined | RouteStanding::Left => continue,
            };
            let paths = self.paths.paths_of_route(&one.route).into_iter();
            events.extend(paths.map(|path| PlannerEvent::Path { path, works }));
        }
        self.judged = judged.len();
        events
    }

    /// Requests grants for the promise, if they are due and can be used.
    pub async fn ask_for_grants(&mut self, now: UnixMillis) {
        let is_due = match self.grants_due {
            Some(GrantsDue::After(due)) => due <= Instant::now(),
            Some(GrantsDue::At(due)) => due <= now,
            None => false,
        };
        let (Some(id), Some((controller, ..)), true, true) =
            (self.id, &self.controller, is_due, self.request.joins)
        else {
            return;
        };
        let asked = tokio::join!(controller.reservation(id), controller.grants(id));
        self.grants_due = match asked {
            (Ok(reservation), Ok(grants)) => {
                match is_held_by_network(&reservation) {
                    true => self.paths.forget_grants(),
                    false => self.paths.grant(&grants),
                }
                Some(GrantsDue::At(renewal_due(unix_ms(), grants.end_ms)))
            }
            (Err(error), _) | (_, Err(error)) => {
                tracing::info!(%error, "no grants for the depots on the reserved paths");
                // The current grants are unaffected: they last until their end.
                Some(GrantsDue::After(Instant::now() + GRANT_RETRY_DELAY))
            }
        };
    }

    /// Returns the reserved routes of a moment, each with its rate in bit/s.
    pub fn reserved_routes(
        &self,
        promise: &Promise,
        now: UnixMillis,
    ) -> Vec<(PathId, ReservedRoute, f64)> {
        let routes = promise
            .paths_at(now)
            .filter_map(|(path, bps)| Some((path, self.paths.reserved_route(path, now)?, bps)));
        routes.collect()
    }

    /// Returns the reservation that runs beside best effort at a moment.
    pub fn concurrent_reservation(
        &self,
        promise: &Promise,
        now: UnixMillis,
    ) -> ConcurrentReservation {
        let paths: Vec<_> = promise.paths_at(now).collect();
        let is_told_apart =
            |(path, _): &(PathId, f64)| self.paths.reserved_route(*path, now).is_some();
        match paths.iter().all(is_told_apart) {
            true => ConcurrentReservation::Routes(paths),
            false => ConcurrentReservation::Unknown,
        }
    }
}
