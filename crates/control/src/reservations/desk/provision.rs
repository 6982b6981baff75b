//! Provisioning in the book: requests to set up or tear down paths, and their results.
//!
//! As in NSI (GFD.212, section 5.2), a request to provision before the window is confirmed at once,
//! as scheduled. One within the window is confirmed when all parts are set up. A release is
//! confirmed when nothing is left. Without managed nodes, there is nothing to wait for.

use std::collections::BTreeMap;

use longhaul_circuits::book::{Change, Reservation};
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::{Event, Life, Provision, Reserve};
use longhaul_circuits::request::Plan;
use longhaul_circuits::time::Moment;
use longhaul_control_api::principals::Permission;
use longhaul_setup::reconcile::SETUP_LEAD_MS;

use super::{Desk, DeskError, Detail, Record, Settled};
use crate::reservations::asker::Asker;

impl Desk {
    /// Commits what is held, and provisions new reservations that requested it.
    pub(super) fn commit(
        &mut self,
        ids: &[ReservationId],
        now: Moment,
        records: &mut Vec<Record>,
    ) -> Result<(), DeskError> {
        // A change of a committed reservation leaves its provisioning as it is.
        let is_new = |id: &&ReservationId| {
            let is_asked = self.details.get(id).is_some_and(|detail| detail.provision);
            is_asked && self.provision(**id).is_none()
        };
        let new: Vec<ReservationId> = ids.iter().filter(is_new).copied().collect();
        self.happen(ids, Event::Commit, now, records)?;
        for id in new {
            self.signalled(id, Event::Provision, now, records)?;
        }
        Ok(())
    }

    /// Requests that paths are set up or torn down.
    pub(super) fn signal(
        &mut self,
        asker: &Asker,
        id: ReservationId,
        event: Event,
        now: Moment,
        records: &mut Vec<Record>,
    ) -> Result<Vec<ReservationId>, DeskError> {
        let done = if event == Event::Provision {
            "provisioned"
        } else {
            "released"
        };
        self.allowed(asker, id, Permission::Signal, event, done)?;
        self.signalled(id, event, now, records)?;
        Ok(vec![id])
    }

    fn signalled(
        &mut self,
        id: ReservationId,
        event: Event,
        now: Moment,
        records: &mut Vec<Record>,
    ) -> Result<(), DeskError> {
        self.happen(&[id], event, now, records)?;
        if self.is_to_be_there(id, now) {
            return Ok(());
        }
        let confirmed = match event {
            Event::Provision => Event::ProvisionConfirmed,
            _ => Event::ReleaseConfirmed,
        };
        self.happen(&[id], confirmed, now, records)
    }

    /// Returns true if parts of a reservation's paths may be set up now.
    fn is_to_be_there(&self, id: ReservationId, now: Moment) -> bool {
        let found = self.details.get(&id).zip(self.book.reservation(id));
        found.is_some_and(|(detail, reservation)| {
            let plan = &reservation.plan;
            let begins = plan.window().start.saturating_sub_unsigned(SETUP_LEAD_MS);
            !plan.0.is_empty() && begins <= now && self.is_managed(detail, reservation)
        })
    }

    /// Returns true if anything of a reservation can be set up at all.
    #[must_use]
    pub fn is_managed(&self, detail: &Detail, reservation: &Reservation) -> bool {
        detail.from.address.is_some()
            && detail.to.address.is_some()
            && self
                .sending_sites(&reservation.plan)
                .any(|site| self.manages(site))
    }

    /// Returns the sites that send over the links of a plan, at whose nodes its circuit is set up.
    pub fn sending_sites<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = &'a str> {
        let routes = plan.0.iter().flat_map(|piece| &piece.routes);
        let links = routes.flat_map(|route| &route.path.0);
        links
            .filter_map(|link| self.names.link(*link))
            .map(|known| self.names.site(known.link.from))
    }

    /// Returns true if the node at a site is set up.
    #[must_use]
    pub fn manages(&self, site: &str) -> bool {
        self.managed.contains(site)
    }

    fn provision(&self, id: ReservationId) -> Option<Provision> {
        self.book.reservation(id)?.machine.provision
    }

    /// Records the results of circuits. Returns the reservations that changed.
    pub(super) fn settled(
        &mut self,
        settled: &[(ReservationId, Settled)],
        now: Moment,
        records: &mut Vec<Record>,
    ) -> Result<Vec<ReservationId>, DeskError> {
        let mut changed = Vec::new();
        for (id, what) in settled {
            let Some(machine) = self.book.reservation(*id).map(|known| known.machine) else {
                continue;
            };
            match (what, machine.provision) {
                (Settled::SetUp, Some(Provision::Provisioning)) => {
                    self.happen(&[*id], Event::ProvisionConfirmed, now, records)?;
                }
                (Settled::TornDown, Some(Provision::Releasing)) => {
                    self.happen(&[*id], Event::ReleaseConfirmed, now, records)?;
                }
                (Settled::Failed(why), Some(Provision::Provisioning | Provision::Provisioned))
                    if machine.life == Life::Created =>
                {
                    self.fail(*id, why, now, records)?;
                }
                _ => continue,
            }
            changed.push(*id);
        }
        Ok(changed)
    }

    /// Ends a reservation whose circuit failed: returns its bandwidth from now on, and records the
    /// reason.
    fn fail(
        &mut self,
        id: ReservationId,
        why: &str,
        now: Moment,
        records: &mut Vec<Record>,
    ) -> Result<(), DeskError> {
        let held = self
            .book
            .reservation(id)
            .is_some_and(|known| known.machine.reserve == Reserve::Held);
        if held {
            self.happen(&[id], Event::Abort, now, records)?;
        }
        let detail = self.details.get(&id).cloned().map(|detail| Detail {
            failure: Some(why.to_owned()),
            ..detail
        });
        let details: BTreeMap<ReservationId, Detail> =
            detail.map(|detail| (id, detail)).into_iter().collect();
        let event = Event::ForcedEnd;
        self.write(Change::Event { id, event }, details, now, records)?;
        self.write(
            Change::Returned { id, from: now },
            BTreeMap::new(),
            now,
            records,
        )
    }
}
