//! All reservations, as the entries of a journal define them. A new book reserves nothing.
//!
//! A writer calls [`ReservationBook::decide`], which changes nothing. It appends the returned
//! change to a journal, and applies it once it is stored. The same entries always produce the same
//! book, and no entry reserves bandwidth twice.

mod change;
mod journal;
mod renewal;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::admit::{AdmissionRefusal, decide};
use crate::ledger::{BandwidthLedger, LedgerSnapshot, ReservationId, View};
use crate::machine::{LifeState, ReservationEvent, ReservationMachine, ReserveState};
use crate::network::CircuitNetwork;
use crate::policy::RequestLimits;
use crate::request::{CircuitRequest, ReservationPlan};
use crate::time::{MomentMs, Window};

pub use change::plan_difference;
pub use journal::{BookChange, BookFault, Hold, JournalEntry};
pub use renewal::NetworkMismatch;

/// Bandwidth that is held but not yet promised, for a reservation or a change of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldPlan {
    /// Request that it answers.
    pub request: CircuitRequest,
    /// Plan to be promised, in full from its first moment on.
    pub plan: ReservationPlan,
    /// Time at which the hold expires.
    pub until: MomentMs,
}

/// A reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// Current request.
    pub request: CircuitRequest,
    /// Promised plan. Empty until the first commit.
    pub plan: ReservationPlan,
    /// Additional hold, not yet committed.
    pub held: Option<HeldPlan>,
    /// States of the reservation.
    pub machine: ReservationMachine,
}

/// Terms of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecisionTerms {
    /// Limits of the requester.
    pub limits: RequestLimits,
    /// Duration of the hold on what is granted, in milliseconds.
    pub hold: u64,
}

/// All reservations, and the bandwidth that they take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationBook {
    network: Arc<CircuitNetwork>,
    ledger: BandwidthLedger,
    reservations: BTreeMap<ReservationId, Reservation>,
    /// Next expiry of each reservation: of its hold or of its window.
    timers: BTreeSet<(MomentMs, ReservationId)>,
    /// Number of the next entry.
    next_entry: u64,
    /// Number of the next reservation.
    next_id: u64,
    /// Time of the last entry.
    written: MomentMs,
}

impl ReservationBook {
    /// Creates an empty book for a network.
    #[must_use]
    pub fn new(network: CircuitNetwork) -> Self {
        let ledger = BandwidthLedger::new(&network);
        Self {
            network: Arc::new(network),
            ledger,
            reservations: BTreeMap::new(),
            timers: BTreeSet::new(),
            next_entry: 0,
            next_id: 1,
            written: MomentMs::MIN,
        }
    }

    /// Returns the network.
    #[must_use]
    pub fn network(&self) -> &CircuitNetwork {
        &self.network
    }

    /// Returns the reserved bandwidth of each link.
    #[must_use]
    pub const fn ledger(&self) -> &BandwidthLedger {
        &self.ledger
    }

    /// Returns the available bandwidth.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View::new(&self.network, &self.ledger)
    }

    /// Returns a snapshot of the reserved bandwidth, which stays as it is when the book changes.
    #[must_use]
    pub fn snapshot(&self) -> LedgerSnapshot {
        LedgerSnapshot::new(self.network.clone(), &self.ledger)
    }

    /// Returns a reservation.
    #[must_use]
    pub fn reservation(&self, id: ReservationId) -> Option<&Reservation> {
        self.reservations.get(&id)
    }

    /// Returns all reservations in order of their numbers.
    pub fn reservations(&self) -> impl Iterator<Item = (ReservationId, &Reservation)> {
        self.reservations
            .iter()
            .map(|(id, reservation)| (*id, reservation))
    }

    /// Wraps a change as the next entry.
    #[must_use]
    pub fn entry(&self, change: BookChange, now: MomentMs) -> JournalEntry {
        JournalEntry {
            number: self.next_entry,
            at: now.max(self.written),
            change,
        }
    }

    /// Decides a request. Returns the change to journal and apply; nothing is held until then.
    ///
    /// # Errors
    /// [`AdmissionRefusal`].
    pub fn decide(
        &self,
        request: &CircuitRequest,
        terms: &DecisionTerms,
        now: MomentMs,
    ) -> Result<BookChange, AdmissionRefusal> {
        self.decide_all(request, &[request.window], terms, now)
            .map_err(|(_, refusal)| refusal)
    }

    /// Decides the same request for each of several windows. It grants all of them or none.
    ///
    /// # Errors
    /// The index of the first refused window, with its refusal. Counter-offers concern that window,
    /// and assume the windows before it.
    pub fn decide_all(
        &self,
        request: &CircuitRequest,
        windows: &[Window],
        terms: &DecisionTerms,
        now: MomentMs,
    ) -> Result<BookChange, (usize, AdmissionRefusal)> {
        let mut view = self.view();
        let mut holds = Vec::new();
        for ((place, window), number) in windows.iter().enumerate().zip(self.next_id..) {
            let request = CircuitRequest {
                window: *window,
                ..request.clone()
            };
            let plan = decide(&view, &self.ledger, &request, &terms.limits, now)
                .map_err(|refusal| (place, refusal))?;
            view = view.with(&plan);
            holds.push(Hold {
                id: ReservationId(number),
                request,
                plan,
            });
        }
        let until = now.saturating_add_unsigned(terms.hold);
        Ok(BookChange::Held { holds, until })
    }

    /// Decides a change of a reservation, such as its rate, window, volume or paths.
    ///
    /// What lies before `now` stays as it was, and a volume counts from `now` on. The old promise
    /// holds until the change is committed.
    ///
    /// # Errors
    /// [`BookFault`] if there is no such reservation, or its state does not allow a change. The
    /// inner [`AdmissionRefusal`] is the answer to the request.
    pub fn decide_change(
        &self,
        id: ReservationId,
        request: &CircuitRequest,
        terms: &DecisionTerms,
        now: MomentMs,
    ) -> Result<Result<BookChange, AdmissionRefusal>, BookFault> {
        let reservation = self.find_reservation(id)?;
        change::step_machine(reservation.machine, id, ReservationEvent::Reserve)?;
        let mut request = request.clone();
        request.window.start = request.window.start.max(now);
        let view = self.view().without(&reservation.plan);
        let granted = decide(&view, &self.ledger, &request, &terms.limits, now);
        Ok(granted.map(|new| {
            let mut plan = reservation.plan.before(now);
            for piece in new.0 {
                plan.push(piece);
            }
            BookChange::Changing {
                hold: Box::new(Hold { id, request, plan }),
                until: now.saturating_add_unsigned(terms.hold),
            }
        }))
    }

    /// Returns a change for each expired hold and each ended window, to be journalled.
    #[must_use]
    pub fn due(&self, now: MomentMs) -> Vec<BookChange> {
        self.due_first(now, usize::MAX)
    }

    /// Returns the changes of [`ReservationBook::due`] for at most `most` reservations, the longest
    /// overdue first.
    #[must_use]
    pub fn due_first(&self, now: MomentMs, most: usize) -> Vec<BookChange> {
        let due = self.timers.iter().take_while(|(moment, _)| *moment <= now);
        let due = due.take(most);
        due.filter_map(|(_, id)| {
            let reservation = self.reservations.get(id)?;
            let timed_out = reservation
                .held
                .as_ref()
                .is_some_and(|held| held.until <= now)
                && reservation.machine.reserve == ReserveState::Held;
            let event = if timed_out {
                ReservationEvent::HoldTimeout
            } else {
                ReservationEvent::EndTime
            };
            Some(BookChange::Event { id: *id, event })
        })
        .collect()
    }

    /// Returns the time of the next expiry.
    #[must_use]
    pub fn next_due(&self) -> Option<MomentMs> {
        self.timers.first().map(|(moment, _)| *moment)
    }

    /// Returns the next expiry of a reservation: the earlier of its hold's and its plan's end.
    fn next_expiry(reservation: &Reservation) -> Option<MomentMs> {
        let held = reservation
            .held
            .as_ref()
            .filter(|_| reservation.machine.reserve == ReserveState::Held);
        let ends = !reservation.plan.0.is_empty() && reservation.machine.life == LifeState::Created;
        let end = ends.then(|| reservation.plan.window().end);
        held.map(|held| held.until).into_iter().chain(end).min()
    }
}
