//! What is left of a network at one moment of the book's life, to look at beside whoever goes on
//! writing.

use std::sync::Arc;

use super::{Besides, Ledger, Taken, View};
use crate::network::{LinkId, Network, Share};
use crate::time::Window;

/// A network and what was taken of it: it never changes, and making one costs a word for each link.
/// It does not say by whom.
#[derive(Debug, Clone)]
pub struct Snapshot {
    network: Arc<Network>,
    taken: Taken,
}

impl Snapshot {
    /// Of what is taken now.
    #[must_use]
    pub fn new(network: Arc<Network>, ledger: &Ledger) -> Self {
        Self {
            network,
            taken: ledger.taken(),
        }
    }

    /// What is left.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        self.seen_by(&Seen::default())
    }

    /// What was left to somebody of another book, of this one.
    pub(crate) fn seen_by(&self, seen: &Seen) -> View<'_> {
        View {
            network: &self.network,
            taken: &self.taken,
            share: seen.share,
            besides: seen.besides.clone(),
        }
    }

    /// Whether as much is taken of a link as in another one, at each moment of a window, and the
    /// link is the same.
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

    /// The network.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }
}

/// What a view has that is not of the book.
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
    /// Of a view.
    pub(crate) fn of(view: &View<'_>) -> Self {
        Self {
            share: view.share,
            besides: view.besides.clone(),
        }
    }

    /// Whether something that is booked is left out of it.
    pub(crate) fn leaves_out(&self) -> bool {
        self.besides.values().flatten().any(|(_, rate)| *rate < 0)
    }
}
