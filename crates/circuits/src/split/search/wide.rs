//! Search by the widest path of a set, for disjoint paths and for two paths.
//!
//! If `k` paths carry more than is known, the widest of them carries more than a `k`th part of it,
//! and few paths do. Once it is chosen, disjoint paths are the same problem with one path less, and
//! the last of them is the widest that is left. If two paths may share links, the second is a
//! widest path as well: links that the first does not use count as wider, by the first path's rate.

use crate::network::{LinkId, NodeId};
use crate::path::{BandwidthField, Disjoint, LinkPath};
use crate::split::{PathConstraints, RatedPath, total_rate, trim};
use crate::time::BitsPerSecond;

/// Maximum number of links to follow.
const MAX_FOLLOWED_LINKS: usize = 50_000;

struct WidestFirstSearch<'a> {
    ask: &'a PathConstraints,
    want: BitsPerSecond,
    best: Vec<RatedPath>,
    least: BitsPerSecond,
    steps: usize,
}

/// Searches for more than `least` and up to `want` bit/s. Returns the routes, and whether the
/// search was complete. Paths that may share links are limited to two.
pub(super) fn search_widest_first(
    field: &BandwidthField<'_>,
    ask: &PathConstraints,
    want: BitsPerSecond,
    least: BitsPerSecond,
) -> (Vec<RatedPath>, bool) {
    let mut wide = WidestFirstSearch {
        ask,
        want,
        best: Vec::new(),
        least,
        steps: 0,
    };
    wide.extend(field, &mut Vec::new());
    (wide.best, wide.steps <= MAX_FOLLOWED_LINKS)
}

impl WidestFirstSearch<'_> {
    /// Returns the least rate that the widest of the remaining paths must carry to beat the best.
    fn threshold(&self, chosen: &[RatedPath]) -> BitsPerSecond {
        let more = self
            .least
            .saturating_add(1)
            .saturating_sub(total_rate(chosen));
        let left = self.ask.paths.saturating_sub(chosen.len());
        more.div_ceil(
            BitsPerSecond::try_from(left)
                .unwrap_or(BitsPerSecond::MAX)
                .max(1),
        )
        .max(1)
    }

    fn keep_if_better(&mut self, routes: Vec<RatedPath>) {
        if total_rate(&routes) > self.least {
            self.least = total_rate(&routes);
            self.best = trim(routes, self.want);
        }
    }

    /// Extends the chosen paths by what they leave.
    fn extend(&mut self, left: &BandwidthField<'_>, chosen: &mut Vec<RatedPath>) {
        self.keep_if_better(chosen.clone());
        if chosen.len() + 1 >= self.ask.paths {
            if let Some((path, rate)) = left.widest_path(self.ask.ends) {
                self.keep_if_better([&chosen[..], &[RatedPath { path, rate }]].concat());
            }
            return;
        }
        let network = left.network();
        let mut seen = vec![false; network.nodes() as usize];
        let mut trail: Vec<LinkId> = Vec::new();
        let open =
            |node: NodeId, length: usize| network.links_from(node).map(move |(id, _)| (id, length));
        let mut stack: Vec<(LinkId, usize)> = open(self.ask.ends.from, 0).collect();
        let reaches = nodes_reaching(left, self.ask.ends.to, self.threshold(chosen));
        while let Some((id, length)) = stack.pop() {
            for back in trail.drain(length..) {
                if let Some(seen) = network
                    .link(back)
                    .and_then(|link| seen.get_mut(link.to.index()))
                {
                    *seen = false;
                }
            }
            let Some(link) = network.link(id) else {
                continue;
            };
            let there = link.to.index();
            let passed = link.to == self.ask.ends.from || seen.get(there).copied().unwrap_or(true);
            // The threshold rises with what is found.
            if passed
                || left.room(id) < self.threshold(chosen)
                || !reaches.get(there).copied().unwrap_or(false)
            {
                continue;
            }
            self.steps += 1;
            if self.steps > MAX_FOLLOWED_LINKS || self.least >= self.want {
                return;
            }
            trail.push(id);
            if link.to == self.ask.ends.to {
                self.extend_with(left, chosen, LinkPath(trail.clone()));
                trail.pop();
                continue;
            }
            if let Some(seen) = seen.get_mut(there) {
                *seen = true;
            }
            stack.extend(open(link.to, trail.len()));
        }
    }

    /// Extends the chosen paths by one more.
    fn extend_with(
        &mut self,
        left: &BandwidthField<'_>,
        chosen: &mut Vec<RatedPath>,
        path: LinkPath,
    ) {
        let rate = left.width(&path);
        if self.ask.diversity == Disjoint::No {
            self.best_second_path(left, path, rate);
            return;
        }
        let mut rest = left.clone();
        rest.remove_conflicts(&path, self.ask.diversity);
        chosen.push(RatedPath { path, rate });
        self.extend(&rest, chosen);
        chosen.pop();
    }

    /// Finds the best second path for one that it may share links with.
    fn best_second_path(&mut self, left: &BandwidthField<'_>, path: LinkPath, rate: BitsPerSecond) {
        let both = BandwidthField::new(left.network(), |link| {
            let room = left.room(link);
            let more = if path.0.contains(&link) { 0 } else { rate };
            left.is_usable(link).then(|| {
                if room == 0 {
                    0
                } else {
                    room.saturating_add(more)
                }
            })
        });
        if let Some((second, together)) = both.widest_path(self.ask.ends) {
            let more = together.saturating_sub(rate);
            if more > 0 && second != path {
                self.keep_if_better(vec![
                    RatedPath { path, rate },
                    RatedPath {
                        path: second,
                        rate: more,
                    },
                ]);
            }
        }
    }
}

/// Returns for each node whether links with enough bandwidth left connect it to `to`.
fn nodes_reaching(field: &BandwidthField<'_>, to: NodeId, at_least: BitsPerSecond) -> Vec<bool> {
    let network = field.network();
    let mut back: Vec<Vec<NodeId>> = vec![Vec::new(); network.nodes() as usize];
    for (id, link) in network.ids().zip(network.links()) {
        if field.room(id) >= at_least
            && let Some(back) = back.get_mut(link.to.index())
        {
            back.push(link.from);
        }
    }
    let mut reaches = vec![false; back.len()];
    let mut open = vec![to];
    while let Some(node) = open.pop() {
        if let Some(reached) = reaches.get_mut(node.index()).filter(|reached| !**reached) {
            *reached = true;
            open.extend(back.get(node.index()).into_iter().flatten());
        }
    }
    reaches
}
