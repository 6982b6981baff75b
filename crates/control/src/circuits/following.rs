//! What of the book is followed, and how many reservations there are in each state: brought up to
//! date by those that have changed. Pure.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::{Life, Machine, Provision};

use super::judge::Followed;
use crate::reservations::Desk;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Following {
    /// Up to which number of the desk.
    number: Option<u64>,
    followed: BTreeMap<ReservationId, Followed>,
    /// The state of each reservation.
    of_each: BTreeMap<ReservationId, &'static str>,
    states: BTreeMap<&'static str, i64>,
}

/// Of which reservations something on the network may be different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Different {
    /// Everything.
    All,
    /// These reservations.
    These(BTreeSet<ReservationId>),
}

impl Different {
    /// With what else may be.
    pub fn and(&mut self, other: Self) {
        match (self, other) {
            (Self::All, _) => {}
            (Self::These(ids), Self::These(others)) => ids.extend(others),
            (all, Self::All) => *all = Self::All,
        }
    }

    /// All of it; nothing may be from here on.
    #[must_use]
    pub fn taken(&mut self) -> Self {
        std::mem::replace(self, Self::These(BTreeSet::new()))
    }
}

impl Following {
    /// Takes what has changed in the book: of which reservations something is, or was, on the
    /// network.
    pub fn take(&mut self, desk: &Desk) -> Different {
        let changed = self.number.and_then(|number| desk.changed_since(number));
        self.number = Some(desk.number());
        match changed {
            Some(mut changed) => {
                changed.retain(|id| self.one(desk, *id));
                Different::These(changed)
            }
            None => {
                let number = self.number;
                *self = Self {
                    number,
                    ..Self::default()
                };
                for (id, ..) in desk.reservations() {
                    self.one(desk, id);
                }
                Different::All
            }
        }
    }

    /// Takes one reservation as it is now; whether anything of it is, or was, on the network.
    fn one(&mut self, desk: &Desk, id: ReservationId) -> bool {
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
        match known.and_then(|(detail, reservation)| Followed::of(desk, id, detail, reservation)) {
            Some(followed) => {
                self.followed.insert(id, followed);
                true
            }
            None => self.followed.remove(&id).is_some(),
        }
    }

    /// Reservations of which something is, or may be, on the network, by number.
    #[must_use]
    pub const fn followed(&self) -> &BTreeMap<ReservationId, Followed> {
        &self.followed
    }

    /// How many reservations there are in each state.
    #[must_use]
    pub const fn states(&self) -> &BTreeMap<&'static str, i64> {
        &self.states
    }
}

/// The state of a reservation as metrics have it.
const fn state(machine: Machine) -> &'static str {
    match (machine.life, machine.provision) {
        (Life::Failed, _) => "failed",
        (Life::PassedEndTime, _) => "passed_end_time",
        (Life::Terminating | Life::Terminated, _) => "terminated",
        (Life::Created, None) => "held",
        (Life::Created, Some(Provision::Released)) => "reserved",
        (Life::Created, Some(Provision::Provisioning)) => "provisioning",
        (Life::Created, Some(Provision::Provisioned)) => "provisioned",
        (Life::Created, Some(Provision::Releasing)) => "releasing",
    }
}
