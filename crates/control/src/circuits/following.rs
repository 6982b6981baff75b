//! Tracking of the reservations that concern the network, and of the number of reservations in each
//! state. Only changed reservations are looked at. Pure.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::{LifeState, ProvisionState, ReservationMachine};

use super::judge::TrackedReservation;
use crate::reservations::ReservationStore;

/// Reservations that concern the network, and the number of reservations in each state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReservationTracker {
    /// Change number of the reservation store up to which this is current.
    number: Option<u64>,
    followed: BTreeMap<ReservationId, TrackedReservation>,
    /// State of each reservation.
    of_each: BTreeMap<ReservationId, &'static str>,
    states: BTreeMap<&'static str, i64>,
}

/// Reservations whose circuits may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangedReservations {
    /// All reservations.
    All,
    /// Only these reservations.
    These(BTreeSet<ReservationId>),
}

impl ChangedReservations {
    /// Adds further changes.
    pub fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::All, _) => {}
            (Self::These(ids), Self::These(others)) => ids.extend(others),
            (all, Self::All) => *all = Self::All,
        }
    }

    /// Returns the changes and leaves none.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::These(BTreeSet::new()))
    }
}

impl ReservationTracker {
    /// Processes changes of the book. Returns the changed reservations that concern the network,
    /// now or before.
    pub fn update(&mut self, desk: &ReservationStore) -> ChangedReservations {
        let changed = self.number.and_then(|number| desk.changed_since(number));
        self.number = Some(desk.change_count());
        match changed {
            Some(mut changed) => {
                changed.retain(|id| self.update_one(desk, *id));
                ChangedReservations::These(changed)
            }
            None => {
                let number = self.number;
                *self = Self {
                    number,
                    ..Self::default()
                };
                for (id, ..) in desk.reservations() {
                    self.update_one(desk, id);
                }
                ChangedReservations::All
            }
        }
    }

    /// Processes one reservation. Returns true if it concerns the network, now or before.
    fn update_one(&mut self, desk: &ReservationStore, id: ReservationId) -> bool {
        let known = desk.reservation(id);
        let state = known.map(|(_, reservation)| state(reservation.machine));
        let before = match state {
            Some(state) => self.of_each.insert(id, state),
            None => self.of_each.remove(&id),
        };
        if before != state {
            if let Some(count) = before.and_then(|before| self.states.get_mut(before)) {
                *count -= 1;
            }
            self.states.retain(|_, count| *count > 0);
            if let Some(state) = state {
                *self.states.entry(state).or_default() += 1;
            }
        }
        match known.and_then(|(detail, reservation)| {
            TrackedReservation::track(desk, id, detail, reservation)
        }) {
            Some(followed) => {
                self.followed.insert(id, followed);
                true
            }
            None => self.followed.remove(&id).is_some(),
        }
    }

    /// Returns the reservations that concern the network, by ID.
    #[must_use]
    pub const fn followed(&self) -> &BTreeMap<ReservationId, TrackedReservation> {
        &self.followed
    }

    /// Returns the number of reservations in each state.
    #[must_use]
    pub const fn states(&self) -> &BTreeMap<&'static str, i64> {
        &self.states
    }
}

/// Returns the state of a reservation as a metric label.
const fn state(machine: ReservationMachine) -> &'static str {
    match (machine.life, machine.provision) {
        (LifeState::Failed, _) => "failed",
        (LifeState::PassedEndTime, _) => "passed_end_time",
        (LifeState::Terminating | LifeState::Terminated, _) => "terminated",
        (LifeState::Created, None) => "held",
        (LifeState::Created, Some(ProvisionState::Released)) => "reserved",
        (LifeState::Created, Some(ProvisionState::Provisioning)) => "provisioning",
        (LifeState::Created, Some(ProvisionState::Provisioned)) => "provisioned",
        (LifeState::Created, Some(ProvisionState::Releasing)) => "releasing",
    }
}
