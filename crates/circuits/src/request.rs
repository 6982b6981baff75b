//! Requests, and the plans that are promised.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::network::{CircuitNetwork, LinkId, NodeId};
use crate::path::{Disjoint, ExplicitPath, MAX_VIA, PathBounds, PathEnds, Preference};
use crate::split::{MAX_PATHS, PathConstraints, RatedPath, total_rate};
use crate::time::{BitsPerSecond, MAX_RATE, MomentMs, Volume, Window};

pub use longhaul_reservation_terms::Pace;

/// Subject of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Demand {
    /// A rate throughout the window, in bit/s, over fixed paths.
    Rate(BitsPerSecond),
    /// A volume by the end of the window, at rates and over paths that may change.
    Volume {
        /// Volume in bytes.
        bytes: u64,
        /// Maximum rate that the ends can use, in bit/s. `None` means any.
        #[serde(default)]
        most: Option<BitsPerSecond>,
        /// Distribution over the window.
        pace: Pace,
    },
}

/// Form of [`Disjoint`] in a journal.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Disjoint", rename_all = "snake_case")]
enum JournalDisjoint {
    #[serde(rename = "any")]
    No,
    Links,
    #[serde(rename = "nodes")]
    Sites,
}

/// Form of [`Preference`] in a journal.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Preference", rename_all = "snake_case")]
enum JournalPreference {
    FewestHops,
    LeastLatency,
    MostRoom,
}

/// Nodes and links that paths may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PathElements {
    /// Only these nodes and the ends. `None` means all.
    pub only_nodes: Option<BTreeSet<NodeId>>,
    /// Only these links. `None` means all.
    pub only_links: Option<BTreeSet<LinkId>>,
    /// Excluded nodes; the ends are never excluded.
    pub no_nodes: BTreeSet<NodeId>,
    /// Excluded links.
    pub no_links: BTreeSet<LinkId>,
}

impl PathElements {
    /// Returns true if a path between two ends may use a link.
    #[must_use]
    pub fn allows_link(&self, network: &CircuitNetwork, ends: PathEnds, id: LinkId) -> bool {
        let Some(link) = network.link(id) else {
            return false;
        };
        let node = |node: NodeId| {
            node == ends.from
                || node == ends.to
                || (self
                    .only_nodes
                    .as_ref()
                    .is_none_or(|only| only.contains(&node))
                    && !self.no_nodes.contains(&node))
        };
        self.only_links
            .as_ref()
            .is_none_or(|only| only.contains(&id))
            && !self.no_links.contains(&id)
            && node(link.from)
            && node(link.to)
    }
}

/// Request for a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CircuitRequest {
    /// Source and destination.
    pub ends: PathEnds,
    /// Time of a rate; earliest start and deadline of a volume.
    pub window: Window,
    /// Rate or volume.
    pub wish: Demand,
    /// Maximum number of paths at once, from 1 to [`MAX_PATHS`].
    pub paths: usize,
    /// Resources that several paths must not share.
    #[serde(default, with = "JournalDisjoint")]
    pub diversity: Disjoint,
    /// Criterion for the path, if one suffices.
    #[serde(default, with = "JournalPreference")]
    pub preference: Preference,
    /// Nodes and links that the paths may use.
    #[serde(default)]
    pub elements: PathElements,
    /// Constraints on each path.
    #[serde(default, skip_serializing_if = "PathBounds::is_empty")]
    pub bounds: PathBounds,
}

/// Fault of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestFault {
    /// An end is not a node of the network: name one that is.
    #[error("node {} is not on the network: name a node that is", .0.0)]
    NoNode(NodeId),
    /// Both ends are the same node: name two.
    #[error("both ends are node {}: name two different ones", .0.0)]
    OneEnd(NodeId),
    /// The window is empty or out of range: end it after its start, and within 8,900 years.
    #[error(
        "the window from {} to {} is empty or too long: end it after it starts, and within 8,900 \
         years",
        .0.start, .0.end
    )]
    Window(Window),
    /// The window starts in the past: start it now or later.
    #[error("the window starts at {start}, and the time is {now}: start it now or later")]
    Past {
        /// Start of the window.
        start: MomentMs,
        /// Current time.
        now: MomentMs,
    },
    /// The rate is 0, or higher than any link's: request 1 to [`MAX_RATE`].
    #[error("a rate of {0} bit/s cannot be reserved: ask for 1 to {MAX_RATE}")]
    Rate(BitsPerSecond),
    /// The volume is 0, or needs more than the maximum rate: request at least 1 byte, in a longer
    /// window or at a higher maximum rate.
    #[error(
        "{bytes} bytes need {needed} bit/s in that window: ask for 1 byte or more, with a window \
        or a highest rate that allows it"
    )]
    Volume {
        /// Volume in bytes.
        bytes: u64,
        /// Rate that it needs, in bit/s.
        needed: BitsPerSecond,
    },
    /// The number of paths is not supported: request 1 to [`MAX_PATHS`].
    #[error("{0} paths: ask for 1 to {MAX_PATHS}")]
    Paths(usize),
    /// A node to pass is an end, is named twice, or is not on the network: name each node once.
    #[error("node {} cannot be passed on the way: name each node once, and no end", .0.0)]
    Via(NodeId),
    /// There are too many nodes to pass: name at most [`MAX_VIA`].
    #[error("{0} nodes to pass: name at most {MAX_VIA}")]
    ViaCount(usize),
    /// Paths can have no links at all: allow at least one hop.
    #[error("a path has at least one hop: allow 1 or more")]
    Hops,
    /// An explicit path does not lead from end to end over existing links without a loop, or is
    /// named twice.
    #[error(
        "path {0} does not lead from end to end over links of the network, passes a node twice, or \
         is named twice: name its nodes in order"
    )]
    Explicit(usize),
    /// The rates of explicit paths do not add up to the requested rate, or a volume is requested.
    #[error("the paths carry {0} bit/s together: ask for exactly that rate")]
    ExplicitRate(BitsPerSecond),
    /// Explicit paths are combined with constraints on paths: request one of both.
    #[error("the paths are named: leave out all other constraints on them")]
    ExplicitAndBounds,
}

impl CircuitRequest {
    /// Checks that the request is well-formed for a network.
    ///
    /// # Errors
    /// [`RequestFault`] names the first fault.
    pub fn check(&self, network: &CircuitNetwork) -> Result<(), RequestFault> {
        for node in [self.ends.from, self.ends.to] {
            if node.0 >= network.nodes() {
                return Err(RequestFault::NoNode(node));
            }
        }
        if self.ends.from == self.ends.to {
            return Err(RequestFault::OneEnd(self.ends.from));
        }
        if self.window.is_empty() || !self.window.is_in_range() {
            return Err(RequestFault::Window(self.window));
        }
        if self.paths == 0 || self.paths > MAX_PATHS {
            return Err(RequestFault::Paths(self.paths));
        }
        self.check_bounds(network)?;
        match self.wish {
            Demand::Rate(rate) if rate == 0 || rate > MAX_RATE => Err(RequestFault::Rate(rate)),
            Demand::Rate(_) => Ok(()),
            Demand::Volume { bytes, most, .. } => {
                let needed = Volume::from_bytes(bytes)
                    .min_rate_within(self.window.length())
                    .unwrap_or(BitsPerSecond::MAX);
                if bytes == 0 || needed > most.unwrap_or(MAX_RATE) {
                    return Err(RequestFault::Volume { bytes, needed });
                }
                Ok(())
            }
        }
    }

    fn check_bounds(&self, network: &CircuitNetwork) -> Result<(), RequestFault> {
        let PathBounds {
            via,
            max_hops,
            max_latency,
            explicit,
        } = &self.bounds;
        if via.len() > MAX_VIA {
            return Err(RequestFault::ViaCount(via.len()));
        }
        for (place, node) in via.iter().enumerate() {
            let is_end = *node == self.ends.from || *node == self.ends.to;
            let before = via.get(..place).unwrap_or_default();
            if is_end || node.0 >= network.nodes() || before.contains(node) {
                return Err(RequestFault::Via(*node));
            }
        }
        if *max_hops == Some(0) {
            return Err(RequestFault::Hops);
        }
        if explicit.is_empty() {
            return Ok(());
        }
        let is_bounded = !via.is_empty() || max_hops.is_some() || max_latency.is_some();
        if is_bounded || self.elements != PathElements::default() || self.is_disjoint() {
            return Err(RequestFault::ExplicitAndBounds);
        }
        self.check_explicit(network, explicit)
    }

    fn is_disjoint(&self) -> bool {
        self.diversity != Disjoint::No
    }

    fn check_explicit(
        &self,
        network: &CircuitNetwork,
        explicit: &[ExplicitPath],
    ) -> Result<(), RequestFault> {
        if explicit.len() > self.paths {
            return Err(RequestFault::Paths(explicit.len()));
        }
        let joins = |from: NodeId, to: NodeId| network.links_from(from).any(|(_, l)| l.to == to);
        for (place, path) in explicit.iter().enumerate() {
            let nodes = &path.nodes;
            let mut passed = BTreeSet::new();
            let is_path = nodes.first() == Some(&self.ends.from)
                && nodes.last() == Some(&self.ends.to)
                && nodes.iter().all(|node| passed.insert(*node))
                && nodes
                    .iter()
                    .zip(nodes.iter().skip(1))
                    .all(|(from, to)| joins(*from, *to));
            let before = explicit.get(..place).unwrap_or_default();
            if !is_path || before.iter().any(|other| other.nodes == *nodes) {
                return Err(RequestFault::Explicit(place + 1));
            }
            if path.rate == 0 || path.rate > MAX_RATE {
                return Err(RequestFault::Rate(path.rate));
            }
        }
        let rates = explicit.iter().map(|path| path.rate);
        let together = rates.fold(0, BitsPerSecond::saturating_add);
        match self.wish {
            Demand::Rate(rate) if rate == together => Ok(()),
            _ => Err(RequestFault::ExplicitRate(together)),
        }
    }

    /// Returns the constraints on the paths.
    #[must_use]
    pub fn path_constraints(&self) -> PathConstraints {
        PathConstraints {
            ends: self.ends,
            paths: self.paths,
            diversity: self.diversity,
            preference: self.preference,
            bounds: self.bounds.clone(),
        }
    }
}

/// Routes within one window.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PlanPiece {
    /// Time of the piece.
    pub window: Window,
    /// Routes with their rates.
    pub routes: Vec<RatedPath>,
}

/// A promise: pieces in order of time, without overlaps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReservationPlan(pub Vec<PlanPiece>);

impl ReservationPlan {
    /// Creates a plan with the same routes throughout a window.
    #[must_use]
    pub fn constant(window: Window, routes: Vec<RatedPath>) -> Self {
        Self(vec![PlanPiece { window, routes }])
    }

    /// Returns the window from the plan's first moment to its last.
    #[must_use]
    pub fn window(&self) -> Window {
        match (self.0.first(), self.0.last()) {
            (Some(first), Some(last)) => Window::new(first.window.start, last.window.end),
            _ => Window::new(0, 0),
        }
    }

    /// Returns the volume that the plan carries.
    #[must_use]
    pub fn carried(&self) -> Volume {
        let pieces = self.0.iter();
        pieces
            .map(|piece| Volume::carried(total_rate(&piece.routes), piece.window.length()))
            .fold(Volume::default(), Volume::plus)
    }

    /// Returns the part of the plan before a moment.
    #[must_use]
    pub fn before(&self, moment: MomentMs) -> Self {
        self.clipped_to(Window::new(MomentMs::MIN, moment))
    }

    /// Returns the part of the plan within a window.
    #[must_use]
    pub fn clipped_to(&self, window: Window) -> Self {
        let pieces = self.0.iter().map(|piece| PlanPiece {
            window: piece.window.intersection(window),
            routes: piece.routes.clone(),
        });
        Self(pieces.filter(|piece| !piece.window.is_empty()).collect())
    }

    /// Returns the rates that the plan takes of each link, in order of time.
    #[must_use]
    pub fn claims(&self) -> BTreeMap<LinkId, Vec<(Window, BitsPerSecond)>> {
        let mut claims: BTreeMap<LinkId, Vec<(Window, BitsPerSecond)>> = BTreeMap::new();
        for piece in &self.0 {
            let mut rates: BTreeMap<LinkId, BitsPerSecond> = BTreeMap::new();
            for route in &piece.routes {
                for link in &route.path.0 {
                    let rate = rates.entry(*link).or_default();
                    *rate = rate.saturating_add(route.rate);
                }
            }
            for (link, rate) in rates {
                let of_link = claims.entry(link).or_default();
                match of_link.last_mut() {
                    Some((before, same)) if before.end == piece.window.start && *same == rate => {
                        before.end = piece.window.end;
                    }
                    _ => of_link.push((piece.window, rate)),
                }
            }
        }
        claims
    }

    /// Appends a piece. It extends the last one if that ends where the piece begins and has the
    /// same routes.
    pub(crate) fn push(&mut self, piece: PlanPiece) {
        match self.0.last_mut() {
            Some(last) if last.window.end == piece.window.start && last.routes == piece.routes => {
                last.window.end = piece.window.end;
            }
            _ => self.0.push(piece),
        }
    }
}
