//! A wanted circuit and its status.

use std::collections::BTreeMap;

use longhaul_circuits::time::MomentMs;
use serde::{Deserialize, Serialize};

use super::{GRACE_MS, SETUP_LEAD_MS};
use crate::circuit::{CircuitFault, CircuitPart, CircuitSpec, EntityName, PartId};

/// Status of a circuit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CircuitStatus {
    /// The circuit is before its first piece, or between two pieces.
    Waiting,
    /// Some parts are missing.
    SettingUp,
    /// All parts are set up.
    Provisioned,
    /// A part could not be set up, or was lost within the window. The circuit is torn down.
    Failed {
        /// Cause.
        why: CircuitFailure,
        /// Number of parts that may still be set up.
        left: usize,
    },
    /// The last window has ended.
    Over {
        /// Number of parts that may still be set up.
        left: usize,
    },
}

/// Reason why a circuit failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CircuitFailure {
    /// A part could not be set up. The reservation fails. Repair the cause, and reserve again.
    #[error("{node}, link {link}, by driver {driver}: {why}")]
    Part {
        /// Driver that was asked.
        driver: EntityName,
        /// The node.
        node: EntityName,
        /// The link.
        link: EntityName,
        /// Cause, as the driver put it.
        why: String,
    },
    /// The circuit is invalid.
    #[error("{0}")]
    Fault(String),
}

impl CircuitFailure {
    pub(super) fn for_part(driver: &EntityName, part: &CircuitPart, why: &str) -> Self {
        Self::Part {
            driver: driver.clone(),
            node: part.node.clone(),
            link: part.link.clone(),
            why: why.to_owned(),
        }
    }
}

impl From<CircuitFault> for CircuitFailure {
    fn from(fault: CircuitFault) -> Self {
        Self::Fault(fault.to_string())
    }
}

/// A wanted circuit.
#[derive(Debug)]
pub(super) struct WantedCircuit {
    circuit: CircuitSpec,
    /// Start of the time in which a part has been missing, within the window or the lead before it.
    missing_since: Option<MomentMs>,
    failure: Option<CircuitFailure>,
    /// If true, it was provisioned before any driver listed its parts.
    pub was_provisioned: bool,
}

impl WantedCircuit {
    pub fn new(circuit: CircuitSpec) -> Self {
        Self {
            failure: circuit.check().err().map(CircuitFailure::from),
            missing_since: None,
            was_provisioned: false,
            circuit,
        }
    }

    pub const fn circuit(&self) -> &CircuitSpec {
        &self.circuit
    }

    pub const fn failure(&self) -> Option<&CircuitFailure> {
        self.failure.as_ref()
    }

    pub fn fail(&mut self, why: CircuitFailure) {
        self.failure.get_or_insert(why);
    }

    pub fn nodes(&self) -> impl Iterator<Item = &EntityName> {
        let routes = self.circuit.pieces.iter().flat_map(|piece| &piece.routes);
        routes.flat_map(|route| &route.hops).map(|hop| &hop.node)
    }

    pub fn parts_at(&self, owner: &EntityName, now: MomentMs) -> BTreeMap<PartId, CircuitPart> {
        self.circuit.parts_at(owner, now, SETUP_LEAD_MS)
    }

    /// Returns true if a piece has to be set up at this time.
    pub fn is_due(&self, now: MomentMs) -> bool {
        self.circuit
            .provisioning_windows(SETUP_LEAD_MS)
            .any(|(held, _)| held.contains(now))
    }

    /// Records if a part is missing.
    pub fn set_missing(&mut self, something: bool, now: MomentMs) {
        self.missing_since = something.then_some(match self.missing_since {
            // A clock that was set back must not extend the wait.
            Some(since) if since <= now => since,
            _ => now,
        });
    }

    /// Returns true if a part has been missing for too long.
    pub fn is_late(&self, now: MomentMs) -> bool {
        self.late_at(now).is_some_and(|late| now >= late)
    }

    /// Returns the time at which a part will have been missing for too long: [`GRACE_MS`] after it
    /// went missing, and after the piece's start.
    fn late_at(&self, now: MomentMs) -> Option<MomentMs> {
        let since = self.missing_since?;
        let (_, piece) = self
            .circuit
            .provisioning_windows(SETUP_LEAD_MS)
            .find(|(held, _)| held.contains(now))?;
        Some(
            since
                .max(piece.window.start)
                .saturating_add_unsigned(GRACE_MS),
        )
    }

    /// Returns the moments at which something changes by time alone.
    pub fn wake_times(&self) -> impl Iterator<Item = MomentMs> {
        let pieces = self.circuit.provisioning_windows(SETUP_LEAD_MS);
        let changes = pieces.flat_map(move |(held, piece)| {
            let late = self.missing_since.map(|since| {
                since
                    .max(piece.window.start)
                    .saturating_add_unsigned(GRACE_MS)
            });
            [Some(held.start), Some(held.end), late]
                .into_iter()
                .flatten()
        });
        changes.filter(|_| self.failure.is_none())
    }
}
