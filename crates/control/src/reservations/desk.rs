//! The book of reservations, with whose is what and what links are called. A command in; the
//! answer, and records for the journal, out. What a record changes is changed by [`Desk::apply`]
//! alone, so the same journal makes the same desk.

mod acts;
mod beside;
mod changes;
mod open;
mod owned;
mod ports;
mod provision;
mod quota;
mod show;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_circuits::admit::Counter;
use longhaul_circuits::book::{Book, Change, Entry, Fault, Reservation};
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::{Event, Life};
use longhaul_circuits::network::Network;
use longhaul_circuits::policy::PolicyRefusal;
use longhaul_circuits::request::RequestFault;
use longhaul_circuits::time::{Moment, Window};
use longhaul_control_api::map::Map;
use longhaul_control_api::reservations::{Refusal, ReservationChange, ReservationRequest};
use serde::{Deserialize, Serialize};

use super::names::Names;
use super::reported;
use super::wanted::{Place, WantedFault};
use crate::authority::{Refused, Subject};
use beside::Beside;
use changes::Changes;
use owned::{Owned, Share};

pub use open::{Denied, Found, Open, Snapshot};
pub use quota::QuotaFault;

/// For how long what is granted is held until it is committed, in milliseconds.
pub const HOLD_MS: u64 = 60_000;
/// For how long reservations that are over stay on the books for people, in milliseconds: a week.
pub const KEEP_MS: u64 = 7 * 24 * 3_600_000;
/// Reservations that end, or are forgotten, in one turn, at most: so that others do not wait for
/// long.
const MAX_DUE: usize = 500;

/// What the book does not say of a reservation. It never changes, but for why it failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detail {
    /// Whose it is: a key as text, or `operator`.
    pub owner: String,
    /// What people called its owner when it was asked for.
    pub owner_name: String,
    /// Where the bytes come from.
    pub from: Place,
    /// Where they go.
    pub to: Place,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The first of those that were granted together, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<ReservationId>,
    /// The first of the source ports that are its own; none where its addresses are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<u16>,
    /// Whether its streams are recognised by them also where it has one path.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pinned: bool,
    /// Whether its paths are to be set up in its window as soon as it is committed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub provision: bool,
    /// The signed document that it was asked for by; of several that were granted together, the
    /// first that is still known has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// When it was asked for.
    pub created: Moment,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl Detail {
    /// What it is to whoever has that name as an owner.
    #[must_use]
    pub fn subject(&self, owner: &str) -> Subject {
        Subject {
            own: self.owner == owner,
            sites: [self.from.site.clone(), self.to.site.clone()].into(),
        }
    }
}

/// One record of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// What the map is from here on.
    Network(Names),
    /// An entry of the book, with the details of reservations that are new in it.
    Entry {
        /// The entry.
        entry: Box<Entry>,
        /// Details, by number.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        details: BTreeMap<ReservationId, Detail>,
    },
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Reserve something.
    Reserve {
        /// What is asked for.
        request: Box<ReservationRequest>,
        /// The ends, as the map has them.
        from: Place,
        /// The other one.
        to: Place,
        /// When: more than one where it recurs.
        windows: Vec<Window>,
        /// Whether the asker speaks for one of the ends.
        is_end: bool,
        /// The signed document that asks for it, if one does.
        document: Option<String>,
    },
    /// Change a reservation.
    Change {
        /// Which.
        id: ReservationId,
        /// What is to be different.
        change: ReservationChange,
    },
    /// Take what is held, of all that were granted together.
    Commit(ReservationId),
    /// Give back what is held, of all that were granted together.
    Abort(ReservationId),
    /// Have the paths set up in the window.
    Provision(ReservationId),
    /// Have them torn down.
    Release(ReservationId),
    /// End it, and give all back.
    Cancel {
        /// Which.
        id: ReservationId,
        /// With all of its series that have not ended.
        series: bool,
    },
    /// Take what became of circuits. What a reservation has no place for by now is left out.
    Settle(Vec<(ReservationId, Settled)>),
}

impl Command {
    /// What it costs to decide, in windows that are planned.
    #[must_use]
    pub fn cost(&self) -> usize {
        match self {
            Self::Reserve { windows, .. } => windows.len(),
            _ => 1,
        }
    }
}

/// What became of a circuit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// All of it is set up, or will be when its time comes.
    SetUp,
    /// Nothing of it is left.
    TornDown,
    /// It failed for good, for this reason, in one line.
    Failed(String),
}

/// Why something is not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeskError {
    /// There is none, or the asker may not see it.
    #[error("there is no reservation {0} that you may see: longhaul reservations lists them")]
    Unknown(u64),
    /// The asker may not.
    #[error(transparent)]
    Forbidden(#[from] Refused),
    /// It can't be asked.
    #[error(transparent)]
    Wanted(#[from] WantedFault),
    /// It can't be asked, says the book.
    #[error(transparent)]
    Request(#[from] RequestFault),
    /// It is more than the asker may have.
    #[error(transparent)]
    Policy(#[from] PolicyRefusal),
    /// It is more of the books than its role allows the key.
    #[error(transparent)]
    Quota(#[from] QuotaFault),
    /// There is no room.
    #[error("{}", show::in_a_line(.0))]
    NoRoom(Box<Refusal>),
    /// Not in the state that it is in.
    #[error("reservation {0} is {1}: it can't be {2} now")]
    NotNow(u64, String, &'static str),
    /// The book does not take what it decided itself, or the journal is not that of a book.
    #[error(
        "the book of reservations does not go on: {0}; restore the store from a backup, and tell the authors"
    )]
    Fault(String),
}

impl From<Fault> for DeskError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault.to_string())
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desk {
    names: Arc<Names>,
    book: Book,
    /// Sites whose nodes are set up. No part of the journal.
    managed: Arc<BTreeSet<String>>,
    /// Whether offers are looked for. No part of the journal.
    counter: Counter,
    details: BTreeMap<ReservationId, Detail>,
    /// Those of which nothing is promised or held any more, and since when.
    over: BTreeMap<ReservationId, Moment>,
    /// The same, by time.
    over_by_time: BTreeSet<(Moment, ReservationId)>,
    /// Those that are not over, by addresses and time.
    beside: Beside,
    /// How much of it is whose.
    owned: Owned,
    /// Which have changed lately.
    changes: Changes,
}

impl Desk {
    /// One without a map, on which nothing is reserved.
    ///
    /// # Errors
    /// Never: a network of nothing is one.
    pub fn new() -> Result<Self, DeskError> {
        let nothing =
            Network::new(0, Vec::new()).map_err(|fault| DeskError::Fault(fault.to_string()))?;
        Ok(Self {
            names: Arc::default(),
            book: Book::new(nothing),
            managed: Arc::default(),
            counter: Counter::Offer,
            details: BTreeMap::new(),
            over: BTreeMap::new(),
            over_by_time: BTreeSet::new(),
            beside: Beside::default(),
            owned: Owned::default(),
            changes: Changes::default(),
        })
    }

    /// The same, where the nodes at these sites are set up.
    #[must_use]
    pub fn managing(self, sites: Arc<BTreeSet<String>>) -> Self {
        Self {
            managed: sites,
            ..self
        }
    }

    /// The same, where offers are looked for, or not, for what is refused.
    #[must_use]
    pub fn countering(self, counter: Counter) -> Self {
        Self { counter, ..self }
    }

    /// Reservations, with what the book does not say of them, by number.
    pub fn reservations(&self) -> impl Iterator<Item = (ReservationId, &Detail, &Reservation)> {
        let details = self.details.iter();
        details.filter_map(|(id, detail)| Some((*id, detail, self.book.reservation(*id)?)))
    }

    /// A reservation, with what the book does not say of it.
    #[must_use]
    pub fn reservation(&self, id: ReservationId) -> Option<(&Detail, &Reservation)> {
        self.details.get(&id).zip(self.book.reservation(id))
    }

    /// How much of the journal is in it: the same number for the same records, whoever applied
    /// them.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.changes.number()
    }

    /// Reservations that have changed, or are gone, since it had this number; none where all may
    /// have.
    #[must_use]
    pub fn changed_since(&self, number: u64) -> Option<BTreeSet<ReservationId>> {
        self.changes.since(number)
    }

    /// The book.
    #[must_use]
    pub const fn book(&self) -> &Book {
        &self.book
    }

    /// What sites and links are called.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Applies the next record of the journal.
    ///
    /// # Errors
    /// It is not the next one, or promises what is not there: the desk is as it was.
    pub fn apply(&mut self, record: &Record) -> Result<(), DeskError> {
        match record {
            Record::Network(names) => {
                let network = names
                    .network()
                    .map_err(|fault| DeskError::Fault(fault.to_string()))?;
                let renewed = self.book.renew(network);
                renewed.map_err(|unlike| DeskError::Fault(unlike.to_string()))?;
                self.names = Arc::new(names.clone());
                self.changes.all();
            }
            Record::Entry { entry, details } => {
                // What is left to be done outside follows from the states: whoever sets circuits up
                // looks at these.
                self.book.apply(entry)?;
                self.details.extend(details.clone());
                match &entry.change {
                    Change::Held { holds, .. } => {
                        holds
                            .iter()
                            .for_each(|hold| self.look_at(hold.id, entry.at));
                    }
                    Change::Changing { hold, .. } => self.look_at(hold.id, entry.at),
                    Change::Event { id, .. } | Change::Returned { id, .. } => {
                        self.look_at(*id, entry.at)
                    }
                    Change::Forgotten { id } => {
                        if let Some(gone) = self.details.remove(id) {
                            self.hand_on(*id, gone);
                        }
                        self.look_at(*id, entry.at);
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives the document of one that is forgotten to the next that was granted together with it.
    fn hand_on(&mut self, id: ReservationId, gone: Detail) {
        let next = self.details.range_mut(id..).next();
        if let Some((_, next)) =
            next.filter(|(_, next)| gone.series.is_some() && next.series == gone.series)
            && next.document.is_none()
        {
            next.document = gone.document;
        }
    }

    /// Notes that a reservation has changed, whether it is over, and beside which others it is.
    fn look_at(&mut self, id: ReservationId, at: Moment) {
        let is_over = self.book.reservation(id).is_some_and(|reservation| {
            let is_nothing = reservation.plan.0.is_empty() && reservation.held.is_none();
            is_nothing || reservation.machine.life != Life::Created
        });
        match (is_over, self.over.get(&id).copied()) {
            (true, None) => {
                self.over.insert(id, at);
                self.over_by_time.insert((at, id));
            }
            (false, Some(since)) => {
                self.over.remove(&id);
                self.over_by_time.remove(&(since, id));
            }
            _ => {}
        }
        self.changes.one(id);
        let place = self.place_of(id);
        self.beside.put(id, place);
        let share = self.details.get(&id).zip(self.book.reservation(id));
        let share = share.map(|(detail, reservation)| {
            let share = match self.over.get(&id) {
                Some(since) => Share::Over(*since),
                None => Share::Active {
                    is_held: reservation.held.is_some(),
                },
            };
            (detail.owner.as_str(), share)
        });
        self.owned.put(id, share);
    }

    /// Between which addresses a reservation has its streams, and when; none where it is over, or
    /// they are not known.
    fn place_of(&self, id: ReservationId) -> Option<beside::Streams> {
        let (detail, reservation) = self
            .reservation(id)
            .filter(|_| !self.over.contains_key(&id))?;
        let (start, end) = reported::span(reservation);
        Some(beside::Streams {
            from: detail.from.address?,
            to: detail.to.address?,
            span: Window::new(start, end),
        })
    }

    /// Takes a map in the place of the one before; whether anything is different in it.
    ///
    /// # Errors
    /// It is larger than anything that is planned with: the one before stays.
    pub fn take_map(&mut self, map: &Map, records: &mut Vec<Record>) -> Result<bool, DeskError> {
        let names = self.names.with(map);
        if names == *self.names {
            return Ok(false);
        }
        let record = Record::Network(names);
        self.apply(&record)?;
        records.push(record);
        Ok(true)
    }

    /// Lets time pass: holds time out, windows end, and what has been over for long is forgotten.
    /// Whether there is more of it at once.
    ///
    /// # Errors
    /// The book does not take what it says is due.
    pub fn pass(&mut self, now: Moment, records: &mut Vec<Record>) -> Result<bool, DeskError> {
        let due = self.book.due_first(now, MAX_DUE + 1);
        let mut is_more = due.len() > MAX_DUE;
        for change in due.into_iter().take(MAX_DUE) {
            let timed_out = match &change {
                Change::Event { id, event } if *event == Event::HoldTimeout => Some(*id),
                _ => None,
            };
            self.write(change, BTreeMap::new(), now, records)?;
            // A change that nobody committed is given up for whoever asked for it: what was
            // promised before can be changed again.
            let is_promised = |id: &ReservationId| {
                let reservation = self.book.reservation(*id);
                reservation.is_some_and(|reservation| reservation.machine.provision.is_some())
            };
            if let Some(id) = timed_out.filter(is_promised) {
                let event = Event::Abort;
                self.write(Change::Event { id, event }, BTreeMap::new(), now, records)?;
            }
        }
        let before = now.saturating_sub_unsigned(KEEP_MS);
        let old = self
            .over_by_time
            .iter()
            .take_while(|(since, _)| *since <= before);
        let old = old.map(|(_, id)| *id).chain(self.owned.excess());
        let old: BTreeSet<ReservationId> = old.take(MAX_DUE).collect();
        is_more |= old.len() == MAX_DUE;
        for id in old {
            let life = self
                .book
                .reservation(id)
                .map(|reservation| reservation.machine.life);
            if life != Some(Life::Terminated) {
                self.end(id, now, records)?;
            }
            self.write(Change::Forgotten { id }, BTreeMap::new(), now, records)?;
        }
        is_more |= self.owned.excess().next().is_some();
        Ok(is_more || self.book.next_due().is_some_and(|due| due <= now))
    }

    /// When time has something to pass next.
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        let forgotten = self
            .over_by_time
            .first()
            .map(|(since, _)| since.saturating_add_unsigned(KEEP_MS));
        // What is too much of one owner is forgotten at once.
        let excess = self.owned.excess().next().map(|_| Moment::MIN);
        let due = self.book.next_due().into_iter().chain(forgotten);
        due.chain(excess).min()
    }

    /// Ends a reservation, and gives back all of it.
    fn end(
        &mut self,
        id: ReservationId,
        now: Moment,
        records: &mut Vec<Record>,
    ) -> Result<(), DeskError> {
        for event in [Event::Terminate, Event::TerminateConfirmed] {
            self.write(Change::Event { id, event }, BTreeMap::new(), now, records)?;
        }
        Ok(())
    }

    /// Makes a change, and the record of it.
    fn write(
        &mut self,
        change: Change,
        details: BTreeMap<ReservationId, Detail>,
        now: Moment,
        records: &mut Vec<Record>,
    ) -> Result<(), DeskError> {
        let record = Record::Entry {
            entry: Box::new(self.book.entry(change, now)),
            details,
        };
        self.apply(&record)?;
        records.push(record);
        Ok(())
    }
}
