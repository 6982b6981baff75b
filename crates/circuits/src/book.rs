//! All reservations, as the entries of a journal define them. A new book reserves nothing.
//!
//! A writer calls [`Book::decide`], which changes nothing. It appends the returned change to a
//! journal, and applies it once it is stored. The same entries always produce the same book, and no
//! entry reserves bandwidth twice.

mod change;
mod journal;
mod renewal;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::admit::{Answer, Counter, Search, decide, open};
use crate::ledger::{Ledger, ReservationId, Snapshot, View};
use crate::machine::{Event, Life, Machine, Reserve};
use crate::network::Network;
use crate::policy::Limits;
use crate::request::{Plan, Request};
use crate::time::{Moment, Window};

pub use change::difference;
pub use journal::{Change, Entry, Fault, Hold};
pub use renewal::Unlike;

/// Bandwidth that is held but not yet promised, for a reservation or a change of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Request that it answers.
    pub request: Request,
    /// Plan to be promised, in full from its first moment on.
    pub plan: Plan,
    /// Time at which the hold expires.
    pub until: Moment,
}

/// A reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// Current request.
    pub request: Request,
    /// Promised plan. Empty until the first commit.
    pub plan: Plan,
    /// Additional hold, not yet committed.
    pub held: Option<Held>,
    /// States of the reservation.
    pub machine: Machine,
}

/// Answer to a request, and the change that carries it out.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Answer for the requester.
    pub answer: Answer,
    /// Change to journal and apply, if the request is granted.
    pub change: Option<Change>,
    /// Search for counter-offers, if bandwidth is short and [`Counter::Later`] was asked for.
    pub search: Option<Box<Search>>,
}

/// Refusal of a request for several windows.
#[derive(Debug, Clone)]
pub struct Short {
    /// Index of the first refused window.
    pub place: usize,
    /// Refusal. Its offers concern that window, and assume the windows before it.
    pub answer: Answer,
    /// Search for counter-offers, if bandwidth is short and [`Counter::Later`] was asked for.
    pub search: Option<Box<Search>>,
}

/// Terms of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Limits of the requester.
    pub limits: Limits,
    /// Duration of the hold on what is granted, in milliseconds.
    pub hold: u64,
    /// Handling of counter-offers.
    pub counter: Counter,
}

/// All reservations, and the bandwidth that they take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Book {
    network: Arc<Network>,
    ledger: Ledger,
    reservations: BTreeMap<ReservationId, Reservation>,
    /// Next expiry of each reservation: of its hold or of its window.
    timers: BTreeSet<(Moment, ReservationId)>,
    /// Number of the next entry.
    next_entry: u64,
    /// Number of the next reservation.
    next_id: u64,
    /// Time of the last entry.
    written: Moment,
}

impl Book {
    /// Creates an empty book for a network.
    #[must_use]
    pub fn new(network: Network) -> Self {
        let ledger = Ledger::new(&network);
        Self {
            network: Arc::new(network),
            ledger,
            reservations: BTreeMap::new(),
            timers: BTreeSet::new(),
            next_entry: 0,
            next_id: 0,
            written: Moment::MIN,
        }
    }

    /// Returns the network.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Returns the reserved bandwidth of each link.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the available bandwidth.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View::new(&self.network, &self.ledger)
    }

    /// Returns a snapshot of the reserved bandwidth, which stays as it is when the book changes.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.network.clone(), &self.ledger)
    }

    /// Decides a request in a view. With [`Counter::Later`], also returns the search for
    /// counter-offers.
    fn answer(
        &self,
        view: &View<'_>,
        request: &Request,
        terms: &Terms,
        now: Moment,
    ) -> (Answer, Option<Box<Search>>) {
        let Terms {
            limits, counter, ..
        } = terms;
        match counter {
            Counter::Later => {
                let (answer, search) = open(view, &self.ledger, request, limits, now);
                (answer, search.map(Box::new))
            }
            Counter::Offer | Counter::Refuse => (
                decide(view, &self.ledger, request, limits, now, *counter),
                None,
            ),
        }
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
    pub fn entry(&self, change: Change, now: Moment) -> Entry {
        Entry {
            number: self.next_entry,
            at: now.max(self.written),
            change,
        }
    }

    /// Decides a request. Nothing is held until the change is applied.
    #[must_use]
    pub fn decide(&self, request: &Request, terms: &Terms, now: Moment) -> Decision {
        let (answer, search) = self.answer(&self.view(), request, terms, now);
        let change = match &answer {
            Answer::Granted(plan) => Some(Change::Held {
                holds: vec![Hold {
                    id: ReservationId(self.next_id),
                    request: request.clone(),
                    plan: plan.clone(),
                }],
                until: now.saturating_add_unsigned(terms.hold),
            }),
            Answer::Refused(_) => None,
        };
        Decision {
            answer,
            change,
            search,
        }
    }

    /// Decides the same request for each of several windows. It grants all of them or none.
    pub fn decide_all(
        &self,
        request: &Request,
        windows: &[Window],
        terms: &Terms,
        now: Moment,
    ) -> Result<(Vec<Plan>, Change), Short> {
        let mut view = self.view();
        let (mut plans, mut holds) = (Vec::new(), Vec::new());
        for ((place, window), number) in windows.iter().enumerate().zip(self.next_id..) {
            let request = Request {
                window: *window,
                ..request.clone()
            };
            match self.answer(&view, &request, terms, now) {
                (Answer::Granted(plan), _) => {
                    view = view.with(&plan);
                    plans.push(plan.clone());
                    holds.push(Hold {
                        id: ReservationId(number),
                        request,
                        plan,
                    });
                }
                (answer @ Answer::Refused(_), search) => {
                    return Err(Short {
                        place,
                        answer,
                        search,
                    });
                }
            }
        }
        Ok((
            plans,
            Change::Held {
                holds,
                until: now.saturating_add_unsigned(terms.hold),
            },
        ))
    }

    /// Decides a change of a reservation, such as its rate, window, volume or paths.
    ///
    /// What lies before `now` stays as it was, and a volume counts from `now` on. The old promise
    /// holds until the change is committed.
    ///
    /// # Errors
    /// [`Fault`] if there is no such reservation, or its state does not allow a change.
    pub fn decide_change(
        &self,
        id: ReservationId,
        request: &Request,
        terms: &Terms,
        now: Moment,
    ) -> Result<Decision, Fault> {
        let reservation = self.known(id)?;
        change::step(reservation.machine, id, Event::Reserve)?;
        let mut request = request.clone();
        request.window.start = request.window.start.max(now);
        let view = self.view().without(&reservation.plan);
        let (answer, search) = self.answer(&view, &request, terms, now);
        let change = match &answer {
            Answer::Granted(plan) => {
                let mut whole = reservation.plan.until(now);
                for piece in &plan.0 {
                    whole.push(piece.clone());
                }
                let hold = Hold {
                    id,
                    request,
                    plan: whole,
                };
                Some(Change::Changing {
                    hold,
                    until: now.saturating_add_unsigned(terms.hold),
                })
            }
            Answer::Refused(_) => None,
        };
        Ok(Decision {
            answer,
            change,
            search,
        })
    }

    /// Returns a change for each expired hold and each ended window, to be journalled.
    #[must_use]
    pub fn due(&self, now: Moment) -> Vec<Change> {
        self.due_first(now, usize::MAX)
    }

    /// Returns the changes of [`Book::due`] for at most `most` reservations, the longest overdue
    /// first.
    #[must_use]
    pub fn due_first(&self, now: Moment, most: usize) -> Vec<Change> {
        let due = self.timers.iter().take_while(|(moment, _)| *moment <= now);
        let due = due.take(most);
        due.filter_map(|(_, id)| {
            let reservation = self.reservations.get(id)?;
            let timed_out = reservation
                .held
                .as_ref()
                .is_some_and(|held| held.until <= now)
                && reservation.machine.reserve == Reserve::Held;
            let event = if timed_out {
                Event::HoldTimeout
            } else {
                Event::EndTime
            };
            Some(Change::Event { id: *id, event })
        })
        .collect()
    }

    /// Returns the time of the next expiry.
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        self.timers.first().map(|(moment, _)| *moment)
    }

    /// Returns the next expiry of a reservation: the earlier of its hold's and its plan's end.
    fn timer(reservation: &Reservation) -> Option<Moment> {
        let held = reservation
            .held
            .as_ref()
            .filter(|_| reservation.machine.reserve == Reserve::Held);
        let ends = !reservation.plan.0.is_empty() && reservation.machine.life == Life::Created;
        let end = ends.then(|| reservation.plan.window().end);
        held.map(|held| held.until).into_iter().chain(end).min()
    }
}
