//! Provisioning in the book: requests to set up or tear down paths, and their results.
//!
//! As in NSI (GFD.212, section 5.2), a request to provision before the window is confirmed at once,
//! as scheduled. One within the window is confirmed when all parts are set up. A release is
//! confirmed when nothing is left. Without managed nodes, there is nothing to wait for.

use std::collections::BTreeMap;

use longhaul_circuits::book::{BookChange, Reservation};
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::{LifeState, ProvisionState, ReservationEvent, ReserveState};
use longhaul_circuits::request::ReservationPlan;
use longhaul_circuits::time::MomentMs;
use longhaul_control_api::principals::Permission;
use longhaul_provisioning::reconcile::SETUP_LEAD_MS;

use super::{CircuitResult, Record, ReservationDetail, ReservationError, ReservationStore};
use crate::reservations::asker::ReservationCaller;

impl ReservationStore {
    /// Commits what is held, and provisions new reservations that requested it.
    pub(super) fn commit(
        &mut self,
        ids: &[ReservationId],
        now: MomentMs,
        records: &mut Vec<Record>,
    ) -> Result<(), ReservationError> {
        // A change of a committed reservation leaves its provisioning as it is.
        let is_new = |id: &&ReservationId| {
            let is_asked = self.details.get(id).is_some_and(|detail| detail.provision);
            is_asked && self.provision(**id).is_none()
        };
        let new: Vec<ReservationId> = ids.iter().filter(is_new).copied().collect();
        self.apply_event(ids, ReservationEvent::Commit, now, records)?;
        for id in new {
            self.apply_provisioning(id, ReservationEvent::Provision, now, records)?;
        }
        Ok(())
    }

    /// Requests that paths are set up or torn down.
    pub(super) fn set_provisioning(
        &mut self,
        asker: &ReservationCaller,
        id: ReservationId,
        event: ReservationEvent,
        now: MomentMs,
        records: &mut Vec<Record>,
    ) -> Result<Vec<ReservationId>, ReservationError> {
        let done = if event == ReservationEvent::Provision {
            "provisioned"
        } else {
            "released"
        };
        self.permitted_reservation(asker, id, Permission::Signal, event, done)?;
        self.apply_provisioning(id, event, now, records)?;
        Ok(vec![id])
    }

    fn apply_provisioning(
        &mut self,
        id: ReservationId,
        event: ReservationEvent,
        now: MomentMs,
        records: &mut Vec<Record>,
    ) -> Result<(), ReservationError> {
        self.apply_event(&[id], event, now, records)?;
        if self.may_be_set_up(id, now) {
            return Ok(());
        }
        let confirmed = match event {
            ReservationEvent::Provision => ReservationEvent::ProvisionConfirmed,
            _ => ReservationEvent::ReleaseConfirmed,
        };
        self.apply_event(&[id], confirmed, now, records)
    }

    /// Returns true if parts of a reservation's paths may be set up now.
    fn may_be_set_up(&self, id: ReservationId, now: MomentMs) -> bool {
        let found = self.details.get(&id).zip(self.book.reservation(id));
        found.is_some_and(|(detail, reservation)| {
            let plan = &reservation.plan;
            let begins = plan.window().start.saturating_sub_unsigned(SETUP_LEAD_MS);
            !plan.0.is_empty() && begins <= now && self.is_managed(detail, reservation)
        })
    }

    /// Returns true if anything of a reservation can be set up at all.
    #[must_use]
    pub fn is_managed(&self, detail: &ReservationDetail, reservation: &Reservation) -> bool {
        detail.from.address.is_some()
            && detail.to.address.is_some()
            && self
                .sending_sites(&reservation.plan)
                .any(|site| self.is_managed_site(site))
    }

    /// Returns the sites that send over the links of a plan, at whose nodes its circuit is set up.
    pub fn sending_sites<'a>(&'a self, plan: &'a ReservationPlan) -> impl Iterator<Item = &'a str> {
        let routes = plan.0.iter().flat_map(|piece| &piece.routes);
        let links = routes.flat_map(|route| &route.path.0);
        links
            .filter_map(|link| self.names.link(*link))
            .map(|known| self.names.site(known.link.from))
    }

    /// Returns true if the node at a site is set up.
    #[must_use]
    pub fn is_managed_site(&self, site: &str) -> bool {
        self.managed.contains(site)
    }

    fn provision(&self, id: ReservationId) -> Option<ProvisionState> {
        self.book.reservation(id)?.machine.provision
    }

    /// Records the results of circuits. Returns the reservations that changed.
    pub(super) fn record_results(
        &mut self,
        settled: &[(ReservationId, CircuitResult)],
        now: MomentMs,
        records: &mut Vec<Record>,
    ) -> Result<Vec<ReservationId>, ReservationError> {
        let mut changed = Vec::new();
        for (id, what) in settled {
            let Some(machine) = self.book.reservation(*id).map(|known| known.machine) else {
                continue;
            };
            match (what, machine.provision) {
                (CircuitResult::SetUp, Some(ProvisionState::Provisioning)) => {
                    self.apply_event(&[*id], ReservationEvent::ProvisionConfirmed, now, records)?;
                }
                (CircuitResult::TornDown, Some(ProvisionState::Releasing)) => {
                    self.apply_event(&[*id], ReservationEvent::ReleaseConfirmed, now, records)?;
                }
                (
                    CircuitResult::Failed(why),
                    Some(ProvisionState::Provisioning | ProvisionState::Provisioned),
                ) if machine.life == LifeState::Created => {
                    self.fail_reservation(*id, why, now, records)?;
                }
                _ => continue,
            }
            changed.push(*id);
        }
        Ok(changed)
    }

    /// Ends a reservation whose circuit failed: returns its bandwidth from now on, and records the
    /// reason.
    fn fail_reservation(
        &mut self,
        id: ReservationId,
        why: &str,
        now: MomentMs,
        records: &mut Vec<Record>,
    ) -> Result<(), ReservationError> {
        let held = self
            .book
            .reservation(id)
            .is_some_and(|known| known.machine.reserve == ReserveState::Held);
        if held {
            self.apply_event(&[id], ReservationEvent::Abort, now, records)?;
        }
        let detail = self
            .details
            .get(&id)
            .cloned()
            .map(|detail| ReservationDetail {
                failure: Some(why.to_owned()),
                ..detail
            });
        let details: BTreeMap<ReservationId, ReservationDetail> =
            detail.map(|detail| (id, detail)).into_iter().collect();
        let event = ReservationEvent::ForcedEnd;
        self.write(BookChange::Event { id, event }, details, now, records)?;
        self.write(
            BookChange::Returned { id, from: now },
            BTreeMap::new(),
            now,
            records,
        )
    }
}
