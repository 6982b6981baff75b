//! A circuit that is wanted, and how it stands.

use std::collections::BTreeMap;

use longhaul_circuits::time::Moment;
use serde::{Deserialize, Serialize};

use super::{GRACE_MS, SETUP_LEAD_MS};
use crate::circuit::{Circuit, CircuitFault, Name, Part, PartId};

/// How a circuit stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Nothing of it is to be there yet, or between two pieces of it.
    Waiting,
    /// Some of it is missing.
    SettingUp,
    /// All of it is there.
    Provisioned,
    /// It could not be set up, or broke in its window. It is torn down.
    Failed {
        /// Why.
        why: Failure,
        /// How many parts may still be there.
        left: usize,
    },
    /// Its last window ended.
    Over {
        /// How many parts may still be there.
        left: usize,
    },
}

/// Why a circuit failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// A part of it could not be set up.
    #[error("{node}, link {link}, by driver {driver}: {why}")]
    Part {
        /// Who was asked.
        driver: Name,
        /// The node.
        node: Name,
        /// The link.
        link: Name,
        /// What was said.
        why: String,
    },
    /// It is no circuit.
    #[error("{0}")]
    Fault(String),
}

impl Failure {
    pub(super) fn of(driver: &Name, part: &Part, why: &str) -> Self {
        Self::Part {
            driver: driver.clone(),
            node: part.node.clone(),
            link: part.link.clone(),
            why: why.to_owned(),
        }
    }
}

impl From<CircuitFault> for Failure {
    fn from(fault: CircuitFault) -> Self {
        Self::Fault(fault.to_string())
    }
}

/// A circuit that is wanted.
#[derive(Debug)]
pub(super) struct Wanted {
    circuit: Circuit,
    /// Since when something of it has been missing, in its window or the lead before it.
    missing_since: Option<Moment>,
    failure: Option<Failure>,
    /// Whether it was provisioned before anything was listed.
    pub believed: bool,
}

impl Wanted {
    pub fn new(circuit: Circuit) -> Self {
        Self {
            failure: circuit.check().err().map(Failure::from),
            missing_since: None,
            believed: false,
            circuit,
        }
    }

    pub const fn circuit(&self) -> &Circuit {
        &self.circuit
    }

    pub const fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    pub fn fail(&mut self, why: Failure) {
        self.failure.get_or_insert(why);
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Name> {
        let routes = self.circuit.pieces.iter().flat_map(|piece| &piece.routes);
        routes.flat_map(|route| &route.hops).map(|hop| &hop.node)
    }

    pub fn parts_at(&self, owner: &Name, now: Moment) -> BTreeMap<PartId, Part> {
        self.circuit.parts_at(owner, now, SETUP_LEAD_MS)
    }

    /// Whether a piece of it is to be there.
    pub fn held_at(&self, now: Moment) -> bool {
        self.circuit
            .held(SETUP_LEAD_MS)
            .any(|(held, _)| held.holds(now))
    }

    /// Notes whether something of it is missing.
    pub fn misses(&mut self, something: bool, now: Moment) {
        self.missing_since = something.then_some(match self.missing_since {
            // A clock that was put back must not make it wait for longer.
            Some(since) if since <= now => since,
            _ => now,
        });
    }

    /// Whether what is missing has been for too long.
    pub fn is_late(&self, now: Moment) -> bool {
        self.late_at(now).is_some_and(|late| now >= late)
    }

    /// When what is missing will have been for too long: [`GRACE_MS`] after it went missing, and
    /// after the piece's start.
    fn late_at(&self, now: Moment) -> Option<Moment> {
        let since = self.missing_since?;
        let (_, piece) = self
            .circuit
            .held(SETUP_LEAD_MS)
            .find(|(held, _)| held.holds(now))?;
        Some(
            since
                .max(piece.window.start)
                .saturating_add_unsigned(GRACE_MS),
        )
    }

    /// The moments at which something changes by itself.
    pub fn turns(&self) -> impl Iterator<Item = Moment> {
        let pieces = self.circuit.held(SETUP_LEAD_MS);
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
