//! Snapshots of the available bandwidth, which can be searched while the book changes.

use std::sync::Arc;

use super::{Besides, Ledger, Taken, View};
use crate::network::{LinkId, Network, Share};
use crate::time::Window;

/// A network and its reserved rates at one moment. It never changes, and creating it costs one word
/// per link. It does not name the holders.
#[derive(Debug, Clone)]
pub struct Snapshot {
    network: Arc<Network>,
    taken: Taken,
}

impl Snapshot {
    /// Takes a snapshot of a ledger.
    #[must_use]
    pub fn new(network: Arc<Network>, ledger: &Ledger) -> Self {
        Self {
            network,
            taken: ledger.taken(),
        }
    }

    /// Returns the available bandwidth.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        self.seen_by(&Seen::default())
    }

    /// Returns a view of this snapshot with the adjustments of another view.
    pub(crate) fn seen_by(&self, seen: &Seen) -> View<'_> {
        View {
            network: &self.network,
            taken: &self.taken,
            share: seen.share,
            besides: seen.besides.clone(),
        }
    }

    /// Returns true if a link is unchanged in another snapshot, and as much of it is reserved at
    /// each moment of a window.
    #[must_use]
    pub fn is_alike(&self, other: &Self, link: LinkId, window: Window) -> bool {
        let of_link = |at: &Self| at.taken.0.get(link.index()).cloned();
        if !Arc::ptr_eq(&self.network, &other.network)
            && self.network.link(link) != other.network.link(link)
        {
            return false;
        }
        match (of_link(self), of_link(other)) {
            (Some(one), Some(other)) => Arc::ptr_eq(&one, &other) || one.is_alike(&other, window),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// Returns the network.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }
}

/// Adjustments of a view that are not part of the book.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    share: Share,
    besides: Besides,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            share: Share::WHOLE,
            besides: Besides::new(),
        }
    }
}

impl Seen {
    /// Extracts the adjustments of a view.
    pub(crate) fn of(view: &View<'_>) -> Self {
        Self {
            share: view.share,
            besides: view.besides.clone(),
        }
    }

    /// Returns true if a booked plan is left out.
    pub(crate) fn leaves_out(&self) -> bool {
        self.besides.values().flatten().any(|(_, rate)| *rate < 0)
    }
}
