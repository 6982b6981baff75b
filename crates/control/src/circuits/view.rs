//! Current state of circuits, for displayed reservations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_circuits::ledger::ReservationId;
use longhaul_control_api::reservations::{Carried, Circuit, CircuitStanding, Reservation};
use longhaul_provisioning::circuit::PartId;
use longhaul_provisioning::reconcile::SETUP_LEAD_MS;
use longhaul_provisioning::streams::Prefix;
use parking_lot::{Mutex, MutexGuard};

use super::plan::{circuit_name, path_streams};

/// Current state of circuits. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct CircuitsView(Arc<Mutex<CircuitStates>>);

#[derive(Debug, Default)]
struct CircuitStates {
    circuits: BTreeMap<ReservationId, Circuit>,
    carried: BTreeMap<PartId, Carried>,
    states: BTreeMap<&'static str, i64>,
    failures: u64,
}

/// Numbers of reservations and circuits, for metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reservations by state.
    pub reservations: BTreeMap<&'static str, i64>,
    /// Circuits by state.
    pub circuits: BTreeMap<&'static str, i64>,
    /// Circuits that have failed since the start.
    pub failures: u64,
}

impl CircuitsView {
    fn known(&self) -> MutexGuard<'_, CircuitStates> {
        self.0.lock()
    }

    /// Replaces the states of all circuits and the numbers of reservations.
    pub fn set_circuits(
        &self,
        circuits: BTreeMap<ReservationId, Circuit>,
        states: BTreeMap<&'static str, i64>,
    ) {
        let mut known = self.known();
        known.circuits = circuits;
        known.states = states;
    }

    /// Updates the states of some circuits, or removes them if `None`, and the numbers of
    /// reservations.
    pub fn update_circuits(
        &self,
        circuits: BTreeMap<ReservationId, Option<Circuit>>,
        states: BTreeMap<&'static str, i64>,
    ) {
        let mut known = self.known();
        for (id, circuit) in circuits {
            match circuit {
                Some(circuit) => drop(known.circuits.insert(id, circuit)),
                None => drop(known.circuits.remove(&id)),
            }
        }
        known.states = states;
    }

    /// Adds to the number of failed circuits.
    pub fn count_failures(&self, circuits: u64) {
        self.known().failures += circuits;
    }

    /// Records counted traffic, and removes parts that are not in `all`.
    pub fn record_traffic(&self, all: &BTreeSet<PartId>, counted: BTreeMap<PartId, Carried>) {
        let mut known = self.known();
        known.carried.extend(counted);
        known.carried.retain(|part, _| all.contains(part));
    }

    /// Adds the state of its circuit and its traffic to a reservation.
    pub fn add_circuit_state(&self, reservation: &mut Reservation) {
        let id = ReservationId(reservation.id);
        let known = self.known();
        let Some(circuit) = known.circuits.get(&id) else {
            return;
        };
        reservation.circuit = Some(circuit.clone());
        let read = |text: &Option<String>| text.as_ref()?.parse::<Prefix>().ok();
        let ends = read(&reservation.from_address).zip(read(&reservation.to_address));
        let (Some((from, to)), name) = (ends, circuit_name(id)) else {
            return;
        };
        let dscp = reservation.filter.dscp;
        for piece in &mut reservation.pieces {
            let start_ms = piece.start_ms.saturating_sub(SETUP_LEAD_MS);
            for path in &mut piece.paths {
                let streams = path_streams(from, to, path.source_ports, dscp);
                let mut counted = path.links.iter().filter_map(|link| {
                    let part = PartId::for_streams(
                        &name,
                        &link.from.parse().ok()?,
                        &link.link.parse().ok()?,
                        &streams,
                    );
                    known.carried.get(&part).copied()
                });
                path.carried = counted.next().filter(|carried| carried.at_ms >= start_ms);
            }
        }
    }

    /// Returns the numbers of reservations and circuits.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let known = self.known();
        let mut circuits = BTreeMap::new();
        for circuit in known.circuits.values() {
            *circuits
                .entry(standing_label(circuit.standing))
                .or_default() += 1;
        }
        Counts {
            reservations: known.states.clone(),
            circuits,
            failures: known.failures,
        }
    }
}

/// Returns the state of a circuit as a metric label.
#[must_use]
pub const fn standing_label(standing: CircuitStanding) -> &'static str {
    match standing {
        CircuitStanding::Waiting => "waiting",
        CircuitStanding::SettingUp => "setting_up",
        CircuitStanding::SetUp => "set_up",
        CircuitStanding::Failed => "failed",
        CircuitStanding::TearingDown => "tearing_down",
        CircuitStanding::Unmanaged => "unmanaged",
    }
}
