//! Carries out the planner's decisions at the controller, and tracks the reservation.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_control_api::reservations::{
    CircuitStanding, Disjoint, LifeState, Offers, Pace, PacketFilter, Preference, Reservation,
    ReservationChange, ReservationRequest, RouteConstraints, Wish,
};
use longhaul_control_client::controller::{ReservationAction as Act, ReservationAnswer};
use longhaul_control_client::{ClientError, ControllerClient};
use longhaul_copy_api::{DeadlineStatus, RouteVerdict};
use longhaul_deadline::{
    BandwidthRequest, PathId, PlannerAction, PlannerEvent, Promise, UnixMillis,
};
use longhaul_hop::unix_ms;
use longhaul_proto::SessionId;
use longhaul_proto::text::printable;
use longhaul_transfer::{ReservedRoute as ReservedWay, RouteStanding};
use quantities::{ByteCount, Rate};

use super::DeadlineRequest;
use super::ends::{self, MapEnds};
use super::granted::{GrantedPaths, is_held_by_network, refusal, renewal_due};
use super::kept::{LockedRecord, ReservationRecord};
use super::looks::ConcurrentReservation;

/// Interval between queries for the state of a reservation.
const STATE_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Delay before grants that were not issued are requested again.
const GRANT_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Maximum simultaneous paths of a copy whose streams have distinguishable ports. Other copies use
/// one path.
const MAX_PATHS: u32 = 4;

/// Limit of the reserved rate at any moment, as a multiple of the rate that would spread the volume
/// evenly. It allows for links that are full part of the time.
const MAX_PEAK_TO_EVEN_RATIO: f64 = 4.0;

/// Result of an action.
pub struct ActionResult {
    /// Event that informs the planner.
    pub event: PlannerEvent,
    /// The state in one word, for programs.
    pub state: Option<DeadlineStatus>,
    /// Offers that came with a refusal.
    pub offers: Option<Offers>,
    /// Reason of a failure.
    pub error: Option<String>,
}

impl ActionResult {
    const fn new(event: PlannerEvent, state: Option<DeadlineStatus>) -> Self {
        Self {
            event,
            state,
            offers: None,
            error: None,
        }
    }

    fn failed(error: String, is_passing: bool) -> Self {
        Self {
            error: Some(error),
            ..Self::new(
                PlannerEvent::Failed { is_passing },
                Some(DeadlineStatus::Failed),
            )
        }
    }
}

impl From<ClientError> for ActionResult {
    fn from(error: ClientError) -> Self {
        Self::failed(
            printable(error.to_string().as_bytes()),
            error.is_transient(),
        )
    }
}

/// A copy's reservation at the controller.
pub struct CopyReservation {
    controller: Option<(Arc<ControllerClient>, PathBuf, String)>,
    of: DeadlineRequest,
    ends: Option<MapEnds>,
    id: Option<u64>,
    is_change: bool,
    kept: Option<LockedRecord>,
    paths: GrantedPaths,
    looked: Option<Instant>,
    failed: BTreeSet<PathId>,
    /// When to request grants.
    grants_due: Option<GrantsDue>,
    /// Number of route verdicts that the planner has received.
    judged: usize,
}

/// The time at which grants are requested.
#[derive(Debug, Clone, Copy)]
enum GrantsDue {
    /// At this instant or as soon after it as possible.
    After(Instant),
    /// At this moment, while the current grants still hold.
    At(UnixMillis),
}

impl CopyReservation {
    /// Creates it with nothing reserved.
    pub fn new(mut of: DeadlineRequest) -> Self {
        Self {
            controller: of.controller.take(),
            paths: GrantedPaths::new(of.server.host.clone(), of.pins, of.push),
            of,
            ends: None,
            id: None,
            is_change: false,
            kept: None,
            looked: None,
            failed: BTreeSet::new(),
            grants_due: None,
            judged: 0,
        }
    }

    /// Returns the controller, if one is used.
    pub fn controller(&self) -> Option<&ControllerClient> {
        self.controller
            .as_ref()
            .map(|(controller, ..)| &**controller)
    }

    /// Returns the number of the held or promised reservation.
    pub const fn id(&self) -> Option<u64> {
        self.id
    }

    /// Returns the copy's ends on the map.
    pub const fn ends(&self) -> Option<&MapEnds> {
        self.ends.as_ref()
    }

    /// Carries out an action.
    pub async fn carry_out(&mut self, action: &PlannerAction) -> ActionResult {
        let Some((controller, ..)) = &self.controller else {
            return ActionResult::new(PlannerEvent::Failed { is_passing: false }, None);
        };
        let controller = controller.clone();
        match action {
            PlannerAction::Reserve(ask) => self.reserve(&controller, *ask).await,
            PlannerAction::Change(ask) => self.change(&controller, *ask).await,
            PlannerAction::Commit => self.commit(&controller).await,
            PlannerAction::Abort if self.is_change => self.act(&controller, Act::Abort, None).await,
            PlannerAction::Abort => self.cancel(&controller, None).await,
            PlannerAction::Release => {
                self.cancel(&controller, Some(DeadlineStatus::Returned))
                    .await
            }
            PlannerAction::Warn(_) => {
                ActionResult::new(PlannerEvent::Failed { is_passing: true }, None)
            }
        }
    }

    async fn reserve(
        &mut self,
        controller: &ControllerClient,
        ask: BandwidthRequest,
    ) -> ActionResult {
        self.is_change = false;
        if self.ends.is_none() {
            match ends::find(controller, &self.of.server, self.of.push).await {
                Ok(found) => self.ends = Some(found),
                Err(ends::EndsError::Asked(error)) => return error.into(),
                Err(error) => return ActionResult::failed(error.to_string(), false),
            }
        }
        let Some(ends) = &self.ends else {
            return ActionResult::new(PlannerEvent::Failed { is_passing: false }, None);
        };
        let (wish, end_ms) = asked(ask);
        let mut request = ReservationRequest {
            from: ends.from.clone(),
            to: ends.to.clone(),
            wish,
            start_ms: None,
            end_ms,
            paths: if self.of.pins { MAX_PATHS } else { 1 },
            disjoint: Disjoint::No,
            preference: Preference::FewestHops,
            avoid_sites: Vec::new(),
            avoid_links: Vec::new(),
            constraints: RouteConstraints::default(),
            filter: PacketFilter::default(),
            recurrence: None,
            hold: true,
            provision: true,
            pin: self.of.pins,
            from_address: None,
            to_address: None,
            description: Some("longhaul cp".to_owned()),
        };
        let key = match key() {
            Ok(key) => key,
            Err(why) => return ActionResult::failed(why, true),
        };
        let mut granted = controller.reserve(&request, &key).await;
        if request.paths > 1 && matches!(&granted, Err(error) if !error.is_transient()) {
            // A key may be entitled to fewer paths.
            request.paths = 1;
            granted = controller.reserve(&request, &format!("{key}-1")).await;
        }
        self.granted(granted)
    }

    async fn change(
        &mut self,
        controller: &ControllerClient,
        ask: BandwidthRequest,
    ) -> ActionResult {
        self.is_change = true;
        let (Some(id), Ok(key)) = (self.id, key()) else {
            return ActionResult::new(PlannerEvent::Failed { is_passing: true }, None);
        };
        let (wish, end_ms) = asked(ask);
        let change = ReservationChange {
            wish: Some(wish),
            end_ms: Some(end_ms),
            hold: true,
            ..ReservationChange::default()
        };
        let granted = controller.change_reservation(id, &change, &key).await;
        self.granted(granted)
    }

    fn granted(&mut self, granted: Result<ReservationAnswer, ClientError>) -> ActionResult {
        match granted {
            Ok(ReservationAnswer::Reserved(reserved)) => match reserved.reservations.first() {
                Some(reservation) => {
                    self.id = Some(reservation.id);
                    ActionResult::new(PlannerEvent::Held(self.paths.pieces(reservation)), None)
                }
                None => ActionResult::failed(
                    "the controller's answer names no reservation".to_owned(),
                    false,
                ),
            },
            Ok(ReservationAnswer::InsufficientBandwidth(refused)) => ActionResult {
                offers: Some(refused.refusal.offers.clone()),
                ..ActionResult::new(
                    PlannerEvent::Refused(refusal(&refused.refusal.offers)),
                    Some(DeadlineStatus::Refused),
                )
            },
            Err(error) => error.into(),
        }
    }

    async fn commit(&mut self, controller: &ControllerClient) -> ActionResult {
        let Some(id) = self.id else {
            return ActionResult::new(PlannerEvent::Failed { is_passing: true }, None);
        };
        // Recorded before it is promised, so that a copy killed at any moment leaves a record of
        // it.
        if self.kept.is_none()
            && let Some((_, state, url)) = &self.controller
        {
            let reserved = ReservationRecord {
                controller: url.clone(),
                owner: self.of.owner.clone(),
                id,
            };
            match LockedRecord::keep(state, &reserved) {
                Ok(kept) => self.kept = Some(kept),
                Err(error) => tracing::info!(%error, "cannot record the reservation"),
            }
        }
        let state = if self.is_change {
            DeadlineStatus::Changed
        } else {
            DeadlineStatus::Reserved
        };
        let done = self.act(controller, Act::Commit, Some(state)).await;
        match done.event {
            PlannerEvent::Returned => {
                self.looked = Some(Instant::now());
                self.failed.clear();
                self.grants_due = Some(GrantsDue::After(Instant::now()));
                ActionResult::new(PlannerEvent::Committed, done.state)
            }
            _ => done,
        }
    }

    async fn cancel(
        &mut self,
        controller: &ControllerClient,
        state: Option<DeadlineStatus>,
    ) -> ActionResult {
        let done = self
            .act(controller, Act::Cancel { series: false }, state)
            .await;
        let is_gone = match &done.event {
            PlannerEvent::Returned => true,
            // The reservation is over or unknown: nothing is promised any more.
            PlannerEvent::Failed { is_passing } => !is_passing,
            _ => false,
        };
        if !is_gone {
            return done;
        }
        self.id = None;
        self.forget_grants();
        if let Some(kept) = self.kept.take() {
            kept.forget();
        }
        ActionResult::new(PlannerEvent::Returned, state)
    }

    async fn act(
        &self,
        controller: &ControllerClient,
        act: Act,
        state: Option<DeadlineStatus>,
    ) -> ActionResult {
        let (Some(id), Ok(key)) = (self.id, key()) else {
            return ActionResult::new(PlannerEvent::Failed { is_passing: false }, None);
        };
        match controller.act_on_reservation(id, act, &key).await {
            Ok(_) => ActionResult::new(PlannerEvent::Returned, state),
            Err(error) => error.into(),
        }
    }

    /// Asks the controller for the state of the paths, once per [`STATE_POLL_INTERVAL`]. Paths over
    /// a link with too little capacity have failed.
    pub async fn poll_state(&mut self) -> Vec<PlannerEvent> {
        let is_due = self
            .looked
            .is_some_and(|at| at.elapsed() >= STATE_POLL_INTERVAL);
        let (Some(id), Some((controller, ..)), true) = (self.id, &self.controller, is_due) else {
            return Vec::new();
        };
        let found = controller.reservation(id).await;
        self.looked = Some(Instant::now());
        match found {
            Ok(reservation) => self.evaluate_state(&reservation),
            Err(_) => Vec::new(),
        }
    }

    /// Forgets a reservation that has ended for any reason.
    fn forget_lost(&mut self) -> Vec<PlannerEvent> {
        self.id = None;
        self.looked = None;
        self.failed.clear();
        self.forget_grants();
        if let Some(kept) = self.kept.take() {
            kept.forget();
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

    fn forget_grants(&mut self) {
        self.grants_due = None;
        self.paths.forget_grants();
    }

    /// Requests grants for the promise, if they are due and can be used.
    pub async fn ask_for_grants(&mut self, now: UnixMillis) {
        let is_due = match self.grants_due {
            Some(GrantsDue::After(due)) => due <= Instant::now(),
            Some(GrantsDue::At(due)) => due <= now,
            None => false,
        };
        let (Some(id), Some((controller, ..)), true, true) =
            (self.id, &self.controller, is_due, self.of.joins)
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
    ) -> Vec<(PathId, ReservedWay, f64)> {
        let ways = promise
            .paths_at(now)
            .filter_map(|(path, bps)| Some((path, self.paths.reserved_route(path, now)?, bps)));
        ways.collect()
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
            true => ConcurrentReservation::Ways(paths),
            false => ConcurrentReservation::Unknown,
        }
    }

    /// Describes an action and its result in one line for people.
    pub fn line(&self, action: &PlannerAction, done: &ActionResult) -> Option<String> {
        let what = |ask: &BandwidthRequest| match ask {
            BandwidthRequest::Volume { bytes, .. } => ByteCount(*bytes).to_string(),
            BandwidthRequest::Rate { bps, .. } => Rate::nearest(*bps).to_string(),
        };
        match (action, &done.event, &done.error) {
            (_, PlannerEvent::Failed { .. }, Some(error)) => {
                Some(format!("the controller: {error}"))
            }
            (
                PlannerAction::Reserve(ask) | PlannerAction::Change(ask),
                PlannerEvent::Held(_),
                _,
            ) => {
                let ends = self.ends.as_ref()?;
                let (from, to) = (
                    printable(ends.from.as_bytes()),
                    printable(ends.to.as_bytes()),
                );
                let change = if self.is_change { "changed to " } else { "" };
                let id = self.id.unwrap_or_default();
                Some(format!(
                    "reservation {id}: {change}{} from {from} to {to}",
                    what(ask)
                ))
            }
            (
                PlannerAction::Reserve(ask) | PlannerAction::Change(ask),
                PlannerEvent::Refused(_),
                _,
            ) => Some(format!("not enough bandwidth for {}", what(ask))),
            (PlannerAction::Release, PlannerEvent::Returned, _) => {
                Some("the rest of it was returned".to_owned())
            }
            _ => None,
        }
    }
}

fn asked(ask: BandwidthRequest) -> (Wish, u64) {
    match ask {
        BandwidthRequest::Volume { bytes, by } => {
            // Prefer a rate that lasts all the time beside best effort: a burst is useless to an
            // end that cannot send that fast.
            let seconds = by.saturating_sub(unix_ms()).max(1) as f64 / 1000.0;
            let even = bytes as f64 * 8.0 / seconds;
            let wish = Wish::Volume {
                bytes,
                at_most_bps: Some((even * MAX_PEAK_TO_EVEN_RATIO).ceil() as u64),
                pace: Pace::Even,
            };
            (wish, by)
        }
        BandwidthRequest::Rate { bps, until } => (
            Wish::Rate {
                rate_bps: bps.max(1.0) as u64,
            },
            until,
        ),
    }
}

/// Makes a new idempotency key. Fails if the system gives no random bytes.
fn key() -> Result<String, String> {
    let key = SessionId::random().map(|key| key.to_string());
    key.map_err(|error| format!("cannot make an idempotency key: {error}"))
}
