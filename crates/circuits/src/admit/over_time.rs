//! A volume by a deadline: a flow over time, by the stretches between the changes of what is left.
//!
//! What goes in one stretch leaves the others as they are, since nothing is stored on the way; so the most in each of them is the most in all.

use std::collections::BTreeMap;

use super::field;
use crate::ledger::View;
use crate::network::LinkId;
use crate::path::Field;
use crate::policy::Limits;
use crate::request::{Pace, Piece, Plan, Request};
use crate::split::{Cut, Route, minimum_cut, most, reach, total, widest_first};
use crate::time::{MAX_MOMENT, MAX_RATE, Moment, Rate, Volume, Window};

/// Stretches that are tried first: neighbours count as one, with what is left throughout, until there are no more than this. Up to so many,
/// the best is looked for even where it is known not to be enough.
const FEW: usize = 48;

/// Stretches that are looked at one by one, at most.
pub(super) const MAX_STRETCHES: usize = 1_024;

/// What is to be carried.
#[derive(Debug, Clone, Copy)]
pub(super) struct Goal {
    /// How much.
    pub(super) volume: Volume,
    /// How fast, at most, in bit/s.
    pub(super) most: Option<Rate>,
    /// How it is spread.
    pub(super) pace: Pace,
}

impl Goal {
    /// So many bytes, no faster than the ends can and the limits allow.
    pub(super) fn of(bytes: u64, most: Option<Rate>, pace: Pace, limits: &Limits) -> Self {
        Self {
            volume: Volume::of_bytes(bytes),
            most: most.into_iter().chain(limits.rate).min(),
            pace,
        }
    }
}

/// Less goes.
#[derive(Debug, Clone)]
pub(super) struct Short {
    /// What was found to go.
    pub(super) plan: Plan,
    /// How it is known.
    pub(super) known: Known,
}

/// How it is known that no more goes.
#[derive(Debug, Clone)]
pub(super) enum Known {
    /// No more than this passes these links within the window.
    Cut(Cut, Volume),
    /// No more than this goes in all stretches together.
    Stretches(Volume),
    /// It isn't.
    Unknown,
}

/// The plan for a volume, within the request's window.
pub(super) fn plan(view: &View<'_>, request: &Request, goal: &Goal) -> Result<Plan, Short> {
    let window = request.window;
    let even = goal
        .volume
        .rate_within(window.length())
        .filter(|rate| goal.most.is_none_or(|most| *rate <= most));
    if goal.pace == Pace::Even
        && let Some(rate) = even
        && let Ok(routes) = reach(&field(view, request, window), &request.ask(), rate)
    {
        let length = goal.volume.time_at(rate).unwrap_or(window.length());
        return Ok(Plan::constant(
            Window::new(window.start, window.start.saturating_add_unsigned(length)),
            routes,
        ));
    }
    let sweep = Sweep::new(view, request, window);
    let greedily = |field: &Field<'_>, want| (widest_first(field, &request.ask(), want), 0);
    let best = |field: &Field<'_>, want| most(field, &request.ask(), want);
    let quick = sweep.fill(goal, sweep.len().div_ceil(FEW), greedily);
    if let Ok(plan) = quick {
        return Ok(plan);
    }
    let (cut, volume) = passing(view, request, goal);
    if volume < goal.volume {
        // What goes nevertheless is worth an offer.
        let found = match sweep.len() {
            count if count <= FEW => sweep.fill(goal, 1, best),
            count if count <= MAX_STRETCHES => sweep.fill(goal, 1, greedily),
            _ => quick,
        };
        let plan = found.unwrap_or_else(|(plan, _)| plan);
        return Err(Short {
            plan,
            known: Known::Cut(cut, volume),
        });
    }
    if sweep.len() > MAX_STRETCHES {
        let plan = quick.unwrap_or_else(|(plan, _)| plan);
        return Err(Short {
            plan,
            known: Known::Unknown,
        });
    }
    // Up to so many were tried one by one already.
    if sweep.len() > FEW
        && let Ok(plan) = sweep.fill(goal, 1, greedily)
    {
        return Ok(plan);
    }
    sweep.fill(goal, 1, best).map_err(|(plan, limit)| {
        let known = if limit < goal.volume {
            Known::Stretches(limit)
        } else {
            Known::Unknown
        };
        Short { plan, known }
    })
}

/// The plan for a volume by whenever it is done, and so an early end, as far as it is found: in windows that grow.
pub(super) fn earliest(view: &View<'_>, request: &Request, goal: &Goal) -> Option<Plan> {
    let start = request.window.start;
    let free = view.end().unwrap_or(start).max(start);
    let mut length = request.window.length();
    loop {
        length = length.saturating_mul(2);
        let end = start.saturating_add_unsigned(length).min(free);
        // Behind everything that is booked, the last stretch lasts as long as it takes.
        let end = if end == free { MAX_MOMENT } else { end };
        let sweep = Sweep::new(view, request, Window::new(start, end));
        if sweep.len() > MAX_STRETCHES {
            return None;
        }
        let done = sweep.fill(goal, 1, |field, want| {
            (widest_first(field, &request.ask(), want), 0)
        });
        if end == MAX_MOMENT || done.is_ok() {
            return done.ok();
        }
    }
}

/// A window, stretch by stretch, in each of which nothing changes on the links that a request may use.
struct Sweep<'a> {
    window: Window,
    /// What is left at the start.
    field: Field<'a>,
    /// When something changes, in order, on which links, and what is left of them from then on.
    changes: BTreeMap<Moment, Vec<(LinkId, Rate)>>,
}

impl<'a> Sweep<'a> {
    fn new(view: &View<'a>, request: &Request, window: Window) -> Self {
        let field = field(view, request, moment(window.start));
        let mut changes: BTreeMap<Moment, Vec<(LinkId, Rate)>> = BTreeMap::new();
        for link in view.network().ids().filter(|link| field.usable(*link)) {
            for (at, left) in view.changes(link, window) {
                changes.entry(at).or_default().push((link, left));
            }
        }
        Self {
            window,
            field,
            changes,
        }
    }

    /// How many stretches there are.
    fn len(&self) -> usize {
        self.changes.len() + 1
    }

    /// Fills stretch after stretch with what goes in each, until it is enough; else what went, and what could have gone at most. So many
    /// neighbours count as one stretch, with what is left throughout.
    fn fill(
        &self,
        goal: &Goal,
        together: usize,
        mut goes: impl FnMut(&Field<'_>, Rate) -> (Vec<Route>, Rate),
    ) -> Result<Plan, (Plan, Volume)> {
        let mut filling = Filling::new(goal);
        let mut field = self.field.clone();
        let mut start = self.window.start;
        // The least that is left since the stretch began.
        let mut least = field.clone();
        for (number, (at, changed)) in (1_usize..).zip(&self.changes) {
            let ends = number % together.max(1) == 0;
            if ends {
                if filling.add(Window::new(start, *at), &least, &mut goes) {
                    return Ok(filling.plan);
                }
                start = *at;
            }
            for (link, left) in changed {
                field.set(*link, *left);
                least.set(*link, (*left).min(least.room(*link)));
            }
            if ends {
                least.clone_from(&field);
            }
        }
        if filling.add(Window::new(start, self.window.end), &least, &mut goes) {
            return Ok(filling.plan);
        }
        Err((filling.plan, filling.limit))
    }
}

/// A millisecond.
const fn moment(at: Moment) -> Window {
    Window::new(at, at.saturating_add(1))
}

/// What was filled so far.
struct Filling<'g> {
    goal: &'g Goal,
    plan: Plan,
    left: Volume,
    /// What could have gone at most.
    limit: Volume,
}

impl<'g> Filling<'g> {
    fn new(goal: &'g Goal) -> Self {
        Self {
            goal,
            plan: Plan::default(),
            left: goal.volume,
            limit: Volume::default(),
        }
    }

    /// Adds what goes in one stretch; whether that is enough.
    fn add(
        &mut self,
        window: Window,
        field: &Field<'_>,
        goes: &mut impl FnMut(&Field<'_>, Rate) -> (Vec<Route>, Rate),
    ) -> bool {
        let fastest = self.goal.most.unwrap_or(MAX_RATE);
        // No more than what is left needs in a millisecond, the shortest time there is.
        let want = self.left.rate_within(1).unwrap_or(MAX_RATE).min(fastest);
        let (routes, most) = goes(field, want);
        let rate = total(&routes);
        self.limit = self.limit.plus(Volume::carried(most.max(rate), window.length()));
        if rate == 0 {
            return false;
        }
        let length = self.left.time_at(rate).unwrap_or(u64::MAX).min(window.length());
        self.left = self.left.less(Volume::carried(rate, length));
        let window = Window::new(window.start, window.start.saturating_add_unsigned(length));
        self.plan.push(Piece { window, routes });
        self.left == Volume::default()
    }
}

/// What passes between the ends within the window at most, by what each link has left in all of it: the narrowest cut, and its volume.
fn passing(view: &View<'_>, request: &Request, goal: &Goal) -> (Cut, Volume) {
    let (network, window) = (view.network(), request.window);
    let fastest = Volume::carried(goal.most.unwrap_or(MAX_RATE), window.length());
    let carries = |link: LinkId| view.left_to_carry(link, window).min(fastest);
    // In units that many links together keep within their integers; rounded up, because it is a bound.
    let unit = Volume::carried(MAX_RATE, window.length())
        .0
        .div_ceil(u128::from(MAX_RATE))
        .max(1);
    let allowed = |link: LinkId| request.elements.allow(network, request.ends, link);
    let units = Field::new(network, |link| {
        let units = carries(link).0.div_ceil(unit);
        allowed(link).then(|| Rate::try_from(units).unwrap_or(Rate::MAX))
    });
    let cut = minimum_cut(&units, request.ends);
    let volume = cut
        .links
        .iter()
        .map(|link| carries(*link))
        .fold(Volume::default(), Volume::plus);
    (cut, volume.min(fastest))
}
