//! Filling of stretches, one after another, until the volume is carried.

use super::Goal;
use crate::path::BandwidthField;
use crate::request::{PlanPiece, ReservationPlan};
use crate::split::{PathConstraints, RatedPath, max_rate_routes, total_rate, widest_behind};
use crate::time::{BitsPerSecond, MAX_RATE, Volume, Window};

/// Route search within a stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchEffort {
    /// The widest paths first, which is fast.
    Widest,
    /// The most that can be found.
    Best,
}

/// The filled part of one stretch.
#[derive(Debug, Clone)]
struct FilledStretch {
    piece: PlanPiece,
    /// Wanted rate, in bit/s, from which on the stretch yields the same routes.
    enough: BitsPerSecond,
}

/// Stretches filled so far.
#[derive(Debug, Clone)]
pub(super) struct Filling {
    ask: PathConstraints,
    look: SearchEffort,
    /// Maximum rate, in bit/s.
    fastest: BitsPerSecond,
    parts: Vec<FilledStretch>,
    carried: Volume,
    left: Volume,
    /// Upper bound of the volume that could have been carried.
    limit: Volume,
    /// Preceding stretch. Some of its paths may be the widest in the next one as well.
    before: Option<PreviousStretch>,
}

impl Filling {
    pub(super) fn new(goal: &Goal, ask: PathConstraints, look: SearchEffort) -> Self {
        Self {
            ask,
            look,
            fastest: goal.most.unwrap_or(MAX_RATE),
            parts: Vec::new(),
            carried: Volume::default(),
            left: goal.volume,
            limit: Volume::default(),
            before: None,
        }
    }

    /// Returns true if the whole volume is carried.
    pub(super) fn is_enough(&self) -> bool {
        self.left == Volume::default()
    }

    /// Returns the volume carried.
    pub(super) const fn carried(&self) -> Volume {
        self.carried
    }

    /// Returns the upper bound of what could have been carried, for [`SearchEffort::Best`].
    pub(super) const fn limit(&self) -> Volume {
        self.limit
    }

    /// Returns all pieces as a plan.
    pub(super) fn plan(self) -> ReservationPlan {
        let mut plan = ReservationPlan::default();
        for part in self.parts {
            plan.push(part.piece);
        }
        plan
    }

    /// Returns the plan that the same stretches make of a smaller volume. Returns `None` if other
    /// routes would do for the rest of it near its end.
    pub(super) fn plan_for(&self, volume: Volume) -> Option<ReservationPlan> {
        let (mut plan, mut left) = (ReservationPlan::default(), volume);
        for FilledStretch { piece, enough } in &self.parts {
            if self.wanted_rate(left) < *enough {
                return None;
            }
            let (piece, carried) = fitted_piece(&piece.routes, piece.window, left);
            plan.push(piece);
            left = left.minus(carried);
            if left == Volume::default() {
                return Some(plan);
            }
        }
        None
    }

    /// Returns the rate that carries `left` in 1 ms, the shortest time there is, but at most the
    /// maximum rate.
    fn wanted_rate(&self, left: Volume) -> BitsPerSecond {
        left.min_rate_within(1)
            .unwrap_or(MAX_RATE)
            .min(self.fastest)
    }

    /// Adds one stretch.
    pub(super) fn add(&mut self, window: Window, field: &BandwidthField<'_>) {
        let want = self.wanted_rate(self.left);
        let (routes, most) = match self.look {
            SearchEffort::Best => max_rate_routes(field, &self.ask, want),
            SearchEffort::Widest => (self.widest_routes(field, want), 0),
        };
        let rate = total_rate(&routes);
        self.limit = self
            .limit
            .plus(Volume::carried(most.max(rate), window.length()));
        if rate == 0 {
            return;
        }
        let (piece, carried) = fitted_piece(&routes, window, self.left);
        self.carried = self.carried.plus(carried);
        self.left = self.left.minus(carried);
        // No more than this leaves the source, whatever is wanted.
        let network = field.network();
        let leaves = network
            .links_from(self.ask.ends.from)
            .map(|(id, _)| field.room(id));
        let enough = leaves.fold(0, BitsPerSecond::saturating_add).min(want);
        self.parts.push(FilledStretch { piece, enough });
    }

    fn widest_routes(&mut self, field: &BandwidthField<'_>, want: BitsPerSecond) -> Vec<RatedPath> {
        let before = self.before.take();
        // Within constraints, another path may be the best of several as wide.
        let known = before
            .as_ref()
            .filter(|_| !self.ask.bounds.is_bounded())
            .map(|before| before.reusable_in(field, want));
        let routes = widest_behind(known.unwrap_or_default(), field, &self.ask, want);
        self.before = Some(PreviousStretch::record(field, want, routes.clone()));
        routes
    }
}

/// Returns a piece from the start of a stretch to its end, or to the moment at which `left` is
/// carried; and the volume that it carries.
fn fitted_piece(routes: &[RatedPath], window: Window, left: Volume) -> (PlanPiece, Volume) {
    let rate = total_rate(routes);
    let length = left
        .duration_at(rate)
        .unwrap_or(u64::MAX)
        .min(window.length());
    let piece = PlanPiece {
        window: Window::new(window.start, window.start.saturating_add_unsigned(length)),
        routes: routes.to_vec(),
    };
    (piece, Volume::carried(rate, length))
}

/// A stretch, and the routes over its widest paths.
#[derive(Debug, Clone)]
pub(super) struct PreviousStretch {
    /// Rate left on each link.
    rooms: Vec<BitsPerSecond>,
    want: BitsPerSecond,
    routes: Vec<RatedPath>,
}

impl PreviousStretch {
    /// Records a stretch in which `want` was wanted and these routes were found.
    pub(super) fn record(
        field: &BandwidthField<'_>,
        want: BitsPerSecond,
        routes: Vec<RatedPath>,
    ) -> Self {
        let rooms = field.network().ids().map(|link| field.room(link)).collect();
        Self {
            rooms,
            want,
            routes,
        }
    }

    /// Returns the leading routes that are certainly also the first in another stretch, with the
    /// same rates.
    ///
    /// That holds if none of their links has changed, and every other changed link has less room
    /// than before, or less than the narrowest of these routes.
    pub(super) fn reusable_in(
        &self,
        field: &BandwidthField<'_>,
        want: BitsPerSecond,
    ) -> &[RatedPath] {
        let rooms = field.network().ids().zip(&self.rooms);
        let changed = rooms.map(|(link, before)| (link, *before, field.room(link)));
        let changed: Vec<_> = changed.filter(|(_, before, now)| before != now).collect();
        let mut all = 0;
        let known = self.routes.iter().take_while(|route| {
            all += route.rate;
            // The last route may be trimmed to the wanted rate and be narrower than its path.
            let is_whole = all < self.want && all <= want;
            let mut changed = changed.iter();
            is_whole
                && changed.all(|(link, before, now)| {
                    (now < before || *now < route.rate) && !route.path.0.contains(link)
                })
        });
        let known = known.count();
        self.routes.get(..known).unwrap_or_default()
    }
}
