//! Which route a transfer takes, how many at once, and in which order to fall back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::candidates::{Bounds, Scratch, candidates};
use super::combine::{spread_above, spread_below};
use super::expected::{Expected, LimitKind};
use super::explore::{Account, explored};
use super::map::Map;
use super::trust::Outcomes;
use super::{NodeId, Transfer, Via};
use crate::Quantiles;

/// By which figures routes are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// What goes direct whatever is expected, in bytes; the paper's depots cost time below 256 KB.
    pub small: u64,
    /// The part by which a route must be quicker than direct, at least, at the medians; the
    /// uncertainty of both is asked for where it is more.
    pub margin: f64,
    /// Of that margin, what a route that is in use keeps its place with.
    pub kept_margin: f64,
    /// The part by which a route must be quicker for each depot that it has more, so that none is
    /// added for noise.
    pub tolerance: f64,
    /// The part by which another route must be quicker than the one in use.
    pub switch: f64,
    /// What is divided over several routes, from this many bytes on.
    pub several: u64,
    /// The part of the time that another route at once must save.
    pub several_gain: f64,
    /// Most routes at once.
    pub most_at_once: usize,
    /// The part of bulk bytes that explores.
    pub exploration: f64,
    /// What is bulk, from this many bytes on: nothing smaller explores.
    pub bulk: u64,
}

impl Policy {
    /// The figures that are used unless others are given.
    pub const DEFAULT: Self = Self {
        small: 256 << 10,
        margin: 0.05,
        kept_margin: 0.5,
        tolerance: 0.03,
        switch: 0.10,
        several: 64 << 20,
        several_gain: 0.10,
        most_at_once: 3,
        exploration: 0.02,
        bulk: 16 << 20,
    };
}

impl Default for Policy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Request {
    /// The sender's end.
    pub from: NodeId,
    /// The receiver's end.
    pub to: NodeId,
    /// What is moved.
    pub transfer: Transfer,
    /// Somebody waits: nothing is explored.
    pub urgent: bool,
    /// The time.
    pub now: f64,
    /// Decides between equals which route is explored.
    pub seed: u64,
}

/// A route and what is expected of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rated {
    /// Its depots.
    pub via: Via,
    /// What is expected.
    pub expected: Expected,
}

/// Why it was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Small transfers go direct.
    Small,
    /// Nothing is known of the direct route, so nothing can be known to be better.
    DirectUnknown,
    /// The direct route is dead.
    DirectDead,
    /// No route is quicker than direct by enough.
    NothingBetter,
    /// This one is the quickest, or has fewer depots and is little slower.
    Quickest,
    /// It was in use, and no other is quicker by enough.
    InUse,
    /// Neither the direct route nor another one is known to lead there.
    NothingKnown,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Which route; the first of [`Self::at_once`].
    pub via: Via,
    /// Why.
    pub reason: Reason,
    /// What is expected of it alone; `None` if nothing is known.
    pub expected: Option<Expected>,
    /// What is expected of the direct route; `None` if nothing is known of it.
    pub direct: Option<Expected>,
    /// The quickest of the routes that were not chosen.
    pub next: Option<Rated>,
    /// The routes to use at once, the quickest first, with the parts of the work that they are
    /// expected to carry.
    pub at_once: Vec<(Via, f64)>,
    /// Where to go when all of these fail, in this order; ends with the direct route if that is not
    /// among them. Whoever knows what failed leaves out those that pass it.
    pub fall_back: Vec<Via>,
    /// A route to try with a little of the work.
    pub explore: Option<(Via, u64)>,
}

impl Choice {
    /// The same as whoever fetches opens its connections: the depots of every route in the other
    /// order.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let rated = |rated: Rated| Rated {
            via: rated.via.reversed(),
            ..rated
        };
        Self {
            via: self.via.reversed(),
            reason: self.reason,
            expected: self.expected,
            direct: self.direct,
            next: self.next.map(rated),
            at_once: self
                .at_once
                .iter()
                .map(|(via, share)| (via.reversed(), *share))
                .collect(),
            fall_back: self.fall_back.iter().map(Via::reversed).collect(),
            explore: self.explore.map(|(via, bytes)| (via.reversed(), bytes)),
        }
    }
}

/// The routes in use, for hysteresis: passed in and out.
pub type InUse = BTreeMap<(NodeId, NodeId, u8), Via>;

/// How many other routes an answer names to fall back to from direct.
const FALL_BACKS: usize = 2;
/// How many routes are looked for as places to fall back to where none is quicker than direct.
const FALL_BACK_BOUNDS: Bounds = Bounds {
    all_beginnings: 4,
    all_routes: 4,
    beginnings: 4,
    routes: 4,
};

/// Routes that are evaluated with their uncertainty at least, where there are as many.
const LEAST_RATED: usize = 8;
/// Routes that take at least this many times as long as direct are no place to fall back to either.
const FALL_BACK_REACH: f64 = 4.0;

/// What is chosen from.
pub struct Chooser<'a> {
    /// The hops.
    pub map: &'a Map,
    /// What transfers took.
    pub outcomes: &'a Outcomes,
    /// By which figures.
    pub policy: &'a Policy,
    /// A route that turns out slower than expected, and by what factor: for a choice made anew in
    /// the middle of a transfer.
    pub slowed: Option<(Via, f64)>,
    /// How many routes are looked at.
    pub bounds: Bounds,
    /// Room, to be used again.
    pub scratch: Scratch,
}

impl<'a> Chooser<'a> {
    /// With the usual bounds.
    #[must_use]
    pub fn new(map: &'a Map, outcomes: &'a Outcomes, policy: &'a Policy) -> Self {
        Self {
            map,
            outcomes,
            policy,
            slowed: None,
            bounds: Bounds::default(),
            scratch: Scratch::default(),
        }
    }

    /// What is expected of one route, by the model and by what earlier transfers between these ends
    /// took; `None` while the route is held back, or a hop of it is unknown or dead.
    #[must_use]
    pub fn rate(&self, request: &Request, via: &Via) -> Option<Rated> {
        let (from, to) = (request.from, request.to);
        let factor = self.factor(request, via)?;
        let mut expected = self
            .map
            .expected(from, via, to, &request.transfer, request.now)?;
        expected.time = Quantiles {
            p10: expected.time.p10 * factor,
            p50: expected.time.p50 * factor,
            p90: expected.time.p90 * factor,
        };
        Some(Rated {
            via: *via,
            expected,
        })
    }

    fn factor(&self, request: &Request, via: &Via) -> Option<f64> {
        let factor = self
            .outcomes
            .factor(request.from, request.to, via, request.now)?;
        let slowed = self.slowed.filter(|(slowed, _)| slowed == via);
        Some(factor * slowed.map_or(1.0, |(_, by)| by.max(1.0)))
    }

    /// All routes with depots that could be quicker than direct, or a place to fall back to, the
    /// quickest first.
    #[must_use]
    pub fn rated(&mut self, request: &Request, direct: Option<&Expected>) -> Vec<Rated> {
        self.rated_until(request, direct, None, usize::MAX)
    }

    /// So many of them at least; and further ones until the one that [`Self::choose`] takes is
    /// among them.
    fn rated_until(
        &mut self,
        request: &Request,
        direct: Option<&Expected>,
        in_use: Option<&Via>,
        count: usize,
    ) -> Vec<Rated> {
        // What an outcome has found slower cannot have become quicker by it: factors are never
        // below one.
        let below = direct.map_or(f64::INFINITY, |direct| direct.time.p50);
        let (from, to, transfer) = (request.from, request.to, &request.transfer);
        let mut search = |below, bounds: &Bounds| {
            candidates(
                self.map,
                &mut self.scratch,
                from,
                to,
                transfer,
                below,
                bounds,
            )
        };
        let mut found = search(below, &self.bounds);
        if found.is_empty() {
            found = search(below * FALL_BACK_REACH, &FALL_BACK_BOUNDS);
        }
        let rank = |time: f64, via: &Via| self.rank(time, via, in_use);
        let mut promising: Vec<(f64, Via)> = found
            .iter()
            .filter_map(|candidate| {
                let time = self.map.at_medians(from, &candidate.via, to, transfer)?;
                Some((time * self.factor(request, &candidate.via)?, candidate.via))
            })
            .collect();
        promising.sort_by(|one, other| rank(one.0, &one.1).total_cmp(&rank(other.0, &other.1)));
        let mut rated: Vec<Rated> = Vec::new();
        let mut best = f64::INFINITY;
        for (least, via) in promising {
            // What follows is no quicker than this, and by its uncertainty slower.
            if rated.len() >= count && rank(least, &via) >= best {
                break;
            }
            if let Some(route) = self.rate(request, &via) {
                if direct.is_none_or(|direct| self.is_better(&route, direct, in_use)) {
                    best = best.min(rank(route.expected.time.p50, &via));
                }
                rated.push(route);
            }
        }
        rated.sort_by(|one, other| {
            let of = |rated: &Rated| (rated.expected.time.p50, rated.via.len());
            let (one, other) = (of(one), of(other));
            one.0.total_cmp(&other.0).then(one.1.cmp(&other.1))
        });
        rated
    }

    /// Chooses. `in_use` is the route that this pair of ends takes for such transfers, if any.
    #[must_use]
    pub fn choose(&mut self, request: &Request, in_use: Option<&Via>, account: &Account) -> Choice {
        let policy = self.policy;
        let direct = self.rate(request, &Via::DIRECT);
        let direct_dead = self
            .map
            .hop(request.from, request.to)
            .is_some_and(|hop| self.map.is_dead(hop));
        let rated = self.rated_until(
            request,
            direct.as_ref().map(|direct| &direct.expected),
            in_use,
            LEAST_RATED,
        );
        let small = request.transfer.bytes <= policy.small;
        let (chosen, reason) = match &direct {
            // Who cannot go direct takes the quickest there is, however small.
            None if direct_dead
                || self
                    .outcomes
                    .is_held(request.from, request.to, &Via::DIRECT, request.now) =>
            {
                match self.quickest(&rated, in_use) {
                    Some(route) => (Some(route), Reason::DirectDead),
                    None => (None, Reason::NothingKnown),
                }
            }
            _ if small => (direct, Reason::Small),
            None => (None, Reason::DirectUnknown),
            Some(direct) => {
                let better: Vec<Rated> = rated
                    .iter()
                    .filter(|route| self.is_better(route, &direct.expected, in_use))
                    .copied()
                    .collect();
                match self.quickest(&better, in_use) {
                    None => (Some(*direct), Reason::NothingBetter),
                    Some(route) if Some(&route.via) == in_use => (Some(route), Reason::InUse),
                    Some(route) => (Some(route), Reason::Quickest),
                }
            }
        };
        let via = chosen.map_or(Via::DIRECT, |chosen| chosen.via);
        let others = || direct.iter().chain(&rated).filter(|route| route.via != via);
        let next = others()
            .min_by(|one, other| one.expected.time.p50.total_cmp(&other.expected.time.p50))
            .copied();
        let at_once = match &chosen {
            Some(chosen) if request.transfer.bytes >= policy.several => {
                self.at_once(request, chosen, others().copied().collect())
            }
            _ => vec![(via, 1.0)],
        };
        let used = |via: &Via| at_once.iter().any(|(used, _)| used == via);
        let mut fall_back = fall_backs(&rated, &via);
        fall_back.retain(|via| !used(via));
        if !used(&Via::DIRECT) {
            fall_back.push(Via::DIRECT);
        }
        let explore = explored(self, request, &at_once, chosen.as_ref(), account);
        Choice {
            via,
            reason,
            expected: chosen.map(|chosen| chosen.expected),
            direct: direct.map(|direct| direct.expected),
            next,
            at_once,
            fall_back,
            explore,
        }
    }

    /// Whether a route may be taken in place of the direct one.
    fn is_better(&self, route: &Rated, direct: &Expected, in_use: Option<&Via>) -> bool {
        let kept = in_use == Some(&route.via);
        let share = if kept { self.policy.kept_margin } else { 1.0 };
        is_better(
            &route.expected.time,
            &direct.time,
            self.policy.margin,
            share,
        )
    }

    /// By what routes are compared: their time, where each depot counts as the tolerance and the
    /// route in use has its advantage. Each route's rank is its own affair: a route that is there
    /// or not changes nothing between two others.
    fn rank(&self, time: f64, via: &Via, in_use: Option<&Via>) -> f64 {
        let depots = i32::try_from(via.len()).unwrap_or(0);
        let used = if Some(via) == in_use {
            1.0 + self.policy.switch
        } else {
            1.0
        };
        time * (1.0 + self.policy.tolerance).powi(depots) / used
    }

    fn quickest(&self, rated: &[Rated], in_use: Option<&Via>) -> Option<Rated> {
        let rank = |route: &Rated| self.rank(route.expected.time.p50, &route.via, in_use);
        rated
            .iter()
            .min_by(|one, other| rank(one).total_cmp(&rank(other)))
            .copied()
    }

    /// The chosen route and others that add to its rate: routes without a depot or a hop in common,
    /// each as good as its bottleneck, which must differ from all the others'. What is limited by
    /// set-up or an end gains nothing by it.
    fn at_once(
        &self,
        request: &Request,
        chosen: &Rated,
        mut others: Vec<Rated>,
    ) -> Vec<(Via, f64)> {
        let bytes = request.transfer.bytes as f64;
        let within = |time: f64, route: &Rated| {
            bytes / (time - route.expected.around).max(f64::MIN_POSITIVE)
        };
        let rate = |route: &Rated| within(route.expected.time.p50, route);
        // A route is added for what it brings in nine cases of ten.
        let sure = |route: &Rated| within(route.expected.time.p90, route);
        let mut used = vec![*chosen];
        let mut together = rate(chosen);
        others.sort_by(|one, other| one.expected.time.p50.total_cmp(&other.expected.time.p50));
        for other in others {
            if used.len() >= self.policy.most_at_once {
                break;
            }
            let adds = used
                .iter()
                .all(|route| self.bottlenecks_differ(request, route, &other));
            if adds && sure(&other) >= together * self.policy.several_gain {
                together += rate(&other);
                used.push(other);
            }
        }
        used.iter()
            .map(|route| (route.via, rate(route) / together))
            .collect()
    }

    fn bottlenecks_differ(&self, request: &Request, one: &Rated, other: &Rated) -> bool {
        let shareable = |route: &Rated| {
            let kind = route.expected.limit.kind;
            !matches!(
                kind,
                LimitKind::SetUp | LimitKind::SlowStart | LimitKind::Host
            )
        };
        let (from, to) = (request.from, request.to);
        let hop = |route: &Rated| {
            self.map
                .hop(route.expected.limit.hop.0, route.expected.limit.hop.1)
        };
        let (Some(narrow), Some(narrow_other)) = (hop(one), hop(other)) else {
            return false;
        };
        shareable(one)
            && shareable(other)
            && !one.via.depots().any(|depot| other.via.passes(depot))
            && !one
                .via
                .hops(from, to)
                .any(|hop| other.via.hops(from, to).any(|also| also == hop))
            && self.map.differ(narrow, narrow_other)
    }
}

/// Where to go when a route fails: for each of its depots the quickest that does not pass it.
fn fall_backs(rated: &[Rated], via: &Via) -> Vec<Via> {
    let mut found: Vec<Via> = Vec::new();
    for depot in via.depots() {
        let other = rated.iter().find(|other| !other.via.passes(depot));
        found.extend(
            other
                .map(|other| other.via)
                .filter(|other| !found.contains(other)),
        );
    }
    if via.is_direct() {
        found.extend(rated.iter().take(FALL_BACKS).map(|other| other.via));
    }
    let place = |via: &Via| rated.iter().position(|other| other.via == *via);
    found.sort_by_key(place);
    found
}

/// Whether a route is quicker than direct beyond doubt: at the medians by `margin`, and by as much
/// as both may be off in nine cases of ten, the route on its slow side and the direct one on its
/// quick side. A `share` of that margin is asked for.
#[must_use]
pub fn is_better(route: &Quantiles, direct: &Quantiles, margin: f64, share: f64) -> bool {
    if route.p50 <= 0.0 || direct.p50 <= 0.0 {
        return false;
    }
    let gain = (direct.p50 / route.p50).ln();
    let doubt = spread_above(route).hypot(spread_below(direct));
    gain > share * doubt.max((1.0 + margin).ln())
}

#[cfg(test)]
mod tests;
