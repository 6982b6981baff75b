//! New plans for reservations whose links have failed or are overbooked.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_circuits::book::{DecisionTerms, Reservation};
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::{LifeState, ReservationEvent};
use longhaul_circuits::policy::RequestLimits;
use longhaul_circuits::request::{CircuitRequest, Demand};
use longhaul_circuits::time::{MomentMs, Window};

use super::{HOLD_LIFETIME_MS, Record, ReservationError, ReservationStore};

/// Terms of a new plan. The caller's limits were checked when the reservation was granted.
const TERMS: DecisionTerms = DecisionTerms {
    limits: RequestLimits::UNLIMITED,
    hold: HOLD_LIFETIME_MS,
};

impl ReservationStore {
    /// Returns the committed reservations with overbooked links from now on, in the order in which
    /// to plan them again: those with a failed link first, the oldest first, as they have to move;
    /// then the others, the newest first, until the rest fits.
    #[must_use]
    pub fn impaired_reservations(&self, now: MomentMs) -> Vec<ReservationId> {
        let (mut failed, mut overbooked) = (BTreeSet::new(), BTreeSet::new());
        for link in self.book.all_overbooked_links(now) {
            let is_failed = self
                .book
                .network()
                .link(link)
                .is_some_and(|link| link.capacity == 0);
            let holders = self.book.ledger().holders_after(link, now).into_iter();
            let holders = holders.filter(|id| {
                let known = self.book.reservation(*id);
                known.is_some_and(|known| {
                    is_promised(known)
                        && self.book.overbooked_links(&known.plan, now).contains(&link)
                })
            });
            match is_failed {
                true => failed.extend(holders),
                false => overbooked.extend(holders),
            }
        }
        let others = overbooked.iter().rev().filter(|id| !failed.contains(id));
        failed.iter().chain(others).copied().collect()
    }

    /// Plans reservations again that are impaired. Returns those that have a new plan.
    pub(super) fn reroute_all(
        &mut self,
        ids: &[ReservationId],
        now: MomentMs,
        records: &mut Vec<Record>,
    ) -> Result<Vec<ReservationId>, ReservationError> {
        let mut moved = Vec::new();
        for id in ids {
            if self.reroute(*id, now, records)? {
                moved.push(*id);
            }
        }
        Ok(moved)
    }

    /// Plans a reservation again from now on. Returns false if nothing has changed.
    fn reroute(
        &mut self,
        id: ReservationId,
        now: MomentMs,
        records: &mut Vec<Record>,
    ) -> Result<bool, ReservationError> {
        let Some(reservation) = self.book.reservation(id) else {
            return Ok(false);
        };
        let is_impaired = !self
            .book
            .overbooked_links(&reservation.plan, now)
            .is_empty();
        let may_change = reservation.machine.apply(ReservationEvent::Reserve).is_ok();
        if !is_promised(reservation) || !is_impaired || !may_change || reservation.held.is_some() {
            return Ok(false);
        }
        let Some(request) = remaining_request(reservation, now) else {
            return Ok(false);
        };
        let decision = self.book.decide_change(id, &request, &TERMS, now)?;
        let Ok(held) = decision else {
            return Ok(false);
        };
        if self.keeps_ports(id, &held).is_err() {
            return Ok(false);
        }
        self.write(held, BTreeMap::new(), now, records)?;
        self.apply_event(&[id], ReservationEvent::Commit, now, records)?;
        Ok(true)
    }
}

/// Returns true if a reservation is committed and has not ended.
fn is_promised(reservation: &Reservation) -> bool {
    reservation.machine.life == LifeState::Created && reservation.machine.provision.is_some()
}

/// Returns the request for what the plan has not carried by now. `None` if nothing is left.
fn remaining_request(reservation: &Reservation, now: MomentMs) -> Option<CircuitRequest> {
    let request = &reservation.request;
    let window = Window::new(request.window.start.max(now), request.window.end);
    if window.is_empty() {
        return None;
    }
    let wish = match request.wish {
        Demand::Volume { bytes, most, pace } => {
            // Pieces before the request's window were carried for an earlier request.
            let past = Window::new(request.window.start, now);
            let carried = reservation.plan.clipped_to(past).carried().bytes();
            Demand::Volume {
                bytes: bytes.checked_sub(carried).filter(|left| *left > 0)?,
                most,
                pace,
            }
        }
        rate @ Demand::Rate(_) => rate,
    };
    Some(CircuitRequest {
        window,
        wish,
        ..request.clone()
    })
}
