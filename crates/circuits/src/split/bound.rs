//! Upper bound of what a number of paths can carry, shown by a cut.

use super::Cut;
use crate::network::LinkId;
use crate::path::flow::Residual;
use crate::path::{BandwidthField, PathEnds};
use crate::time::BitsPerSecond;

/// Returns the cut with the least capacity, for any number of paths (Ford and Fulkerson).
pub(crate) fn minimum_cut(field: &BandwidthField<'_>, ends: PathEnds) -> Cut {
    cut_above(field, ends, 0)
}

/// Returns a narrow cut for that many paths: the first one found that is narrower than `enough`,
/// otherwise the narrowest.
///
/// Each path crosses a cut somewhere, so `k` paths carry no more than the sum of its `k` widest
/// links. That sum is the minimum, over all `t`, of `k t` plus what the links have above `t`. So
/// for each `t`, the cut is the minimum cut of what links have above it. With one path, it is the
/// cut that the widest path has to cross.
#[must_use]
pub fn narrowest_cut(
    field: &BandwidthField<'_>,
    ends: PathEnds,
    paths: usize,
    enough: BitsPerSecond,
) -> Cut {
    narrowest_cut_above(field, ends, paths, enough, 0)
}

/// Implements [`narrowest_cut`], given that so many paths carry `reached` bit/s. No cut is narrower
/// than that, so the search stops at one that is no wider.
pub(super) fn narrowest_cut_above(
    field: &BandwidthField<'_>,
    ends: PathEnds,
    paths: usize,
    enough: BitsPerSecond,
    reached: BitsPerSecond,
) -> Cut {
    let is_done = |rate: BitsPerSecond| rate < enough || rate <= reached;
    let mut narrowest = minimum_cut(field, ends);
    narrowest.rate = widest_links_rate(field, &narrowest.links, paths);
    if is_done(narrowest.rate) {
        return narrowest;
    }
    let count = BitsPerSecond::try_from(paths.max(1)).unwrap_or(BitsPerSecond::MAX);
    for level in field.distinct_rates() {
        if level.saturating_mul(count) >= narrowest.rate {
            break;
        }
        let mut cut = cut_above(field, ends, level);
        cut.rate = widest_links_rate(field, &cut.links, paths);
        if cut.rate < narrowest.rate {
            narrowest = cut;
            if is_done(narrowest.rate) {
                break;
            }
        }
    }
    narrowest
}

/// Returns the rate left on the `count` widest links of a cut.
fn widest_links_rate(field: &BandwidthField<'_>, links: &[LinkId], count: usize) -> BitsPerSecond {
    let mut rooms: Vec<BitsPerSecond> = links.iter().map(|link| field.room(*link)).collect();
    rooms.sort_unstable_by(|one, other| other.cmp(one));
    rooms
        .into_iter()
        .take(count)
        .fold(0, BitsPerSecond::saturating_add)
}

/// Returns the minimum cut of what links have above a level.
fn cut_above(field: &BandwidthField<'_>, ends: PathEnds, level: BitsPerSecond) -> Cut {
    let network = field.network();
    let mut residual = Residual::from_field(field, |room| room.saturating_sub(level));
    let rate = residual.augment(ends.from.index(), ends.to.index(), BitsPerSecond::MAX);
    let reached = residual.reachable_from(ends.from.index());
    let within = |node: usize| reached.get(node).copied().unwrap_or(false);
    let crosses = |id: &LinkId| {
        field.is_usable(*id)
            && network
                .link(*id)
                .is_some_and(|link| within(link.from.index()) && !within(link.to.index()))
    };
    Cut {
        links: network.ids().filter(crosses).collect(),
        rate,
    }
}
