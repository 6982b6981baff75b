//! Forecasts of all hops in; the expected time of each route for a transfer, and the choice among
//! them, out.
//!
//! | room | what it does |
//! |---|---|
//! | [`map`] | nodes and directed hops in memory, updated one hop at a time |
//! | [`model`] | how long TCP takes over one hop, set-up left out |
//! | [`combine`] | the quantiles of a sum and of a maximum |
//! | [`expected`] | the time of a transfer over a whole route, and what limits it |
//! | [`candidates`] | the routes of at most three depots that could be quicker than direct |
//! | [`choice`] | which of them, how many at once, and in which order to fall back |
//! | [`explore`] | which other route is tried, and what that may cost |
//! | [`explain`] | a choice in five lines |
//! | [`minimax`] | the trees of the Logistical Session Layer, as a baseline |
//! | [`trust`] | whose reports count for what |
//! | [`table`] | what is chosen for sizes of all kinds: what a client keeps |
//! | [`guard`] | when a copy under way leaves a route for the direct one |
//!
//! Times are seconds, rates bits a second of payload, sizes bytes. `now` and every time of a
//! measurement count from one origin that the caller chooses. `docs/routing.md` describes all of
//! it.

pub mod candidates;
pub mod choice;
pub mod combine;
pub mod expected;
pub mod explain;
pub mod explore;
pub mod guard;
pub mod map;
pub mod minimax;
pub mod model;
pub mod table;
pub mod trust;

#[cfg(test)]
mod testing;

use serde::{Deserialize, Serialize};

/// Most depots of a route.
pub const MAX_DEPOTS: usize = 3;

/// A place of a map: an end, a depot, or both. Whoever keeps the map knows its name and address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl NodeId {
    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The depots of a route, in order; none is the direct one.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(try_from = "Vec<NodeId>", into = "Vec<NodeId>")]
pub struct Via {
    count: u8,
    /// Those behind `count` are zero, so that equal routes compare equal.
    depots: [u32; MAX_DEPOTS],
}

impl Via {
    /// No depot.
    pub const DIRECT: Self = Self {
        count: 0,
        depots: [0; MAX_DEPOTS],
    };

    /// These depots; `None` beyond [`MAX_DEPOTS`] or where one repeats.
    #[must_use]
    pub fn new(depots: &[NodeId]) -> Option<Self> {
        depots
            .iter()
            .try_fold(Self::DIRECT, |via, depot| via.and_then(*depot))
    }

    /// This route with one more depot behind its last one; `None` where there are three already, or
    /// it repeats.
    #[must_use]
    pub fn and_then(mut self, depot: NodeId) -> Option<Self> {
        if self.passes(depot) {
            return None;
        }
        *self.depots.get_mut(usize::from(self.count))? = depot.0;
        self.count += 1;
        Some(self)
    }

    /// The depots, in order.
    pub fn depots(&self) -> impl DoubleEndedIterator<Item = NodeId> + '_ {
        self.depots
            .iter()
            .take(usize::from(self.count))
            .map(|id| NodeId(*id))
    }

    /// How many depots.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_direct(&self) -> bool {
        self.is_empty()
    }

    /// Whether it passes a depot.
    #[must_use]
    pub fn passes(&self, depot: NodeId) -> bool {
        self.depots().any(|passed| passed == depot)
    }

    /// The same depots in the other order.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let mut reversed = Self {
            count: self.count,
            ..Self::DIRECT
        };
        for (place, depot) in reversed.depots.iter_mut().zip(self.depots().rev()) {
            *place = depot.0;
        }
        reversed
    }

    /// The hops between two ends, as pairs of nodes.
    pub fn hops(&self, from: NodeId, to: NodeId) -> impl Iterator<Item = (NodeId, NodeId)> + '_ {
        let starts = std::iter::once(from).chain(self.depots());
        starts.zip(self.depots().chain(std::iter::once(to)))
    }
}

/// Depots that make no route: more than three, or one twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a route has at most {MAX_DEPOTS} depots, each of them once")]
pub struct NoRoute;

impl TryFrom<Vec<NodeId>> for Via {
    type Error = NoRoute;

    fn try_from(depots: Vec<NodeId>) -> Result<Self, NoRoute> {
        Self::new(&depots).ok_or(NoRoute)
    }
}

impl From<Via> for Vec<NodeId> {
    fn from(via: Via) -> Self {
        via.depots().collect()
    }
}

/// What is to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Its size.
    pub bytes: u64,
    /// Streams that share the work, each a chain of connections of its own; none counts as one.
    pub streams: u16,
}
