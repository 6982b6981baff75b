//! Decisions about reservations. The caller samples the copy about once a second, and reports the
//! results of requests.
//!
//! - Best effort **suffices** if it carries the remaining bytes before the deadline at its p10
//!   rate, less a margin of time ([`bounds::MARGIN_SHARE`]). Then nothing is requested.
//! - The rest is **reserved**, as a volume by the deadline. It is held first, and committed only if
//!   it is still needed then.
//! - A reservation is **changed** if it and best effort at p10 no longer carry the remaining bytes
//!   ([`bounds::CHANGED_ABOVE`]): a path has failed, the directory walk found more, or the copy is
//!   slower than expected. It is also changed if less than half of it is needed
//!   ([`bounds::CHANGED_BELOW`]).
//! - It is **returned** if best effort suffices with [`bounds::RELEASED_ABOVE`] to spare, and when
//!   the copy is over.
//! - A **report** is made once that the deadline may be missed, and once that it cannot be met,
//!   with counter-offers.
//!
//! To prevent flapping, the cause of a request must have lasted for a while, pauses between
//! requests double, and there are at most [`bounds::MAX_REQUESTS`] in all.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::estimate::{Measured, Rates, blend, long_enough};
use crate::promise::{PathId, Promise};
use crate::{Moment, carried, time_of};

mod account;
pub mod bounds;
mod events;
mod need;

pub use account::Account;
use bounds::{
    CHANGED_ABOVE, CHANGED_BELOW, EXTENDED_BEFORE_MS, FIRST_PAUSE_MS, HEADROOM, MARGIN_SHARE,
    MAX_ESTIMATE_WAIT_MS, MAX_MARGIN_MS, MAX_PAUSE_MS, MAX_REQUESTS, MAX_RETURNS,
    MIN_RATE_WINDOW_MS, MIN_RETURNED_SHARE, RETURN_SETTLED_MS,
};
pub use events::{Action, Ask, Event, Look, Mode, Outlook, Refusal, Why};

#[derive(Debug, Clone, PartialEq)]
enum State {
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
    begun: Moment,
    deadline: Option<Moment>,
    mode: Mode,
    state: State,
    promise: Option<Promise>,
    failed: BTreeSet<PathId>,
    last: Look,
    /// Last best-effort measurement without a reservation, and the current one beside a
    /// reservation.
    alone: Option<Measured>,
    beside: Option<Measured>,
    requests: u32,
    not_before: Moment,
    /// Times since when more is needed than promised; less than half; nothing; and since when the
    /// deadline is expected to be missed.
    short_since: Option<Moment>,
    ample_since: Option<Moment>,
    spare_since: Option<Moment>,
    missed_since: Option<Moment>,
    refusal: Option<Refusal>,
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
    now: Moment,
    /// Number of failed attempts to return what is promised.
    kept: u32,
    why: Why,
    account: Account,
}

impl Planner {
    /// Creates the planner of a copy that begins now.
    #[must_use]
    pub fn new(now: Moment, deadline: Option<Moment>, mode: Mode) -> Self {
        Self {
            begun: now,
            deadline,
            mode,
            state: State::Idle,
            promise: None,
            failed: BTreeSet::new(),
            last: Look::default(),
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
                Mode::Never => Why::Never,
                _ => Why::Undecided,
            },
            account: Account::default(),
        }
    }

    /// Returns the reason for the current state.
    #[must_use]
    pub const fn why(&self) -> Why {
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
        let long = self.long_enough();
        blend(None, self.beside, long).or_else(|| blend(self.last.forecast, self.alone, long))
    }

    /// Returns the time by which the copy should be complete: the deadline less the margin.
    #[must_use]
    pub fn aim(&self) -> Option<Moment> {
        let deadline = self.deadline?;
        let margin = ((self.span() as f64 * MARGIN_SHARE) as Moment).min(MAX_MARGIN_MS);
        Some(deadline - margin.min(deadline))
    }

    /// Returns true if nothing is held, promised or pending, so that no more actions follow.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.state == State::Idle && self.promise.is_none()
    }

    /// Handles an event, and returns the actions to take.
    pub fn on(&mut self, now: Moment, event: Event) -> Vec<Action> {
        let now = now.max(self.now);
        self.now = now;
        match event {
            Event::Look(look) => {
                self.last = look;
                self.take_measurement(now, look.measured);
                if !self.over {
                    return self.looked(now);
                }
            }
            Event::Held(pieces) => match self.state {
                State::Asked if !self.over && self.is_still_needed(now) => {
                    self.state = State::Committing(Promise { pieces });
                    return vec![Action::Commit];
                }
                State::Asked | State::Ending => {
                    self.state = State::Ending;
                    return vec![Action::Abort];
                }
                _ => {}
            },
            Event::Committed => {
                if let State::Committing(promise) = std::mem::replace(&mut self.state, State::Idle)
                {
                    self.account.promised(now, self.promise.as_ref(), &promise);
                    self.promise = Some(promise);
                    self.refusal = None;
                    self.failed.clear();
                    self.most_promised = self.most_promised.max(self.promised(now));
                    self.forget_trends();
                    self.why = Why::Reserved;
                }
                return self.ended();
            }
            Event::Refused(refusal) => {
                self.state = State::Idle;
                return match self.over {
                    true => self.ended(),
                    false => self.refused(now, refusal),
                };
            }
            Event::Failed { is_passing } => {
                self.gave_up |= !is_passing;
                return self.came_to_nothing();
            }
            Event::Returned => {
                let is_whole = self.state == State::Returning;
                self.state = State::Idle;
                if is_whole && let Some(promise) = self.promise.take() {
                    self.account.returned(now, &promise);
                    self.failed.clear();
                    self.forget_trends();
                    if !self.over {
                        self.why = Why::Returned;
                    }
                }
                return self.ended();
            }
            Event::Lost => {
                if self.state == State::Idle
                    && let Some(promise) = self.promise.take()
                {
                    self.account.lost(now, &promise);
                    self.failed.clear();
                    self.forget_trends();
                    self.why = Why::Undecided;
                }
            }
            Event::Path { path, works } => {
                match works {
                    true => self.failed.remove(&path),
                    false => self.failed.insert(path),
                };
            }
            Event::Over => {
                self.over = true;
                return self.ended();
            }
        }
        Vec::new()
    }

    fn span(&self) -> Moment {
        self.deadline
            .unwrap_or(Moment::MAX)
            .saturating_sub(self.begun)
    }

    fn long_enough(&self) -> Duration {
        long_enough(Duration::from_millis(self.span()))
    }

    /// Records the best-effort rate, alone or beside a reservation.
    fn take_measurement(&mut self, now: Moment, measured: Option<Measured>) {
        let is_beside = |promise: &Promise| promise.at(now).next().is_some();
        if self.promise.as_ref().is_some_and(is_beside) {
            self.beside = measured;
            return;
        }
        let long = self.long_enough();
        let is_long = |measured: &Measured| measured.over >= long;
        // Best effort alone carries at least what it carried beside the last reservation. A
        // measurement that has just begun does not replace that one.
        let lasted = measured
            .filter(is_long)
            .or(self.beside.take().filter(is_long));
        self.alone = lasted.or(self.alone).or(measured);
    }

    fn came_to_nothing(&mut self) -> Vec<Action> {
        match std::mem::replace(&mut self.state, State::Idle) {
            // The commit may have succeeded, with its answer lost.
            State::Committing(_) => {
                self.state = State::Ending;
                return vec![Action::Abort];
            }
            State::Returning => {
                self.kept += 1;
                if self.kept >= MAX_RETURNS {
                    self.promise = None;
                }
            }
            _ => {}
        }
        if self.promise.is_none() && self.mode != Mode::Never {
            self.why = Why::Unable;
        }
        self.ended()
    }

    /// Returns what is held or promised when the copy is over.
    fn ended(&mut self) -> Vec<Action> {
        if !self.over {
            return Vec::new();
        }
        match self.state {
            State::Idle if self.promise.is_some() => {
                self.state = State::Returning;
                vec![Action::Release]
            }
            _ => Vec::new(),
        }
    }

    fn looked(&mut self, now: Moment) -> Vec<Action> {
        // A promise that has expired is removed, and does not count as returned.
        if self.state == State::Idle
            && self
                .promise
                .as_ref()
                .is_some_and(|promise| promise.end() <= now)
        {
            self.state = State::Returning;
            return vec![Action::Release];
        }
        let mut actions = match self.mode {
            Mode::Rate(bps) => self.by_rate(now, bps),
            Mode::Auto | Mode::Never => self.by_need(now),
        };
        actions.extend(self.warning(now));
        actions
    }

    /// Requests what must be reserved to meet the deadline.
    fn by_need(&mut self, now: Moment) -> Vec<Action> {
        let Some(need) = self.need(now) else {
            return Vec::new();
        };
        let promised = self.promised(now);
        let trend = |since: &mut Option<Moment>, holds: bool| {
            *since = since.or(Some(now)).filter(|_| holds);
            since.map(|since| now - since)
        };
        let short = trend(&mut self.short_since, need.short > promised * CHANGED_ABOVE);
        let is_worth = promised - need.short >= self.most_promised * MIN_RETURNED_SHARE;
        let is_ample = self.last.is_all && need.short < promised * CHANGED_BELOW && is_worth;
        let ample = trend(&mut self.ample_since, is_ample && !need.will_do_amply);
        let is_spare = self.promise.is_some() && self.last.is_all && need.will_do_amply;
        let spare = trend(&mut self.spare_since, is_spare);
        if self.promise.is_none()
            && self.last.is_all
            && need.short <= 0.0
            && self.mode == Mode::Auto
        {
            self.why = match self.why {
                Why::Returned => Why::Returned,
                _ => Why::BestEffort,
            };
        }
        if self.state != State::Idle || self.mode == Mode::Never {
            return Vec::new();
        }
        let held = |since: Option<Moment>, long: Moment| since.is_some_and(|held| held >= long);
        if held(spare, RETURN_SETTLED_MS) {
            self.state = State::Returning;
            return vec![Action::Release];
        }
        if !(held(short, self.settled()) || held(ample, RETURN_SETTLED_MS)) || !self.may_ask(now) {
            return Vec::new();
        }
        let Some(aim) = self.aim().filter(|aim| *aim > now) else {
            return Vec::new();
        };
        let bytes = (need.short * Self::granted_for_each(now, aim))
            .max(1.0)
            .ceil() as u64;
        let by = Self::granted_until(aim);
        vec![self.ask(now, Ask::Volume { bytes, by })]
    }

    /// Requests a fixed rate for the expected duration of the copy.
    fn by_rate(&mut self, now: Moment, bps: f64) -> Vec<Action> {
        let waited = now - self.begun >= MAX_ESTIMATE_WAIT_MS;
        let is_known = self.last.is_all || waited;
        let is_done = self.last.is_all && self.last.left == 0;
        if self.state != State::Idle || !is_known || is_done || !self.may_ask(now) {
            return Vec::new();
        }
        let ends = self.promise.as_ref().map(Promise::end);
        if ends.is_some_and(|end| end > now + EXTENDED_BEFORE_MS) {
            return Vec::new();
        }
        let takes = time_of(self.last.left as f64 * HEADROOM, bps).unwrap_or(MIN_RATE_WINDOW_MS);
        let until = now.saturating_add(takes.max(MIN_RATE_WINDOW_MS));
        vec![self.ask(now, Ask::Rate { bps, until })]
    }

    fn ask(&mut self, now: Moment, ask: Ask) -> Action {
        self.state = State::Asked;
        self.is_counter_offer = false;
        let pause = FIRST_PAUSE_MS.saturating_mul(1 << self.requests.min(16));
        self.not_before = now.saturating_add(pause.min(MAX_PAUSE_MS));
        self.requests += 1;
        match self.promise {
            Some(_) => Action::Change(ask),
            None => Action::Reserve(ask),
        }
    }

    fn may_ask(&self, now: Moment) -> bool {
        !self.gave_up && self.requests < MAX_REQUESTS && now >= self.not_before
    }

    fn refused(&mut self, now: Moment, refusal: Refusal) -> Vec<Action> {
        self.refusal = Some(refusal);
        if self.promise.is_none() {
            self.why = Why::NoRoom;
        }
        // Accept the counter-offer if best effort, at its expected rate, carries the rest.
        let Some((aim, need)) = self.aim().filter(|aim| *aim > now).zip(self.need(now)) else {
            return self.warning(now).into_iter().collect();
        };
        let likely = self
            .expected()
            .map_or(0.0, |expected| carried(expected.p50, aim - now));
        let goes = |bytes: u64| bytes as f64 / Self::granted_for_each(now, aim);
        let has_room = |bytes: &u64| *bytes > 0 && need.left <= goes(*bytes) + likely;
        let is_more = |bytes: &u64| goes(*bytes) > self.promised(now);
        let volume = refusal.volume.filter(has_room).filter(is_more);
        match volume {
            Some(bytes)
                if self.mode == Mode::Auto
                    && !self.is_counter_offer
                    && self.requests < MAX_REQUESTS =>
            {
                let asked = self.ask(
                    now,
                    Ask::Volume {
                        bytes,
                        by: Self::granted_until(aim),
                    },
                );
                self.is_counter_offer = true;
                vec![asked]
            }
            _ => self.warning(now).into_iter().collect(),
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
