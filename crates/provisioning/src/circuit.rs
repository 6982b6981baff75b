//! Circuits, and the part of each at every node that its streams leave.

mod names;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use longhaul_circuits::time::{BitsPerSecond, MAX_RATE, MomentMs, Window};
use serde::{Deserialize, Serialize};

use crate::streams::{SelectorFault, StreamSelector};

pub use names::{EntityName, InvalidName, MAX_NAME_BYTES, PartId};

/// Maximum number of parts of one circuit at a time: routes times hops.
pub const MAX_PARTS: usize = 1_000;

/// Point at which a route leaves a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CircuitHop {
    /// The node.
    pub node: EntityName,
    /// Link by which the route leaves.
    pub link: EntityName,
}

/// A path with its rate and the packets that take it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CircuitRoute {
    /// Hops from the first node to the last but one.
    pub hops: Vec<CircuitHop>,
    /// Rate in bit/s.
    pub rate: BitsPerSecond,
    /// Streams that take the route.
    pub streams: StreamSelector,
}

/// Routes within one window.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CircuitPiece {
    /// Time of the piece.
    pub window: Window,
    /// Routes of the piece.
    pub routes: Vec<CircuitRoute>,
}

/// A reservation as it is to be set up.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CircuitSpec {
    /// Id of the reservation, unique among those of its owner.
    pub id: EntityName,
    /// Pieces in order of time, without overlaps.
    pub pieces: Vec<CircuitPiece>,
}

/// Share of a circuit that one driver sets up: at one node, for the streams that leave it by one
/// link.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CircuitPart {
    /// Owner on whose behalf it is set up.
    pub owner: EntityName,
    /// Id of the part, unique among those of its owner. It depends only on circuit, node, link and
    /// streams.
    pub id: PartId,
    /// Circuit that it belongs to.
    pub circuit: EntityName,
    /// The node.
    pub node: EntityName,
    /// Link by which the streams leave the node.
    pub link: EntityName,
    /// Rate in bit/s.
    pub rate: BitsPerSecond,
    /// Window of the promise. The driver may ignore it: it is told to tear down what is over.
    pub window: Window,
    /// Streams that the part carries.
    pub streams: StreamSelector,
}

/// Fault of a circuit or part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CircuitFault {
    /// A window is empty or out of range, or begins before the previous one ends: put the pieces in
    /// order of time.
    #[error(
        "the window from {} to {} is empty, or overlaps the previous one: put the windows in order \
         of time",
        .0.start, .0.end
    )]
    Window(Window),
    /// The rate is 0, or higher than any link's: use 1 to [`MAX_RATE`].
    #[error("a rate of {0} bit/s cannot be set up: use 1 to {MAX_RATE}")]
    Rate(BitsPerSecond),
    /// The streams cannot be matched.
    #[error(transparent)]
    Streams(#[from] SelectorFault),
    /// The same packets would leave a node by two links: separate the routes' streams by source
    /// port.
    #[error(
        "streams {streams} leave {node} by two links, {one} and {other}: tell the routes' streams \
        apart by source port"
    )]
    TwoLinks {
        /// The streams.
        streams: Box<StreamSelector>,
        /// The node.
        node: EntityName,
        /// The first link.
        one: EntityName,
        /// The second link.
        other: EntityName,
    },
    /// The circuit has more parts than [`MAX_PARTS`] at one time.
    #[error("{0} parts at one time: at most {MAX_PARTS} are set up for one circuit")]
    TooMany(usize),
}

impl CircuitPart {
    /// Checks that the part can be set up at all.
    ///
    /// # Errors
    /// [`CircuitFault`] names the first fault.
    pub fn check(&self) -> Result<(), CircuitFault> {
        if self.window.is_empty() || !self.window.is_in_range() {
            return Err(CircuitFault::Window(self.window));
        }
        if self.rate == 0 || self.rate > MAX_RATE {
            return Err(CircuitFault::Rate(self.rate));
        }
        Ok(self.streams.check()?)
    }
}

impl CircuitSpec {
    /// Checks that the circuit can be set up at all.
    ///
    /// # Errors
    /// [`CircuitFault`] names the first fault.
    pub fn check(&self) -> Result<(), CircuitFault> {
        let mut free_from = MomentMs::MIN;
        for piece in &self.pieces {
            let window = piece.window;
            if window.is_empty() || !window.is_in_range() || window.start < free_from {
                return Err(CircuitFault::Window(window));
            }
            free_from = window.end;
            check_routes(&piece.routes)?;
        }
        Ok(())
    }

    /// Returns the window from the circuit's first moment to its last.
    #[must_use]
    pub fn window(&self) -> Window {
        match (self.pieces.first(), self.pieces.last()) {
            (Some(first), Some(last)) => Window::new(first.window.start, last.window.end),
            _ => Window::new(0, 0),
        }
    }

    /// Returns the time during which each piece has to be set up: from `lead` milliseconds before
    /// its start to its end, but never before the previous piece ends.
    pub fn provisioning_windows(&self, lead: u64) -> impl Iterator<Item = (Window, &CircuitPiece)> {
        self.pieces
            .iter()
            .scan(MomentMs::MIN, move |free_from, piece| {
                let early = piece.window.start.saturating_sub_unsigned(lead);
                let held = Window::new(early.max(*free_from), piece.window.end);
                *free_from = piece.window.end;
                Some((held, piece))
            })
    }

    /// Returns the parts that have to be set up at a moment. Routes of one piece that carry the
    /// same streams over the same link are one part, with the sum of their rates.
    #[must_use]
    pub fn parts_at(
        &self,
        owner: &EntityName,
        now: MomentMs,
        lead: u64,
    ) -> BTreeMap<PartId, CircuitPart> {
        let mut parts: BTreeMap<PartId, CircuitPart> = BTreeMap::new();
        let Some((_, piece)) = self
            .provisioning_windows(lead)
            .find(|(held, _)| held.contains(now))
        else {
            return parts;
        };
        for route in &piece.routes {
            for hop in &route.hops {
                let id = PartId::for_streams(&self.id, &hop.node, &hop.link, &route.streams);
                match parts.entry(id) {
                    Entry::Occupied(mut there) => {
                        let part = there.get_mut();
                        part.rate = part.rate.saturating_add(route.rate);
                    }
                    Entry::Vacant(place) => {
                        let part = CircuitPart {
                            owner: owner.clone(),
                            id: place.key().clone(),
                            circuit: self.id.clone(),
                            node: hop.node.clone(),
                            link: hop.link.clone(),
                            rate: route.rate,
                            window: piece.window,
                            streams: route.streams,
                        };
                        place.insert(part);
                    }
                }
            }
        }
        parts
    }
}

fn check_routes(routes: &[CircuitRoute]) -> Result<(), CircuitFault> {
    let parts = routes.iter().map(|route| route.hops.len()).sum();
    if parts > MAX_PARTS {
        return Err(CircuitFault::TooMany(parts));
    }
    let mut leave: BTreeMap<(&EntityName, &StreamSelector), &EntityName> = BTreeMap::new();
    for route in routes {
        if route.rate == 0 || route.rate > MAX_RATE {
            return Err(CircuitFault::Rate(route.rate));
        }
        route.streams.check()?;
        for hop in &route.hops {
            let one = leave.insert((&hop.node, &route.streams), &hop.link);
            if let Some(one) = one.filter(|one| **one != hop.link) {
                return Err(CircuitFault::TwoLinks {
                    streams: Box::new(route.streams),
                    node: hop.node.clone(),
                    one: one.clone(),
                    other: hop.link.clone(),
                });
            }
        }
    }
    Ok(())
}
