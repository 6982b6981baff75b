//! A volume by a deadline: a flow over time, by the stretches between the changes of what is left.
//!
//! What goes in one stretch leaves the others as they are, since nothing is stored on the way; so
//! the most in each of them is the most in all.

mod filling;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::field;
use crate::ledger::View;
use crate::network::LinkId;
use crate::path::Field;
use crate::policy::Limits;
use crate::request::{Pace, Plan, Request};
use crate::split::{Ask, Cut, minimum_cut, reach};
use crate::time::{MAX_MOMENT, MAX_RATE, Moment, Rate, Volume, Window};
use filling::{Filling, Look};

/// Stretches that are tried first: neighbours count as one, with what is left throughout, until
/// there are no more than this. Up to so many, the best is looked for even where it is known not to
/// be enough.
const MAX_MERGED_STRETCHES: usize = 48;

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
    pub(super) found: Found,
    /// How it is known.
    pub(super) known: Known,
}

/// What was found to go where not all of a volume does: what one look after the other found, in the
/// order of [`plan`].
#[derive(Debug, Clone)]
pub(super) struct Found(Vec<Filling>);

impl Found {
    /// The most bytes that any look found to go.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = self.0.iter().map(|filling| filling.carried().bytes());
        bytes.max().unwrap_or(0)
    }

    /// What [`plan`] makes of these bytes, at most as many as were found to go, as early as they
    /// go: what the first look did that carries them. None where that is not known without looking
    /// again.
    pub(super) fn plan(&self, bytes: u64) -> Option<Plan> {
        let volume = Volume::of_bytes(bytes);
        let mut looks = self.0.iter();
        looks
            .find(|filling| filling.carried() >= volume)?
            .of(volume)
    }
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
    let quick = sweep.fill(
        goal,
        sweep.len().div_ceil(MAX_MERGED_STRETCHES),
        Look::Widest,
    );
    if quick.is_enough() {
        return Ok(quick.plan());
    }
    let (cut, volume) = passing(view, request, goal);
    if volume < goal.volume {
        // What goes nevertheless is worth an offer.
        return Err(Short {
            found: sweep.nearest(goal, quick),
            known: Known::Cut(cut, volume),
        });
    }
    let mut found = vec![quick];
    let mut known = Known::Unknown;
    if sweep.len() <= MAX_STRETCHES {
        // Up to so many were tried one by one already.
        let one_by_one = (sweep.len() > MAX_MERGED_STRETCHES).then_some(Look::Widest);
        for look in one_by_one.into_iter().chain([Look::Best]) {
            let filling = sweep.fill(goal, 1, look);
            if filling.is_enough() {
                return Ok(filling.plan());
            }
            if look == Look::Best && filling.limit() < goal.volume {
                known = Known::Stretches(filling.limit());
            }
            found.push(filling);
        }
    }
    Err(Short {
        found: Found(found),
        known,
    })
}

/// The most that goes within the request's window, no faster than this, as far as it is found.
pub(super) fn most(view: &View<'_>, request: &Request, fastest: Option<Rate>) -> Found {
    let goal = Goal {
        volume: Volume(u128::MAX),
        most: fastest,
        pace: Pace::Early,
    };
    let sweep = Sweep::new(view, request, request.window);
    let quick = sweep.fill(
        &goal,
        sweep.len().div_ceil(MAX_MERGED_STRETCHES),
        Look::Widest,
    );
    sweep.nearest(&goal, quick)
}

/// The plan for a volume by whenever it is done, and so an early end, as far as it is found: in
/// windows that grow.
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
        let done = sweep.fill(goal, 1, Look::Widest);
        if end == MAX_MOMENT || done.is_enough() {
            return done.is_enough().then(|| done.plan());
        }
    }
}

/// A window, stretch by stretch, in each of which nothing changes on the links that a request may
/// use.
struct Sweep<'a> {
    window: Window,
    ask: Ask,
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
            ask: request.ask(),
            field,
            changes,
        }
    }

    /// How many stretches there are.
    fn len(&self) -> usize {
        self.changes.len() + 1
    }

    /// The most that goes where a cut is known to be in the way of all of it: beside a quick look,
    /// as good a one as so many stretches allow.
    fn nearest(&self, goal: &Goal, quick: Filling) -> Found {
        let look = match self.len() {
            count if count <= MAX_MERGED_STRETCHES => Some(Look::Best),
            count if count <= MAX_STRETCHES => Some(Look::Widest),
            _ => None,
        };
        let better = look.map(|look| self.fill(goal, 1, look));
        Found([quick].into_iter().chain(better).collect())
    }

    /// Fills stretch after stretch with what goes in each, until it is enough. So many neighbours
    /// count as one stretch, with what is left throughout.
    fn fill(&self, goal: &Goal, together: usize, look: Look) -> Filling {
        let mut filling = Filling::new(goal, self.ask, look);
        let mut field = self.field.clone();
        let mut start = self.window.start;
        // The least that is left since the stretch began.
        let mut least = field.clone();
        for (number, (at, changed)) in (1_usize..).zip(&self.changes) {
            let ends = number % together.max(1) == 0;
            if ends {
                filling.add(Window::new(start, *at), &least);
                if filling.is_enough() {
                    return filling;
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
        filling.add(Window::new(start, self.window.end), &least);
        filling
    }
}

/// A millisecond.
const fn moment(at: Moment) -> Window {
    Window::new(at, at.saturating_add(1))
}

/// What passes between the ends within the window at most, by what each link has left in all of it:
/// the narrowest cut, and its volume.
fn passing(view: &View<'_>, request: &Request, goal: &Goal) -> (Cut, Volume) {
    let (network, window) = (view.network(), request.window);
    let fastest = Volume::carried(goal.most.unwrap_or(MAX_RATE), window.length());
    let carries = |link: LinkId| view.left_to_carry(link, window).min(fastest);
    // In units that many links together keep within their integers; rounded up, because it is a
    // bound.
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
