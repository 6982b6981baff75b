//! Which source ports a reservation has: those of a block that no other has which shares addresses
//! and time with it.

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
    /// The first source port of a new reservation with these windows, none where there is none for
    /// it; and whether its streams are recognised by ports also where it has one path.
    ///
    /// # Errors
    /// [`WantedFault`]: there are none left, or none can be had.
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
            // Room is promised all the same; no circuit is set up for it.
            None => Ok((None, false)),
        }
    }

    /// Whether a reservation can have its source ports in the time that it is changed to.
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

    /// Reservations that share addresses and time with these, by number.
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
