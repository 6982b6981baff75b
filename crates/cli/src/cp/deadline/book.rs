//! Carries out the planner's decisions at the controller, and tracks the reservation.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_control_api::reservations::{
    CircuitStanding, Disjoint, LifeState, Offers, Pace, Preference, Reservation, ReservationChange,
    ReservationRequest, Wish,
};
use longhaul_control_client::controller::{Action as Act, Granted};
use longhaul_control_client::{ClientError, Controller};
use longhaul_deadline::{Action, Ask, Event, Moment, PathId, Promise};
use longhaul_hop::unix_ms;
use longhaul_proto::SessionId;
use longhaul_proto::text::printable;
use longhaul_transfer::{Reserved as ReservedWay, RouteStanding};
use quantities::{ByteCount, Rate};

use super::Of;
use super::ends::{self, Ends};
use super::granted::{Paths, is_held_by_network, refusal, renewal_due};
use super::kept::{Kept, Reserved};
use super::looks::Beside;
use crate::cp::routing::Judged;

/// Interval between queries for the state of a reservation.
const STANDING_INTERVAL: Duration = Duration::from_secs(10);
/// Delay before grants that were not issued are requested again.
const GRANTS_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Maximum simultaneous paths of a copy whose streams have distinguishable ports. Other copies use
/// one path.
const PATHS: u32 = 4;

/// Limit of the reserved rate at any moment, as a multiple of the rate that would spread the volume
/// evenly. It allows for links that are full part of the time.
const MOST_BY_EVEN: f64 = 4.0;

/// Result of an action.
pub struct Done {
    /// Event that informs the planner.
    pub event: Event,
    /// The state in one word, for programs.
    pub state: Option<&'static str>,
    /// Offers that came with a refusal.
    pub offers: Option<Offers>,
    /// Reason of a failure.
    pub error: Option<String>,
}

impl Done {
    const fn new(event: Event, state: Option<&'static str>) -> Self {
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
            ..Self::new(Event::Failed { is_passing }, Some("failed"))
        }
    }
}

impl From<ClientError> for Done {
    fn from(error: ClientError) -> Self {
        Self::failed(printable(error.to_string().as_bytes()), error.is_passing())
    }
}

/// A copy's reservation at the controller.
pub struct Book {
    controller: Option<(Arc<Controller>, PathBuf, String)>,
    of: Of,
    ends: Option<Ends>,
    id: Option<u64>,
    is_change: bool,
    kept: Option<Kept>,
    paths: Paths,
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
    At(Moment),
}

impl Book {
    /// Creates it with nothing reserved.
    pub fn new(mut of: Of) -> Self {
        Self {
            controller: of.controller.take(),
            paths: Paths::new(of.server.host.clone(), of.pins, of.push),
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
    pub fn controller(&self) -> Option<&Controller> {
        self.controller
            .as_ref()
            .map(|(controller, ..)| &**controller)
    }

    /// Returns the number of the held or promised reservation.
    pub const fn id(&self) -> Option<u64> {
        self.id
    }

    /// Returns the copy's ends on the map.
    pub const fn ends(&self) -> Option<&Ends> {
        self.ends.as_ref()
    }

    /// Carries out an action.
    pub async fn carry_out(&mut self, action: &Action) -> Done {
        let Some((controller, ..)) = &self.controller else {
            return Done::new(Event::Failed { is_passing: false }, None);
        };
        let controller = controller.clone();
        match action {
            Action::Reserve(ask) => self.reserve(&controller, *ask).await,
            Action::Change(ask) => self.change(&controller, *ask).await,
            Action::Commit => self.commit(&controller).await,
            Action::Abort if self.is_change => self.act(&controller, Act::Abort, None).await,
            Action::Abort => self.cancel(&controller, None).await,
            Action::Release => self.cancel(&controller, Some("returned")).await,
            Action::Warn(_) => Done::new(Event::Failed { is_passing: true }, None),
        }
    }

    async fn reserve(&mut self, controller: &Controller, ask: Ask) -> Done {
        self.is_change = false;
        if self.ends.is_none() {
            match ends::find(controller, &self.of.server, self.of.push).await {
                Ok(found) => self.ends = Some(found),
                Err(ends::EndsError::Asked(error)) => return error.into(),
                Err(error) => return Done::failed(error.to_string(), false),
            }
        }
        let Some(ends) = &self.ends else {
            return Done::new(Event::Failed { is_passing: false }, None);
        };
        let (wish, end_ms) = asked(ask);
        let mut request = ReservationRequest {
            from: ends.from.clone(),
            to: ends.to.clone(),
            wish,
            start_ms: None,
            end_ms,
            paths: if self.of.pins { PATHS } else { 1 },
            disjoint: Disjoint::No,
            preference: Preference::FewestHops,
            avoid_sites: Vec::new(),
            avoid_links: Vec::new(),
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
            Err(why) => return Done::failed(why, true),
        };
        let mut granted = controller.reserve(&request, &key).await;
        if request.paths > 1 && matches!(&granted, Err(error) if !error.is_passing()) {
            // A key may be entitled to fewer paths.
            request.paths = 1;
            granted = controller.reserve(&request, &format!("{key}-1")).await;
        }
        self.granted(granted)
    }

    async fn change(&mut self, controller: &Controller, ask: Ask) -> Done {
        self.is_change = true;
        let (Some(id), Ok(key)) = (self.id, key()) else {
            return Done::new(Event::Failed { is_passing: true }, None);
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

    fn granted(&mut self, granted: Result<Granted, ClientError>) -> Done {
        match granted {
            Ok(Granted::Reserved(reserved)) => match reserved.reservations.first() {
                Some(reservation) => {
                    self.id = Some(reservation.id);
                    Done::new(Event::Held(self.paths.pieces(reservation)), None)
                }
                None => Done::failed(
                    "the controller's answer names no reservation".to_owned(),
                    false,
                ),
            },
            Ok(Granted::NoRoom(refused)) => Done {
                offers: Some(refused.refusal.offers.clone()),
                ..Done::new(
                    Event::Refused(refusal(&refused.refusal.offers)),
                    Some("refused"),
                )
            },
            Err(error) => error.into(),
        }
    }

    async fn commit(&mut self, controller: &Controller) -> Done {
        let Some(id) = self.id else {
            return Done::new(Event::Failed { is_passing: true }, None);
        };
        // Recorded before it is promised, so that a copy killed at any moment leaves a record of
        // it.
        if self.kept.is_none()
            && let Some((_, state, url)) = &self.controller
        {
            let reserved = Reserved {
                controller: url.clone(),
                owner: self.of.owner.clone(),
                id,
            };
            match Kept::keep(state, &reserved) {
                Ok(kept) => self.kept = Some(kept),
                Err(error) => tracing::info!(%error, "what is reserved is not written down"),
            }
        }
        let state = if self.is_change {
            "changed"
        } else {
            "reserved"
        };
        let done = self.act(controller, Act::Commit, Some(state)).await;
        match done.event {
            Event::Returned => {
                self.looked = Some(Instant::now());
                self.failed.clear();
                self.grants_due = Some(GrantsDue::After(Instant::now()));
                Done::new(Event::Committed, done.state)
            }
            _ => done,
        }
    }

    async fn cancel(&mut self, controller: &Controller, state: Option<&'static str>) -> Done {
        let done = self
            .act(controller, Act::Cancel { series: false }, state)
            .await;
        let is_gone = match &done.event {
            Event::Returned => true,
            // The reservation is over or unknown: nothing is promised any more.
            Event::Failed { is_passing } => !is_passing,
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
        Done::new(Event::Returned, state)
    }

    async fn act(&self, controller: &Controller, act: Act, state: Option<&'static str>) -> Done {
        let (Some(id), Ok(key)) = (self.id, key()) else {
            return Done::new(Event::Failed { is_passing: false }, None);
        };
        match controller.act_on_reservation(id, act, &key).await {
            Ok(_) => Done::new(Event::Returned, state),
            Err(error) => error.into(),
        }
    }

    /// Asks the controller for the state of the paths, once per [`STANDING_INTERVAL`]. Paths over a
    /// link with too little capacity have failed.
    pub async fn standing(&mut self) -> Vec<Event> {
        let is_due = self
            .looked
            .is_some_and(|at| at.elapsed() >= STANDING_INTERVAL);
        let (Some(id), Some((controller, ..)), true) = (self.id, &self.controller, is_due) else {
            return Vec::new();
        };
        let found = controller.reservation(id).await;
        self.looked = Some(Instant::now());
        match found {
            Ok(reservation) => self.stands(&reservation),
            Err(_) => Vec::new(),
        }
    }

    /// Forgets a reservation that has ended for any reason.
    fn lost(&mut self) -> Vec<Event> {
        self.id = None;
        self.looked = None;
        self.failed.clear();
        self.forget_grants();
        if let Some(kept) = self.kept.take() {
            kept.forget();
        }
        vec![Event::Lost]
    }

    fn stands(&mut self, reservation: &Reservation) -> Vec<Event> {
        if reservation.state.life != LifeState::Created {
            return self.lost();
        }
        let circuit = reservation.circuit.as_ref();
        let failed =
            match circuit.is_some_and(|circuit| circuit.standing == CircuitStanding::Failed) {
                true => {
                    let pieces = self.paths.pieces(reservation);
                    let paths = pieces.iter().flat_map(|piece| &piece.paths);
                    paths.map(|(path, _)| *path).collect()
                }
                false => self.paths.over(&reservation.impaired),
            };
        let new = failed.symmetric_difference(&self.failed);
        let events = new.map(|path| Event::Path {
            path: *path,
            works: !failed.contains(path),
        });
        let events = events.collect();
        self.failed = failed;
        events
    }

    /// Converts the copy's new verdicts on its granted routes to events.
    pub fn judged(&mut self, judged: &[Judged]) -> Vec<Event> {
        let mut events = Vec::new();
        for one in judged.iter().skip(self.judged) {
            let works = match one.standing {
                RouteStanding::Late | RouteStanding::Stalled | RouteStanding::Gone => false,
                RouteStanding::Even | RouteStanding::Better | RouteStanding::Slower => true,
                RouteStanding::Joined | RouteStanding::Left => continue,
            };
            let paths = self.paths.named(&one.route).into_iter();
            events.extend(paths.map(|path| Event::Path { path, works }));
        }
        self.judged = judged.len();
        events
    }

    fn forget_grants(&mut self) {
        self.grants_due = None;
        self.paths.forget_grants();
    }

    /// Requests grants for the promise, if they are due and can be used.
    pub async fn ask_for_grants(&mut self, now: Moment) {
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
                Some(GrantsDue::After(Instant::now() + GRANTS_AGAIN_AFTER))
            }
        };
    }

    /// Returns the reserved routes of a moment, each with its rate in bit/s.
    pub fn ways(&self, promise: &Promise, now: Moment) -> Vec<(PathId, ReservedWay, f64)> {
        let ways = promise
            .at(now)
            .filter_map(|(path, bps)| Some((path, self.paths.way(path, now)?, bps)));
        ways.collect()
    }

    /// Returns the reservation that runs beside best effort at a moment.
    pub fn beside(&self, promise: &Promise, now: Moment) -> Beside {
        let paths: Vec<_> = promise.at(now).collect();
        let is_told_apart = |(path, _): &(PathId, f64)| self.paths.way(*path, now).is_some();
        match paths.iter().all(is_told_apart) {
            true => Beside::Ways(paths),
            false => Beside::Unknown,
        }
    }

    /// Describes an action and its result in one line for people.
    pub fn line(&self, action: &Action, done: &Done) -> Option<String> {
        let what = |ask: &Ask| match ask {
            Ask::Volume { bytes, .. } => ByteCount(*bytes).to_string(),
            Ask::Rate { bps, .. } => Rate::nearest(*bps).to_string(),
        };
        match (action, &done.event, &done.error) {
            (_, Event::Failed { .. }, Some(error)) => Some(format!("the controller: {error}")),
            (Action::Reserve(ask) | Action::Change(ask), Event::Held(_), _) => {
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
            (Action::Reserve(ask) | Action::Change(ask), Event::Refused(_), _) => {
                Some(format!("no room for {}", what(ask)))
            }
            (Action::Release, Event::Returned, _) => {
                Some("what was left of it was returned".to_owned())
            }
            _ => None,
        }
    }
}

fn asked(ask: Ask) -> (Wish, u64) {
    match ask {
        Ask::Volume { bytes, by } => {
            // Prefer a rate that lasts all the time beside best effort: a burst is useless to an
            // end that cannot send that fast.
            let seconds = by.saturating_sub(unix_ms()).max(1) as f64 / 1000.0;
            let even = bytes as f64 * 8.0 / seconds;
            let wish = Wish::Volume {
                bytes,
                at_most_bps: Some((even * MOST_BY_EVEN).ceil() as u64),
                pace: Pace::Even,
            };
            (wish, by)
        }
        Ask::Rate { bps, until } => (
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
