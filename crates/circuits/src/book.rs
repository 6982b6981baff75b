//! The book of all reservations: what a journal of entries makes of a network of which nothing is
//! taken.
//!
//! Whoever writes asks [`Book::decide`], which changes nothing, appends the change that it answers
//! to a journal, and applies it when it is kept. The same entries make the same book, and the book
//! behind each of them promises nothing twice.

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

/// What is held and not promised yet: a reservation, or a change of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// What was asked for.
    pub request: Request,
    /// What will be promised: all of it, from the first moment on.
    pub plan: Plan,
    /// Until when it is held.
    pub until: Moment,
}

/// A reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// What was asked for.
    pub request: Request,
    /// What is promised: nothing, before it was committed.
    pub plan: Plan,
    /// What is held besides.
    pub held: Option<Held>,
    /// Its states.
    pub machine: Machine,
}

/// What becomes of a request, and the change that makes it so.
#[derive(Debug, Clone)]
pub struct Decision {
    /// What the asker receives.
    pub answer: Answer,
    /// What is to be journalled and applied where it is granted.
    pub change: Option<Change>,
    /// What finds offers, with [`Counter::Later`], where there is no room.
    pub search: Option<Box<Search>>,
}

/// Why not all of several windows are granted.
#[derive(Debug, Clone)]
pub struct Short {
    /// The place of the first that is refused.
    pub place: usize,
    /// Why. Offers are for that window, beside those before it.
    pub answer: Answer,
    /// What finds them, with [`Counter::Later`], where there is no room.
    pub search: Option<Box<Search>>,
}

/// How a request is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// What the asker may have.
    pub limits: Limits,
    /// For how long what is granted is held, in milliseconds.
    pub hold: u64,
    /// Whether counter-offers are looked for.
    pub counter: Counter,
}

/// All reservations, and what they take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Book {
    network: Arc<Network>,
    ledger: Ledger,
    reservations: BTreeMap<ReservationId, Reservation>,
    /// When something of a reservation is over: what is held, or its window.
    timers: BTreeSet<(Moment, ReservationId)>,
    /// The number of the next entry.
    next_entry: u64,
    /// The number of the next reservation.
    next_id: u64,
    /// When the last entry was written.
    written: Moment,
}

impl Book {
    /// Of a network of which nothing is taken.
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

    /// The network.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// What is taken of each link.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What is left.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View::new(&self.network, &self.ledger)
    }

    /// What is taken now, to look at while the book goes on.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.network.clone(), &self.ledger)
    }

    /// Decides in what a view says is left, with what finds offers where they are looked for later.
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

    /// A reservation.
    #[must_use]
    pub fn reservation(&self, id: ReservationId) -> Option<&Reservation> {
        self.reservations.get(&id)
    }

    /// All reservations, by number.
    pub fn reservations(&self) -> impl Iterator<Item = (ReservationId, &Reservation)> {
        self.reservations
            .iter()
            .map(|(id, reservation)| (*id, reservation))
    }

    /// A change as the next entry.
    #[must_use]
    pub fn entry(&self, change: Change, now: Moment) -> Entry {
        Entry {
            number: self.next_entry,
            at: now.max(self.written),
            change,
        }
    }

    /// Decides a request; nothing is held before the change is applied.
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

    /// Decides the same request for each of several windows: all of them, or the first that is
    /// refused, with its place and the answer to it.
    ///
    /// # Errors
    /// [`Short`]: the first window that is refused, and why.
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

    /// Decides a change of a reservation to what is asked now: another rate, window, volume or
    /// other paths. What lies before now stays as it was; a volume counts from now on. The old
    /// promise holds until the change is committed.
    ///
    /// # Errors
    /// [`Fault`] where there is no such reservation, or it can't be changed now.
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

    /// What is over by now: holds that time out and windows that end, each as a change to be
    /// journalled.
    #[must_use]
    pub fn due(&self, now: Moment) -> Vec<Change> {
        self.due_first(now, usize::MAX)
    }

    /// [`Book::due`], of as many reservations at most: those of which something is over for the
    /// longest.
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

    /// When something is over next.
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        self.timers.first().map(|(moment, _)| *moment)
    }

    /// When something of a reservation is over: the sooner of what is held and what is promised.
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
