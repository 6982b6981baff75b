//! Filling of stretches, one after another, until the volume is carried.

use super::Goal;
use crate::path::Field;
use crate::request::{Piece, Plan};
use crate::split::{Ask, Route, most, total, widest_behind};
use crate::time::{MAX_RATE, Rate, Volume, Window};

/// Route search within a stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// The widest paths first, which is fast.
    Widest,
    /// The most that can be found.
    Best,
}

/// The filled part of one stretch.
#[derive(Debug, Clone)]
struct Part {
    piece: Piece,
    /// Wanted rate, in bit/s, from which on the stretch yields the same routes.
    enough: Rate,
}

/// Stretches filled so far.
#[derive(Debug, Clone)]
pub(super) struct Filling {
    ask: Ask,
    look: Look,
    /// Maximum rate, in bit/s.
    fastest: Rate,
    parts: Vec<Part>,
    carried: Volume,
    left: Volume,
    /// Upper bound of the volume that could have been carried.
    limit: Volume,
    /// Preceding stretch. Some of its paths may be the widest in the next one as well.
    before: Option<Before>,
}

impl Filling {
    pub(super) fn new(goal: &Goal, ask: Ask, look: Look) -> Self {
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

    /// Returns the upper bound of what could have been carried, for [`Look::Best`].
    pub(super) const fn limit(&self) -> Volume {
        self.limit
    }

    /// Returns all pieces as a plan.
    pub(super) fn plan(self) -> Plan {
        let mut plan = Plan::default();
        for part in self.parts {
            plan.push(part.piece);
        }
        plan
    }

    /// Returns the plan that the same stretches make of a smaller volume. Returns `None` if other
    /// routes would do for the rest of it near its end.
    pub(super) fn of(&self, volume: Volume) -> Option<Plan> {
        let (mut plan, mut left) = (Plan::default(), volume);
        for Part { piece, enough } in &self.parts {
            if self.wanted(left) < *enough {
                return None;
            }
            let (piece, carried) = within(&piece.routes, piece.window, left);
            plan.push(piece);
            left = left.less(carried);
            if left == Volume::default() {
                return Some(plan);
            }
        }
        None
    }

    /// Returns the rate that carries `left` in 1 ms, the shortest time there is, but at most the
    /// maximum rate.
    fn wanted(&self, left: Volume) -> Rate {
        left.rate_within(1).unwrap_or(MAX_RATE).min(self.fastest)
    }

    /// Adds one stretch.
    pub(super) fn add(&mut self, window: Window, field: &Field<'_>) {
        let want = self.wanted(self.left);
        let (routes, most) = match self.look {
            Look::Best => most(field, &self.ask, want),
            Look::Widest => (self.widest(field, want), 0),
        };
        let rate = total(&routes);
        self.limit = self
            .limit
            .plus(Volume::carried(most.max(rate), window.length()));
        if rate == 0 {
            return;
        }
        let (piece, carried) = within(&routes, window, self.left);
        self.carried = self.carried.plus(carried);
        self.left = self.left.less(carried);
        // No more than this leaves the source, whatever is wanted.
        let network = field.network();
        let leaves = network
            .from(self.ask.ends.from)
            .map(|(id, _)| field.room(id));
        let enough = leaves.fold(0, Rate::saturating_add).min(want);
        self.parts.push(Part { piece, enough });
    }

    fn widest(&mut self, field: &Field<'_>, want: Rate) -> Vec<Route> {
        let before = self.before.take();
        let known = before.as_ref().map(|before| before.known_in(field, want));
        let routes = widest_behind(known.unwrap_or_default(), field, &self.ask, want);
        self.before = Some(Before::of(field, want, routes.clone()));
        routes
    }
}

/// Returns a piece from the start of a stretch to its end, or to the moment at which `left` is
/// carried; and the volume that it carries.
fn within(routes: &[Route], window: Window, left: Volume) -> (Piece, Volume) {
    let rate = total(routes);
    let length = left.time_at(rate).unwrap_or(u64::MAX).min(window.length());
    let piece = Piece {
        window: Window::new(window.start, window.start.saturating_add_unsigned(length)),
        routes: routes.to_vec(),
    };
    (piece, Volume::carried(rate, length))
}

/// A stretch, and the routes over its widest paths.
#[derive(Debug, Clone)]
pub(super) struct Before {
    /// Rate left on each link.
    rooms: Vec<Rate>,
    want: Rate,
    routes: Vec<Route>,
}

impl Before {
    /// Records a stretch in which `want` was wanted and these routes were found.
    pub(super) fn of(field: &Field<'_>, want: Rate, routes: Vec<Route>) -> Self {
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
    pub(super) fn known_in(&self, field: &Field<'_>, want: Rate) -> &[Route] {
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
