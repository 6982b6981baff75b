//! Disjoint paths (Suurballe, 1974; Bhandari, 1999). They are found together, because the best path
//! alone may block all others.

use super::flow::Residual;
use super::{BandwidthField, Disjoint, LinkPath, PathEnds, Preference};
use crate::network::LinkId;
use crate::time::BitsPerSecond;

/// Maximum cost of a link, in hops or microseconds, so that sums do not overflow.
const MAX_COST: i64 = 1 << 40;

/// Returns up to `count` disjoint paths with the least total cost, whose links have at least
/// `at_least` bit/s left. [`Disjoint::No`] is treated as [`Disjoint::Links`], and
/// [`Preference::MostRoom`] counts hops.
#[must_use]
pub fn disjoint_paths(
    field: &BandwidthField<'_>,
    ends: PathEnds,
    at_least: BitsPerSecond,
    preference: Preference,
    diversity: Disjoint,
    count: usize,
) -> Vec<LinkPath> {
    let network = field.network();
    let nodes = network.nodes() as usize;
    if ends.from == ends.to || ends.from.index() >= nodes || ends.to.index() >= nodes {
        return Vec::new();
    }
    // Each node is split into an entry and an exit, joined by an arc that limits what passes
    // through it.
    let (enters, leaves) = (|node: usize| 2 * node, |node: usize| 2 * node + 1);
    let mut residual = Residual::new(2 * nodes);
    for node in 0..nodes {
        let end = node == ends.from.index() || node == ends.to.index();
        let passes = if diversity == Disjoint::Sites && !end {
            1
        } else {
            BitsPerSecond::MAX >> 1
        };
        residual.add_arc(enters(node), leaves(node), passes, 0);
    }
    let wide: Vec<LinkId> = network
        .ids()
        .filter(|link| field.room(*link) >= at_least.max(1))
        .collect();
    for id in &wide {
        if let Some(link) = network.link(*id) {
            let cost = i64::try_from(field.cost(*id, preference).0)
                .unwrap_or(MAX_COST)
                .min(MAX_COST);
            residual.add_arc(leaves(link.from.index()), enters(link.to.index()), 1, cost);
        }
    }
    let (source, sink) = (leaves(ends.from.index()), enters(ends.to.index()));
    let found = (0..count)
        .take_while(|_| residual.augment_one(source, sink))
        .count();
    let mut used: Vec<LinkId> = (nodes..)
        .zip(&wide)
        .filter(|(number, _)| residual.flow(*number) > 0)
        .map(|(_, link)| *link)
        .collect();
    // If two paths use one cable in opposite directions, both reach the same without it.
    let cables: Vec<u32> = used
        .iter()
        .filter_map(|link| Some(network.link(*link)?.cable))
        .collect();
    used.retain(|link| {
        let cable = network.link(*link).map(|link| link.cable);
        cables.iter().filter(|other| Some(**other) == cable).count() == 1
    });
    let mut rest = BandwidthField::new(network, |link| used.contains(&link).then_some(1));
    let mut paths = Vec::new();
    for _ in 0..found {
        let Some(path) = rest.best_path(ends, 1, preference) else {
            break;
        };
        rest.deduct(&path, 1);
        paths.push(path);
    }
    paths
}
