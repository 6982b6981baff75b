//! Small networks for tests.

#![allow(clippy::unwrap_used, missing_docs, reason = "for tests only")]

use std::sync::Arc;

use proptest::prelude::*;

use crate::admit::{CounterOffers, Shortfall};
use crate::book::{BookChange, BookFault, DecisionTerms, JournalEntry, ReservationBook};
use crate::ledger::{BandwidthLedger, LedgerSnapshot};
use crate::network::{CircuitLink, CircuitNetwork, LinkId, LinkShare, NodeId};
use crate::path::{Disjoint, LinkPath, PathBounds, PathEnds, Preference};
use crate::policy::RequestLimits;
use crate::request::{CircuitRequest, Demand, PathElements};
use crate::time::{BitsPerSecond, MomentMs, Window};

/// Returns a network of links in both directions with these capacities, all of them reservable.
pub fn network(nodes: u32, links: &[(u32, u32, BitsPerSecond)]) -> CircuitNetwork {
    let both = (0..).zip(links).flat_map(|(cable, (from, to, capacity))| {
        [(*from, *to), (*to, *from)].map(|(from, to)| CircuitLink {
            from: NodeId(from),
            to: NodeId(to),
            capacity: *capacity,
            share: LinkShare::WHOLE,
            latency: 1 + u64::from(cable) % 5,
            cable,
        })
    });
    CircuitNetwork::new(nodes, both.collect()).unwrap()
}

/// Generates networks of up to seven nodes with small capacities.
pub fn small_networks() -> impl Strategy<Value = CircuitNetwork> {
    (3..7_u32).prop_flat_map(|nodes| {
        let link =
            (0..nodes, 0..nodes, 0..10_u64).prop_filter("a loop", |(from, to, _)| from != to);
        prop::collection::vec(link, 2..11).prop_map(move |links| network(nodes, &links))
    })
}

/// Returns a request from the first node to the last, without further constraints.
pub fn request(
    network: &CircuitNetwork,
    window: Window,
    wish: Demand,
    paths: usize,
) -> CircuitRequest {
    CircuitRequest {
        ends: PathEnds {
            from: NodeId(0),
            to: NodeId(network.nodes() - 1),
        },
        window,
        wish,
        paths,
        diversity: Disjoint::No,
        preference: Preference::FewestHops,
        elements: PathElements::default(),
        bounds: PathBounds::default(),
    }
}

/// Returns all counter-offers for a request that was refused with this ledger.
pub fn offers(
    network: &CircuitNetwork,
    ledger: &BandwidthLedger,
    short: &Shortfall,
) -> CounterOffers {
    let decided = LedgerSnapshot::new(Arc::new(network.clone()), ledger);
    short.find_offers(&decided, &mut || true)
}

/// Returns all loop-free paths.
pub fn simple_paths(network: &CircuitNetwork, ends: PathEnds) -> Vec<LinkPath> {
    fn walk(
        network: &CircuitNetwork,
        node: NodeId,
        to: NodeId,
        path: &mut Vec<LinkId>,
        seen: &mut Vec<NodeId>,
        all: &mut Vec<LinkPath>,
    ) {
        if node == to {
            all.push(LinkPath(path.clone()));
            return;
        }
        seen.push(node);
        for (id, link) in network.links_from(node) {
            if !seen.contains(&link.to) {
                path.push(id);
                walk(network, link.to, to, path, seen, all);
                path.pop();
            }
        }
        seen.pop();
    }
    let mut all = Vec::new();
    walk(
        network,
        ends.from,
        ends.to,
        &mut Vec::new(),
        &mut Vec::new(),
        &mut all,
    );
    all
}

/// Terms without limits. Requests are held for 5 ms.
pub const DECISION_TERMS: DecisionTerms = DecisionTerms {
    limits: RequestLimits::UNLIMITED,
    hold: 5,
};

/// A book, and the journal that made it.
pub struct JournaledBook {
    pub book: ReservationBook,
    pub journal: Vec<JournalEntry>,
}

impl JournaledBook {
    /// Makes a change, and journals it.
    ///
    /// # Errors
    /// The book refuses it, and is unchanged.
    pub fn write(&mut self, change: BookChange, now: MomentMs) -> Result<(), BookFault> {
        let entry = self.book.entry(change, now);
        let before = self.book.clone();
        match self.book.apply(&entry) {
            Ok(_) => self.journal.push(entry),
            Err(fault) => {
                assert_eq!(self.book, before, "a fault changes nothing: {fault}");
                return Err(fault);
            }
        }
        Ok(())
    }
}
