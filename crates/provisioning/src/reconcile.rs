//! Due requests to each driver, and the status of each circuit.
//!
//! A [`Reconciler`] holds the wanted circuits and what the drivers last reported.
//! [`Reconciler::next_requests`] returns the requests that are due, at most one per driver at a
//! time. So a driver's list is never older than the last request to it. [`Reconciler::take_answer`]
//! takes the answers.
//!
//! At first each driver lists its parts, because it may have kept those that were set up before a
//! crash. It lists them again from time to time, because it may have lost some. Then it tears down
//! what is not wanted, and sets up what is missing.
//!
//! A circuit has failed if one of its parts is refused, or is still missing [`GRACE_MS`] after it
//! was due. Then all its parts are torn down. Unknown parts that carry the name of this owner are
//! torn down as well. Parts of other owners are ignored.
//!
//! The caller passes the time, in milliseconds. It may go backwards.

mod circuits;
mod side;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use longhaul_circuits::time::MomentMs;

use crate::ask::{DriverError, DriverReply, DriverRequest};
use crate::circuit::{CircuitPart, CircuitSpec, EntityName, PartId};

use circuits::WantedCircuit;
pub use circuits::{CircuitFailure, CircuitStatus};
use side::{DriverState, DriverTask};

/// Time before its start at which a piece is set up, in milliseconds.
pub const SETUP_LEAD_MS: u64 = 60_000;

/// Time for which a part may be missing, after its start or within the window, before its circuit
/// has failed. In milliseconds.
pub const GRACE_MS: u64 = 60_000;

/// Time before the first retry, in milliseconds. Each further failure doubles it.
pub const FIRST_BACKOFF_MS: u64 = 1_000;

/// Maximum time before a retry, in milliseconds.
pub const MAX_BACKOFF_MS: u64 = 30_000;

/// Interval at which a driver lists its parts, in milliseconds.
pub const LIST_INTERVAL_MS: u64 = 60_000;

/// A request that is due at a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueRequest {
    /// Number of the request, for its answer.
    pub number: u64,
    /// The driver.
    pub driver: EntityName,
    /// The request.
    pub request: DriverRequest,
}

/// Wanted circuits, the known state of the drivers, and the requests in progress.
#[derive(Debug)]
pub struct Reconciler {
    owner: EntityName,
    /// Driver of each node. A driver may serve several nodes.
    nodes: BTreeMap<EntityName, EntityName>,
    circuits: BTreeMap<EntityName, WantedCircuit>,
    sides: BTreeMap<EntityName, DriverState>,
    asked: u64,
}

impl Reconciler {
    /// Creates a reconciler without circuits. The drivers' parts of `owner` will be torn down
    /// unless [`Reconciler::set_wanted`] is called before [`Reconciler::next_requests`]. Nodes that
    /// are not in `nodes` need no provisioning.
    #[must_use]
    pub fn new(owner: EntityName, nodes: BTreeMap<EntityName, EntityName>) -> Self {
        let drivers: BTreeSet<&EntityName> = nodes.values().collect();
        let sides = drivers
            .into_iter()
            .map(|driver| (driver.clone(), DriverState::default()))
            .collect();
        Self {
            owner,
            nodes,
            circuits: BTreeMap::new(),
            sides,
            asked: 0,
        }
    }

    /// Replaces the wanted circuits. Those that are over may be left out. An invalid circuit has
    /// failed. A failed circuit that is wanted unchanged stays failed.
    pub fn set_wanted(&mut self, circuits: impl IntoIterator<Item = CircuitSpec>) {
        let mut before = std::mem::take(&mut self.circuits);
        for circuit in circuits {
            let id = circuit.id.clone();
            let wanted = match before.remove(&id) {
                Some(wanted) if *wanted.circuit() == circuit => wanted,
                _ => WantedCircuit::new(circuit),
            };
            self.circuits.insert(id, wanted);
        }
    }

    /// Updates some of the wanted circuits; `None` removes one. All others stay as they are.
    pub fn update_wanted(
        &mut self,
        changed: impl IntoIterator<Item = (EntityName, Option<CircuitSpec>)>,
    ) {
        for (id, circuit) in changed {
            match (circuit, self.circuits.get(&id)) {
                (Some(circuit), Some(wanted)) if *wanted.circuit() == circuit => {}
                (Some(circuit), _) => {
                    self.circuits.insert(id, WantedCircuit::new(circuit));
                }
                (None, _) => {
                    self.circuits.remove(&id);
                }
            }
        }
    }

    /// Marks a wanted circuit as provisioned before this reconciler started. Its parts at drivers
    /// that have not listed yet then do not count as missing. So a driver that is unreachable for a
    /// while after a restart ends no circuit.
    pub fn mark_provisioned(&mut self, circuit: &EntityName) {
        if let Some(wanted) = self.circuits.get_mut(circuit) {
            wanted.was_provisioned = true;
        }
    }

    /// Retries a failed circuit.
    pub fn retry(&mut self, circuit: &EntityName) {
        if let Some(wanted) = self.circuits.get_mut(circuit) {
            *wanted = WantedCircuit::new(wanted.circuit().clone());
        }
    }

    /// Returns the requests that are due. Each must be answered by [`Reconciler::take_answer`],
    /// with an error if the driver did not answer in time. Until then its driver receives no
    /// further request.
    pub fn next_requests(&mut self, now: MomentMs) -> Vec<DueRequest> {
        self.update_failures(now);
        let mut desired = self.desired(now);
        let mut asks = Vec::new();
        for (driver, side) in &mut self.sides {
            let desired = desired.remove(driver).unwrap_or_default();
            if let Some(doing) = side.next_task(desired, now) {
                self.asked += 1;
                asks.push(DueRequest {
                    number: self.asked,
                    driver: driver.clone(),
                    request: doing.request(&self.owner),
                });
                side.start(self.asked, doing);
            }
        }
        asks
    }

    /// Takes an answer. An answer to a request that is not in progress changes nothing.
    pub fn take_answer(
        &mut self,
        number: u64,
        answer: Result<DriverReply, DriverError>,
        now: MomentMs,
    ) {
        let Some((driver, side)) = self
            .sides
            .iter_mut()
            .find(|(_, side)| side.task_number() == Some(number))
        else {
            return;
        };
        let Some((doing, error)) = side.take_answer(answer, &self.owner, now) else {
            return;
        };
        if let (DriverTask::SetUp(part), DriverError::Refused { why }) = (&doing, &error)
            && let Some(wanted) = self.circuits.get_mut(&part.circuit)
        {
            // If the circuit has changed meanwhile, another part was refused.
            let still = wanted.parts_at(&self.owner, now).get(&part.id) == Some(part);
            if still {
                wanted.fail(CircuitFailure::for_part(driver, part, why));
            }
        }
    }

    /// Treats the requests in progress as unanswered, because their sender was ended. They may have
    /// been carried out in part.
    pub fn abandon_requests(&mut self, now: MomentMs) {
        let under_way: Vec<u64> = self
            .sides
            .values()
            .filter_map(DriverState::task_number)
            .collect();
        for number in under_way {
            self.take_answer(number, Err(DriverError::failed("it was given up")), now);
        }
    }

    /// Returns the next moment at which a request may become due, or a circuit may fail, without an
    /// answer.
    #[must_use]
    pub fn next_wake(&self, now: MomentMs) -> Option<MomentMs> {
        let circuits = self.circuits.values().flat_map(WantedCircuit::wake_times);
        let sides = self.sides.values().flat_map(DriverState::wake_times);
        circuits.chain(sides).filter(|moment| *moment > now).min()
    }

    /// Returns the status of a circuit, or `None` if it is not wanted.
    #[must_use]
    pub fn status(&self, circuit: &EntityName, now: MomentMs) -> Option<CircuitStatus> {
        let wanted = self.circuits.get(circuit)?;
        let left = self.remaining_parts(circuit);
        if let Some(why) = wanted.failure() {
            return Some(CircuitStatus::Failed {
                why: why.clone(),
                left,
            });
        }
        if now >= wanted.circuit().window().end {
            return Some(CircuitStatus::Over { left });
        }
        let Some(parts) = wanted
            .is_due(now)
            .then(|| wanted.parts_at(&self.owner, now))
        else {
            return Some(CircuitStatus::Waiting);
        };
        let whole = parts.values().all(|part| match self.driver_state_of(part) {
            Some((_, side)) => side.has(part),
            None => true,
        });
        Some(if whole {
            CircuitStatus::Provisioned
        } else {
            CircuitStatus::SettingUp
        })
    }

    /// Returns the number of parts of a circuit that may be set up, wanted or not. A driver that
    /// never listed counts as one part if it serves a node of the circuit, or the circuit is not
    /// known.
    #[must_use]
    pub fn remaining_parts(&self, circuit: &EntityName) -> usize {
        let wanted = self.circuits.get(circuit);
        let concerned = |driver: &EntityName| {
            wanted.is_none_or(|wanted| {
                let mut nodes = wanted.nodes();
                nodes.any(|node| self.nodes.get(node) == Some(driver))
            })
        };
        let sides = self.sides.iter();
        sides
            .map(|(driver, side)| {
                side.part_count(circuit) + usize::from(!side.is_listed() && concerned(driver))
            })
            .sum()
    }

    /// Returns the number of parts of a circuit that may still be set up, although it is no longer
    /// wanted. A driver of its nodes that never listed counts as one part.
    #[must_use]
    pub fn remaining_parts_of(&self, circuit: &CircuitSpec) -> usize {
        let routes = circuit.pieces.iter().flat_map(|piece| &piece.routes);
        let nodes = routes.flat_map(|route| &route.hops).map(|hop| &hop.node);
        let drivers: BTreeSet<&EntityName> =
            nodes.filter_map(|node| self.nodes.get(node)).collect();
        let sides = drivers
            .into_iter()
            .filter_map(|driver| self.sides.get(driver));
        sides
            .map(|side| side.part_count(&circuit.id) + usize::from(!side.is_listed()))
            .sum()
    }

    /// Returns the parts of a circuit that have to be set up now, each with the driver that has its
    /// counters.
    #[must_use]
    pub fn parts(&self, circuit: &EntityName, now: MomentMs) -> Vec<(EntityName, CircuitPart)> {
        let wanted = self
            .circuits
            .get(circuit)
            .filter(|wanted| wanted.failure().is_none());
        let parts = wanted.map(|wanted| wanted.parts_at(&self.owner, now));
        let parts = parts.unwrap_or_default().into_values();
        parts
            .filter_map(|part| Some((self.nodes.get(&part.node)?.clone(), part)))
            .collect()
    }

    /// Returns the name under which everything is set up.
    #[must_use]
    pub const fn owner(&self) -> &EntityName {
        &self.owner
    }

    fn driver_state_of(&self, part: &CircuitPart) -> Option<(&EntityName, &DriverState)> {
        let driver = self.nodes.get(&part.node)?;
        Some((driver, self.sides.get(driver)?))
    }

    /// Returns for each driver the parts that have to be set up now.
    fn desired(&self, now: MomentMs) -> BTreeMap<EntityName, BTreeMap<PartId, CircuitPart>> {
        let mut desired: BTreeMap<EntityName, BTreeMap<PartId, CircuitPart>> = BTreeMap::new();
        for wanted in self
            .circuits
            .values()
            .filter(|wanted| wanted.failure().is_none())
        {
            for (id, part) in wanted.parts_at(&self.owner, now) {
                if let Some(driver) = self.nodes.get(&part.node) {
                    desired.entry(driver.clone()).or_default().insert(id, part);
                }
            }
        }
        desired
    }

    /// Determines which circuits miss a part, and fails those that have missed one for too long.
    fn update_failures(&mut self, now: MomentMs) {
        let mut failed = Vec::new();
        let mut changed = Vec::new();
        for (id, wanted) in &self.circuits {
            if wanted.failure().is_some() {
                continue;
            }
            let parts = wanted.parts_at(&self.owner, now);
            let missing = parts.values().find_map(|part| {
                let (driver, side) = self.driver_state_of(part)?;
                let misses = !side.has(part) && (side.is_listed() || !wanted.was_provisioned);
                misses.then_some((driver, side, part))
            });
            match missing {
                Some((driver, side, part)) if wanted.is_late(now) => {
                    failed.push((
                        id.clone(),
                        CircuitFailure::for_part(driver, part, &side.missing_reason(&part.id)),
                    ));
                }
                missing => changed.push((id.clone(), missing.is_some())),
            }
        }
        for (id, why) in failed {
            if let Some(wanted) = self.circuits.get_mut(&id) {
                wanted.fail(why);
            }
        }
        for (id, misses) in changed {
            if let Some(wanted) = self.circuits.get_mut(&id) {
                wanted.set_missing(misses, now);
            }
        }
    }
}
