//! A network that has changed beneath what is booked.

use std::sync::Arc;

use super::Book;
use crate::network::{LinkId, Network, NodeId};
use crate::request::Plan;
use crate::time::{Moment, Window};

/// A network that can't take the place of the one that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unlike {
    /// It has fewer nodes.
    #[error(
        "the new network has {found} nodes where {known} are known: keep them, and add others behind them"
    )]
    Nodes {
        /// How many are known.
        known: u32,
        /// How many it has.
        found: u32,
    },
    /// A link is missing, or leads elsewhere.
    #[error("link {} of the new network is missing or leads elsewhere: keep it, with no capacity, and add others behind it", .0.0)]
    Link(LinkId),
}

impl Book {
    /// Puts another network beneath what is booked: with all nodes and links of the one that is
    /// there, by the same numbers and between the same nodes, and any others behind them. What
    /// links carry, and what of that may be reserved, may be different; a link that is gone carries
    /// nothing.
    ///
    /// What is promised stays promised, also where it is more than there is now: nothing more is
    /// granted there before enough of it is over, and [`Book::above`] names the links.
    ///
    /// # Errors
    /// [`Unlike`], with the book as it was.
    pub fn renew(&mut self, network: Network) -> Result<(), Unlike> {
        let (known, found) = (self.network.nodes(), network.nodes());
        if found < known {
            return Err(Unlike::Nodes { known, found });
        }
        let ends = |network: &Network, id: LinkId| -> Option<(NodeId, NodeId)> {
            network.link(id).map(|link| (link.from, link.to))
        };
        if let Some(id) = self
            .network
            .ids()
            .find(|id| ends(&self.network, *id) != ends(&network, *id))
        {
            return Err(Unlike::Link(id));
        }
        self.ledger.grow(&network);
        self.network = Arc::new(network);
        Ok(())
    }

    /// The links of a plan, from a moment on, of which more is promised than may be reserved, by
    /// number.
    #[must_use]
    pub fn above(&self, plan: &Plan, from: Moment) -> Vec<LinkId> {
        let view = self.view();
        let left = plan.within(Window::new(from, Moment::MAX));
        let above = |windows: &[(Window, u64)], link: LinkId| {
            let mut windows = windows.iter();
            windows.any(|(window, _)| view.peak(link, *window).rate > view.ceiling(link))
        };
        left.claims()
            .into_iter()
            .filter(|(link, windows)| above(windows, *link))
            .map(|(link, _)| link)
            .collect()
    }
}
