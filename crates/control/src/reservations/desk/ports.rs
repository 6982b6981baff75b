//! Assignment of source ports: each reservation has a block that no other one has with which it
//! shares addresses and time.

use std::collections::BTreeSet;

use longhaul_circuits::book::Change;
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::time::Window;
use longhaul_control_api::reservations::ReservationRequest;

use super::{Desk, DeskError, Detail};
use crate::reservations::reported;
use crate::reservations::streams::free_block;
use crate::reservations::wanted::{Place, WantedFault};

impl Desk {
    /// Assigns the first source port of a new reservation with these windows; `None` if it gets
    /// none. The flag is true if its streams are recognised by ports even with one path.
    ///
    /// # Errors
    /// [`WantedFault`]: no ports are left, or the addresses are unknown.
    pub(super) fn ports_for(
        &self,
        request: &ReservationRequest,
        from: &Place,
        to: &Place,
        windows: &[Window],
    ) -> Result<(Option<u16>, bool), DeskError> {
        if from.address.is_none() || to.address.is_none() {
            return match request.pin {
                true => Err(WantedFault::Unaddressed.into()),
                false => Ok((None, false)),
            };
        }
        let mut taken = BTreeSet::new();
        let mut is_beside_all = false;
        for (_, detail) in self.beside(from, to, windows) {
            taken.extend(detail.ports);
            is_beside_all |= !detail.pinned;
        }
        let is_needed = request.pin || request.paths > 1;
        match free_block(&taken) {
            Some(block) => Ok((Some(block), is_needed || is_beside_all)),
            None if is_needed => Err(WantedFault::Ports {
                from: from.name.clone(),
                to: to.name.clone(),
            }
            .into()),
            // Bandwidth is promised all the same; no circuit is set up for it.
            None => Ok((None, false)),
        }
    }

    /// Checks that a reservation can keep its source ports in its changed window.
    ///
    /// # Errors
    /// [`WantedFault::SamePorts`].
    pub(super) fn keeps_ports(&self, id: ReservationId, held: &Change) -> Result<(), DeskError> {
        let (Change::Changing { hold, .. }, Some(detail)) = (held, self.details.get(&id)) else {
            return Ok(());
        };
        let windows = [hold.plan.window()];
        let mut others = self.beside(&detail.from, &detail.to, &windows);
        let same = others.find(|(other, beside)| {
            let is_like = beside.ports == detail.ports || (!beside.pinned && !detail.pinned);
            *other != id && detail.ports.is_some() && beside.ports.is_some() && is_like
        });
        match same {
            Some((other, _)) => Err(WantedFault::SamePorts(reported::number(other)).into()),
            None => Ok(()),
        }
    }

    /// Returns the reservations that share addresses and time with these, by ID.
    fn beside<'a>(
        &'a self,
        from: &Place,
        to: &Place,
        windows: &[Window],
    ) -> impl Iterator<Item = (ReservationId, &'a Detail)> {
        let found = match from.address.zip(to.address) {
            Some((from, to)) => self.beside.those(from, to, windows),
            None => BTreeSet::new(),
        };
        let details = found.into_iter();
        details.filter_map(|id| Some((id, self.details.get(&id)?)))
    }
}
