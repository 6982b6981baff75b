//! The only task that writes the journal of reservations. It takes waiting requests, decides them
//! in order, appends the resulting records in one transaction, and answers once they are on disk.
//! Readers wait meanwhile, so nobody sees an intermediate state.
//!
//! If appending fails, the decisions are discarded and the book is read again from the journal,
//! which alone defines what is promised. A writer that finds a newer one (another controller on the
//! same store) takes the journal's next epoch, reads what the other has appended, and decides
//! again. If several controllers share the store, only the leader ([`crate::leader`]) writes, under
//! the epoch of its term. The others follow the journal and refuse requests.

mod asking;
mod deciding;
mod fair;
mod offering;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longhaul_circuits::time::MomentMs;
use longhaul_control_api::map::Map;
use longhaul_control_api::reservations::Reserved;
use longhaul_hop::SharedPermits;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock, mpsc, watch};
use tokio::time::sleep;

use super::desk::{ReservationError, ReservationStore};
use crate::leader::{self, Leadership};
use crate::store::reservations::JournalBatch;
use crate::store::{ControllerStore, IdempotencyKey, StoreError};

pub use asking::{AskError, ReservationsHandle};
use asking::{JournalState, PendingRequest, Reply};
use deciding::{DecidableRequest, decide};
use fair::FairQueue;
use offering::{OfferSearcher, PendingRefusal, PublishedState};

/// Maximum number of requests that wait for a decision or for counter-offers. Further ones are
/// refused, as are those of a key that exceeds its share.
const MAX_WAITING: usize = 4_096;
/// Maximum number of requests that are decided and appended together.
const MAX_BATCH: usize = 128;
/// Maximum number of windows that are planned together, unless a single request has more. It bounds
/// the wait of others.
const MAX_BATCH_WINDOWS: usize = 400;
/// Number of records that are read at a time.
const READ_BATCH: i64 = 2_000;
/// Attempts to append before waiting requests fail with [`StoreError::Busy`], as another writer
/// came between.
const MAX_ATTEMPTS: usize = 4;
/// Interval between checks for other writers' records and for what is due.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Clock: milliseconds since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> MomentMs + Send + Sync>;

/// Writer of the journal.
pub struct JournalWriter {
    store: ControllerStore,
    state: Arc<RwLock<JournalState>>,
    /// Lock that keeps readers waiting until the journal has been read.
    first: Option<OwnedRwLockWriteGuard<JournalState>>,
    receiver: mpsc::Receiver<PendingRequest>,
    /// Received requests, in one queue per key.
    waiting: FairQueue<PendingRequest>,
    maps: watch::Receiver<Arc<Map>>,
    /// Map that the book uses.
    taken: Option<Arc<Map>>,
    clock: Clock,
    /// Epoch of this writer; `None` while another may be the writer.
    epoch: Option<i64>,
    leadership: watch::Receiver<Leadership>,
    /// Term of leading in which the epoch was taken.
    led: watch::Sender<Option<i64>>,
    /// Sites whose nodes are set up.
    managed: Arc<BTreeSet<String>>,
    /// Background search for counter-offers.
    offering: OfferSearcher,
    /// Number of changes of the book.
    changed: watch::Sender<u64>,
    /// Error that made the journal unreadable. Once set, every request is refused.
    broken: Option<String>,
    /// Time when something is due.
    due: Option<MomentMs>,
}

impl std::fmt::Debug for JournalWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalWriter")
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

/// Creates the book and its writer. `maps` provides the operator's map.
#[must_use]
pub fn open(
    store: ControllerStore,
    maps: watch::Receiver<Arc<Map>>,
    clock: Clock,
) -> (ReservationsHandle, JournalWriter) {
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    let state = Arc::new(RwLock::new(JournalState::default()));
    let (changed, changes) = watch::channel(0);
    let (led, leads) = watch::channel(None);
    let offering = OfferSearcher::new(sender.downgrade());
    let handle = ReservationsHandle {
        sender,
        changes,
        leads,
        permits: SharedPermits::new(MAX_WAITING),
        state: state.clone(),
        clock: clock.clone(),
    };
    let writer = JournalWriter {
        store,
        first: state.clone().try_write_owned().ok(),
        state,
        receiver,
        waiting: FairQueue::default(),
        maps,
        taken: None,
        clock,
        epoch: None,
        leadership: watch::channel(Leadership::Alone).1,
        led,
        managed: Arc::default(),
        offering,
        changed,
        broken: None,
        due: None,
    };
    (handle, writer)
}

impl JournalWriter {
    /// Sets the sites whose nodes are set up.
    #[must_use]
    pub fn with_managed_sites(self, sites: BTreeSet<String>) -> Self {
        Self {
            managed: Arc::new(sites),
            ..self
        }
    }

    /// Makes the writer write only while this controller leads.
    #[must_use]
    pub fn with_leadership(self, leadership: watch::Receiver<Leadership>) -> Self {
        Self { leadership, ..self }
    }

    /// Writes until `end` is true and all requests received by then are answered.
    pub async fn run(mut self, mut end: watch::Receiver<bool>) {
        let mut is_map_known = true;
        self.run_turn(Vec::new()).await;
        loop {
            let pause = self.pause();
            let is_idle = self.waiting.is_empty();
            let first = tokio::select! {
                biased;
                changed = self.maps.changed(), if is_map_known => {
                    // The sender may be gone; the last map stays.
                    is_map_known = changed.is_ok();
                    None
                }
                first = self.receiver.recv(), if is_idle => match first {
                    Some(first) => Some(first),
                    None => break,
                },
                // Nothing new is accepted; requests in the channel are still received.
                _ = end.wait_for(|end| *end), if !self.receiver.is_closed() => {
                    self.receiver.close();
                    continue;
                }
                () = leader::changed(&mut self.leadership) => None,
                () = std::future::ready(()), if !is_idle => None,
                () = sleep(pause) => None,
            };
            if let Some(first) = first {
                self.enqueue(first);
            }
            while self.waiting.len() < MAX_WAITING
                && let Ok(next) = self.receiver.try_recv()
            {
                self.enqueue(next);
            }
            let batch = self.waiting.take(MAX_BATCH, MAX_BATCH_WINDOWS);
            self.run_turn(batch).await;
        }
        self.offering.finish().await;
    }

    /// Adds a request to the queue of its key.
    fn enqueue(&mut self, waiting: PendingRequest) {
        let owner = waiting.asker.owner.clone();
        self.waiting.push(&owner, waiting.command.cost(), waiting);
    }

    fn pause(&self) -> Duration {
        let due = self
            .due
            .map(|due| due.saturating_sub((self.clock)()).max(0));
        let due = due
            .and_then(|due| u64::try_from(due).ok())
            .map(Duration::from_millis);
        due.unwrap_or(LOOK_INTERVAL).min(LOOK_INTERVAL)
    }

    /// Performs one turn: waiting requests, and what is due.
    async fn run_turn(&mut self, batch: Vec<PendingRequest>) {
        let (mut asked, mut answers): (Vec<DecidableRequest>, Vec<_>) = (Vec::new(), Vec::new());
        let leadership = self.leadership.borrow_and_update().clone();
        let term = leadership.term();
        if *self.led.borrow() != term {
            // The epoch of another term is not valid any more; the attempt takes the one of this
            // term.
            self.epoch = None;
            self.led.send_if_modified(|led| led.take().is_some());
        }
        for waiting in batch {
            if term.is_none() {
                let leader = leadership.leader_url().map(str::to_owned);
                waiting
                    .answer
                    .send(Err(StoreError::NotLeading { leader }.into()));
                continue;
            }
            asked.push((waiting.asker, waiting.command, waiting.once));
            answers.push((waiting.answer, waiting.tries));
        }
        if leadership == Leadership::Lost {
            // Readers see the known state, rather than wait for a store that does not answer.
            self.due = None;
            return;
        }
        let asked = Arc::new(asked);
        let mut failed = StoreError::Busy;
        let mut state = match self.first.take() {
            Some(first) => first,
            None => self.state.clone().write_owned().await,
        };
        let seen = state.seen;
        let store = self.store.clone();
        for _ in 0..MAX_ATTEMPTS {
            let attempt = self.try_append(&mut state, &asked, &leadership);
            match store.unless_given_up(attempt).await {
                Ok(decided) => {
                    let has_changed = state.seen != seen;
                    let snapshot = state
                        .reservations
                        .as_ref()
                        .filter(|_| has_changed || !self.offering.is_published())
                        .map(ReservationStore::snapshot);
                    if let Some(snapshot) = snapshot {
                        self.offering.publish(PublishedState {
                            record: state.seen,
                            snapshot,
                        });
                    }
                    // Callers that are answered must find the new state.
                    drop(state);
                    if has_changed || *self.changed.borrow() == 0 {
                        self.changed.send_modify(|times| *times += 1);
                    }
                    if self.epoch.is_some() {
                        self.led
                            .send_if_modified(|led| std::mem::replace(led, term) != term);
                    }
                    for (((answer, tries), decided), asked) in
                        answers.into_iter().zip(decided).zip(asked.iter())
                    {
                        self.answer(answer, tries, decided, asked);
                    }
                    return;
                }
                Err(StoreError::Fenced) if leadership == Leadership::Alone => self.epoch = None,
                Err(StoreError::Fenced) => {
                    // Another controller leads. This one will learn of it, and must not take a new
                    // epoch.
                    self.epoch = None;
                    failed = StoreError::NotLeading { leader: None };
                    break;
                }
                Err(error) => {
                    failed = error;
                    break;
                }
            }
        }
        // Nothing is due while the state of the journal is unknown.
        self.due = None;
        if self.broken.is_none() {
            tracing::warn!(
                error = %failed,
                requests = answers.len(),
                "cannot write reservations"
            );
        }
        for (answer, _) in answers {
            let error = match &failed {
                StoreError::Busy => StoreError::Busy,
                StoreError::NotLeading { .. } => StoreError::NotLeading { leader: None },
                _ => StoreError::Behind,
            };
            answer.send(Err(error.into()));
        }
    }

    /// Answers now, or after a search for counter-offers.
    fn answer(
        &self,
        answer: Reply,
        tries: usize,
        decided: Result<Reserved, AskError>,
        asked: &DecidableRequest,
    ) {
        match decided {
            Err(AskError::Refused(ReservationError::InsufficientBandwidth(refused))) => {
                let asked = asked.clone();
                self.offering.search(PendingRefusal {
                    refused,
                    asked,
                    tries,
                    answer,
                });
            }
            decided => answer.send(decided),
        }
    }

    /// Reads new records, decides, and appends. The answers are valid only if this completes.
    async fn try_append(
        &mut self,
        state: &mut JournalState,
        asked: &Arc<Vec<DecidableRequest>>,
        leadership: &Leadership,
    ) -> Result<Vec<Result<Reserved, AskError>>, StoreError> {
        if self.epoch.is_some()
            && self.store.is_shared()
            && self.store.reservation_epoch().await? != self.epoch.unwrap_or(0)
        {
            self.epoch = None;
        }
        if self.epoch.is_none() || state.reservations.is_none() {
            self.catch_up(state).await?;
        }
        let term = leadership.term();
        if term.is_none() {
            // The leader processes what is due and changes of the map.
            self.due = None;
            return Ok(Vec::new());
        }
        let map = self.maps.borrow_and_update().clone();
        let is_new_map = self
            .taken
            .as_ref()
            .is_none_or(|taken| !Arc::ptr_eq(taken, &map));
        let now = (self.clock)();
        self.due = state
            .reservations
            .as_ref()
            .and_then(ReservationStore::next_due);
        // A new leader takes the epoch at once, so that no other controller can write from then on.
        let is_new_term = *self.led.borrow() != term;
        if asked.is_empty() && !is_new_map && !is_new_term && self.due.is_none_or(|due| due > now) {
            return Ok(Vec::new());
        }
        let epoch = match (self.epoch, leadership) {
            (Some(epoch), _) => epoch,
            (None, Leadership::Leading { epoch }) => {
                if self.store.reservation_epoch().await? != *epoch {
                    return Err(StoreError::Fenced);
                }
                self.catch_up(state).await?;
                *self.epoch.insert(*epoch)
            }
            (None, _) => {
                let epoch = self.store.lead_reservations().await?;
                self.catch_up(state).await?;
                *self.epoch.insert(epoch)
            }
        };
        let keys: Vec<&IdempotencyKey> = asked
            .iter()
            .filter_map(|(_, _, once)| once.as_ref())
            .collect();
        let before = self.store.answered_before(&keys).await?;
        let Some(reservations) = state.reservations.take() else {
            return Err(StoreError::Behind);
        };
        let (work, of_map) = (asked.clone(), is_new_map.then(|| map.clone()));
        let decided = tokio::task::spawn_blocking(move || {
            decide(reservations, &work, of_map.as_deref(), before, now)
        });
        let decided = decided.await.map_err(|_| StoreError::Ending)?;
        let decided = decided.map_err(|error| {
            tracing::error!(%error, "gave up a batch of reservations");
            StoreError::Behind
        })?;
        if !decided.records.is_empty() || !decided.remembered.is_empty() {
            let batch = JournalBatch {
                epoch,
                first: state.seen + 1,
                records: &decided.records,
                answers: &decided.remembered,
                now,
            };
            self.store.append_reservations(&batch).await?;
        }
        state.seen += i64::try_from(decided.records.len()).unwrap_or(i64::MAX);
        self.due = match decided.is_more {
            true => Some(now),
            false => decided.reservations.next_due(),
        };
        state.reservations = Some(decided.reservations);
        self.taken = Some(map);
        Ok(decided.answers)
    }

    /// Reads the journal's records after the known ones, or all records.
    async fn catch_up(&mut self, state: &mut JournalState) -> Result<(), StoreError> {
        let unreadable = |why: String| StoreError::Unreadable {
            what: "journal of reservations",
            why,
        };
        if let Some(why) = &self.broken {
            return Err(unreadable(why.clone()));
        }
        let mut reservations = match state.reservations.take() {
            Some(reservations) => reservations,
            None => {
                state.seen = 0;
                // The map in the journal may be older than the current one.
                self.taken = None;
                let reservations =
                    ReservationStore::new().map_err(|error| unreadable(error.to_string()))?;
                reservations.with_managed_sites(self.managed.clone())
            }
        };
        loop {
            let records = self
                .store
                .reservation_records(state.seen, READ_BATCH)
                .await?;
            if records.is_empty() {
                break;
            }
            for (number, record) in &records {
                let applied = match *number == state.seen + 1 {
                    true => reservations
                        .apply(record)
                        .map_err(|error| format!("record {number}: {error}")),
                    false => Err(format!("record {} is missing", state.seen + 1)),
                };
                if let Err(why) = applied {
                    tracing::error!(
                        why,
                        "the journal of reservations is damaged: nothing is reserved or shown"
                    );
                    self.broken = Some(why.clone());
                    return Err(unreadable(why));
                }
                state.seen = *number;
            }
            // Lets other tasks run while a long journal is read.
            tokio::task::yield_now().await;
        }
        state.reservations = Some(reservations);
        Ok(())
    }
}
