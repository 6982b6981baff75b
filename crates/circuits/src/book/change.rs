//! Application of journal entries to the book.

use std::collections::BTreeMap;

use super::{Book, Change, Entry, Fault, Held, Hold, Reservation};
use crate::ledger::ReservationId;
use crate::machine::{Action, Event, Life, Machine};
use crate::network::{LinkId, Network};
use crate::path::Ends;
use crate::request::{Plan, Request};
use crate::time::{Moment, Rate, Window};

type Claims = BTreeMap<LinkId, Vec<(Window, Rate)>>;

/// Returns what one plan takes in excess of another, of each link and at each moment.
#[must_use]
pub fn difference(more: &Plan, less: &Plan) -> Claims {
    let less = less.claims();
    let mut claims = Claims::new();
    for (link, of_link) in more.claims() {
        let known = less.get(&link).map(Vec::as_slice).unwrap_or_default();
        for (window, rate) in of_link {
            let ends = known
                .iter()
                .flat_map(|(window, _)| [window.start, window.end]);
            let mut starts: Vec<Moment> = ends
                .filter(|at| window.start < *at && *at < window.end)
                .collect();
            starts.push(window.start);
            starts.sort_unstable();
            starts.dedup();
            let ends = starts
                .iter()
                .skip(1)
                .copied()
                .chain(std::iter::once(window.end));
            for (start, end) in starts.iter().zip(ends) {
                let there: Rate = known
                    .iter()
                    .filter(|(window, _)| window.holds(*start))
                    .map(|(_, rate)| rate)
                    .sum();
                if rate > there {
                    claims
                        .entry(link)
                        .or_default()
                        .push((Window::new(*start, end), rate - there));
                }
            }
        }
    }
    claims
}

/// Returns true if the pieces of a plan are in order of time, and each path connects the ends.
/// Pieces that end by `from` may have other ends.
fn sound(network: &Network, ends: Ends, plan: &Plan, from: Moment) -> bool {
    let joined = |path: &crate::path::Path| {
        let mut at = ends.from;
        let follows = path.0.iter().all(|id| {
            network.link(*id).is_some_and(|link| {
                let follows = link.from == at;
                at = link.to;
                follows
            })
        });
        follows && at == ends.to
    };
    let mut over = Moment::MIN;
    plan.0.iter().all(|piece| {
        let in_order =
            piece.window.start >= over && !piece.window.is_empty() && piece.window.in_range();
        over = piece.window.end;
        in_order
            && (piece.window.end <= from || piece.routes.iter().all(|route| joined(&route.path)))
    })
}

impl Book {
    /// Applies the next entry of the journal. Returns the actions that remain to be done outside
    /// the book, by reservation.
    ///
    /// # Errors
    /// [`Fault`]; the book is unchanged.
    pub fn apply(&mut self, entry: &Entry) -> Result<Vec<(ReservationId, Action)>, Fault> {
        if entry.number != self.next_entry {
            return Err(Fault::Order {
                expected: self.next_entry,
                found: entry.number,
            });
        }
        if entry.at < self.written {
            return Err(Fault::Time {
                number: entry.number,
                at: entry.at,
                before: self.written,
            });
        }
        let actions = match &entry.change {
            Change::Held { holds, until } => self.hold(holds, *until)?,
            Change::Changing { hold, until } => self.hold_change(hold, *until)?,
            Change::Event { id, event } => self.happen(*id, *event)?,
            Change::Returned { id, from } => self.give_back(*id, *from)?,
            Change::Forgotten { id } => self.forget(*id)?,
        };
        self.next_entry += 1;
        self.written = entry.at;
        Ok(actions)
    }

    /// Takes the claims if all of them fit.
    fn claim(&mut self, id: ReservationId, claims: &Claims) -> Result<(), Fault> {
        for (link, of_link) in claims {
            for (window, rate) in of_link {
                if self.view().left(*link, *window) < *rate {
                    return Err(Fault::Overbooked { id, link: *link });
                }
            }
        }
        for (link, of_link) in claims {
            for (window, rate) in of_link {
                self.ledger.claim(id, *link, *window, *rate);
            }
        }
        Ok(())
    }

    fn unclaim(&mut self, id: ReservationId, claims: &Claims) {
        for (link, of_link) in claims {
            for (window, rate) in of_link {
                self.ledger.unclaim(id, *link, *window, *rate);
            }
        }
    }

    fn hold(
        &mut self,
        holds: &[Hold],
        until: Moment,
    ) -> Result<Vec<(ReservationId, Action)>, Fault> {
        for (hold, number) in holds.iter().zip(self.next_id..) {
            if hold.id.0 != number {
                return Err(Fault::NotNext(hold.id));
            }
            if !sound(&self.network, hold.request.ends, &hold.plan, Moment::MIN) {
                return Err(Fault::Plan(hold.id));
            }
        }
        let mut machine = Machine::default();
        for event in [Event::Reserve, Event::ReserveConfirmed] {
            machine = step(machine, ReservationId(self.next_id), event)?.0;
        }
        for (place, hold) in holds.iter().enumerate() {
            if let Err(fault) = self.claim(hold.id, &hold.plan.claims()) {
                for taken in holds.iter().take(place) {
                    self.unclaim(taken.id, &taken.plan.claims());
                }
                return Err(fault);
            }
        }
        for hold in holds {
            let held = Held {
                request: hold.request.clone(),
                plan: hold.plan.clone(),
                until,
            };
            let reservation = Reservation {
                request: hold.request.clone(),
                plan: Plan::default(),
                held: Some(held),
                machine,
            };
            self.replace(hold.id, Some(reservation));
            self.next_id += 1;
        }
        Ok(holds.iter().map(|hold| (hold.id, Action::Hold)).collect())
    }

    fn hold_change(
        &mut self,
        hold: &Hold,
        until: Moment,
    ) -> Result<Vec<(ReservationId, Action)>, Fault> {
        let mut reservation = self.known(hold.id)?.clone();
        for event in [Event::Reserve, Event::ReserveConfirmed] {
            reservation.machine = step(reservation.machine, hold.id, event)?.0;
        }
        // The ends of past pieces may differ: the request names those of the new ones.
        let Request { ends, window, .. } = &hold.request;
        if !sound(&self.network, *ends, &hold.plan, window.start) {
            return Err(Fault::Plan(hold.id));
        }
        self.claim(hold.id, &difference(&hold.plan, &reservation.plan))?;
        reservation.held = Some(Held {
            request: hold.request.clone(),
            plan: hold.plan.clone(),
            until,
        });
        self.replace(hold.id, Some(reservation));
        Ok(vec![(hold.id, Action::Hold)])
    }

    /// Applies an event and the actions that concern the book. Returns the remaining actions.
    fn happen(
        &mut self,
        id: ReservationId,
        event: Event,
    ) -> Result<Vec<(ReservationId, Action)>, Fault> {
        let mut reservation = self.known(id)?.clone();
        // Holds have journal entries of their own.
        if matches!(event, Event::Reserve | Event::ReserveConfirmed) {
            let not_now = reservation.machine.not_now(event);
            return Err(Fault::NotNow { id, not_now });
        }
        let mut outside = Vec::new();
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let (machine, actions) = step(reservation.machine, id, event)?;
            reservation.machine = machine;
            for action in actions {
                match action {
                    Action::GiveBackHeld => {
                        if let Some(held) = reservation.held.take() {
                            self.unclaim(id, &difference(&held.plan, &reservation.plan));
                        }
                    }
                    Action::Commit => {
                        if let Some(held) = reservation.held.take() {
                            // If nothing was promised, the ledger already holds all of it.
                            if !reservation.plan.0.is_empty() {
                                self.unclaim(id, &difference(&held.plan, &reservation.plan));
                                self.ledger.free(id, &reservation.plan);
                                self.ledger.take(id, &held.plan);
                            }
                            (reservation.request, reservation.plan) = (held.request, held.plan);
                        }
                        events.push(Event::CommitConfirmed);
                    }
                    Action::ConfirmAbort => events.push(Event::AbortConfirmed),
                    Action::GiveBackAll => {
                        self.ledger.free(id, &reservation.plan);
                        reservation.plan = Plan::default();
                    }
                    other => outside.push((id, other)),
                }
            }
        }
        self.replace(id, Some(reservation));
        Ok(outside)
    }

    fn give_back(
        &mut self,
        id: ReservationId,
        from: Moment,
    ) -> Result<Vec<(ReservationId, Action)>, Fault> {
        let mut reservation = self.known(id)?.clone();
        if reservation.held.is_some() {
            return Err(Fault::Changing(id));
        }
        let kept = reservation.plan.until(from);
        self.ledger.free(id, &reservation.plan);
        self.ledger.take(id, &kept);
        // With nothing kept, no end of the window would follow.
        let nothing = kept.0.is_empty() && !reservation.plan.0.is_empty();
        reservation.plan = kept;
        self.replace(id, Some(reservation));
        Ok(if nothing {
            vec![(id, Action::TearDown)]
        } else {
            Vec::new()
        })
    }

    fn forget(&mut self, id: ReservationId) -> Result<Vec<(ReservationId, Action)>, Fault> {
        let reservation = self.known(id)?;
        if reservation.machine.life != Life::Terminated {
            return Err(Fault::Alive(id));
        }
        self.replace(id, None);
        Ok(Vec::new())
    }

    pub(super) fn known(&self, id: ReservationId) -> Result<&Reservation, Fault> {
        self.reservations.get(&id).ok_or(Fault::None(id))
    }

    /// Replaces a reservation and its timer.
    fn replace(&mut self, id: ReservationId, reservation: Option<Reservation>) {
        let timer = reservation.as_ref().and_then(Self::timer);
        let before = match reservation {
            Some(reservation) => self.reservations.insert(id, reservation),
            None => self.reservations.remove(&id),
        };
        if let Some(moment) = before.as_ref().and_then(Self::timer) {
            self.timers.remove(&(moment, id));
        }
        if let Some(moment) = timer {
            self.timers.insert((moment, id));
        }
    }
}

pub(super) fn step(
    machine: Machine,
    id: ReservationId,
    event: Event,
) -> Result<(Machine, Vec<Action>), Fault> {
    machine
        .on(event)
        .map_err(|not_now| Fault::NotNow { id, not_now })
}
