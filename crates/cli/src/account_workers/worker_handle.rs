//! A worker, as the front knows it: the keys that it serves, what it reports, and its state.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use longhaul_proto::PublicKey;
use longhaul_transfer::{Grants, LocalAccount, RunningCopies};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

use super::channel::MessageSender;

/// Time for a worker that was told to end.
const END_TIMEOUT: Duration = Duration::from_secs(8);
/// Maximum number of keys of one worker that are remembered, besides those that have the account
/// now.
const MAX_FORMER_KEYS: usize = 4096;

/// A worker, as the front knows it.
pub(super) struct Worker {
    pub account: Arc<LocalAccount>,
    pub sender: MessageSender,
    /// Number of streams that were passed to it.
    pub streams: AtomicU64,
    /// Keys of these streams. It may report copies of no others.
    pub keys: Mutex<HashSet<PublicKey>>,
    /// Held while grants are read and sent, so that the newest are sent last.
    pub granting: tokio::sync::Mutex<()>,
    pub running: Mutex<RunningCopies>,
    /// Maximum number of copies that it may have.
    pub max_copies: usize,
    state: watch::Sender<WorkerState>,
}

/// State of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorkerState {
    Serving,
    /// It accepts no messages. Its streams are broken, and it ends when it continues.
    GivenUp,
    Ended,
}

impl Worker {
    /// Creates a worker of `account` that serves its first key.
    pub(super) fn new(
        account: Arc<LocalAccount>,
        sender: MessageSender,
        key: PublicKey,
        max_copies: usize,
    ) -> Self {
        Self {
            account,
            sender,
            streams: AtomicU64::new(0),
            keys: Mutex::new(HashSet::from([key])),
            granting: tokio::sync::Mutex::default(),
            running: Mutex::default(),
            max_copies,
            state: watch::Sender::new(WorkerState::Serving),
        }
    }

    pub(super) fn is_serving(&self) -> bool {
        *self.state.borrow() == WorkerState::Serving
    }

    pub(super) fn is_given_up(&self) -> bool {
        *self.state.borrow() == WorkerState::GivenUp
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.state.borrow() == WorkerState::Ended
    }

    pub(super) fn advance(&self, state: WorkerState) {
        self.state.send_if_modified(|now| {
            let is_later = *now < state;
            *now = state.max(*now);
            is_later
        });
    }

    /// Breaks its streams, and lets it end when it continues.
    pub(super) fn give_up(&self) {
        self.sender.close();
        self.advance(WorkerState::GivenUp);
    }

    /// Waits until it is exactly in this state.
    pub(super) async fn reaches(&self, state: WorkerState) {
        let mut states = self.state.subscribe();
        if states.wait_for(|now| *now == state).await.is_err() {
            std::future::pending().await
        }
    }

    /// Waits for its end, at most [`END_TIMEOUT`].
    pub(super) async fn await_end(&self) {
        let mut states = self.state.subscribe();
        let ended = states.wait_for(|now| *now != WorkerState::Serving);
        let _ = timeout(END_TIMEOUT, ended).await;
    }

    /// Adds the key of a stream. Returns true if it is new.
    pub(super) fn add_key(&self, key: PublicKey, grants: &Grants) -> bool {
        let mut keys = self.keys.lock();
        if keys.len() >= MAX_FORMER_KEYS {
            keys.retain(|key| {
                let now = grants.account_of(key);
                now.is_some_and(|now| now.name == self.account.name)
            });
        }
        keys.insert(key)
    }

    /// Returns true if the worker can go on with these settings.
    pub(super) fn fits(&self, now: &LocalAccount) -> bool {
        let before = &self.account;
        (before.umask, &before.root) == (now.umask, &now.root)
            && before.quota.is_some() == now.quota.is_some()
    }
}
