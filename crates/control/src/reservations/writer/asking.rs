//! Asking the writer, and reading what it has written.

use std::sync::Arc;

use longhaul_circuits::time::Moment;
use longhaul_control_api::reservations::Reserved;
use longhaul_hop::{HeldPlace, SharedPlaces};
use tokio::sync::{RwLock, mpsc, oneshot, watch};

use super::Clock;
use crate::reservations::desk::{Command, Desk, DeskError};
use crate::reservations::{Asker, api_moment};
use crate::store::{Once, StoreError};

/// Why something is not answered.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The book says no.
    #[error(transparent)]
    Desk(#[from] DeskError),
    /// The store does.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A request that waits.
pub(super) struct Waiting {
    pub asker: Asker,
    pub command: Command,
    pub once: Option<Once>,
    /// How often it was decided before, and what it could have instead went to others.
    pub tries: usize,
    pub answer: Reply,
}

/// Where the answer to a request goes. It keeps the request's place among those of its key until
/// the request is done with, also when nobody waits for the answer any more.
pub(super) struct Reply {
    sender: oneshot::Sender<Result<Reserved, AskError>>,
    _held: Option<HeldPlace<String>>,
}

impl Reply {
    pub(super) fn new(
        sender: oneshot::Sender<Result<Reserved, AskError>>,
        held: Option<HeldPlace<String>>,
    ) -> Self {
        Self {
            sender,
            _held: held,
        }
    }

    /// Returns true if nobody waits for it.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub(super) fn send(self, answer: Result<Reserved, AskError>) {
        // The caller may be gone.
        let _ = self.sender.send(answer);
    }
}

/// What is known of the journal.
#[derive(Default)]
pub(super) struct State {
    /// None while it is not known what the journal says.
    pub desk: Option<Desk>,
    /// The number of the last record that is in it.
    pub seen: i64,
}

/// The book of reservations, to ask. Cheap to clone.
#[derive(Clone)]
pub struct Book {
    pub(super) sender: mpsc::Sender<Waiting>,
    pub(super) state: Arc<RwLock<State>>,
    pub(super) clock: Clock,
    pub(super) changes: watch::Receiver<u64>,
    pub(super) leads: watch::Receiver<Option<i64>>,
    /// Room for what waits: no key has more than half of it, less beside others.
    pub(super) places: Arc<SharedPlaces<String>>,
}

impl std::fmt::Debug for Book {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Book").finish_non_exhaustive()
    }
}

impl Book {
    /// Has something done. When this says so it is on the disk.
    ///
    /// # Errors
    /// It can't be done, the key came with another request before, or the store does not answer.
    pub async fn ask(
        &self,
        asker: Asker,
        command: Command,
        once: Option<Once>,
    ) -> Result<Reserved, AskError> {
        let place = self.places.take(asker.owner.clone());
        let held = place.map_err(|_| StoreError::Busy)?;
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting {
            asker,
            command,
            once,
            tries: 0,
            answer: Reply::new(answer, Some(held)),
        };
        self.sender.try_send(waiting).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => StoreError::Ending,
        })?;
        answered.await.unwrap_or(Err(StoreError::Ending.into()))
    }

    /// Reads the book as it was when all that is acknowledged was in it.
    ///
    /// # Errors
    /// The journal could not be read for now.
    pub async fn read<T>(&self, look: impl FnOnce(&Desk, Moment) -> T) -> Result<T, StoreError> {
        let state = self.state.read().await;
        let desk = state.desk.as_ref().ok_or(StoreError::Behind)?;
        Ok(look(desk, (self.clock)()))
    }

    /// How often it has changed, to wait for the next time: 0 until it has been read.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// The term of leading in which it is written here: from the moment on in which nobody else
    /// writes any more and all that others wrote is read.
    #[must_use]
    pub fn leads(&self) -> watch::Receiver<Option<i64>> {
        self.leads.clone()
    }

    /// The time by which it goes.
    #[must_use]
    pub fn now(&self) -> u64 {
        api_moment((self.clock)())
    }
}
