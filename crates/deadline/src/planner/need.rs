//! Bytes that best effort may not carry in time, and reports about them.

use super::bounds::{
    HEADROOM, INCREASE_ABOVE, JOIN_DELAY_MS, MAX_ESTIMATE_WAIT_MS, MAX_REQUESTS, REQUEST_SETTLE_MS,
    REQUEST_SETTLE_SHARE, RETURN_ABOVE,
};
use super::{Outlook, Planner, PlannerAction, PlannerState, ReservationMode};
use crate::promise::LEAVE_BEFORE_END_MS;
use crate::{UnixMillis, carried_bytes, transfer_time};

/// Bytes that remain, and those that best effort may not carry in time.
#[derive(Debug, Clone, Copy)]
pub(super) struct BandwidthNeed {
    /// Remaining bytes.
    pub(super) left: f64,
    /// Bytes to reserve; 0 if best effort suffices.
    pub(super) shortfall: f64,
    /// If true, best effort suffices with the margin for returning a reservation.
    pub(super) will_do_amply: bool,
}

impl Planner {
    /// Returns true if the requested bandwidth is still worth committing.
    pub(super) fn is_still_needed(&self, now: UnixMillis) -> bool {
        if matches!(self.mode, ReservationMode::Rate(_)) || self.promise.is_some() {
            return self.last.left > 0 || !self.last.is_all;
        }
        self.need(now).is_some_and(|need| need.shortfall > 0.0)
    }

    pub(super) fn promised_bytes(&self, now: UnixMillis) -> f64 {
        let aim = self.aim().unwrap_or(UnixMillis::MAX);
        let promise = self.promise.as_ref();
        promise.map_or(0.0, |promise| promise.usable_bytes(now, aim, &self.failed))
    }

    /// Returns the need for bandwidth by the deadline. `None` if too little is known, or there is
    /// no deadline.
    pub(super) fn need(&self, now: UnixMillis) -> Option<BandwidthNeed> {
        let aim = self.aim()?;
        let left = self.last.left as f64;
        let longest = MAX_ESTIMATE_WAIT_MS.min((aim.saturating_sub(self.begun)) / 10);
        let waited = now.saturating_sub(self.begun) >= longest;
        let expected = self.expected();
        if expected.is_none() && !waited {
            return None;
        }
        let sure = expected.map_or(0.0, |expected| {
            carried_bytes(expected.p10, aim.saturating_sub(now))
        });
        Some(BandwidthNeed {
            left,
            shortfall: match left <= sure {
                true => 0.0,
                false => (left * HEADROOM - sure).max(1.0),
            },
            will_do_amply: left * RETURN_ABOVE <= sure,
        })
    }

    /// Returns the end of a grant whose paths are used until `aim`, as they are left before their
    /// end.
    pub(super) const fn grant_end(aim: UnixMillis) -> UnixMillis {
        aim.saturating_add(LEAVE_BEFORE_END_MS)
    }

    /// Returns the ratio of granted bytes to those that are carried by `aim`. Paths join some time
    /// after the grant and are left before its end.
    pub(super) fn grant_ratio(now: UnixMillis, aim: UnixMillis) -> f64 {
        let time = aim.saturating_sub(now);
        let used = time.saturating_sub(JOIN_DELAY_MS).max(time / 2).max(1);
        Self::grant_end(aim).saturating_sub(now) as f64 / used as f64
    }

    /// Returns how long the cause of a request must have lasted. Zero if a forecast alone shows it,
    /// as that does not fluctuate from sample to sample.
    pub(super) fn settle_time(&self) -> UnixMillis {
        match self.expected() {
            Some(_) if !self.is_measured() && self.promise.is_none() => 0,
            Some(_) => {
                REQUEST_SETTLE_MS.min((self.span() as f64 * REQUEST_SETTLE_SHARE) as UnixMillis)
            }
            // More may be known soon.
            None => REQUEST_SETTLE_MS,
        }
    }

    const fn is_measured(&self) -> bool {
        self.alone.is_some() || self.beside.is_some()
    }

    /// Reports once that the deadline may be missed, and once that it cannot be met.
    pub(super) fn due_warning(&mut self, now: UnixMillis) -> Option<PlannerAction> {
        let deadline = self.deadline.filter(|_| self.last.left > 0)?;
        let is_past = now >= deadline;
        if self.warned == Some(true) || (self.warned.is_some() && is_past) {
            return None;
        }
        let need = self.need(now)?;
        let helps = self.promised_bytes(now);
        let expected = self.expected();
        if expected.is_none() && self.is_measured() && !is_past {
            // The best-effort rate will be known soon.
            return None;
        }
        let to_go = deadline.saturating_sub(now);
        // While the best-effort rate is unknown, any volume may be in its reach.
        let is_beyond = |bps: f64| need.left > helps + carried_bytes(bps, to_go);
        let is_unlikely = is_past || expected.is_some_and(|expected| is_beyond(expected.p50));
        let is_missed = is_past || expected.is_some_and(|expected| is_beyond(expected.p90));
        let is_at_risk = is_unlikely || need.shortfall > helps * INCREASE_ABOVE;
        let holds = if self.warned.is_some() {
            is_missed
        } else {
            is_at_risk
        };
        self.missed_since = self.missed_since.or(Some(now)).filter(|_| holds);
        let since = self.missed_since?;
        // While bandwidth may still be granted, a miss is not certain.
        let is_under_way = matches!(
            self.state,
            PlannerState::Asked | PlannerState::Committing(_)
        );
        let may_help = match self.mode {
            ReservationMode::Never => false,
            ReservationMode::Auto => {
                self.refusal.is_none() && !self.gave_up && self.requests < MAX_REQUESTS
            }
            ReservationMode::Rate(_) => {
                self.promise.is_none() && self.refusal.is_none() && !self.gave_up
            }
        };
        let settled = match self.warned {
            Some(_) => self.settle_time(),
            None if self.is_measured() && self.refusal.is_none() && !is_past => REQUEST_SETTLE_MS,
            None => 0,
        };
        let is_reported = is_unlikely || self.refusal.is_some() || self.gave_up;
        if !is_past && (is_under_way || may_help || !is_reported || now - since < settled) {
            return None;
        }
        self.warned = Some(is_missed);
        self.missed_since = None;
        let time = expected.and_then(|expected| transfer_time(need.left, expected.p50));
        Some(PlannerAction::Warn(Outlook {
            is_missed,
            expected_end: time.map(|time| now.saturating_add(time)),
            instead: self.refusal.unwrap_or_default(),
        }))
    }
}
