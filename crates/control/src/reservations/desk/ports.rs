//! Assignment of source ports: each reservation has a block that no other one has with which it
//! shares addresses and time.

use std::collections::BTreeSet;

use longhaul_circuits::book::BookChange;
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::time::Window;
use longhaul_control_api::principals::PathOption;
use longhaul_control_api::reservations::{PacketFilter, ReservationRequest, SourcePortRange};

use super::{ReservationDetail, ReservationError, ReservationStore};
use crate::reservations::streams::{PORTS_OF_BLOCK, blocks_within, free_block};
use crate::reservations::wanted::{InvalidReservation, ReservationEnd};

impl ReservationStore {
    /// Assigns the first source port of a new reservation with these windows; `None` if it gets
    /// none. The flag is true if its streams are recognised by ports even with one path.
    ///
    /// # Errors
    /// [`InvalidReservation`]: no ports are left, or the addresses are unknown.
    pub(super) fn ports_for(
        &self,
        request: &ReservationRequest,
        from: &ReservationEnd,
        to: &ReservationEnd,
        windows: &[Window],
    ) -> Result<(Option<u16>, bool), ReservationError> {
        let PacketFilter { source_ports, dscp } = request.filter;
        if from.address.is_none() || to.address.is_none() {
            let filter = [
                source_ports.map(|_| PathOption::Ports),
                dscp.map(|_| PathOption::Dscp),
            ];
            return match filter.into_iter().flatten().next() {
                Some(option) => Err(InvalidReservation::UnaddressedFilter(option).into()),
                None if request.pin => Err(InvalidReservation::Unaddressed.into()),
                None => Ok((None, false)),
            };
        }
        if let Some(own) = source_ports {
            let neighbours = self.neighbours(from, to, windows);
            let mut taken = neighbours.filter_map(|(other, detail)| {
                let theirs = port_range(detail)?;
                overlap(own, theirs).then_some((other, theirs))
            });
            return match taken.next() {
                Some((ReservationId(other), SourcePortRange { first, last })) => {
                    Err(InvalidReservation::FilterTaken { other, first, last }.into())
                }
                None => Ok((None, true)),
            };
        }
        let mut taken = BTreeSet::new();
        let mut is_beside_all = false;
        for (_, detail) in self.neighbours(from, to, windows) {
            taken.extend(detail.ports);
            if let Some(own) = detail.own_ports() {
                taken.extend(blocks_within(own));
            }
            is_beside_all |= !detail.pinned;
        }
        let is_needed = request.pin || request.paths > 1;
        match free_block(&taken) {
            Some(block) => Ok((Some(block), is_needed || is_beside_all)),
            None if is_needed => Err(InvalidReservation::Ports {
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
    /// [`InvalidReservation::SamePorts`].
    pub(super) fn keeps_ports(
        &self,
        id: ReservationId,
        held: &BookChange,
    ) -> Result<(), ReservationError> {
        let (BookChange::Changing { hold, .. }, Some(detail)) = (held, self.details.get(&id))
        else {
            return Ok(());
        };
        let windows = [hold.plan.window()];
        let mut others = self.neighbours(&detail.from, &detail.to, &windows);
        let same = others.find(|(other, beside)| *other != id && clash(detail, beside));
        match same {
            Some((other, _)) => Err(InvalidReservation::SamePorts(other.0).into()),
            None => Ok(()),
        }
    }

    /// Returns the reservations that share addresses and time with these, by ID.
    fn neighbours<'a>(
        &'a self,
        from: &ReservationEnd,
        to: &ReservationEnd,
        windows: &[Window],
    ) -> impl Iterator<Item = (ReservationId, &'a ReservationDetail)> {
        let found = match from.address.zip(to.address) {
            Some((from, to)) => self.beside.overlapping_reservations(from, to, windows),
            None => BTreeSet::new(),
        };
        let details = found.into_iter();
        details.filter_map(|id| Some((id, self.details.get(&id)?)))
    }
}

/// Returns true if two reservations between the same addresses cannot be told apart. Routers choose
/// links by addresses and ports, so code points do not tell them apart.
fn clash(one: &ReservationDetail, other: &ReservationDetail) -> bool {
    if one.own_ports().is_some() || other.own_ports().is_some() {
        let ranges = port_range(one).zip(port_range(other));
        return ranges.is_some_and(|(one, other)| overlap(one, other));
    }
    let is_like =
        one.ports == other.ports || (!one.pinned && !other.pinned && one.dscp() == other.dscp());
    one.ports.is_some() && other.ports.is_some() && is_like
}

/// Returns the source ports that the packets of a reservation have, or may get after a change.
fn port_range(detail: &ReservationDetail) -> Option<SourcePortRange> {
    let block = detail.ports.map(|first| SourcePortRange {
        first,
        last: first.saturating_add(PORTS_OF_BLOCK - 1),
    });
    detail.own_ports().or(block)
}

const fn overlap(one: SourcePortRange, other: SourcePortRange) -> bool {
    one.first <= other.last && other.first <= one.last
}
