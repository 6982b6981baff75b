//! Exhaustive search over sets of paths, within limits.

mod wide;

use super::{PathConstraints, RatedPath, joint_rates, total_rate, trim};
use crate::network::{LinkId, NodeId};
use crate::path::{BandwidthField, Disjoint, LinkPath};
use crate::time::BitsPerSecond;

/// Maximum number of paths to search among. With more, the search is incomplete.
const MAX_PATHS_SEARCHED: usize = 256;

/// Maximum number of links to follow while paths are enumerated.
const MAX_FOLLOWED_LINKS: usize = 20_000;

/// Maximum number of path sets whose rates are computed.
const MAX_PATH_SETS: usize = 400;

struct SplitSearch<'a, 'f> {
    field: &'a BandwidthField<'f>,
    ask: &'a PathConstraints,
    want: BitsPerSecond,
    /// Paths with their widths, the widest first.
    paths: Vec<(LinkPath, BitsPerSecond)>,
    best: Vec<RatedPath>,
    least: BitsPerSecond,
    sets: usize,
    complete: bool,
}

/// Searches for more than `least` and up to `want` bit/s. Returns the routes, and whether the
/// search was complete.
pub(super) fn search(
    field: &BandwidthField<'_>,
    ask: &PathConstraints,
    want: BitsPerSecond,
    least: BitsPerSecond,
) -> (Vec<RatedPath>, bool) {
    if ask.bounds.is_bounded() {
        return search_bounded(field, ask, want, least);
    }
    if ask.paths == 2 || ask.diversity != Disjoint::No {
        return wide::search_widest_first(field, ask, want, least);
    }
    let (paths, complete) = simple_paths(field, ask);
    let mut search = SplitSearch {
        field,
        ask,
        want,
        paths,
        best: Vec::new(),
        least,
        sets: 0,
        complete,
    };
    search.extend(0, &mut Vec::new(), 0);
    (search.best, search.complete)
}

/// Searches among the paths within the constraints of a request.
fn search_bounded(
    field: &BandwidthField<'_>,
    ask: &PathConstraints,
    want: BitsPerSecond,
    least: BitsPerSecond,
) -> (Vec<RatedPath>, bool) {
    if ask.paths == 1 && ask.bounds.via.is_empty() {
        // The widest path within hops and latency is known exactly.
        return (Vec::new(), true);
    }
    // A single path helps only if it carries more than what is known.
    let at_least = match ask.paths {
        1 => least.saturating_add(1),
        _ => 1,
    };
    let all = ask
        .bounds
        .all_paths(field, ask.ends, at_least, ask.preference);
    let paths = all.paths.into_iter().map(|path| {
        let width = field.width(&path);
        (path, width)
    });
    let mut paths: Vec<(LinkPath, BitsPerSecond)> = paths.collect();
    sort_widest_first(&mut paths);
    let mut search = SplitSearch {
        field,
        ask,
        want,
        paths,
        best: Vec::new(),
        least,
        sets: 0,
        complete: all.complete,
    };
    search.extend(0, &mut Vec::new(), 0);
    (search.best, search.complete)
}

impl SplitSearch<'_, '_> {
    /// Extends a set of paths, which carry at most `so_far` together, by paths from index `from`
    /// on.
    fn extend(&mut self, from: usize, chosen: &mut Vec<usize>, so_far: BitsPerSecond) {
        let left = BitsPerSecond::try_from(self.ask.paths - chosen.len()).unwrap_or(0);
        for place in from..self.paths.len() {
            let Some(width) = self.paths.get(place).map(|(_, width)| *width) else {
                return;
            };
            // The paths from here on are no wider than this one.
            if so_far.saturating_add(width.saturating_mul(left)) <= self.least
                || self.least >= self.want
            {
                return;
            }
            if self.conflicts(place, chosen) {
                continue;
            }
            if self.sets >= MAX_PATH_SETS {
                self.complete = false;
                return;
            }
            chosen.push(place);
            let upper = self.evaluate(chosen);
            if chosen.len() < self.ask.paths {
                self.extend(place + 1, chosen, upper);
            }
            chosen.pop();
        }
    }

    /// Returns true if a path shares with a chosen one what paths must not share.
    fn conflicts(&self, place: usize, chosen: &[usize]) -> bool {
        let path = |place: usize| self.paths.get(place).map(|(path, _)| path);
        let Some(new) = path(place).filter(|_| self.ask.diversity != Disjoint::No) else {
            return false;
        };
        let mut chosen = chosen.iter().filter_map(|place| path(*place));
        chosen.any(|known| self.field.conflict(known, new, self.ask.diversity))
    }

    /// Returns an upper bound of what these paths carry. Keeps their routes if they are the best so
    /// far.
    fn evaluate(&mut self, chosen: &[usize]) -> BitsPerSecond {
        let paths: Vec<LinkPath> = chosen
            .iter()
            .filter_map(|place| self.paths.get(*place))
            .map(|(path, _)| path.clone())
            .collect();
        if paths.len() > 1 {
            self.sets += 1;
        }
        let routes = joint_rates(self.field, &paths);
        let carried = total_rate(&routes);
        if carried > self.least {
            self.least = carried;
            self.best = trim(routes, self.want);
        }
        // Whole bit/s may fall short of fractions by less than one per path.
        carried.saturating_add(BitsPerSecond::try_from(chosen.len()).unwrap_or(0))
    }
}

/// Returns loop-free paths, the widest first, and whether they are all.
fn simple_paths(
    field: &BandwidthField<'_>,
    ask: &PathConstraints,
) -> (Vec<(LinkPath, BitsPerSecond)>, bool) {
    let network = field.network();
    let mut found: Vec<(LinkPath, BitsPerSecond)> = Vec::new();
    let mut steps = 0;
    let mut trail: Vec<LinkId> = Vec::new();
    let mut seen = vec![false; network.nodes() as usize];
    // Links still to be tried, each with the length of the trail before it.
    let open = |node: NodeId, length: usize| {
        network
            .links_from(node)
            .filter(|(id, _)| field.room(*id) > 0)
            .map(move |(id, _)| (id, length))
    };
    let mut stack: Vec<(LinkId, usize)> = open(ask.ends.from, 0).collect();
    let mut complete = true;
    while let Some((id, length)) = stack.pop() {
        steps += 1;
        if steps > MAX_FOLLOWED_LINKS || found.len() >= MAX_PATHS_SEARCHED {
            complete = false;
            break;
        }
        for left in trail.drain(length..) {
            set_seen(&mut seen, network.link(left).map(|link| link.to), false);
        }
        let Some(link) = network.link(id) else {
            continue;
        };
        if link.to == ask.ends.from || seen.get(link.to.index()).copied().unwrap_or(true) {
            continue;
        }
        trail.push(id);
        if link.to == ask.ends.to {
            let path = LinkPath(trail.clone());
            let width = field.width(&path);
            found.push((path, width));
            trail.pop();
            continue;
        }
        set_seen(&mut seen, Some(link.to), true);
        stack.extend(open(link.to, trail.len()));
    }
    sort_widest_first(&mut found);
    (found, complete)
}

fn sort_widest_first(paths: &mut [(LinkPath, BitsPerSecond)]) {
    paths.sort_by(|(one, width), (other, narrower)| {
        narrower.cmp(width).then_with(|| one.cmp(other))
    });
}

fn set_seen(seen: &mut [bool], node: Option<NodeId>, to: bool) {
    if let Some(seen) = node.and_then(|node| seen.get_mut(node.index())) {
        *seen = to;
    }
}
