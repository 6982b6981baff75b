//! Comparison of circuits with the book: derives the report to the book and the displayed state.

use std::collections::BTreeSet;

use longhaul_circuits::book::Reservation;
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::{LifeState, ProvisionState, ReservationMachine};
use longhaul_circuits::time::MomentMs;
use longhaul_control_api::reservations::{Circuit as Shown, CircuitStanding};
use longhaul_provisioning::circuit::{CircuitSpec, PartId};
use longhaul_provisioning::reconcile::{CircuitStatus, Reconciler};

use super::plan::{self, CircuitError};
use crate::reservations::record::ReservationDetail;
use crate::reservations::{CircuitResult, ReservationStore};

/// Reservation that is, or may be, set up on the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackedReservation {
    /// States of the reservation.
    pub machine: ReservationMachine,
    /// Circuit of the reservation, or the reason why it has no circuit.
    pub circuit: Result<CircuitSpec, CircuitError>,
    /// Sites that are not set up.
    pub not_set_up: Vec<String>,
    /// Parts at which the traffic of its paths is counted.
    pub counted: BTreeSet<PartId>,
}

impl TrackedReservation {
    /// Creates the entry of a reservation. `None` if nothing of it is, or may be, on the network.
    #[must_use]
    pub fn track(
        desk: &ReservationStore,
        id: ReservationId,
        detail: &ReservationDetail,
        reservation: &Reservation,
    ) -> Option<Self> {
        let machine = reservation.machine;
        let is_followed = machine.life == LifeState::Created
            && !matches!(machine.provision, None | Some(ProvisionState::Released));
        if !is_followed || reservation.plan.0.is_empty() {
            return None;
        }
        let circuit = plan::circuit(desk, id, detail, reservation);
        let counted = circuit
            .as_ref()
            .map(|circuit| plan::counted_parts(desk, circuit));
        Some(Self {
            machine,
            not_set_up: plan::unmanaged_sites(desk, &reservation.plan)
                .into_iter()
                .collect(),
            counted: counted.unwrap_or_default(),
            circuit,
        })
    }

    /// Returns the circuit, if it should be set up.
    #[must_use]
    pub fn wanted_circuit(&self) -> Option<&CircuitSpec> {
        self.circuit.as_ref().ok().filter(|_| self.is_wanted())
    }

    /// Returns true if the circuit should be set up in its window.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.machine.life == LifeState::Created
            && matches!(
                self.machine.provision,
                Some(ProvisionState::Provisioning | ProvisionState::Provisioned)
            )
    }
}

/// Returns what to report to the book about a reservation, and the displayed state of its circuit.
#[must_use]
pub fn judge(
    id: ReservationId,
    followed: &TrackedReservation,
    reconciler: &Reconciler,
    now: MomentMs,
) -> (Option<CircuitResult>, Shown) {
    let shown = |standing, why: Option<String>| Shown {
        standing,
        not_set_up: followed.not_set_up.clone(),
        why,
    };
    let confirmed = match followed.machine.provision {
        Some(ProvisionState::Provisioning) => Some(CircuitResult::SetUp),
        Some(ProvisionState::Releasing) => Some(CircuitResult::TornDown),
        _ => None,
    };
    let circuit = match &followed.circuit {
        Ok(circuit) => circuit,
        // There is nothing to wait for.
        Err(why) => {
            return (
                confirmed,
                shown(CircuitStanding::Unmanaged, Some(why.to_string())),
            );
        }
    };
    if !followed.is_wanted() {
        let is_gone = reconciler.remaining_parts_of(circuit) == 0;
        return (
            confirmed.filter(|_| is_gone),
            shown(CircuitStanding::TearingDown, None),
        );
    }
    match reconciler.status(&plan::circuit_name(id), now) {
        None | Some(CircuitStatus::Waiting) => (confirmed, shown(CircuitStanding::Waiting, None)),
        Some(CircuitStatus::SettingUp) => (None, shown(CircuitStanding::SettingUp, None)),
        Some(CircuitStatus::Provisioned) => (confirmed, shown(CircuitStanding::SetUp, None)),
        Some(CircuitStatus::Failed { why, .. }) => {
            let why = why.to_string();
            (
                Some(CircuitResult::Failed(why.clone())),
                shown(CircuitStanding::Failed, Some(why)),
            )
        }
        // The book will soon end the reservation.
        Some(CircuitStatus::Over { .. }) => (confirmed, shown(CircuitStanding::TearingDown, None)),
    }
}
