//! A volume by a deadline: a flow over time, in the stretches between changes of the available
//! bandwidth.
//!
//! Nothing is stored along the path, so what is carried in one stretch does not affect the others.
//! The maximum of each stretch is therefore the maximum of the whole.

mod filling;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::available_field;
use crate::ledger::View;
use crate::network::LinkId;
use crate::path::BandwidthField;
use crate::policy::RequestLimits;
use crate::proof::{PartialFit, Proof};
use crate::request::{CircuitRequest, Pace, ReservationPlan};
use crate::split::{Cut, PathConstraints, find_routes, minimum_cut};
use crate::time::{BitsPerSecond, MAX_MOMENT, MAX_RATE, MomentMs, Volume, Window};
use filling::{Filling, SearchEffort};

/// Maximum number of stretches in the first attempt. Neighbouring stretches are merged, with the
/// rate left throughout, until there are no more than this. Up to this number, the best routes are
/// searched even if they are known not to suffice.
const MAX_MERGED_STRETCHES: usize = 48;

/// Maximum number of stretches that are examined one by one.
pub(super) const MAX_STRETCHES: usize = 1_024;

/// Volume to carry, and its constraints.
#[derive(Debug, Clone, Copy)]
pub(super) struct Goal {
    /// Volume to carry.
    pub(super) volume: Volume,
    /// Maximum rate, in bit/s.
    pub(super) most: Option<BitsPerSecond>,
    /// Distribution over the window.
    pub(super) pace: Pace,
}

impl Goal {
    /// Returns a goal of `bytes` bytes, no faster than the ends and the limits allow.
    pub(super) fn within_limits(
        bytes: u64,
        most: Option<BitsPerSecond>,
        pace: Pace,
        limits: &RequestLimits,
    ) -> Self {
        Self {
            volume: Volume::from_bytes(bytes),
            most: most.into_iter().chain(limits.rate).min(),
            pace,
        }
    }
}

/// Partial plans for a volume that does not fit: the result of each attempt, in the order of
/// [`plan_volume`].
#[derive(Debug, Clone)]
pub(super) struct PartialPlans(Vec<Filling>);

impl PartialPlans {
    /// Returns the most bytes that any attempt carries.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = self.0.iter().map(|filling| filling.carried().bytes());
        bytes.max().unwrap_or(0)
    }

    /// Returns the plan that [`plan_volume`] makes of `bytes` bytes as early as possible, from the
    /// first attempt that carries them. `bytes` is at most what was found. Returns `None` if that
    /// needs another attempt.
    pub(super) fn plan_for(&self, bytes: u64) -> Option<ReservationPlan> {
        let volume = Volume::from_bytes(bytes);
        let mut looks = self.0.iter();
        looks
            .find(|filling| filling.carried() >= volume)?
            .plan_for(volume)
    }
}

/// Plans a volume within the request's window.
pub(super) fn plan_volume(
    view: &View<'_>,
    request: &CircuitRequest,
    goal: &Goal,
) -> Result<ReservationPlan, PartialFit<PartialPlans>> {
    let window = request.window;
    let even = goal
        .volume
        .min_rate_within(window.length())
        .filter(|rate| goal.most.is_none_or(|most| *rate <= most));
    if goal.pace == Pace::Even
        && let Some(rate) = even
        && let Ok(routes) = find_routes(
            &available_field(view, request, window),
            &request.path_constraints(),
            rate,
        )
    {
        let length = goal.volume.duration_at(rate).unwrap_or(window.length());
        return Ok(ReservationPlan::constant(
            Window::new(window.start, window.start.saturating_add_unsigned(length)),
            routes,
        ));
    }
    let sweep = Sweep::new(view, request, window);
    let quick = sweep.fill(
        goal,
        sweep.len().div_ceil(MAX_MERGED_STRETCHES),
        SearchEffort::Widest,
    );
    if quick.is_enough() {
        return Ok(quick.plan());
    }
    let (links, volume) = volume_cut(view, request, goal);
    if volume < goal.volume {
        // A partial volume is still worth an offer.
        return Err(PartialFit {
            found: sweep.fill_best(goal, quick),
            proof: Proof::Volume { links, volume },
        });
    }
    let mut found = vec![quick];
    let mut proof = Proof::Unknown;
    if sweep.len() <= MAX_STRETCHES {
        // Up to this number, they were already tried one by one.
        let one_by_one = (sweep.len() > MAX_MERGED_STRETCHES).then_some(SearchEffort::Widest);
        for look in one_by_one.into_iter().chain([SearchEffort::Best]) {
            let filling = sweep.fill(goal, 1, look);
            if filling.is_enough() {
                return Ok(filling.plan());
            }
            if look == SearchEffort::Best && filling.limit() < goal.volume {
                let volume = filling.limit();
                proof = Proof::Stretches { volume };
            }
            found.push(filling);
        }
    }
    Err(PartialFit {
        found: PartialPlans(found),
        proof,
    })
}

/// Finds the most that fits in the request's window, at `fastest` or less.
pub(super) fn plan_most(
    view: &View<'_>,
    request: &CircuitRequest,
    fastest: Option<BitsPerSecond>,
) -> PartialPlans {
    let goal = Goal {
        volume: Volume(u128::MAX),
        most: fastest,
        pace: Pace::Early,
    };
    let sweep = Sweep::new(view, request, request.window);
    let quick = sweep.fill(
        &goal,
        sweep.len().div_ceil(MAX_MERGED_STRETCHES),
        SearchEffort::Widest,
    );
    sweep.fill_best(&goal, quick)
}

/// Plans a volume without a deadline, so that it ends early. The window grows until the volume
/// fits.
pub(super) fn plan_earliest_finish(
    view: &View<'_>,
    request: &CircuitRequest,
    goal: &Goal,
) -> Option<ReservationPlan> {
    let start = request.window.start;
    let free = view.end().unwrap_or(start).max(start);
    let mut length = request.window.length();
    loop {
        length = length.saturating_mul(2);
        let end = start.saturating_add_unsigned(length).min(free);
        // Behind the last reservation, the final stretch is as long as needed.
        let end = if end == free { MAX_MOMENT } else { end };
        let sweep = Sweep::new(view, request, Window::new(start, end));
        if sweep.len() > MAX_STRETCHES {
            return None;
        }
        let done = sweep.fill(goal, 1, SearchEffort::Widest);
        if end == MAX_MOMENT || done.is_enough() {
            return done.is_enough().then(|| done.plan());
        }
    }
}

/// A window as a sequence of stretches. Within each, nothing changes on the links that the request
/// may use.
struct Sweep<'a> {
    window: Window,
    ask: PathConstraints,
    /// Rates left at the start of the window.
    field: BandwidthField<'a>,
    /// Moments of change in order, with the links that change and the rate left from then on.
    changes: BTreeMap<MomentMs, Vec<(LinkId, BitsPerSecond)>>,
}

impl<'a> Sweep<'a> {
    fn new(view: &View<'a>, request: &CircuitRequest, window: Window) -> Self {
        let field = available_field(view, request, instant_window(window.start));
        let mut changes: BTreeMap<MomentMs, Vec<(LinkId, BitsPerSecond)>> = BTreeMap::new();
        for link in view.network().ids().filter(|link| field.is_usable(*link)) {
            for (at, left) in view.changes(link, window) {
                changes.entry(at).or_default().push((link, left));
            }
        }
        Self {
            window,
            ask: request.path_constraints(),
            field,
            changes,
        }
    }

    /// Returns the number of stretches.
    fn len(&self) -> usize {
        self.changes.len() + 1
    }

    /// Finds the most that fits although a cut rules out the whole volume: the quick attempt, and
    /// the best attempt that this number of stretches permits.
    fn fill_best(&self, goal: &Goal, quick: Filling) -> PartialPlans {
        let look = match self.len() {
            count if count <= MAX_MERGED_STRETCHES => Some(SearchEffort::Best),
            count if count <= MAX_STRETCHES => Some(SearchEffort::Widest),
            _ => None,
        };
        let better = look.map(|look| self.fill(goal, 1, look));
        PartialPlans([quick].into_iter().chain(better).collect())
    }

    /// Fills one stretch after another until the goal is met. `together` neighbours count as one
    /// stretch, with the rate left throughout.
    fn fill(&self, goal: &Goal, together: usize, look: SearchEffort) -> Filling {
        let mut filling = Filling::new(goal, self.ask.clone(), look);
        let mut field = self.field.clone();
        let mut start = self.window.start;
        // Least rate left since the stretch began.
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
                field.set_room(*link, *left);
                least.set_room(*link, (*left).min(least.room(*link)));
            }
            if ends {
                least.clone_from(&field);
            }
        }
        filling.add(Window::new(start, self.window.end), &least);
        filling
    }
}

/// Returns a window of one millisecond.
const fn instant_window(at: MomentMs) -> Window {
    Window::new(at, at.saturating_add(1))
}

/// Returns the most that passes between the ends within the window, by what each link carries in
/// all of it: the links of the narrowest cut, and their volume.
fn volume_cut(view: &View<'_>, request: &CircuitRequest, goal: &Goal) -> (Vec<LinkId>, Volume) {
    let (network, window) = (view.network(), request.window);
    let fastest = Volume::carried(goal.most.unwrap_or(MAX_RATE), window.length());
    let carries = |link: LinkId| view.left_to_carry(link, window).min(fastest);
    // In units small enough that sums over many links do not overflow; rounded up because it is a
    // bound.
    let unit = Volume::carried(MAX_RATE, window.length())
        .0
        .div_ceil(u128::from(MAX_RATE))
        .max(1);
    let allowed = |link: LinkId| request.elements.allows_link(network, request.ends, link);
    let units = BandwidthField::new(network, |link| {
        let units = carries(link).0.div_ceil(unit);
        allowed(link).then(|| BitsPerSecond::try_from(units).unwrap_or(BitsPerSecond::MAX))
    });
    let Cut { links, .. } = minimum_cut(&units, request.ends);
    let volume = links
        .iter()
        .map(|link| carries(*link))
        .fold(Volume::default(), Volume::plus);
    (links, volume.min(fastest))
}
