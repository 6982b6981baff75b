//! What is asked, and what is promised.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::network::{LinkId, Network, NodeId};
use crate::path::{Diversity, Ends, Preference};
use crate::split::{Ask, MAX_PATHS, Route, total};
use crate::time::{MAX_RATE, Moment, Rate, Volume, Window};

/// What a reservation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// This rate through all of the window, in bit/s, over paths that stay the same.
    Rate(Rate),
    /// So much until the end of the window, at rates and over paths that may change.
    Volume {
        /// How much.
        bytes: u64,
        /// The highest rate that the ends can use, in bit/s; any, where it is left out.
        #[serde(default)]
        most: Option<Rate>,
        /// How it is spread over the window.
        pace: Pace,
    },
}

/// How a volume is spread over its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// At one rate through all of the window, over paths that stay the same, where that goes; else
    /// as [`Pace::Early`].
    Even,
    /// As much as goes, as early as it goes.
    Early,
}

/// Which nodes and links paths may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Elements {
    /// Only these nodes, and the ends, where it is said.
    pub only_nodes: Option<BTreeSet<NodeId>>,
    /// Only these links, where it is said.
    pub only_links: Option<BTreeSet<LinkId>>,
    /// None of these nodes, save the ends.
    pub no_nodes: BTreeSet<NodeId>,
    /// None of these links.
    pub no_links: BTreeSet<LinkId>,
}

impl Elements {
    /// Whether a path between two ends may use a link.
    #[must_use]
    pub fn allow(&self, network: &Network, ends: Ends, id: LinkId) -> bool {
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

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// From where to where.
    pub ends: Ends,
    /// When; of a volume: from when, and by when.
    pub window: Window,
    /// What.
    pub wish: Wish,
    /// How many paths there may be at once, from 1 to [`MAX_PATHS`].
    pub paths: usize,
    /// What they must not share, where there are several.
    #[serde(default)]
    pub diversity: Diversity,
    /// Which path is better, where one will do.
    #[serde(default)]
    pub preference: Preference,
    /// What they may use.
    #[serde(default)]
    pub elements: Elements,
}

/// What is no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestFault {
    /// An end is no node of the network.
    #[error("node {} is not on the network: name a node that is", .0.0)]
    NoNode(NodeId),
    /// Both ends are one.
    #[error("both ends are node {}: name two", .0.0)]
    OneEnd(NodeId),
    /// The window holds no moment, or is out of all range.
    #[error("the window from {} to {} is none: end it after it starts, and within 8,900 years", .0.start, .0.end)]
    Window(Window),
    /// The window starts before it is asked for.
    #[error("the window starts at {start}, and it is {now}: start it now or later")]
    Past {
        /// When it starts.
        start: Moment,
        /// The time.
        now: Moment,
    },
    /// The rate is none, or more than any link has.
    #[error("a rate of {0} bit/s can't be reserved: ask for 1 to {MAX_RATE}")]
    Rate(Rate),
    /// The volume is none, or needs more than the highest rate that is asked for.
    #[error(
        "{bytes} bytes need {needed} bit/s in that window: ask for 1 byte or more, with a window or a highest rate that allows it"
    )]
    Volume {
        /// The volume.
        bytes: u64,
        /// The rate that it needs, in bit/s.
        needed: Rate,
    },
    /// So many paths are not divided over.
    #[error("{0} paths: ask for 1 to {MAX_PATHS}")]
    Paths(usize),
}

impl Request {
    /// Whether it can be asked of a network at all.
    ///
    /// # Errors
    /// [`RequestFault`]: the first thing that is wrong.
    pub fn check(&self, network: &Network) -> Result<(), RequestFault> {
        for node in [self.ends.from, self.ends.to] {
            if node.0 >= network.nodes() {
                return Err(RequestFault::NoNode(node));
            }
        }
        if self.ends.from == self.ends.to {
            return Err(RequestFault::OneEnd(self.ends.from));
        }
        if self.window.is_empty() || !self.window.in_range() {
            return Err(RequestFault::Window(self.window));
        }
        if self.paths == 0 || self.paths > MAX_PATHS {
            return Err(RequestFault::Paths(self.paths));
        }
        match self.wish {
            Wish::Rate(rate) if rate == 0 || rate > MAX_RATE => Err(RequestFault::Rate(rate)),
            Wish::Rate(_) => Ok(()),
            Wish::Volume { bytes, most, .. } => {
                let needed = Volume::of_bytes(bytes)
                    .rate_within(self.window.length())
                    .unwrap_or(Rate::MAX);
                if bytes == 0 || needed > most.unwrap_or(MAX_RATE) {
                    return Err(RequestFault::Volume { bytes, needed });
                }
                Ok(())
            }
        }
    }

    /// What it asks of paths.
    #[must_use]
    pub const fn ask(&self) -> Ask {
        Ask {
            ends: self.ends,
            paths: self.paths,
            diversity: self.diversity,
            preference: self.preference,
        }
    }
}

/// Routes, and when.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Piece {
    /// When.
    pub window: Window,
    /// Which.
    pub routes: Vec<Route>,
}

/// What is promised: pieces in order of time, which don't overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Plan(pub Vec<Piece>);

impl Plan {
    /// The same routes through all of a window.
    #[must_use]
    pub fn constant(window: Window, routes: Vec<Route>) -> Self {
        Self(vec![Piece { window, routes }])
    }

    /// From its first moment to its last.
    #[must_use]
    pub fn window(&self) -> Window {
        match (self.0.first(), self.0.last()) {
            (Some(first), Some(last)) => Window::new(first.window.start, last.window.end),
            _ => Window::new(0, 0),
        }
    }

    /// What all of it carries.
    #[must_use]
    pub fn carried(&self) -> Volume {
        let pieces = self.0.iter();
        pieces
            .map(|piece| Volume::carried(total(&piece.routes), piece.window.length()))
            .fold(Volume::default(), Volume::plus)
    }

    /// The same until a moment, and nothing from it on.
    #[must_use]
    pub fn until(&self, moment: Moment) -> Self {
        self.within(Window::new(Moment::MIN, moment))
    }

    /// Only what is within a window.
    #[must_use]
    pub fn within(&self, window: Window) -> Self {
        let pieces = self.0.iter().map(|piece| Piece {
            window: piece.window.and(window),
            routes: piece.routes.clone(),
        });
        Self(pieces.filter(|piece| !piece.window.is_empty()).collect())
    }

    /// What it takes of each link, and when: of each link in order of time.
    #[must_use]
    pub fn claims(&self) -> BTreeMap<LinkId, Vec<(Window, Rate)>> {
        let mut claims: BTreeMap<LinkId, Vec<(Window, Rate)>> = BTreeMap::new();
        for piece in &self.0 {
            let mut rates: BTreeMap<LinkId, Rate> = BTreeMap::new();
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

    /// Adds a piece behind the last, as part of that one where nothing but the time is different.
    pub(crate) fn push(&mut self, piece: Piece) {
        match self.0.last_mut() {
            Some(last) if last.window.end == piece.window.start && last.routes == piece.routes => {
                last.window.end = piece.window.end;
            }
            _ => self.0.push(piece),
        }
    }
}
