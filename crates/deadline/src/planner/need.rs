//! Bytes that best effort may not carry in time, and reports about them.

use super::bounds::{
    CHANGED_ABOVE, HEADROOM, JOINED_AFTER_MS, MAX_ESTIMATE_WAIT_MS, MAX_REQUESTS, RELEASED_ABOVE,
    SETTLED_MS, SETTLED_SHARE,
};
use super::{Action, Mode, Outlook, Planner, State};
use crate::promise::LEFT_BEFORE_MS;
use crate::{Moment, carried, time_of};

/// Bytes that remain, and those that best effort may not carry in time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    /// Remaining bytes.
    pub(super) left: f64,
    /// Bytes to reserve; 0 if best effort suffices.
    pub(super) short: f64,
    /// If true, best effort suffices with the margin for returning a reservation.
    pub(super) will_do_amply: bool,
}

impl Planner {
    /// Returns true if the requested bandwidth is still worth committing.
    pub(super) fn is_still_needed(&self, now: Moment) -> bool {
        if matches!(self.mode, Mode::Rate(_)) || self.promise.is_some() {
            return self.last.left > 0 || !self.last.is_all;
        }
        self.need(now).is_some_and(|need| need.short > 0.0)
    }

    pub(super) fn promised(&self, now: Moment) -> f64 {
        let aim = self.aim().unwrap_or(Moment::MAX);
        let promise = self.promise.as_ref();
        promise.map_or(0.0, |promise| promise.carries(now, aim, &self.failed))
    }

    /// Returns the need for bandwidth by the deadline. `None` if too little is known, or there is
    /// no deadline.
    pub(super) fn need(&self, now: Moment) -> Option<Need> {
        let aim = self.aim()?;
        let left = self.last.left as f64;
        let longest = MAX_ESTIMATE_WAIT_MS.min((aim.saturating_sub(self.begun)) / 10);
        let waited = now.saturating_sub(self.begun) >= longest;
        let expected = self.expected();
        if expected.is_none() && !waited {
            return None;
        }
        let sure = expected.map_or(0.0, |expected| {
            carried(expected.p10, aim.saturating_sub(now))
        });
        Some(Need {
            left,
            short: match left <= sure {
                true => 0.0,
                false => (left * HEADROOM - sure).max(1.0),
            },
            will_do_amply: left * RELEASED_ABOVE <= sure,
        })
    }

    /// Returns the end of a grant whose paths are used until `aim`, as they are left before their
    /// end.
    pub(super) const fn granted_until(aim: Moment) -> Moment {
        aim.saturating_add(LEFT_BEFORE_MS)
    }

    /// Returns the ratio of granted bytes to those that are carried by `aim`. Paths join some time
    /// after the grant and are left before its end.
    pub(super) fn granted_for_each(now: Moment, aim: Moment) -> f64 {
        let time = aim.saturating_sub(now);
        let used = time.saturating_sub(JOINED_AFTER_MS).max(time / 2).max(1);
        Self::granted_until(aim).saturating_sub(now) as f64 / used as f64
    }

    /// Returns how long the cause of a request must have lasted. Zero if a forecast alone shows it,
    /// as that does not fluctuate from sample to sample.
    pub(super) fn settled(&self) -> Moment {
        match self.expected() {
            Some(_) if !self.is_measured() && self.promise.is_none() => 0,
            Some(_) => SETTLED_MS.min((self.span() as f64 * SETTLED_SHARE) as Moment),
            // More may be known soon.
            None => SETTLED_MS,
        }
    }

    const fn is_measured(&self) -> bool {
        self.alone.is_some() || self.beside.is_some()
    }

    /// Reports once that the deadline may be missed, and once that it cannot be met.
    pub(super) fn warning(&mut self, now: Moment) -> Option<Action> {
        let deadline = self.deadline.filter(|_| self.last.left > 0)?;
        let is_past = now >= deadline;
        if self.warned == Some(true) || (self.warned.is_some() && is_past) {
            return None;
        }
        let need = self.need(now)?;
        let helps = self.promised(now);
        let expected = self.expected();
        if expected.is_none() && self.is_measured() && !is_past {
            // The best-effort rate will be known soon.
            return None;
        }
        let to_go = deadline.saturating_sub(now);
        // While the best-effort rate is unknown, any volume may be in its reach.
        let is_beyond = |bps: f64| need.left > helps + carried(bps, to_go);
        let is_unlikely = is_past || expected.is_some_and(|expected| is_beyond(expected.p50));
        let is_missed = is_past || expected.is_some_and(|expected| is_beyond(expected.p90));
        let is_at_risk = is_unlikely || need.short > helps * CHANGED_ABOVE;
        let holds = if self.warned.is_some() {
            is_missed
        } else {
            is_at_risk
        };
        self.missed_since = self.missed_since.or(Some(now)).filter(|_| holds);
        let since = self.missed_since?;
        // While bandwidth may still be granted, a miss is not certain.
        let is_under_way = matches!(self.state, State::Asked | State::Committing(_));
        let may_help = match self.mode {
            Mode::Never => false,
            Mode::Auto => self.refusal.is_none() && !self.gave_up && self.requests < MAX_REQUESTS,
            Mode::Rate(_) => self.promise.is_none() && self.refusal.is_none() && !self.gave_up,
        };
        let settled = match self.warned {
            Some(_) => self.settled(),
            None if self.is_measured() && self.refusal.is_none() && !is_past => SETTLED_MS,
            None => 0,
        };
        let is_reported = is_unlikely || self.refusal.is_some() || self.gave_up;
        if !is_past && (is_under_way || may_help || !is_reported || now - since < settled) {
            return None;
        }
        self.warned = Some(is_missed);
        self.missed_since = None;
        let time = expected.and_then(|expected| time_of(need.left, expected.p50));
        Some(Action::Warn(Outlook {
            is_missed,
            expected_end: time.map(|time| now.saturating_add(time)),
            instead: self.refusal.unwrap_or_default(),
        }))
    }
}
