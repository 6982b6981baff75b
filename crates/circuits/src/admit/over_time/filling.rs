//! What goes in one stretch after the other, until it is enough.

use super::Goal;
use crate::path::Field;
use crate::request::{Piece, Plan};
use crate::split::{Ask, Route, most, total, widest_behind};
use crate::time::{MAX_RATE, Rate, Volume, Window};

/// How routes are looked for in a stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// The widest first, which is quick.
    Widest,
    /// The most that is found.
    Best,
}

/// What goes in one stretch.
#[derive(Debug, Clone)]
struct Part {
    piece: Piece,
    /// Whoever wants this much or more here gets the same routes, in bit/s.
    enough: Rate,
}

/// What was filled so far.
#[derive(Debug, Clone)]
pub(super) struct Filling {
    ask: Ask,
    look: Look,
    /// How fast it may go, in bit/s.
    fastest: Rate,
    parts: Vec<Part>,
    carried: Volume,
    left: Volume,
    /// What could have gone at most.
    limit: Volume,
    /// The stretch before, some of whose paths may be the widest in the next as well.
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

    /// Whether all of it goes.
    pub(super) fn is_enough(&self) -> bool {
        self.left == Volume::default()
    }

    /// What goes.
    pub(super) const fn carried(&self) -> Volume {
        self.carried
    }

    /// What could have gone at most, where the best was looked for.
    pub(super) const fn limit(&self) -> Volume {
        self.limit
    }

    /// All of it, as a plan.
    pub(super) fn plan(self) -> Plan {
        let mut plan = Plan::default();
        for part in self.parts {
            plan.push(part.piece);
        }
        plan
    }

    /// The plan that the same stretches make of a smaller volume. None where its end is so near
    /// that other routes would do for what is left there.
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

    /// No more than what is left needs in a millisecond, the shortest time there is.
    fn wanted(&self, left: Volume) -> Rate {
        left.rate_within(1).unwrap_or(MAX_RATE).min(self.fastest)
    }

    /// Adds what goes in one stretch.
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
        // No more than that leaves the end, whatever is wanted.
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

/// A piece that begins with a stretch and ends with it, or as soon as what is left is carried; and
/// what it carries.
fn within(routes: &[Route], window: Window, left: Volume) -> (Piece, Volume) {
    let rate = total(routes);
    let length = left.time_at(rate).unwrap_or(u64::MAX).min(window.length());
    let piece = Piece {
        window: Window::new(window.start, window.start.saturating_add_unsigned(length)),
        routes: routes.to_vec(),
    };
    (piece, Volume::carried(rate, length))
}

/// A stretch, and what goes over the widest paths in it.
#[derive(Debug, Clone)]
pub(super) struct Before {
    /// What each link had left.
    rooms: Vec<Rate>,
    want: Rate,
    routes: Vec<Route>,
}

impl Before {
    /// Where so much was wanted, and this went.
    pub(super) fn of(field: &Field<'_>, want: Rate, routes: Vec<Route>) -> Self {
        let rooms = field.network().ids().map(|link| field.room(link)).collect();
        Self {
            rooms,
            want,
            routes,
        }
    }

    /// Those of the widest paths that are certainly the first ones, with the same rates, in another
    /// stretch. They are where no link of theirs has changed, and every other one that has has less
    /// room than it had, or less than the narrowest of them: it is in the way of none.
    pub(super) fn known_in(&self, field: &Field<'_>, want: Rate) -> &[Route] {
        let rooms = field.network().ids().zip(&self.rooms);
        let changed = rooms.map(|(link, before)| (link, *before, field.room(link)));
        let changed: Vec<_> = changed.filter(|(_, before, now)| before != now).collect();
        let mut all = 0;
        let known = self.routes.iter().take_while(|route| {
            all += route.rate;
            // What is the last of what was wanted may be less than what goes.
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
