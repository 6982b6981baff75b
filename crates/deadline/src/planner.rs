//! Decisions about reservations. The caller samples the copy about once a second, and reports the
//! results of requests.
//!
//! - Best effort **suffices** if it carries the remaining bytes before the deadline at its p10
//!   rate, less a margin of time ([`bounds::MARGIN_SHARE`]). Then nothing is requested.
//! - The rest is **reserved**, as a volume by the deadline. It is held first, and committed only if
//!   it is still needed then.
//! - A reservation is **changed** if it and best effort at p10 no longer carry the remaining bytes
//!   ([`bounds::INCREASE_ABOVE`]): a path has failed, the directory walk found more, or the copy is
//!   slower than expected. It is also changed if less than half of it is needed
//!   ([`bounds::REDUCE_BELOW`]).
//! - It is **returned** if best effort suffices with [`bounds::RETURN_ABOVE`] to spare, and when
//!   the copy is over.
//! - A **report** is made once that the deadline may be missed, and once that it cannot be met,
//!   with counter-offers.
//!
//! To prevent flapping, the cause of a request must have lasted for a while, pauses between
//! requests double, and there are at most [`bounds::MAX_REQUESTS`] in all.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::estimate::{RateMeasurement, Rates, blend, sufficient_measurement};
use crate::promise::{PathId, Promise};
use crate::{UnixMillis, carried_bytes, transfer_time};

mod account;
pub mod bounds;
mod events;
mod need;

pub use account::Account;
use bounds::{
    EXTEND_BEFORE_MS, FIRST_PAUSE_MS, HEADROOM, INCREASE_ABOVE, MARGIN_SHARE, MAX_ESTIMATE_WAIT_MS,
    MAX_MARGIN_MS, MAX_PAUSE_MS, MAX_REQUESTS, MAX_RETURN_ATTEMPTS, MIN_RATE_WINDOW_MS,
    MIN_RETURNED_SHARE, REDUCE_BELOW, RETURN_SETTLE_MS,
};
pub use events::{
    BandwidthRequest, Outlook, PlanReason, PlannerAction, PlannerEvent, ProgressSample,
    RefusalOffers, ReservationMode,
};

#[derive(Debug, Clone, PartialEq)]
enum PlannerState {
    /// No request is pending.
    Idle,
    /// A request is pending; it is a change if something is promised already.
    Asked,
    /// A commit of held bandwidth is pending.
    Committing(Promise),
    /// The copy is over and a request or a commit is still pending, or held bandwidth is being
    /// returned.
    Ending,
    /// The promised bandwidth is being returned.
    Returning,
}

/// Reservation planner of one copy.
#[derive(Debug, Clone)]
pub struct Planner {
    begun: UnixMillis,
    deadline: Option<UnixMillis>,
    mode: ReservationMode,
    state: PlannerState,
    promise: Option<Promise>,
    failed: BTreeSet<PathId>,
    last: ProgressSample,
    /// Last best-effort measurement without a reservation, and the current one beside a
    /// reservation.
    alone: Option<RateMeasurement>,
    beside: Option<RateMeasurement>,
    requests: u32,
    not_before: UnixMillis,
    /// Times since when more is needed than promised; less than half; nothing; and since when the
    /// deadline is expected to be missed.
    short_since: Option<UnixMillis>,
    ample_since: Option<UnixMillis>,
    spare_since: Option<UnixMillis>,
    missed_since: Option<UnixMillis>,
    refusal: Option<RefusalOffers>,
    /// If true, the last request accepted a counter-offer.
    is_counter_offer: bool,
    /// Maximum number of bytes promised at once.
    most_promised: f64,
    gave_up: bool,
    /// Last report: `Some(true)` that the deadline cannot be met, `Some(false)` that it may be
    /// missed.
    warned: Option<bool>,
    over: bool,
    /// Latest time seen, as clocks may be set back.
    now: UnixMillis,
    /// Number of failed attempts to return what is promised.
    kept: u32,
    why: PlanReason,
    account: Account,
}

impl Planner {
    /// Creates the planner of a copy that begins now.
    #[must_use]
    pub fn new(now: UnixMillis, deadline: Option<UnixMillis>, mode: ReservationMode) -> Self {
        Self {
            begun: now,
            deadline,
            mode,
            state: PlannerState::Idle,
            promise: None,
            failed: BTreeSet::new(),
            last: ProgressSample::default(),
            alone: None,
            beside: None,
            requests: 0,
            not_before: now,
            short_since: None,
            ample_since: None,
            spare_since: None,
            missed_since: None,
            refusal: None,
            is_counter_offer: false,
            most_promised: 0.0,
            gave_up: false,
            warned: None,
            over: false,
            now,
            kept: 0,
            why: match mode {
                ReservationMode::Never => PlanReason::Never,
                _ => PlanReason::Undecided,
            },
            account: Account::default(),
        }
    }

    /// Returns the reason for the current state.
    #[must_use]
    pub const fn reason(&self) -> PlanReason {
        self.why
    }

    /// Returns what was reserved and returned so far.
    #[must_use]
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// Returns the current promise.
    #[must_use]
    pub const fn promise(&self) -> Option<&Promise> {
        self.promise.as_ref()
    }

    /// Returns the number of requests so far.
    #[must_use]
    pub const fn requests(&self) -> u32 {
        self.requests
    }

    /// Returns the expected best-effort rate, if known. Beside a reservation, only measurements
    /// made beside it count, once they are long enough. Both may share a link, so earlier
    /// measurements no longer apply.
    #[must_use]
    pub fn expected(&self) -> Option<Rates> {
        let long = self.sufficient_duration();
        blend(None, self.beside, long).or_else(|| blend(self.last.forecast, self.alone, long))
    }

    /// Returns the time by which the copy should be complete: the deadline less the margin.
    #[must_use]
    pub fn aim(&self) -> Option<UnixMillis> {
        let deadline = self.deadline?;
        let margin = ((self.span() as f64 * MARGIN_SHARE) as UnixMillis).min(MAX_MARGIN_MS);
        Some(deadline - margin.min(deadline))
    }

    /// Returns true if nothing is held, promised or pending, so that no more actions follow.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.state == PlannerState::Idle && self.promise.is_none()
    }

    /// Handles an event, and returns the actions to take.
    pub fn handle_event(&mut self, now: UnixMillis, event: PlannerEvent) -> Vec<PlannerAction> {
        let now = now.max(self.now);
        self.now = now;
        match event {
            PlannerEvent::Look(look) => {
                self.last = look;
                self.take_measurement(now, look.measured);
                if !self.over {
                    return self.update_plan(now);
                }
            }
            PlannerEvent::Held(pieces) => match self.state {
                PlannerState::Asked if !self.over && self.is_still_needed(now) => {
                    self.state = PlannerState::Committing(Promise { pieces });
                    return vec![PlannerAction::Commit];
                }
                PlannerState::Asked | PlannerState::Ending => {
                    self.state = PlannerState::Ending;
                    return vec![PlannerAction::Abort];
                }
                _ => {}
            },
            PlannerEvent::Committed => {
                if let PlannerState::Committing(promise) =
                    std::mem::replace(&mut self.state, PlannerState::Idle)
                {
                    self.account
                        .record_promise(now, self.promise.as_ref(), &promise);
                    self.promise = Some(promise);
                    self.refusal = None;
                    self.failed.clear();
                    self.most_promised = self.most_promised.max(self.promised_bytes(now));
                    self.forget_trends();
                    self.why = PlanReason::Reserved;
                }
                return self.wind_down();
            }
            PlannerEvent::Refused(refusal) => {
                self.state = PlannerState::Idle;
                return match self.over {
                    true => self.wind_down(),
                    false => self.handle_refusal(now, refusal),
                };
            }
            PlannerEvent::Failed { is_passing } => {
                self.gave_up |= !is_passing;
                return self.request_failed();
            }
            PlannerEvent::Returned => {
                let is_whole = self.state == PlannerState::Returning;
                self.state = PlannerState::Idle;
                if is_whole && let Some(promise) = self.promise.take() {
                    self.account.record_return(now, &promise);
                    self.failed.clear();
                    self.forget_trends();
                    if !self.over {
                        self.why = PlanReason::Returned;
                    }
                }
                return self.wind_down();
            }
            PlannerEvent::Lost => {
                if self.state == PlannerState::Idle
                    && let Some(promise) = self.promise.take()
                {
                    self.account.record_loss(now, &promise);
                    self.failed.clear();
                    self.forget_trends();
                    self.why = PlanReason::Undecided;
                }
            }
            PlannerEvent::Path { path, works } => {
                match works {
                    true => self.failed.remove(&path),
                    false => self.failed.insert(path),
                };
            }
            PlannerEvent::Over => {
                self.over = true;
                return self.wind_down();
            }
        }
        Vec::new()
    }

    fn span(&self) -> UnixMillis {
        self.deadline
            .unwrap_or(UnixMillis::MAX)
            .saturating_sub(self.begun)
    }

    fn sufficient_duration(&self) -> Duration {
        sufficient_measurement(Duration::from_millis(self.span()))
    }

    /// Records the best-effort rate, alone or beside a reservation.
    fn take_measurement(&mut self, now: UnixMillis, measured: Option<RateMeasurement>) {
        let is_beside = |promise: &Promise| promise.paths_at(now).next().is_some();
        if self.promise.as_ref().is_some_and(is_beside) {
            self.beside = measured;
            return;
        }
        let long = self.sufficient_duration();
        let is_long = |measured: &RateMeasurement| measured.over >= long;
        // Best effort alone carries at least what it carried beside the last reservation. A
        // measurement that has just begun does not replace that one.
        let lasted = measured
            .filter(is_long)
            .or(self.beside.take().filter(is_long));
        self.alone = lasted.or(self.alone).or(measured);
    }

    fn request_failed(&mut self) -> Vec<PlannerAction> {
        match std::mem::replace(&mut self.state, PlannerState::Idle) {
            // The commit may have succeeded, with its answer lost.
            PlannerState::Committing(_) => {
                self.state = PlannerState::Ending;
                return vec![PlannerAction::Abort];
            }
            PlannerState::Returning => {
                self.kept += 1;
                if self.kept >= MAX_RETURN_ATTEMPTS {
                    self.promise = None;
                }
            }
            _ => {}
        }
        if self.promise.is_none() && self.mode != ReservationMode::Never {
            self.why = PlanReason::Unable;
        }
        self.wind_down()
    }

    /// Returns what is held or promised when the copy is over.
    fn wind_down(&mut self) -> Vec<PlannerAction> {
        if !self.over {
            return Vec::new();
        }
        match self.state {
            PlannerState::Idle if self.promise.is_some() => {
                self.state = PlannerState::Returning;
                vec![PlannerAction::Release]
            }
            _ => Vec::new(),
        }
    }

    fn update_plan(&mut self, now: UnixMillis) -> Vec<PlannerAction> {
        // A promise that has expired is removed, and does not count as returned.
        if self.state == PlannerState::Idle
            && self
                .promise
                .as_ref()
                .is_some_and(|promise| promise.end() <= now)
        {
            self.state = PlannerState::Returning;
            return vec![PlannerAction::Release];
        }
        let mut actions = match self.mode {
            ReservationMode::Rate(bps) => self.reserve_rate(now, bps),
            ReservationMode::Auto | ReservationMode::Never => self.reserve_by_need(now),
        };
        actions.extend(self.due_warning(now));
        actions
    }

    /// Requests what must be reserved to meet the deadline.
    fn reserve_by_need(&mut self, now: UnixMillis) -> Vec<PlannerAction> {
        let Some(need) = self.need(now) else {
            return Vec::new();
        };
        let promised = self.promised_bytes(now);
        let trend = |since: &mut Option<UnixMillis>, holds: bool| {
            *since = since.or(Some(now)).filter(|_| holds);
            since.map(|since| now - since)
        };
        let short = trend(
            &mut self.short_since,
            need.shortfall > promised * INCREASE_ABOVE,
        );
        let is_worth = promised - need.shortfall >= self.most_promised * MIN_RETURNED_SHARE;
        let is_ample = self.last.is_all && need.shortfall < promised * REDUCE_BELOW && is_worth;
        let ample = trend(&mut self.ample_since, is_ample && !need.will_do_amply);
        let is_spare = self.promise.is_some() && self.last.is_all && need.will_do_amply;
        let spare = trend(&mut self.spare_since, is_spare);
        if self.promise.is_none()
            && self.last.is_all
            && need.shortfall <= 0.0
            && self.mode == ReservationMode::Auto
        {
            self.why = match self.why {
                PlanReason::Returned => PlanReason::Returned,
                _ => PlanReason::BestEffort,
            };
        }
        if self.state != PlannerState::Idle || self.mode == ReservationMode::Never {
            return Vec::new();
        }
        let held =
            |since: Option<UnixMillis>, long: UnixMillis| since.is_some_and(|held| held >= long);
        if held(spare, RETURN_SETTLE_MS) {
            self.state = PlannerState::Returning;
            return vec![PlannerAction::Release];
        }
        if !(held(short, self.settle_time()) || held(ample, RETURN_SETTLE_MS))
            || !self.may_send_request(now)
        {
            return Vec::new();
        }
        let Some(aim) = self.aim().filter(|aim| *aim > now) else {
            return Vec::new();
        };
        let bytes = (need.shortfall * Self::grant_ratio(now, aim))
            .max(1.0)
            .ceil() as u64;
        let by = Self::grant_end(aim);
        vec![self.send_request(now, BandwidthRequest::Volume { bytes, by })]
    }

    /// Requests a fixed rate for the expected duration of the copy.
    fn reserve_rate(&mut self, now: UnixMillis, bps: f64) -> Vec<PlannerAction> {
        let waited = now - self.begun >= MAX_ESTIMATE_WAIT_MS;
        let is_known = self.last.is_all || waited;
        let is_done = self.last.is_all && self.last.left == 0;
        if self.state != PlannerState::Idle || !is_known || is_done || !self.may_send_request(now) {
            return Vec::new();
        }
        let ends = self.promise.as_ref().map(Promise::end);
        if ends.is_some_and(|end| end > now + EXTEND_BEFORE_MS) {
            return Vec::new();
        }
        let takes =
            transfer_time(self.last.left as f64 * HEADROOM, bps).unwrap_or(MIN_RATE_WINDOW_MS);
        let until = now.saturating_add(takes.max(MIN_RATE_WINDOW_MS));
        vec![self.send_request(now, BandwidthRequest::Rate { bps, until })]
    }

    fn send_request(&mut self, now: UnixMillis, ask: BandwidthRequest) -> PlannerAction {
        self.state = PlannerState::Asked;
        self.is_counter_offer = false;
        let pause = FIRST_PAUSE_MS.saturating_mul(1 << self.requests.min(16));
        self.not_before = now.saturating_add(pause.min(MAX_PAUSE_MS));
        self.requests += 1;
        match self.promise {
            Some(_) => PlannerAction::Change(ask),
            None => PlannerAction::Reserve(ask),
        }
    }

    fn may_send_request(&self, now: UnixMillis) -> bool {
        !self.gave_up && self.requests < MAX_REQUESTS && now >= self.not_before
    }

    fn handle_refusal(&mut self, now: UnixMillis, refusal: RefusalOffers) -> Vec<PlannerAction> {
        self.refusal = Some(refusal);
        if self.promise.is_none() {
            self.why = PlanReason::InsufficientBandwidth;
        }
        // Accept the counter-offer if best effort, at its expected rate, carries the rest.
        let Some((aim, need)) = self.aim().filter(|aim| *aim > now).zip(self.need(now)) else {
            return self.due_warning(now).into_iter().collect();
        };
        let likely = self
            .expected()
            .map_or(0.0, |expected| carried_bytes(expected.p50, aim - now));
        let goes = |bytes: u64| bytes as f64 / Self::grant_ratio(now, aim);
        let has_room = |bytes: &u64| *bytes > 0 && need.left <= goes(*bytes) + likely;
        let is_more = |bytes: &u64| goes(*bytes) > self.promised_bytes(now);
        let volume = refusal.volume.filter(has_room).filter(is_more);
        match volume {
            Some(bytes)
                if self.mode == ReservationMode::Auto
                    && !self.is_counter_offer
                    && self.requests < MAX_REQUESTS =>
            {
                let asked = self.send_request(
                    now,
                    BandwidthRequest::Volume {
                        bytes,
                        by: Self::grant_end(aim),
                    },
                );
                self.is_counter_offer = true;
                vec![asked]
            }
            _ => self.due_warning(now).into_iter().collect(),
        }
    }

    fn forget_trends(&mut self) {
        self.short_since = None;
        self.ample_since = None;
        self.spare_since = None;
    }
}

#[cfg(test)]
mod tests;
