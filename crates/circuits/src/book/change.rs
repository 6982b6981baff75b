//! Application of journal entries to the book.

use std::collections::BTreeMap;

use super::{BookChange, BookFault, HeldPlan, Hold, JournalEntry, Reservation, ReservationBook};
use crate::ledger::ReservationId;
use crate::machine::{LifeState, ReservationAction, ReservationEvent, ReservationMachine};
use crate::network::{CircuitNetwork, LinkId};
use crate::path::PathEnds;
use crate::request::{CircuitRequest, ReservationPlan};
use crate::time::{BitsPerSecond, MomentMs, Window};

type Claims = BTreeMap<LinkId, Vec<(Window, BitsPerSecond)>>;

/// Returns what one plan takes in excess of another, of each link and at each moment.
#[must_use]
pub fn plan_difference(more: &ReservationPlan, less: &ReservationPlan) -> Claims {
    let less = less.claims();
    let mut claims = Claims::new();
    for (link, of_link) in more.claims() {
        let known = less.get(&link).map(Vec::as_slice).unwrap_or_default();
        for (window, rate) in of_link {
            let ends = known
                .iter()
                .flat_map(|(window, _)| [window.start, window.end]);
            let mut starts: Vec<MomentMs> = ends
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
                let there: BitsPerSecond = known
                    .iter()
                    .filter(|(window, _)| window.contains(*start))
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
fn is_sound_plan(
    network: &CircuitNetwork,
    ends: PathEnds,
    plan: &ReservationPlan,
    from: MomentMs,
) -> bool {
    let joined = |path: &crate::path::LinkPath| {
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
    let mut over = MomentMs::MIN;
    plan.0.iter().all(|piece| {
        let in_order =
            piece.window.start >= over && !piece.window.is_empty() && piece.window.is_in_range();
        over = piece.window.end;
        in_order
            && (piece.window.end <= from || piece.routes.iter().all(|route| joined(&route.path)))
    })
}

impl ReservationBook {
    /// Applies the next entry of the journal. Returns the actions that remain to be done outside
    /// the book, by reservation.
    ///
    /// # Errors
    /// [`BookFault`]; the book is unchanged.
    pub fn apply(
        &mut self,
        entry: &JournalEntry,
    ) -> Result<Vec<(ReservationId, ReservationAction)>, BookFault> {
        if entry.number != self.next_entry {
            return Err(BookFault::Order {
                expected: self.next_entry,
                found: entry.number,
            });
        }
        if entry.at < self.written {
            return Err(BookFault::Time {
                number: entry.number,
                at: entry.at,
                before: self.written,
            });
        }
        let actions = match &entry.change {
            BookChange::Held { holds, until } => self.apply_hold(holds, *until)?,
            BookChange::Changing { hold, until } => self.apply_hold_change(hold, *until)?,
            BookChange::Event { id, event } => self.apply_event(*id, *event)?,
            BookChange::Returned { id, from } => self.apply_return(*id, *from)?,
            BookChange::Forgotten { id } => self.apply_forget(*id)?,
        };
        self.next_entry += 1;
        self.written = entry.at;
        Ok(actions)
    }

    /// Takes the claims if all of them fit.
    fn claim(&mut self, id: ReservationId, claims: &Claims) -> Result<(), BookFault> {
        for (link, of_link) in claims {
            for (window, rate) in of_link {
                if self.view().left(*link, *window) < *rate {
                    return Err(BookFault::Overbooked { id, link: *link });
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

    fn apply_hold(
        &mut self,
        holds: &[Hold],
        until: MomentMs,
    ) -> Result<Vec<(ReservationId, ReservationAction)>, BookFault> {
        for (hold, number) in holds.iter().zip(self.next_id..) {
            if hold.id.0 != number {
                return Err(BookFault::NotNext(hold.id));
            }
            if !is_sound_plan(&self.network, hold.request.ends, &hold.plan, MomentMs::MIN) {
                return Err(BookFault::Plan(hold.id));
            }
        }
        let mut machine = ReservationMachine::default();
        for event in [
            ReservationEvent::Reserve,
            ReservationEvent::ReserveConfirmed,
        ] {
            machine = step_machine(machine, ReservationId(self.next_id), event)?.0;
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
            let held = HeldPlan {
                request: hold.request.clone(),
                plan: hold.plan.clone(),
                until,
            };
            let reservation = Reservation {
                request: hold.request.clone(),
                plan: ReservationPlan::default(),
                held: Some(held),
                machine,
            };
            self.replace(hold.id, Some(reservation));
            self.next_id += 1;
        }
        Ok(holds
            .iter()
            .map(|hold| (hold.id, ReservationAction::Hold))
            .collect())
    }

    fn apply_hold_change(
        &mut self,
        hold: &Hold,
        until: MomentMs,
    ) -> Result<Vec<(ReservationId, ReservationAction)>, BookFault> {
        let mut reservation = self.find_reservation(hold.id)?.clone();
        for event in [
            ReservationEvent::Reserve,
            ReservationEvent::ReserveConfirmed,
        ] {
            reservation.machine = step_machine(reservation.machine, hold.id, event)?.0;
        }
        // The ends of past pieces may differ: the request names those of the new ones.
        let CircuitRequest { ends, window, .. } = &hold.request;
        if !is_sound_plan(&self.network, *ends, &hold.plan, window.start) {
            return Err(BookFault::Plan(hold.id));
        }
        self.claim(hold.id, &plan_difference(&hold.plan, &reservation.plan))?;
        reservation.held = Some(HeldPlan {
            request: hold.request.clone(),
            plan: hold.plan.clone(),
            until,
        });
        self.replace(hold.id, Some(reservation));
        Ok(vec![(hold.id, ReservationAction::Hold)])
    }

    /// Applies an event and the actions that concern the book. Returns the remaining actions.
    fn apply_event(
        &mut self,
        id: ReservationId,
        event: ReservationEvent,
    ) -> Result<Vec<(ReservationId, ReservationAction)>, BookFault> {
        let mut reservation = self.find_reservation(id)?.clone();
        // Holds have journal entries of their own.
        if matches!(
            event,
            ReservationEvent::Reserve | ReservationEvent::ReserveConfirmed
        ) {
            let not_now = reservation.machine.invalid_transition(event);
            return Err(BookFault::NotNow { id, not_now });
        }
        let mut outside = Vec::new();
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let (machine, actions) = step_machine(reservation.machine, id, event)?;
            reservation.machine = machine;
            for action in actions {
                match action {
                    ReservationAction::GiveBackHeld => {
                        if let Some(held) = reservation.held.take() {
                            self.unclaim(id, &plan_difference(&held.plan, &reservation.plan));
                        }
                    }
                    ReservationAction::Commit => {
                        if let Some(held) = reservation.held.take() {
                            // If nothing was promised, the ledger already holds all of it.
                            if !reservation.plan.0.is_empty() {
                                self.unclaim(id, &plan_difference(&held.plan, &reservation.plan));
                                self.ledger.free(id, &reservation.plan);
                                self.ledger.take(id, &held.plan);
                            }
                            (reservation.request, reservation.plan) = (held.request, held.plan);
                        }
                        events.push(ReservationEvent::CommitConfirmed);
                    }
                    ReservationAction::ConfirmAbort => {
                        events.push(ReservationEvent::AbortConfirmed)
                    }
                    ReservationAction::GiveBackAll => {
                        self.ledger.free(id, &reservation.plan);
                        reservation.plan = ReservationPlan::default();
                    }
                    other => outside.push((id, other)),
                }
            }
        }
        self.replace(id, Some(reservation));
        Ok(outside)
    }

    fn apply_return(
        &mut self,
        id: ReservationId,
        from: MomentMs,
    ) -> Result<Vec<(ReservationId, ReservationAction)>, BookFault> {
        let mut reservation = self.find_reservation(id)?.clone();
        if reservation.held.is_some() {
            return Err(BookFault::Changing(id));
        }
        let kept = reservation.plan.before(from);
        self.ledger.free(id, &reservation.plan);
        self.ledger.take(id, &kept);
        // With nothing kept, no end of the window would follow.
        let nothing = kept.0.is_empty() && !reservation.plan.0.is_empty();
        reservation.plan = kept;
        self.replace(id, Some(reservation));
        Ok(if nothing {
            vec![(id, ReservationAction::TearDown)]
        } else {
            Vec::new()
        })
    }

    fn apply_forget(
        &mut self,
        id: ReservationId,
    ) -> Result<Vec<(ReservationId, ReservationAction)>, BookFault> {
        let reservation = self.find_reservation(id)?;
        if reservation.machine.life != LifeState::Terminated {
            return Err(BookFault::Alive(id));
        }
        self.replace(id, None);
        Ok(Vec::new())
    }

    pub(super) fn find_reservation(&self, id: ReservationId) -> Result<&Reservation, BookFault> {
        self.reservations
            .get(&id)
            .ok_or(BookFault::UnknownReservation(id))
    }

    /// Replaces a reservation and its timer.
    fn replace(&mut self, id: ReservationId, reservation: Option<Reservation>) {
        let timer = reservation.as_ref().and_then(Self::next_expiry);
        let before = match reservation {
            Some(reservation) => self.reservations.insert(id, reservation),
            None => self.reservations.remove(&id),
        };
        if let Some(moment) = before.as_ref().and_then(Self::next_expiry) {
            self.timers.remove(&(moment, id));
        }
        if let Some(moment) = timer {
            self.timers.insert((moment, id));
        }
    }
}

pub(super) fn step_machine(
    machine: ReservationMachine,
    id: ReservationId,
    event: ReservationEvent,
) -> Result<(ReservationMachine, Vec<ReservationAction>), BookFault> {
    machine
        .apply(event)
        .map_err(|not_now| BookFault::NotNow { id, not_now })
}
