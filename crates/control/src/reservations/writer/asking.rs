//! Requests to the writer, and reading of its state.

use std::sync::Arc;

use longhaul_circuits::time::MomentMs;
use longhaul_control_api::reservations::Reserved;
use longhaul_hop::{HeldPermit, SharedPermits};
use tokio::sync::{RwLock, mpsc, oneshot, watch};

use super::Clock;
use crate::reservations::desk::{ReservationCommand, ReservationError, ReservationStore};
use crate::reservations::{ReservationCaller, api_moment};
use crate::store::{IdempotencyKey, StoreError};

/// Error of a request to the writer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The request was refused.
    #[error(transparent)]
    Refused(#[from] ReservationError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Request that waits for the writer.
pub(super) struct PendingRequest {
    pub asker: ReservationCaller,
    pub command: ReservationCommand,
    pub once: Option<IdempotencyKey>,
    /// Number of earlier decisions whose counter-offers were taken by others.
    pub tries: usize,
    pub answer: Reply,
}

/// Recipient of an answer. It keeps the key's permit until the request is finished, even if the
/// caller no longer waits.
pub(super) struct Reply {
    sender: oneshot::Sender<Result<Reserved, AskError>>,
    _permit: Option<HeldPermit<String>>,
}

impl Reply {
    pub(super) fn new(
        sender: oneshot::Sender<Result<Reserved, AskError>>,
        permit: Option<HeldPermit<String>>,
    ) -> Self {
        Self {
            sender,
            _permit: permit,
        }
    }

    /// Returns true if the caller no longer waits.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub(super) fn send(self, answer: Result<Reserved, AskError>) {
        // The caller may be gone.
        let _ = self.sender.send(answer);
    }
}

/// State of the reservations, as far as the journal has been read.
#[derive(Default)]
pub(super) struct JournalState {
    /// `None` before the journal has been read, and after a failure to append.
    pub reservations: Option<ReservationStore>,
    /// Number of the last applied record.
    pub seen: i64,
}

/// Handle of the reservations and their writer. Cheap to clone.
#[derive(Clone)]
pub struct ReservationsHandle {
    pub(super) sender: mpsc::Sender<PendingRequest>,
    pub(super) state: Arc<RwLock<JournalState>>,
    pub(super) clock: Clock,
    pub(super) changes: watch::Receiver<u64>,
    pub(super) leads: watch::Receiver<Option<i64>>,
    /// Permits of waiting requests. A key gets at most half of them, and fewer if other keys wait.
    pub(super) permits: Arc<SharedPermits<String>>,
}

impl std::fmt::Debug for ReservationsHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReservationsHandle").finish_non_exhaustive()
    }
}

impl ReservationsHandle {
    /// Executes a command. On success, it is on disk.
    ///
    /// # Errors
    /// The command is refused, the idempotency key was used for another request, or the store does
    /// not answer.
    pub async fn execute(
        &self,
        asker: ReservationCaller,
        command: ReservationCommand,
        once: Option<IdempotencyKey>,
    ) -> Result<Reserved, AskError> {
        let permit = self.permits.take(asker.owner.clone());
        let permit = permit.map_err(|_| StoreError::Busy)?;
        let (answer, answered) = oneshot::channel();
        let waiting = PendingRequest {
            asker,
            command,
            once,
            tries: 0,
            answer: Reply::new(answer, Some(permit)),
        };
        self.sender.try_send(waiting).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => StoreError::Ending,
        })?;
        answered.await.unwrap_or(Err(StoreError::Ending.into()))
    }

    /// Reads the reservations, including everything acknowledged so far.
    ///
    /// # Errors
    /// The journal cannot be read at the moment.
    pub async fn read<T>(
        &self,
        look: impl FnOnce(&ReservationStore, MomentMs) -> T,
    ) -> Result<T, StoreError> {
        let state = self.state.read().await;
        let reservations = state.reservations.as_ref().ok_or(StoreError::Behind)?;
        Ok(look(reservations, (self.clock)()))
    }

    /// Subscribes to the number of changes, which is 0 until the journal has been read.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// Subscribes to the term of leading in which this writer writes. It is set once no other
    /// controller writes and all of their records are read.
    #[must_use]
    pub fn leads(&self) -> watch::Receiver<Option<i64>> {
        self.leads.clone()
    }

    /// Returns the time of the writer's clock.
    #[must_use]
    pub fn now(&self) -> u64 {
        api_moment((self.clock)())
    }
}
