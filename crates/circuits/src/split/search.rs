//! Exhaustive search over sets of paths, within limits.

mod wide;

use super::{Ask, Route, shared, total, trimmed};
use crate::network::{LinkId, NodeId};
use crate::path::{Diversity, Field, Path};
use crate::time::Rate;

/// Maximum number of paths to search among. With more, the search is incomplete.
const MAX_PATHS_SEARCHED: usize = 256;

/// Maximum number of links to follow while paths are enumerated.
const MAX_STEPS: usize = 20_000;

/// Maximum number of path sets whose rates are computed.
const MAX_SETS: usize = 400;

struct Search<'a, 'f> {
    field: &'a Field<'f>,
    ask: &'a Ask,
    want: Rate,
    /// Paths with their widths, the widest first.
    paths: Vec<(Path, Rate)>,
    best: Vec<Route>,
    least: Rate,
    sets: usize,
    complete: bool,
}

/// Searches for more than `least` and up to `want` bit/s. Returns the routes, and whether the
/// search was complete.
pub(super) fn search(field: &Field<'_>, ask: &Ask, want: Rate, least: Rate) -> (Vec<Route>, bool) {
    if ask.paths == 2 || ask.diversity != Diversity::Any {
        return wide::wide(field, ask, want, least);
    }
    let (paths, complete) = simple(field, ask);
    let mut search = Search {
        field,
        ask,
        want,
        paths,
        best: Vec::new(),
        least,
        sets: 0,
        complete,
    };
    search.on(0, &mut Vec::new(), 0);
    (search.best, search.complete)
}

impl Search<'_, '_> {
    /// Extends a set of paths, which carry at most `so_far` together, by paths from index `from`
    /// on.
    fn on(&mut self, from: usize, chosen: &mut Vec<usize>, so_far: Rate) {
        let left = Rate::try_from(self.ask.paths - chosen.len()).unwrap_or(0);
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
            if self.sets >= MAX_SETS {
                self.complete = false;
                return;
            }
            chosen.push(place);
            let upper = self.carried(chosen);
            if chosen.len() < self.ask.paths {
                self.on(place + 1, chosen, upper);
            }
            chosen.pop();
        }
    }

    /// Returns an upper bound of what these paths carry. Keeps their routes if they are the best so
    /// far.
    fn carried(&mut self, chosen: &[usize]) -> Rate {
        let paths: Vec<Path> = chosen
            .iter()
            .filter_map(|place| self.paths.get(*place))
            .map(|(path, _)| path.clone())
            .collect();
        if paths.len() > 1 {
            self.sets += 1;
        }
        let routes = shared(self.field, &paths);
        let carried = total(&routes);
        if carried > self.least {
            self.least = carried;
            self.best = trimmed(routes, self.want);
        }
        // Whole bit/s may fall short of fractions by less than one per path.
        carried.saturating_add(Rate::try_from(chosen.len()).unwrap_or(0))
    }
}

/// Returns loop-free paths, the widest first, and whether they are all.
fn simple(field: &Field<'_>, ask: &Ask) -> (Vec<(Path, Rate)>, bool) {
    let network = field.network();
    let mut found: Vec<(Path, Rate)> = Vec::new();
    let mut steps = 0;
    let mut trail: Vec<LinkId> = Vec::new();
    let mut seen = vec![false; network.nodes() as usize];
    // Links still to be tried, each with the length of the trail before it.
    let open = |node: NodeId, length: usize| {
        network
            .from(node)
            .filter(|(id, _)| field.room(*id) > 0)
            .map(move |(id, _)| (id, length))
    };
    let mut stack: Vec<(LinkId, usize)> = open(ask.ends.from, 0).collect();
    let mut complete = true;
    while let Some((id, length)) = stack.pop() {
        steps += 1;
        if steps > MAX_STEPS || found.len() >= MAX_PATHS_SEARCHED {
            complete = false;
            break;
        }
        for left in trail.drain(length..) {
            set(&mut seen, network.link(left).map(|link| link.to), false);
        }
        let Some(link) = network.link(id) else {
            continue;
        };
        if link.to == ask.ends.from || seen.get(link.to.index()).copied().unwrap_or(true) {
            continue;
        }
        trail.push(id);
        if link.to == ask.ends.to {
            let path = Path(trail.clone());
            let width = field.width(&path);
            found.push((path, width));
            trail.pop();
            continue;
        }
        set(&mut seen, Some(link.to), true);
        stack.extend(open(link.to, trail.len()));
    }
    found.sort_by(|(one, width), (other, narrower)| {
        narrower.cmp(width).then_with(|| one.cmp(other))
    });
    (found, complete)
}

fn set(seen: &mut [bool], node: Option<NodeId>, to: bool) {
    if let Some(seen) = node.and_then(|node| seen.get_mut(node.index())) {
        *seen = to;
    }
}
