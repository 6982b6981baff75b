//! What is to be asked of which driver, and when; which circuit is provisioned, and which failed.
//!
//! A [`Reconciler`] holds what should be there and what drivers last said is there.
//! [`Reconciler::next`] gives what is to be asked now: of each driver one thing at a time, so that
//! what it lists is never older than what it was asked. [`Reconciler::answered`] takes the answers.
//! First of all each driver lists what it has, for it may have kept what somebody before a crash
//! had it set up; and it lists again from time to time, for it may have lost something. Then it
//! tears down what is not wanted, and sets up what is missing.
//!
//! A circuit whose part is refused, or is not there [`GRACE_MS`] after it had to be, has failed:
//! all its parts are torn down. So are parts of which nobody knows what they are, as long as they
//! carry the name of this owner. Parts of other owners are not looked at.
//!
//! Moments are what the caller says, in milliseconds. The machine doesn't rely on them going
//! forward only.

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

/// How long before its start a piece is set up, in milliseconds.
pub const SETUP_LEAD_MS: u64 = 60_000;

/// How long a part may be missing after its start, or in mid-window, before its circuit has failed,
/// in milliseconds.
pub const GRACE_MS: u64 = 60_000;

/// How long it takes until what failed once is asked again, in milliseconds; each further failure
/// doubles it.
pub const FIRST_BACK_OFF: u64 = 1_000;

/// The longest time until what failed is asked again, in milliseconds.
pub const MAX_BACK_OFF: u64 = 30_000;

/// How often a driver lists what it has, in milliseconds.
pub const LIST_EVERY: u64 = 60_000;

/// What is to be asked of a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Its number, for the answer.
    pub number: u64,
    /// The driver.
    pub driver: Name,
    /// What.
    pub request: Request,
}

/// What should be there, what is there, and what is under way between the two.
#[derive(Debug)]
pub struct Reconciler {
    owner: Name,
    /// Of each node that is set up, its driver. A driver may be there for several nodes.
    nodes: BTreeMap<Name, Name>,
    circuits: BTreeMap<Name, Wanted>,
    sides: BTreeMap<Name, Side>,
    asked: u64,
}

impl Reconciler {
    /// Begins without circuits: what drivers have of `owner` will be torn down unless
    /// [`Reconciler::want`] is called before [`Reconciler::next`]. Nodes that are not in `nodes`
    /// need no set-up.
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

    /// Takes what should be there: all circuits, of which those that are over may be left out. One
    /// that is no circuit has failed. One that failed and is wanted unchanged stays so.
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

    /// Takes what has changed of what should be there: each circuit as it is wanted now, or not any
    /// more. All others stay as they are wanted.
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

    /// Says that a circuit that is wanted was provisioned before this machine began: what of it
    /// stands with a driver that has not listed yet what it has is not missing. So a driver that
    /// can't be reached for a while after a restart ends no circuit.
    pub fn was_provisioned(&mut self, circuit: &Name) {
        if let Some(wanted) = self.circuits.get_mut(circuit) {
            wanted.believed = true;
        }
    }

    /// Tries a circuit once more that failed.
    pub fn again(&mut self, circuit: &Name) {
        if let Some(wanted) = self.circuits.get_mut(circuit) {
            *wanted = Wanted::new(wanted.circuit().clone());
        }
    }

    /// What is to be asked now. Each of it must be answered ([`Reconciler::answered`]), with an
    /// error where nobody did in time; until then its driver is asked nothing else.
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

    /// Takes an answer. One to something that isn't under way changes nothing.
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
            // It may have changed meanwhile: then it was another part that was refused.
            let still = wanted.parts_at(&self.owner, now).get(&part.id) == Some(part);
            if still {
                wanted.fail(Failure::of(driver, part, why));
            }
        }
    }

    /// Takes it that nobody will answer what is under way: whoever asked was ended. Some of it may
    /// have been done.
    pub fn give_up(&mut self, now: Moment) {
        let under_way: Vec<u64> = self.sides.values().filter_map(Side::under_way).collect();
        for number in under_way {
            self.answered(number, Err(DriverError::failed("it was given up")), now);
        }
    }

    /// The next moment at which something may be to be asked, or a circuit may fail, without
    /// anything being answered.
    #[must_use]
    pub fn wake(&self, now: Moment) -> Option<Moment> {
        let circuits = self.circuits.values().flat_map(Wanted::turns);
        let sides = self.sides.values().flat_map(Side::turns);
        circuits.chain(sides).filter(|moment| *moment > now).min()
    }

    /// Where a circuit stands; nothing of one that is not wanted.
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

    /// How many parts of a circuit may be there, whether it is wanted or not. A driver that never
    /// listed what it has counts as one, where the circuit is wanted there or not known.
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

    /// How many parts of a circuit that is not wanted any more may be there; a driver of its nodes
    /// that never listed what it has counts as one.
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

    /// The parts of a circuit that are to be there now, each with its driver: whom to ask for its
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

    /// The name under which everything is set up.
    #[must_use]
    pub const fn owner(&self) -> &Name {
        &self.owner
    }

    fn side_of(&self, part: &Part) -> Option<(&Name, &Side)> {
        let driver = self.nodes.get(&part.node)?;
        Some((driver, self.sides.get(driver)?))
    }

    /// Of each driver, the parts that are to be there now.
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

    /// Sees which circuits miss a part, and fails those that have for too long.
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
