//! Carries out the planner's decisions at the controller, and tracks the reservation.

mod observe;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use longhaul_control_api::reservations::{
    Offers, Pace, ReservationChange, ReservationRequest, Wish,
};
use longhaul_control_client::controller::{ReservationAction as Act, ReservationAnswer};
use longhaul_control_client::{ClientError, ControllerClient};
use longhaul_copy_api::DeadlineStatus;
use longhaul_deadline::{BandwidthRequest, PathId, PlannerAction, PlannerEvent, UnixMillis};
use longhaul_hop::unix_ms;
use longhaul_proto::SessionId;
use longhaul_proto::text::printable;
use quantities::{ByteCount, Rate};

use crate::ends::{self, MapEnds};
use crate::granted::{GrantedPaths, refusal};
use crate::records::{LockedRecord, ReservationRecord};
use crate::request::DeadlineRequest;

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
    request: DeadlineRequest,
    ends: Option<MapEnds>,
    id: Option<u64>,
    is_change: bool,
    record: Option<LockedRecord>,
    paths: GrantedPaths,
    /// Time of the last query for its state.
    polled: Option<Instant>,
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
    pub fn new(mut request: DeadlineRequest) -> Self {
        Self {
            controller: request.controller.take(),
            paths: GrantedPaths::new(request.server.host.clone(), request.pins, request.push),
            request,
            ends: None,
            id: None,
            is_change: false,
            record: None,
            polled: None,
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
            match ends::find(controller, &self.request.server, self.request.push).await {
                Ok(found) => self.ends = Some(found),
                Err(ends::EndsError::Asked(error)) => return error.into(),
                Err(error) => return ActionResult::failed(error.to_string(), false),
            }
        }
        let Some(ends) = &self.ends else {
            return ActionResult::new(PlannerEvent::Failed { is_passing: false }, None);
        };
        let (wish, end_ms) = wish_and_end(ask);
        let mut wanted = ReservationRequest {
            paths: if self.request.pins { MAX_PATHS } else { 1 },
            hold: true,
            provision: true,
            pin: self.request.pins,
            description: Some("longhaul cp".to_owned()),
            ..ReservationRequest::new(ends.from.clone(), ends.to.clone(), wish, end_ms)
        };
        let key = match idempotency_key() {
            Ok(key) => key,
            Err(why) => return ActionResult::failed(why, true),
        };
        let mut granted = controller.reserve(&wanted, &key).await;
        if wanted.paths > 1 && matches!(&granted, Err(error) if !error.is_transient()) {
            // A key may be entitled to fewer paths.
            wanted.paths = 1;
            granted = controller.reserve(&wanted, &format!("{key}-1")).await;
        }
        self.granted(granted)
    }

    async fn change(
        &mut self,
        controller: &ControllerClient,
        ask: BandwidthRequest,
    ) -> ActionResult {
        self.is_change = true;
        let (Some(id), Ok(key)) = (self.id, idempotency_key()) else {
            return ActionResult::new(PlannerEvent::Failed { is_passing: true }, None);
        };
        let (wish, end_ms) = wish_and_end(ask);
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
        if self.record.is_none()
            && let Some((_, state, url)) = &self.controller
        {
            let record = ReservationRecord {
                controller: url.clone(),
                owner: self.request.owner.clone(),
                id,
            };
            match LockedRecord::keep(state, &record) {
                Ok(record) => self.record = Some(record),
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
                self.polled = Some(Instant::now());
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
        if let Some(record) = self.record.take() {
            record.forget();
        }
        ActionResult::new(PlannerEvent::Returned, state)
    }

    async fn act(
        &self,
        controller: &ControllerClient,
        act: Act,
        state: Option<DeadlineStatus>,
    ) -> ActionResult {
        let (Some(id), Ok(key)) = (self.id, idempotency_key()) else {
            return ActionResult::new(PlannerEvent::Failed { is_passing: false }, None);
        };
        match controller.act_on_reservation(id, act, &key).await {
            Ok(_) => ActionResult::new(PlannerEvent::Returned, state),
            Err(error) => error.into(),
        }
    }

    fn forget_grants(&mut self) {
        self.grants_due = None;
        self.paths.forget_grants();
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

/// Returns the controller's form of a request, and its end.
fn wish_and_end(ask: BandwidthRequest) -> (Wish, u64) {
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
fn idempotency_key() -> Result<String, String> {
    let key = SessionId::random().map(|key| key.to_string());
    key.map_err(|error| format!("cannot make an idempotency key: {error}"))
}
