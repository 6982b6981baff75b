//! Snapshots of the available bandwidth, which can be searched while the book changes.

use std::sync::Arc;

use super::{Adjustments, BandwidthLedger, ReservedRates, View};
use crate::network::{CircuitNetwork, LinkId, LinkShare};
use crate::time::Window;

/// A network and its reserved rates at one moment. It never changes, and creating it costs one word
/// per link. It does not name the holders.
#[derive(Debug, Clone)]
pub struct LedgerSnapshot {
    network: Arc<CircuitNetwork>,
    taken: ReservedRates,
}

impl LedgerSnapshot {
    /// Takes a snapshot of a ledger.
    #[must_use]
    pub fn new(network: Arc<CircuitNetwork>, ledger: &BandwidthLedger) -> Self {
        Self {
            network,
            taken: ledger.taken(),
        }
    }

    /// Returns the available bandwidth.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        self.view_with(&ViewAdjustments::default())
    }

    /// Returns a view of this snapshot with the adjustments of another view.
    pub(crate) fn view_with(&self, seen: &ViewAdjustments) -> View<'_> {
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
    pub fn is_unchanged(&self, other: &Self, link: LinkId, window: Window) -> bool {
        let of_link = |at: &Self| at.taken.0.get(link.index()).cloned();
        if !Arc::ptr_eq(&self.network, &other.network)
            && self.network.link(link) != other.network.link(link)
        {
            return false;
        }
        match (of_link(self), of_link(other)) {
            (Some(one), Some(other)) => {
                Arc::ptr_eq(&one, &other) || one.equals_within(&other, window)
            }
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// Returns the network.
    #[must_use]
    pub fn network(&self) -> &CircuitNetwork {
        &self.network
    }
}

/// Adjustments of a view that are not part of the book.
#[derive(Debug, Clone)]
pub(crate) struct ViewAdjustments {
    share: LinkShare,
    besides: Adjustments,
}

impl Default for ViewAdjustments {
    fn default() -> Self {
        Self {
            share: LinkShare::WHOLE,
            besides: Adjustments::new(),
        }
    }
}

impl ViewAdjustments {
    /// Extracts the adjustments of a view.
    pub(crate) fn from_view(view: &View<'_>) -> Self {
        Self {
            share: view.share,
            besides: view.besides.clone(),
        }
    }

    /// Returns true if a booked plan is left out.
    pub(crate) fn removes_plan(&self) -> bool {
        self.besides.values().flatten().any(|(_, rate)| *rate < 0)
    }
}
