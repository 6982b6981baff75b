//! Replacement of the network under existing reservations.

use std::sync::Arc;

use super::ReservationBook;
use crate::network::{CircuitNetwork, LinkId, NodeId};
use crate::request::ReservationPlan;
use crate::time::{MomentMs, Window};

/// Reason why a network cannot replace the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetworkMismatch {
    /// The network has fewer nodes: keep the current ones, and append others.
    #[error(
        "the new network has {found} nodes where {known} are known: keep them, and add others \
         after them"
    )]
    Nodes {
        /// Current number of nodes.
        known: u32,
        /// Number of nodes in the new network.
        found: u32,
    },
    /// A link is missing or connects other nodes: keep it without capacity, and append others.
    #[error(
        "link {} of the new network is missing or leads elsewhere: keep it, with no capacity, and \
         add others after it",
        .0.0
    )]
    Link(LinkId),
}

impl ReservationBook {
    /// Replaces the network under the existing reservations.
    ///
    /// The new network must contain all current nodes and links with the same numbers and ends;
    /// others may follow them. Capacities and reservable shares may differ. A removed link stays,
    /// with no capacity.
    ///
    /// Promises are kept even if they exceed the new capacity. Nothing more is granted on such
    /// links until enough reservations have ended; [`ReservationBook::overbooked_links`] names
    /// them.
    ///
    /// # Errors
    /// [`NetworkMismatch`]; the book is unchanged.
    pub fn replace_network(&mut self, network: CircuitNetwork) -> Result<(), NetworkMismatch> {
        let (known, found) = (self.network.nodes(), network.nodes());
        if found < known {
            return Err(NetworkMismatch::Nodes { known, found });
        }
        let ends = |network: &CircuitNetwork, id: LinkId| -> Option<(NodeId, NodeId)> {
            network.link(id).map(|link| (link.from, link.to))
        };
        if let Some(id) = self
            .network
            .ids()
            .find(|id| ends(&self.network, *id) != ends(&network, *id))
        {
            return Err(NetworkMismatch::Link(id));
        }
        self.ledger.grow(&network);
        self.network = Arc::new(network);
        Ok(())
    }

    /// Returns all links that are overbooked from a moment on, in order of their numbers.
    #[must_use]
    pub fn all_overbooked_links(&self, from: MomentMs) -> Vec<LinkId> {
        let view = self.view();
        let window = Window::new(from, MomentMs::MAX);
        let links = self.network.ids();
        links
            .filter(|link| view.peak(*link, window).rate > view.ceiling(*link))
            .collect()
    }

    /// Returns the links of a plan that are overbooked from a moment on, in order of their numbers.
    #[must_use]
    pub fn overbooked_links(&self, plan: &ReservationPlan, from: MomentMs) -> Vec<LinkId> {
        let view = self.view();
        let left = plan.clipped_to(Window::new(from, MomentMs::MAX));
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
