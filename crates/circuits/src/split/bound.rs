//! Upper bound of what a number of paths can carry, shown by a cut.

use super::Cut;
use crate::flow::Residual;
use crate::network::LinkId;
use crate::path::{Ends, Field};
use crate::time::Rate;

/// Returns the cut with the least capacity, for any number of paths (Ford and Fulkerson).
pub(crate) fn minimum_cut(field: &Field<'_>, ends: Ends) -> Cut {
    above(field, ends, 0)
}

/// Returns a narrow cut for that many paths: the first one found that is narrower than `enough`,
/// otherwise the narrowest.
///
/// Each path crosses a cut somewhere, so `k` paths carry no more than the sum of its `k` widest
/// links. That sum is the minimum, over all `t`, of `k t` plus what the links have above `t`. So
/// for each `t`, the cut is the minimum cut of what links have above it. With one path, it is the
/// cut that the widest path has to cross.
#[must_use]
pub fn bound(field: &Field<'_>, ends: Ends, paths: usize, enough: Rate) -> Cut {
    bound_of_reached(field, ends, paths, enough, 0)
}

/// Implements [`bound`], given that so many paths carry `reached` bit/s. No cut is narrower than
/// that, so the search stops at one that is no wider.
pub(super) fn bound_of_reached(
    field: &Field<'_>,
    ends: Ends,
    paths: usize,
    enough: Rate,
    reached: Rate,
) -> Cut {
    let is_done = |rate: Rate| rate < enough || rate <= reached;
    let mut narrowest = minimum_cut(field, ends);
    narrowest.rate = widest(field, &narrowest.links, paths);
    if is_done(narrowest.rate) {
        return narrowest;
    }
    let count = Rate::try_from(paths.max(1)).unwrap_or(Rate::MAX);
    for level in field.rooms() {
        if level.saturating_mul(count) >= narrowest.rate {
            break;
        }
        let mut cut = above(field, ends, level);
        cut.rate = widest(field, &cut.links, paths);
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
fn widest(field: &Field<'_>, links: &[LinkId], count: usize) -> Rate {
    let mut rooms: Vec<Rate> = links.iter().map(|link| field.room(*link)).collect();
    rooms.sort_unstable_by(|one, other| other.cmp(one));
    rooms.into_iter().take(count).fold(0, Rate::saturating_add)
}

/// Returns the minimum cut of what links have above a level.
fn above(field: &Field<'_>, ends: Ends, level: Rate) -> Cut {
    let network = field.network();
    let mut residual = Residual::of(field, |room| room.saturating_sub(level));
    let rate = residual.fill(ends.from.index(), ends.to.index(), Rate::MAX);
    let reached = residual.reached(ends.from.index());
    let within = |node: usize| reached.get(node).copied().unwrap_or(false);
    let crosses = |id: &LinkId| {
        field.usable(*id)
            && network
                .link(*id)
                .is_some_and(|link| within(link.from.index()) && !within(link.to.index()))
    };
    Cut {
        links: network.ids().filter(crosses).collect(),
        rate,
    }
}
