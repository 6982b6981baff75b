//! The book of reservations with their owners and the names of links. It takes a command, and
//! returns an answer and journal records. All changes are made by [`ReservationStore::apply`], so
//! the same journal yields the same state.

mod acts;
mod beside;
mod changes;
mod delegate;
mod open;
mod owned;
mod ports;
mod provision;
mod quota;
mod reroute;
mod show;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_circuits::book::{BookChange, BookFault, Reservation, ReservationBook};
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::{LifeState, ReservationEvent};
use longhaul_circuits::network::CircuitNetwork;
use longhaul_circuits::policy::PolicyRefusal;
use longhaul_circuits::request::RequestFault;
use longhaul_circuits::time::{MomentMs, Window};
use longhaul_control_api::map::Map;
use longhaul_control_api::reservations::{ReservationChange, ReservationRequest};

use super::delegated::{DelegationRefusal, RecordedDelegation};
use super::names::NetworkNames;
use super::record::{Record, ReservationDetail};
use super::reported;
use super::wanted::{InvalidReservation, ReservationEnd};
use crate::authority::AccessDenied;
use beside::StreamIndex;
use changes::ChangeLog;
use owned::{OwnedState, OwnerIndex};

pub use open::{AllocationSnapshot, FoundOffers, RefusedRequest};
pub use quota::QuotaFault;

/// Time for which granted bandwidth is held until it is committed, in milliseconds.
pub const HOLD_LIFETIME_MS: u64 = 60_000;
/// Time for which finished reservations are still shown, in milliseconds: a week.
pub const RETENTION_MS: u64 = 7 * 24 * 3_600_000;
/// Maximum number of reservations that end or are forgotten in one turn, to limit delays of others.
const MAX_DUE_PER_TURN: usize = 500;

/// Command to execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservationCommand {
    /// Reserve bandwidth.
    Reserve {
        /// The request.
        request: Box<ReservationRequest>,
        /// Source, as on the map.
        from: ReservationEnd,
        /// Destination, as on the map.
        to: ReservationEnd,
        /// Windows; several if the request recurs.
        windows: Vec<Window>,
        /// If true, the caller speaks for one of the ends.
        is_end: bool,
        /// Signed document of the request, if any.
        document: Option<Box<str>>,
        /// Delegation under which the caller's delegate made the request, if any.
        delegation: Option<Box<RecordedDelegation>>,
    },
    /// Change a reservation.
    Change {
        /// ID of the reservation.
        id: ReservationId,
        /// The change.
        change: ReservationChange,
    },
    /// Commit what is held, of all that were granted together.
    Commit(ReservationId),
    /// Abort what is held, of all that were granted together.
    Abort(ReservationId),
    /// Set up the paths in the window.
    Provision(ReservationId),
    /// Tear down the paths.
    Release(ReservationId),
    /// Terminate a reservation and return its bandwidth.
    Cancel {
        /// ID of the reservation.
        id: ReservationId,
        /// If true, includes all of its series that have not ended.
        series: bool,
    },
    /// Record the results of circuits. Results that no longer apply to their reservation are
    /// skipped.
    Settle(Vec<(ReservationId, CircuitResult)>),
    /// Plan reservations again whose links have failed or are overbooked. Those that are not
    /// impaired, and those for which nothing else is left, stay as they are.
    Reroute(Vec<ReservationId>),
}

impl ReservationCommand {
    /// Returns the cost of deciding the command, as a number of planned windows.
    #[must_use]
    pub fn cost(&self) -> usize {
        match self {
            Self::Reserve { windows, .. } => windows.len(),
            Self::Reroute(ids) => ids.len().max(1),
            _ => 1,
        }
    }
}

/// Result of a circuit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CircuitResult {
    /// All of it is set up, or will be in its window.
    SetUp,
    /// Nothing of it is set up any more.
    TornDown,
    /// It failed permanently, for this reason in one line.
    Failed(String),
}

/// A command was refused.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReservationError {
    /// The reservation does not exist, or the caller may not see it. Reservations are removed a
    /// week after their end.
    #[error("there is no reservation {0} that you may see: longhaul reservations lists them")]
    Unknown(u64),
    /// The caller does not have the right.
    #[error(transparent)]
    Forbidden(#[from] AccessDenied),
    /// The request is invalid.
    #[error(transparent)]
    Wanted(#[from] InvalidReservation),
    /// The book finds the request invalid.
    #[error(transparent)]
    Request(#[from] RequestFault),
    /// The request exceeds the caller's limits.
    #[error(transparent)]
    Policy(#[from] PolicyRefusal),
    /// The request exceeds the caller's quota.
    #[error(transparent)]
    Quota(#[from] QuotaFault),
    /// The delegation does not permit the request.
    #[error(transparent)]
    Delegation(#[from] DelegationRefusal),
    /// The delegation already has a reservation, and each has one at a time. Cancel that one, or
    /// sign another delegation.
    #[error("the delegation is in use by reservation {0}: cancel that one, or use another")]
    DelegationUsed(u64),
    /// There is not enough bandwidth.
    #[error("{}", show::refusal_line(&.0.refusal))]
    InsufficientBandwidth(Box<RefusedRequest>),
    /// The reservation's state does not allow it.
    #[error("reservation {0} is {1}: it cannot be {2} now")]
    NotNow(u64, String, &'static str),
    /// The book refused its own entry, or the journal is invalid.
    #[error(
        "the journal of reservations is damaged: {0}; restore the store from a backup, and report \
         this"
    )]
    Fault(String),
}

impl From<BookFault> for ReservationError {
    fn from(fault: BookFault) -> Self {
        Self::Fault(fault.to_string())
    }
}

/// Book of reservations with owners and names, built from the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationStore {
    names: Arc<NetworkNames>,
    book: ReservationBook,
    /// Sites whose nodes are set up. Not part of the journal.
    managed: Arc<BTreeSet<String>>,
    details: BTreeMap<ReservationId, ReservationDetail>,
    /// Finished reservations, with the time when they finished.
    over: BTreeMap<ReservationId, MomentMs>,
    /// The same, ordered by time.
    over_by_time: BTreeSet<(MomentMs, ReservationId)>,
    /// Unfinished reservations by addresses and time.
    beside: StreamIndex,
    /// Numbers of reservations by owner.
    owned: OwnerIndex,
    /// Recently changed reservations.
    changes: ChangeLog,
}

impl ReservationStore {
    /// Creates an empty book without a map.
    ///
    /// # Errors
    /// Never: an empty network is valid.
    pub fn new() -> Result<Self, ReservationError> {
        let nothing = CircuitNetwork::new(0, Vec::new())
            .map_err(|fault| ReservationError::Fault(fault.to_string()))?;
        Ok(Self {
            names: Arc::default(),
            book: ReservationBook::new(nothing),
            managed: Arc::default(),
            details: BTreeMap::new(),
            over: BTreeMap::new(),
            over_by_time: BTreeSet::new(),
            beside: StreamIndex::default(),
            owned: OwnerIndex::default(),
            changes: ChangeLog::default(),
        })
    }

    /// Sets the sites whose nodes are set up.
    #[must_use]
    pub fn with_managed_sites(self, sites: Arc<BTreeSet<String>>) -> Self {
        Self {
            managed: sites,
            ..self
        }
    }

    /// Returns all reservations with their details, by ID.
    pub fn reservations(
        &self,
    ) -> impl Iterator<Item = (ReservationId, &ReservationDetail, &Reservation)> {
        let details = self.details.iter();
        details.filter_map(|(id, detail)| Some((*id, detail, self.book.reservation(*id)?)))
    }

    /// Returns a reservation with its details.
    #[must_use]
    pub fn reservation(&self, id: ReservationId) -> Option<(&ReservationDetail, &Reservation)> {
        self.details.get(&id).zip(self.book.reservation(id))
    }

    /// Returns the number of changes. It depends only on the records, not on who applied them.
    #[must_use]
    pub const fn change_count(&self) -> u64 {
        self.changes.number()
    }

    /// Returns the reservations that have changed or been forgotten since this number of changes.
    /// `None` if any may have changed.
    #[must_use]
    pub fn changed_since(&self, number: u64) -> Option<BTreeSet<ReservationId>> {
        self.changes.changed_since(number)
    }

    /// Returns the book.
    #[must_use]
    pub const fn book(&self) -> &ReservationBook {
        &self.book
    }

    /// Returns the names of sites and links.
    #[must_use]
    pub fn names(&self) -> &NetworkNames {
        &self.names
    }

    /// Applies the next record of the journal.
    ///
    /// # Errors
    /// The record is not the next one, or promises more than available. Nothing has changed then.
    pub fn apply(&mut self, record: &Record) -> Result<(), ReservationError> {
        match record {
            Record::Network(names) => {
                let network = names
                    .network()
                    .map_err(|fault| ReservationError::Fault(fault.to_string()))?;
                let renewed = self.book.replace_network(network);
                renewed.map_err(|unlike| ReservationError::Fault(unlike.to_string()))?;
                self.names = Arc::new(names.clone());
                self.changes.record_all();
            }
            Record::Entry { entry, details } => {
                // Actions outside follow from the states, which the circuit task observes.
                self.book.apply(entry)?;
                self.details.extend(details.clone());
                match &entry.change {
                    BookChange::Held { holds, .. } => {
                        holds
                            .iter()
                            .for_each(|hold| self.update_indexes(hold.id, entry.at));
                    }
                    BookChange::Changing { hold, .. } => self.update_indexes(hold.id, entry.at),
                    BookChange::Event { id, .. } | BookChange::Returned { id, .. } => {
                        self.update_indexes(*id, entry.at)
                    }
                    BookChange::Forgotten { id } => {
                        if let Some(gone) = self.details.remove(id) {
                            self.pass_on_document(*id, gone);
                        }
                        self.update_indexes(*id, entry.at);
                    }
                }
            }
        }
        Ok(())
    }

    /// Passes the document of a forgotten reservation to the next one of its series.
    fn pass_on_document(&mut self, id: ReservationId, gone: ReservationDetail) {
        let next = self.details.range_mut(id..).next();
        if let Some((_, next)) =
            next.filter(|(_, next)| gone.series.is_some() && next.series == gone.series)
            && next.document.is_none()
        {
            next.document = gone.document;
        }
    }

    /// Updates the indexes for a changed reservation.
    fn update_indexes(&mut self, id: ReservationId, at: MomentMs) {
        let is_over = self.book.reservation(id).is_some_and(|reservation| {
            let is_nothing = reservation.plan.0.is_empty() && reservation.held.is_none();
            is_nothing || reservation.machine.life != LifeState::Created
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
        self.changes.record(id);
        let place = self.streams_of(id);
        self.beside.put(id, place);
        let share = self.details.get(&id).zip(self.book.reservation(id));
        let share = share.map(|(detail, reservation)| {
            let share = match self.over.get(&id) {
                Some(since) => OwnedState::Over(*since),
                None => OwnedState::Active {
                    is_held: reservation.held.is_some(),
                },
            };
            (detail.owner.as_str(), share)
        });
        self.owned.put(id, share);
    }

    /// Returns the addresses and times of a reservation's streams. `None` if it is finished or its
    /// addresses are unknown.
    fn streams_of(&self, id: ReservationId) -> Option<beside::ReservationStreams> {
        let (detail, reservation) = self
            .reservation(id)
            .filter(|_| !self.over.contains_key(&id))?;
        let (start, end) = reported::span(reservation);
        Some(beside::ReservationStreams {
            from: detail.from.address?,
            to: detail.to.address?,
            span: Window::new(start, end),
        })
    }

    /// Replaces the map. Returns true if the new one differs.
    ///
    /// # Errors
    /// The map is too large to plan with; the previous one stays.
    pub fn take_map(
        &mut self,
        map: &Map,
        records: &mut Vec<Record>,
    ) -> Result<bool, ReservationError> {
        let names = self.names.updated_with(map);
        if names == *self.names {
            return Ok(false);
        }
        let record = Record::Network(names);
        self.apply(&record)?;
        records.push(record);
        Ok(true)
    }

    /// Processes what is due: expired holds, ended windows, and finished reservations to forget.
    /// Returns true if more is due immediately.
    ///
    /// # Errors
    /// The book refused its own change.
    pub fn advance_time(
        &mut self,
        now: MomentMs,
        records: &mut Vec<Record>,
    ) -> Result<bool, ReservationError> {
        let due = self.book.due_first(now, MAX_DUE_PER_TURN + 1);
        let mut is_more = due.len() > MAX_DUE_PER_TURN;
        for change in due.into_iter().take(MAX_DUE_PER_TURN) {
            let timed_out = match &change {
                BookChange::Event { id, event } if *event == ReservationEvent::HoldTimeout => {
                    Some(*id)
                }
                _ => None,
            };
            self.write(change, BTreeMap::new(), now, records)?;
            // A change that was not committed in time is aborted, so that the promised reservation
            // can be changed again.
            let is_promised = |id: &ReservationId| {
                let reservation = self.book.reservation(*id);
                reservation.is_some_and(|reservation| reservation.machine.provision.is_some())
            };
            if let Some(id) = timed_out.filter(is_promised) {
                let event = ReservationEvent::Abort;
                self.write(
                    BookChange::Event { id, event },
                    BTreeMap::new(),
                    now,
                    records,
                )?;
            }
        }
        let before = now.saturating_sub_unsigned(RETENTION_MS);
        let old = self
            .over_by_time
            .iter()
            .take_while(|(since, _)| *since <= before);
        let old = old.map(|(_, id)| *id).chain(self.owned.excess());
        let old: BTreeSet<ReservationId> = old.take(MAX_DUE_PER_TURN).collect();
        is_more |= old.len() == MAX_DUE_PER_TURN;
        for id in old {
            let life = self
                .book
                .reservation(id)
                .map(|reservation| reservation.machine.life);
            if life != Some(LifeState::Terminated) {
                self.end(id, now, records)?;
            }
            self.write(BookChange::Forgotten { id }, BTreeMap::new(), now, records)?;
        }
        is_more |= self.owned.excess().next().is_some();
        Ok(is_more || self.book.next_due().is_some_and(|due| due <= now))
    }

    /// Returns the time when something is due next.
    #[must_use]
    pub fn next_due(&self) -> Option<MomentMs> {
        let forgotten = self
            .over_by_time
            .first()
            .map(|(since, _)| since.saturating_add_unsigned(RETENTION_MS));
        // Excess reservations of an owner are forgotten at once.
        let excess = self.owned.excess().next().map(|_| MomentMs::MIN);
        let due = self.book.next_due().into_iter().chain(forgotten);
        due.chain(excess).min()
    }

    /// Terminates a reservation and returns its bandwidth.
    fn end(
        &mut self,
        id: ReservationId,
        now: MomentMs,
        records: &mut Vec<Record>,
    ) -> Result<(), ReservationError> {
        for event in [
            ReservationEvent::Terminate,
            ReservationEvent::TerminateConfirmed,
        ] {
            self.write(
                BookChange::Event { id, event },
                BTreeMap::new(),
                now,
                records,
            )?;
        }
        Ok(())
    }

    /// Applies a change and appends its record.
    fn write(
        &mut self,
        change: BookChange,
        details: BTreeMap<ReservationId, ReservationDetail>,
        now: MomentMs,
        records: &mut Vec<Record>,
    ) -> Result<(), ReservationError> {
        let record = Record::Entry {
            entry: Box::new(self.book.entry(change, now)),
            details,
        };
        self.apply(&record)?;
        records.push(record);
        Ok(())
    }
}
