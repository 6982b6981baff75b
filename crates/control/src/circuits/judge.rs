//! Comparison of circuits with the book: derives the report to the book and the displayed state.

use std::collections::BTreeSet;

use longhaul_circuits::book::Reservation;
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::{Life, Machine, Provision};
use longhaul_circuits::time::Moment;
use longhaul_control_api::reservations::{Circuit as Shown, CircuitStanding};
use longhaul_setup::circuit::{Circuit, PartId};
use longhaul_setup::reconcile::{Reconciler, Standing};

use super::plan::{self, NoCircuit};
use crate::reservations::desk::Detail;
use crate::reservations::{Desk, Settled};

/// Reservation that is, or may be, set up on the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// States of the reservation.
    pub machine: Machine,
    /// Circuit of the reservation, or the reason why it has no circuit.
    pub circuit: Result<Circuit, NoCircuit>,
    /// Sites that are not set up.
    pub not_set_up: Vec<String>,
    /// Parts at which the traffic of its paths is counted.
    pub counted: BTreeSet<PartId>,
}

impl Followed {
    /// Creates the entry of a reservation. `None` if nothing of it is, or may be, on the network.
    #[must_use]
    pub fn of(
        desk: &Desk,
        id: ReservationId,
        detail: &Detail,
        reservation: &Reservation,
    ) -> Option<Self> {
        let machine = reservation.machine;
        let is_followed = machine.life == Life::Created
            && !matches!(machine.provision, None | Some(Provision::Released));
        if !is_followed || reservation.plan.0.is_empty() {
            return None;
        }
        let circuit = plan::circuit(desk, id, detail, reservation);
        let counted = circuit.as_ref().map(|circuit| plan::counted(desk, circuit));
        Some(Self {
            machine,
            not_set_up: plan::not_set_up(desk, &reservation.plan)
                .into_iter()
                .collect(),
            counted: counted.unwrap_or_default(),
            circuit,
        })
    }

    /// Returns the circuit, if it should be set up.
    #[must_use]
    pub fn wanted(&self) -> Option<&Circuit> {
        self.circuit.as_ref().ok().filter(|_| self.is_wanted())
    }

    /// Returns true if the circuit should be set up in its window.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.machine.life == Life::Created
            && matches!(
                self.machine.provision,
                Some(Provision::Provisioning | Provision::Provisioned)
            )
    }
}

/// Returns what to report to the book about a reservation, and the displayed state of its circuit.
#[must_use]
pub fn judge(
    id: ReservationId,
    followed: &Followed,
    reconciler: &Reconciler,
    now: Moment,
) -> (Option<Settled>, Shown) {
    let shown = |standing, why: Option<String>| Shown {
        standing,
        not_set_up: followed.not_set_up.clone(),
        why,
    };
    let confirmed = match followed.machine.provision {
        Some(Provision::Provisioning) => Some(Settled::SetUp),
        Some(Provision::Releasing) => Some(Settled::TornDown),
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
        let is_gone = reconciler.left_of(circuit) == 0;
        return (
            confirmed.filter(|_| is_gone),
            shown(CircuitStanding::TearingDown, None),
        );
    }
    match reconciler.standing(&plan::circuit_name(id), now) {
        None | Some(Standing::Waiting) => (confirmed, shown(CircuitStanding::Waiting, None)),
        Some(Standing::SettingUp) => (None, shown(CircuitStanding::SettingUp, None)),
        Some(Standing::Provisioned) => (confirmed, shown(CircuitStanding::SetUp, None)),
        Some(Standing::Failed { why, .. }) => {
            let why = why.to_string();
            (
                Some(Settled::Failed(why.clone())),
                shown(CircuitStanding::Failed, Some(why)),
            )
        }
        // The book will soon end the reservation.
        Some(Standing::Over { .. }) => (confirmed, shown(CircuitStanding::TearingDown, None)),
    }
}
