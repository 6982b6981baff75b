//! Maximum flow between two nodes, the cut that bounds it, and minimum-cost flow. The search for
//! paths and splits builds on them.

use std::collections::VecDeque;

use super::BandwidthField;
use crate::time::BitsPerSecond;

/// One direction of an arc. The opposite direction is adjacent: its index differs in the last bit.
#[derive(Debug, Clone, Copy)]
struct Arc {
    to: usize,
    room: BitsPerSecond,
    cost: i64,
}

/// Residual network: arcs with remaining capacity, and flow that can be undone.
#[derive(Debug, Clone)]
pub(crate) struct Residual {
    arcs: Vec<Arc>,
    /// Indices of the arcs that leave each node.
    from: Vec<Vec<usize>>,
}

impl Residual {
    /// Creates a network of nodes without arcs.
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            arcs: Vec::new(),
            from: vec![Vec::new(); nodes],
        }
    }

    /// Creates a network with one arc per link of a field, in order. `room` maps the rate left on a
    /// link to the capacity of its arc.
    pub(crate) fn from_field(
        field: &BandwidthField<'_>,
        room: impl Fn(BitsPerSecond) -> BitsPerSecond,
    ) -> Self {
        let network = field.network();
        let mut residual = Self::new(network.nodes() as usize);
        for (id, link) in network.ids().zip(network.links()) {
            residual.add_arc(link.from.index(), link.to.index(), room(field.room(id)), 0);
        }
        residual
    }

    /// Adds an arc between two existing nodes. Its index is twice the number of arcs added before.
    pub(crate) fn add_arc(&mut self, from: usize, to: usize, room: BitsPerSecond, cost: i64) {
        let place = self.arcs.len();
        if from >= self.from.len() || to >= self.from.len() {
            return;
        }
        self.arcs.push(Arc { to, room, cost });
        self.arcs.push(Arc {
            to: from,
            room: 0,
            cost: -cost,
        });
        // Without capacity there is never flow to undo. Such an arc is never followed; it only
        // keeps its number.
        if room == 0 {
            return;
        }
        for (node, place) in [(from, place), (to, place + 1)] {
            if let Some(out) = self.from.get_mut(node) {
                out.push(place);
            }
        }
    }

    /// Returns the flow through the arc that was added as this number.
    pub(crate) fn flow(&self, number: usize) -> BitsPerSecond {
        self.arcs.get(2 * number + 1).map_or(0, |back| back.room)
    }

    /// Returns for each node whether the residual network connects it to `source`.
    pub(crate) fn reachable_from(&self, source: usize) -> Vec<bool> {
        self.levels(source)
            .into_iter()
            .map(|level| level != usize::MAX)
            .collect()
    }

    /// Returns the distance of each node from the source, in arcs.
    fn levels(&self, source: usize) -> Vec<usize> {
        let mut levels = vec![usize::MAX; self.from.len()];
        let mut queue = VecDeque::from([source]);
        if let Some(level) = levels.get_mut(source) {
            *level = 0;
        }
        while let Some(node) = queue.pop_front() {
            let next = levels
                .get(node)
                .map_or(usize::MAX, |level| level.saturating_add(1));
            for place in self.from.get(node).into_iter().flatten() {
                if let Some(arc) = self.arcs.get(*place).filter(|arc| arc.room > 0)
                    && let Some(level) =
                        levels.get_mut(arc.to).filter(|level| **level == usize::MAX)
                {
                    *level = next;
                    queue.push_back(arc.to);
                }
            }
        }
        levels
    }

    /// Augments the flow until it is maximal or reaches `enough` (Dinic's algorithm). Returns the
    /// added flow.
    pub(crate) fn augment(
        &mut self,
        source: usize,
        sink: usize,
        enough: BitsPerSecond,
    ) -> BitsPerSecond {
        let mut total: BitsPerSecond = 0;
        while total < enough && source != sink {
            let levels = self.levels(source);
            if levels.get(sink).is_none_or(|level| *level == usize::MAX) {
                break;
            }
            let mut tried = vec![0_usize; self.from.len()];
            let mut trail: Vec<usize> = Vec::new();
            let mut node = source;
            while total < enough {
                if node == sink {
                    let rooms = trail
                        .iter()
                        .filter_map(|place| self.arcs.get(*place))
                        .map(|arc| arc.room);
                    let rate = rooms.min().unwrap_or(0).min(enough - total);
                    self.push_flow(&trail, rate);
                    total += rate;
                    // Back up to the first full arc of the trail.
                    let full = trail
                        .iter()
                        .position(|place| self.arcs.get(*place).is_none_or(|arc| arc.room == 0));
                    let keep = full.unwrap_or(0);
                    node = self.arc_start(trail.get(keep).copied(), source);
                    trail.truncate(keep);
                    continue;
                }
                let level = levels.get(node).copied().unwrap_or(usize::MAX);
                let next = tried.get(node).copied().unwrap_or(usize::MAX);
                match self.from.get(node).and_then(|out| out.get(next)).copied() {
                    Some(place) => {
                        let leads = self.arcs.get(place).filter(|arc| {
                            arc.room > 0
                                && levels
                                    .get(arc.to)
                                    .is_some_and(|there| *there == level.saturating_add(1))
                        });
                        match leads {
                            Some(arc) => {
                                trail.push(place);
                                node = arc.to;
                            }
                            None => advance_next_arc(&mut tried, node),
                        }
                    }
                    None => {
                        let Some(place) = trail.pop() else { break };
                        node = self.arc_start(Some(place), source);
                        advance_next_arc(&mut tried, node);
                    }
                }
            }
        }
        total
    }

    /// Returns the node that an arc leaves.
    fn arc_start(&self, place: Option<usize>, source: usize) -> usize {
        place
            .and_then(|place| self.arcs.get(place ^ 1))
            .map_or(source, |back| back.to)
    }

    fn push_flow(&mut self, trail: &[usize], rate: BitsPerSecond) {
        for place in trail {
            if let Some(arc) = self.arcs.get_mut(*place) {
                arc.room -= rate;
            }
            if let Some(back) = self.arcs.get_mut(place ^ 1) {
                back.room += rate;
            }
        }
    }

    /// Augments the flow by one unit along the cheapest path; undone arcs have negative cost
    /// (shortest augmenting path). Returns true if there was one.
    pub(crate) fn augment_one(&mut self, source: usize, sink: usize) -> bool {
        let mut costs = vec![i64::MAX; self.from.len()];
        let mut by = vec![None; self.from.len()];
        let mut queued = vec![false; self.from.len()];
        let mut queue = VecDeque::from([source]);
        if let Some(cost) = costs.get_mut(source) {
            *cost = 0;
        }
        while let Some(node) = queue.pop_front() {
            if let Some(queued) = queued.get_mut(node) {
                *queued = false;
            }
            let so_far = costs.get(node).copied().unwrap_or(i64::MAX);
            for place in self.from.get(node).into_iter().flatten() {
                let Some(arc) = self.arcs.get(*place).filter(|arc| arc.room > 0) else {
                    continue;
                };
                let cost = so_far.saturating_add(arc.cost);
                if let Some(known) = costs.get_mut(arc.to).filter(|known| cost < **known) {
                    *known = cost;
                    if let Some(by) = by.get_mut(arc.to) {
                        *by = Some(*place);
                    }
                    if let Some(queued) = queued.get_mut(arc.to).filter(|queued| !**queued) {
                        *queued = true;
                        queue.push_back(arc.to);
                    }
                }
            }
        }
        let mut trail = Vec::new();
        let mut node = sink;
        while node != source {
            let Some(place) = by.get(node).copied().flatten() else {
                return false;
            };
            trail.push(place);
            node = self.arc_start(Some(place), source);
        }
        self.push_flow(&trail, 1);
        !trail.is_empty()
    }
}

fn advance_next_arc(tried: &mut [usize], node: usize) {
    if let Some(next) = tried.get_mut(node) {
        *next += 1;
    }
}
