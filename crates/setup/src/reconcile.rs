//! Due requests to each driver, and the status of each circuit.
//!
//! A [`Reconciler`] holds the wanted circuits and what the drivers last reported.
//! [`Reconciler::next`] returns the requests that are due, at most one per driver at a time. So a
//! driver's list is never older than the last request to it. [`Reconciler::answered`] takes the
//! answers.
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

use longhaul_circuits::time::Moment;

use crate::ask::{DriverError, Reply, Request};
use crate::circuit::{Circuit, Name, Part, PartId};

use circuits::Wanted;
pub use circuits::{Failure, Standing};
use side::{Doing, Side};

/// Time before its start at which a piece is set up, in milliseconds.
pub const SETUP_LEAD_MS: u64 = 60_000;

/// Time for which a part may be missing, after its start or within the window, before its circuit
/// has failed. In milliseconds.
pub const GRACE_MS: u64 = 60_000;

/// Time before the first retry, in milliseconds. Each further failure doubles it.
pub const FIRST_BACK_OFF: u64 = 1_000;

/// Maximum time before a retry, in milliseconds.
pub const MAX_BACK_OFF: u64 = 30_000;

/// Interval at which a driver lists its parts, in milliseconds.
pub const LIST_EVERY: u64 = 60_000;

/// A request that is due at a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Number of the request, for its answer.
    pub number: u64,
    /// The driver.
    pub driver: Name,
    /// The request.
    pub request: Request,
}

/// Wanted circuits, the known state of the drivers, and the requests in progress.
#[derive(Debug)]
pub struct Reconciler {
    owner: Name,
    /// Driver of each node. A driver may serve several nodes.
    nodes: BTreeMap<Name, Name>,
    circuits: BTreeMap<Name, Wanted>,
    sides: BTreeMap<Name, Side>,
    asked: u64,
}

impl Reconciler {
    /// Creates a reconciler without circuits. The drivers' parts of `owner` will be torn down
    /// unless [`Reconciler::want`] is called before [`Reconciler::next`]. Nodes that are not in
    /// `nodes` need no provisioning.
    #[must_use]
    pub fn new(owner: Name, nodes: BTreeMap<Name, Name>) -> Self {
        let drivers: BTreeSet<&Name> = nodes.values().collect();
        let sides = drivers
            .into_iter()
            .map(|driver| (driver.clone(), Side::default()))
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
    pub fn want(&mut self, circuits: impl IntoIterator<Item = Circuit>) {
        let mut before = std::mem::take(&mut self.circuits);
        for circuit in circuits {
            let id = circuit.id.clone();
            let wanted = match before.remove(&id) {
                Some(wanted) if *wanted.circuit() == circuit => wanted,
                _ => Wanted::new(circuit),
            };
            self.circuits.insert(id, wanted);
        }
    }

    /// Updates some of the wanted circuits; `None` removes one. All others stay as they are.
    pub fn want_instead(&mut self, changed: impl IntoIterator<Item = (Name, Option<Circuit>)>) {
        for (id, circuit) in changed {
            match (circuit, self.circuits.get(&id)) {
                (Some(circuit), Some(wanted)) if *wanted.circuit() == circuit => {}
                (Some(circuit), _) => {
                    self.circuits.insert(id, Wanted::new(circuit));
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
    pub fn was_provisioned(&mut self, circuit: &Name) {
        if let Some(wanted) = self.circuits.get_mut(circuit) {
            wanted.believed = true;
        }
    }

    /// Retries a failed circuit.
    pub fn again(&mut self, circuit: &Name) {
        if let Some(wanted) = self.circuits.get_mut(circuit) {
            *wanted = Wanted::new(wanted.circuit().clone());
        }
    }

    /// Returns the requests that are due. Each must be answered by [`Reconciler::answered`], with
    /// an error if the driver did not answer in time. Until then its driver receives no further
    /// request.
    pub fn next(&mut self, now: Moment) -> Vec<Ask> {
        self.judge(now);
        let mut desired = self.desired(now);
        let mut asks = Vec::new();
        for (driver, side) in &mut self.sides {
            let desired = desired.remove(driver).unwrap_or_default();
            if let Some(doing) = side.next(desired, now) {
                self.asked += 1;
                asks.push(Ask {
                    number: self.asked,
                    driver: driver.clone(),
                    request: doing.request(&self.owner),
                });
                side.begin(self.asked, doing);
            }
        }
        asks
    }

    /// Takes an answer. An answer to a request that is not in progress changes nothing.
    pub fn answered(&mut self, number: u64, answer: Result<Reply, DriverError>, now: Moment) {
        let Some((driver, side)) = self
            .sides
            .iter_mut()
            .find(|(_, side)| side.under_way() == Some(number))
        else {
            return;
        };
        let Some((doing, error)) = side.answered(answer, &self.owner, now) else {
            return;
        };
        if let (Doing::SetUp(part), DriverError::Refused { why }) = (&doing, &error)
            && let Some(wanted) = self.circuits.get_mut(&part.circuit)
        {
            // If the circuit has changed meanwhile, another part was refused.
            let still = wanted.parts_at(&self.owner, now).get(&part.id) == Some(part);
            if still {
                wanted.fail(Failure::of(driver, part, why));
            }
        }
    }

    /// Treats the requests in progress as unanswered, because their sender was ended. They may have
    /// been carried out in part.
    pub fn give_up(&mut self, now: Moment) {
        let under_way: Vec<u64> = self.sides.values().filter_map(Side::under_way).collect();
        for number in under_way {
            self.answered(number, Err(DriverError::failed("it was given up")), now);
        }
    }

    /// Returns the next moment at which a request may become due, or a circuit may fail, without an
    /// answer.
    #[must_use]
    pub fn wake(&self, now: Moment) -> Option<Moment> {
        let circuits = self.circuits.values().flat_map(Wanted::turns);
        let sides = self.sides.values().flat_map(Side::turns);
        circuits.chain(sides).filter(|moment| *moment > now).min()
    }

    /// Returns the status of a circuit, or `None` if it is not wanted.
    #[must_use]
    pub fn standing(&self, circuit: &Name, now: Moment) -> Option<Standing> {
        let wanted = self.circuits.get(circuit)?;
        let left = self.left(circuit);
        if let Some(why) = wanted.failure() {
            return Some(Standing::Failed {
                why: why.clone(),
                left,
            });
        }
        if now >= wanted.circuit().window().end {
            return Some(Standing::Over { left });
        }
        let Some(parts) = wanted
            .held_at(now)
            .then(|| wanted.parts_at(&self.owner, now))
        else {
            return Some(Standing::Waiting);
        };
        let whole = parts.values().all(|part| match self.side_of(part) {
            Some((_, side)) => side.has(part),
            None => true,
        });
        Some(if whole {
            Standing::Provisioned
        } else {
            Standing::SettingUp
        })
    }

    /// Returns the number of parts of a circuit that may be set up, wanted or not. A driver that
    /// never listed counts as one part if it serves a node of the circuit, or the circuit is not
    /// known.
    #[must_use]
    pub fn left(&self, circuit: &Name) -> usize {
        let wanted = self.circuits.get(circuit);
        let concerned = |driver: &Name| {
            wanted.is_none_or(|wanted| {
                let mut nodes = wanted.nodes();
                nodes.any(|node| self.nodes.get(node) == Some(driver))
            })
        };
        let sides = self.sides.iter();
        sides
            .map(|(driver, side)| {
                side.left(circuit) + usize::from(!side.is_listed() && concerned(driver))
            })
            .sum()
    }

    /// Returns the number of parts of a circuit that may still be set up, although it is no longer
    /// wanted. A driver of its nodes that never listed counts as one part.
    #[must_use]
    pub fn left_of(&self, circuit: &Circuit) -> usize {
        let routes = circuit.pieces.iter().flat_map(|piece| &piece.routes);
        let nodes = routes.flat_map(|route| &route.hops).map(|hop| &hop.node);
        let drivers: BTreeSet<&Name> = nodes.filter_map(|node| self.nodes.get(node)).collect();
        let sides = drivers
            .into_iter()
            .filter_map(|driver| self.sides.get(driver));
        sides
            .map(|side| side.left(&circuit.id) + usize::from(!side.is_listed()))
            .sum()
    }

    /// Returns the parts of a circuit that have to be set up now, each with the driver that has its
    /// counters.
    #[must_use]
    pub fn parts(&self, circuit: &Name, now: Moment) -> Vec<(Name, Part)> {
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
    pub const fn owner(&self) -> &Name {
        &self.owner
    }

    fn side_of(&self, part: &Part) -> Option<(&Name, &Side)> {
        let driver = self.nodes.get(&part.node)?;
        Some((driver, self.sides.get(driver)?))
    }

    /// Returns for each driver the parts that have to be set up now.
    fn desired(&self, now: Moment) -> BTreeMap<Name, BTreeMap<PartId, Part>> {
        let mut desired: BTreeMap<Name, BTreeMap<PartId, Part>> = BTreeMap::new();
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
    fn judge(&mut self, now: Moment) {
        let mut failed = Vec::new();
        let mut changed = Vec::new();
        for (id, wanted) in &self.circuits {
            if wanted.failure().is_some() {
                continue;
            }
            let parts = wanted.parts_at(&self.owner, now);
            let missing = parts.values().find_map(|part| {
                let (driver, side) = self.side_of(part)?;
                let misses = !side.has(part) && (side.is_listed() || !wanted.believed);
                misses.then_some((driver, side, part))
            });
            match missing {
                Some((driver, side, part)) if wanted.is_late(now) => {
                    failed.push((
                        id.clone(),
                        Failure::of(driver, part, &side.why_not(&part.id)),
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
                wanted.misses(misses, now);
            }
        }
    }
}
