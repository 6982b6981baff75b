//! Sums over all promises, and flows by the simplest algorithms.

use std::collections::{BTreeMap, BTreeSet};

use microlp::{ComparisonOp, OptimizationDirection, Problem};

use super::CheckVerdict;
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::network::{CircuitLink, CircuitNetwork, NodeId};
use longhaul_circuits::path::Disjoint;
use longhaul_circuits::request::CircuitRequest;
use longhaul_circuits::time::{BitsPerSecond, MomentMs, Window};

pub(super) type PromisedRates = Vec<(Window, BitsPerSecond, ReservationId)>;

/// Returns the promised rate of a link at a moment.
pub(super) fn promised_at(taken: &PromisedRates, at: MomentMs) -> BitsPerSecond {
    taken
        .iter()
        .filter(|(window, ..)| window.start <= at && at < window.end)
        .map(|(_, rate, _)| rate)
        .sum()
}

/// Returns the highest promised rate of a link within a window, by a sweep over starts and ends.
pub(super) fn promised_peak(taken: &PromisedRates, window: Window) -> BitsPerSecond {
    let mut events: Vec<(MomentMs, i64)> = Vec::new();
    for (there, rate, _) in taken {
        let (start, end) = (there.start.max(window.start), there.end.min(window.end));
        if start < end {
            let rate = i64::try_from(*rate).unwrap_or(i64::MAX);
            events.extend([(start, rate), (end, -rate)]);
        }
    }
    // At the same moment, ends come before starts.
    events.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, by) in events {
        now += by;
        most = most.max(now);
    }
    BitsPerSecond::try_from(most).unwrap_or(0)
}

/// Returns true if a request allows a link.
pub(super) fn is_allowed(request: &CircuitRequest, number: u32, link: &CircuitLink) -> bool {
    let elements = &request.elements;
    let inner = |node: NodeId| node != request.ends.from && node != request.ends.to;
    let node = |node: NodeId| match &elements.only_nodes {
        _ if !inner(node) => true,
        Some(only) if !only.contains(&node) => false,
        _ => !elements.no_nodes.contains(&node),
    };
    let listed = elements
        .only_links
        .as_ref()
        .is_none_or(|only| only.iter().any(|id| id.0 == number));
    listed && elements.no_links.iter().all(|id| id.0 != number) && node(link.from) && node(link.to)
}

/// Returns true if a path satisfies the constraints of a request on hops, latency and nodes to
/// pass.
pub(super) fn is_within_bounds(
    network: &CircuitNetwork,
    request: &CircuitRequest,
    path: &[usize],
) -> bool {
    let bounds = &request.bounds;
    let links = || path.iter().map(|link| network.links()[*link]);
    let latency: u64 = links().map(|link| link.latency).sum();
    let order: Vec<NodeId> = links().map(|link| link.to).collect();
    let places: Vec<Option<usize>> = bounds
        .via
        .iter()
        .map(|via| order.iter().position(|node| node == via))
        .collect();
    bounds
        .max_hops
        .is_none_or(|most| path.len() <= most as usize)
        && bounds.max_latency.is_none_or(|most| latency <= most)
        && places.iter().all(Option::is_some)
        && places.is_sorted()
}

/// Returns the volume that links carry within a window.
pub(super) fn passing_volume(
    network: &CircuitNetwork,
    taken: &[PromisedRates],
    links: &[usize],
    window: Window,
) -> u128 {
    let mut sum = 0;
    for link in links {
        let of_link = &taken[*link];
        for stretch in stretches(std::slice::from_ref(of_link), window) {
            let left = network.links()[*link]
                .reservable()
                .saturating_sub(promised_at(of_link, stretch.start));
            sum += u128::from(left) * u128::from(stretch.start.abs_diff(stretch.end));
        }
    }
    sum
}

/// Divides a window wherever a promise begins or ends.
pub(super) fn stretches(taken: &[PromisedRates], window: Window) -> Vec<Window> {
    let ends = taken
        .iter()
        .flatten()
        .flat_map(|(window, ..)| [window.start, window.end]);
    let mut moments: BTreeSet<MomentMs> = ends
        .filter(|at| window.start < *at && *at < window.end)
        .collect();
    moments.extend([window.start, window.end]);
    let moments: Vec<MomentMs> = moments.into_iter().collect();
    moments
        .windows(2)
        .map(|pair| Window::new(pair[0], pair[1]))
        .collect()
}

/// Rates left for a request within a window.
pub(super) struct AvailableRates<'a> {
    network: &'a CircuitNetwork,
    from: usize,
    to: usize,
    request: &'a CircuitRequest,
    room: Vec<BitsPerSecond>,
    allowed: Vec<bool>,
}

impl<'a> AvailableRates<'a> {
    pub(super) fn new(
        network: &'a CircuitNetwork,
        taken: &[PromisedRates],
        request: &'a CircuitRequest,
        window: Window,
    ) -> Self {
        let links = || (0..).zip(network.links());
        let allowed: Vec<bool> = links()
            .map(|(number, link)| is_allowed(request, number, link))
            .collect();
        let room = links()
            .zip(taken)
            .zip(&allowed)
            .map(|(((_, link), taken), allowed)| {
                if *allowed {
                    link.reservable()
                        .saturating_sub(promised_peak(taken, window))
                } else {
                    0
                }
            })
            .collect();
        Self {
            network,
            from: request.ends.from.0 as usize,
            to: request.ends.to.0 as usize,
            request,
            room,
            allowed,
        }
    }

    pub(super) fn room(&self, link: usize) -> BitsPerSecond {
        self.room[link]
    }

    /// Returns true if usable links, full or not, connect the ends without the links of the cut.
    pub(super) fn joined_without(&self, cut: &[usize]) -> bool {
        let mut reached = BTreeSet::from([self.from]);
        loop {
            let before = reached.len();
            for (number, link) in self.network.links().iter().enumerate() {
                if self.allowed[number]
                    && !cut.contains(&number)
                    && reached.contains(&(link.from.0 as usize))
                {
                    reached.insert(link.to.0 as usize);
                }
            }
            if reached.len() == before {
                return reached.contains(&self.to);
            }
        }
    }

    /// Returns the maximum flow through what each link has above a level, by repeated shortest
    /// augmenting paths.
    pub(super) fn max_flow_above(&self, level: BitsPerSecond) -> BitsPerSecond {
        let mut left: BTreeMap<(usize, usize), BitsPerSecond> = BTreeMap::new();
        let mut beside: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.network.nodes() as usize];
        for (number, link) in self.network.links().iter().enumerate() {
            let (from, to) = (link.from.0 as usize, link.to.0 as usize);
            *left.entry((from, to)).or_default() += self.room[number].saturating_sub(level);
            beside[from].insert(to);
            beside[to].insert(from);
        }
        let mut total = 0;
        loop {
            let mut came: Vec<Option<usize>> = vec![None; beside.len()];
            came[self.from] = Some(self.from);
            let mut wave = vec![self.from];
            while !wave.is_empty() && came[self.to].is_none() {
                let mut next = Vec::new();
                for node in wave {
                    for other in &beside[node] {
                        if came[*other].is_none()
                            && left.get(&(node, *other)).copied().unwrap_or(0) > 0
                        {
                            came[*other] = Some(node);
                            next.push(*other);
                        }
                    }
                }
                wave = next;
            }
            let mut hops = Vec::new();
            let mut node = self.to;
            while let Some(before) = came[node].filter(|before| *before != node) {
                hops.push((before, node));
                node = before;
            }
            let Some(rate) = hops.iter().map(|hop| left[hop]).min() else {
                return total;
            };
            for (from, to) in hops {
                *left.entry((from, to)).or_default() -= rate;
                *left.entry((to, from)).or_default() += rate;
            }
            total += rate;
        }
    }

    /// Returns an upper bound of what that many paths carry: the minimum, over all levels, of the
    /// level times their number plus the flow above it.
    pub(super) fn few_paths_bound(&self, paths: usize) -> BitsPerSecond {
        let levels: BTreeSet<BitsPerSecond> = self.room.iter().copied().chain([0]).collect();
        let count = paths as BitsPerSecond;
        let mut least = BitsPerSecond::MAX;
        for level in levels {
            if level.saturating_mul(count) >= least {
                break;
            }
            least = least.min(
                level
                    .saturating_mul(count)
                    .saturating_add(self.max_flow_above(level)),
            );
        }
        least
    }

    /// Checks that a rate is rightly refused.
    pub(super) fn check_rate_refusal(
        &self,
        request: &CircuitRequest,
        rate: BitsPerSecond,
        most_sets: usize,
    ) -> Result<CheckVerdict, String> {
        if self.max_flow_above(0) < rate {
            return Ok(CheckVerdict::Flow);
        }
        if self.few_paths_bound(request.paths) < rate {
            return Ok(CheckVerdict::FewPaths);
        }
        match self.exact_maximum(request, most_sets) {
            Some(most) if most >= rate as f64 + rounding_slack(request) => {
                Err(format!("{most} bit/s go, and {rate} were refused"))
            }
            Some(_) => Ok(CheckVerdict::Exhausted),
            None => Ok(CheckVerdict::Open),
        }
    }

    /// Returns the most that any set of that many paths carries, or `None` if there are too many
    /// sets.
    pub(super) fn exact_maximum(&self, request: &CircuitRequest, most_sets: usize) -> Option<f64> {
        let all = self.paths(most_sets)?;
        let mut sets = most_sets;
        let mut open: Vec<Vec<usize>> = vec![Vec::new()];
        let mut most = 0.0_f64;
        while let Some(chosen) = open.pop() {
            sets = sets.checked_sub(1)?;
            most = most.max(self.joint_rate(request.diversity, &all, &chosen));
            if chosen.len() < request.paths {
                let from = chosen.last().map_or(0, |last| last + 1);
                open.extend((from..all.len()).map(|place| [&chosen[..], &[place]].concat()));
            }
        }
        Some(most)
    }

    /// Returns all loop-free paths that a request allows, with bandwidth left, or `None` if there
    /// are too many.
    fn paths(&self, most: usize) -> Option<Vec<Vec<usize>>> {
        let mut whole = Vec::new();
        let mut open: Vec<Vec<usize>> = vec![Vec::new()];
        let mut steps = 0;
        while let Some(path) = open.pop() {
            steps += 1;
            if steps > most {
                return None;
            }
            let links = self.network.links();
            let at = path
                .last()
                .map_or(self.from, |link| links[*link].to.0 as usize);
            if at == self.to {
                if is_within_bounds(self.network, self.request, &path) {
                    whole.push(path);
                }
                continue;
            }
            for (number, link) in links.iter().enumerate() {
                let to = link.to.0 as usize;
                let seen =
                    to == self.from || path.iter().any(|link| links[*link].to.0 as usize == to);
                if link.from.0 as usize == at && self.room[number] > 0 && !seen {
                    let mut path = path.clone();
                    path.push(number);
                    open.push(path);
                }
            }
        }
        Some(whole)
    }

    /// Returns what paths carry together, by a linear program with one constraint per link.
    fn joint_rate(&self, diversity: Disjoint, all: &[Vec<usize>], chosen: &[usize]) -> f64 {
        if chosen.is_empty() {
            return 0.0;
        }
        let links = self.network.links();
        let cables = |path: &Vec<usize>| {
            path.iter()
                .map(|link| links[*link].cable)
                .collect::<BTreeSet<_>>()
        };
        let inner = |path: &Vec<usize>| {
            path.iter()
                .skip(1)
                .map(|link| links[*link].from)
                .collect::<BTreeSet<_>>()
        };
        for (place, one) in chosen.iter().enumerate() {
            for other in &chosen[..place] {
                let (one, other) = (&all[*one], &all[*other]);
                let share = diversity != Disjoint::No && !cables(one).is_disjoint(&cables(other));
                if share || (diversity == Disjoint::Sites && !inner(one).is_disjoint(&inner(other)))
                {
                    return 0.0;
                }
            }
        }
        let scale = self.room.iter().copied().max().unwrap_or(1).max(1) as f64;
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let rates: Vec<_> = chosen
            .iter()
            .map(|_| problem.add_var(1.0, (0.0, f64::INFINITY)))
            .collect();
        for link in chosen
            .iter()
            .flat_map(|path| &all[*path])
            .collect::<BTreeSet<_>>()
        {
            let over = chosen
                .iter()
                .zip(&rates)
                .filter(|(path, _)| all[**path].contains(link));
            let terms: Vec<_> = over.map(|(_, rate)| (*rate, 1.0)).collect();
            problem.add_constraint(terms, ComparisonOp::Le, self.room[*link] as f64 / scale);
        }
        problem
            .solve()
            .ok()
            .and_then(|outcome| outcome.into_solution().ok())
            .map_or(0.0, |best| best.objective() * scale)
    }
}

/// Returns the rate, in bit/s, by which whole bit/s on each path may fall short of fractions.
pub(super) fn rounding_slack(request: &CircuitRequest) -> f64 {
    request.paths as f64
}
