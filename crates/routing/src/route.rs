//! Expected time of each route for a transfer, from the forecasts of all hops, and the choice among
//! routes.
//!
//! | module | contents |
//! |---|---|
//! | [`map`] | nodes and directed hops in memory, updated one hop at a time |
//! | [`model`] | duration of a TCP transfer over one hop, without connection setup |
//! | [`combine`] | quantiles of a sum and of a maximum |
//! | [`expected`] | time of a transfer over a whole route, and its dominant limit |
//! | [`candidates`] | routes of at most three depots that could be faster than direct |
//! | `rating` | expected time of each route, and the order among them |
//! | [`choice`] | choice of routes, of several at once, and of fallbacks |
//! | [`explore`] | exploration of other routes, and its cost |
//! | [`explain`] | explanation of a choice in five lines |
//! | [`minimax`] | trees of the Logistical Session Layer, as a baseline |
//! | [`trust`] | scope of each party's reports |
//! | [`table`] | choices for all classes of sizes, as a client keeps them |
//! | [`guard`] | detection of a running copy that should switch to the direct route |
//!
//! Times are seconds, rates are bit/s of payload, and sizes are bytes. `now` and the times of all
//! measurements count from one origin that the caller chooses. `docs/routing.md` describes all of
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
mod rating;
pub mod table;
pub mod trust;

#[cfg(test)]
mod testing;

use serde::{Deserialize, Serialize};

/// Maximum number of depots in a route.
pub const MAX_DEPOTS: usize = 3;

/// Number of a node of a map: an end, a depot, or both. The caller keeps its name and address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl NodeId {
    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Depots of a route, in order. The direct route has none.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(try_from = "Vec<NodeId>", into = "Vec<NodeId>")]
pub struct RouteDepots {
    count: u8,
    /// Elements from `count` on are zero, so that equal routes compare equal.
    depots: [u32; MAX_DEPOTS],
}

impl RouteDepots {
    /// The direct route.
    pub const DIRECT: Self = Self {
        count: 0,
        depots: [0; MAX_DEPOTS],
    };

    /// Creates a route over these depots. Returns `None` if there are more than [`MAX_DEPOTS`], or
    /// one repeats.
    #[must_use]
    pub fn new(depots: &[NodeId]) -> Option<Self> {
        depots
            .iter()
            .try_fold(Self::DIRECT, |via, depot| via.with_depot(*depot))
    }

    /// Returns this route with one more depot at its end. Returns `None` if there are three
    /// already, or it repeats.
    #[must_use]
    pub fn with_depot(mut self, depot: NodeId) -> Option<Self> {
        if self.passes(depot) {
            return None;
        }
        *self.depots.get_mut(usize::from(self.count))? = depot.0;
        self.count += 1;
        Some(self)
    }

    /// Returns the depots in order.
    pub fn depots(&self) -> impl DoubleEndedIterator<Item = NodeId> + '_ {
        self.depots
            .iter()
            .take(usize::from(self.count))
            .map(|id| NodeId(*id))
    }

    /// Returns the number of depots.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns true if there is no depot.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns true if there is no depot.
    #[must_use]
    pub const fn is_direct(&self) -> bool {
        self.is_empty()
    }

    /// Returns true if the route passes a depot.
    #[must_use]
    pub fn passes(&self, depot: NodeId) -> bool {
        self.depots().any(|passed| passed == depot)
    }

    /// Returns the same depots in reverse order.
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

    /// Returns the hops between two ends, as pairs of nodes.
    pub fn hops(&self, from: NodeId, to: NodeId) -> impl Iterator<Item = (NodeId, NodeId)> + '_ {
        let starts = std::iter::once(from).chain(self.depots());
        starts.zip(self.depots().chain(std::iter::once(to)))
    }
}

/// Depots that do not form a route: more than three, or one twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a route has at most {MAX_DEPOTS} depots, each of them once")]
pub struct InvalidRoute;

impl TryFrom<Vec<NodeId>> for RouteDepots {
    type Error = InvalidRoute;

    fn try_from(depots: Vec<NodeId>) -> Result<Self, InvalidRoute> {
        Self::new(&depots).ok_or(InvalidRoute)
    }
}

impl From<RouteDepots> for Vec<NodeId> {
    fn from(via: RouteDepots) -> Self {
        via.depots().collect()
    }
}

/// A transfer to route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Size in bytes.
    pub bytes: u64,
    /// Streams that share the work, each over its own chain of connections. 0 counts as 1.
    pub streams: u16,
}
