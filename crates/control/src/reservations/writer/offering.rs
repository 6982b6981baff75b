//! Background search for counter-offers of refused requests. It uses the allocation at the time of
//! the decision, and delays only the refused caller.
//!
//! An offer must be granted if it is requested immediately, but the book has changed when the
//! search ends. So each offer is checked against the state on disk, and the answer names the record
//! up to which it is valid. If an offer was taken meanwhile, the request is decided again, a few
//! times at most.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use longhaul_control_api::reservations::Offers;
use rustix::process::setpriority_process;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;

use super::AskError;
use super::asking::{Reply, Waiting};
use super::deciding::Asked;
use crate::reservations::desk::{DeskError, Found, Open, Snapshot};

/// Maximum number of refusals that wait for counter-offers. Further ones are answered without.
const MAX_OPEN: usize = 64;
/// Priority as in nice(2).
const LOWEST_PRIORITY: i32 = 19;
/// Maximum wait of a refusal for a search thread; then it is answered without offers. Under
/// overload, a longer wait would only delay offers, not produce more.
const MAX_WAIT_FOR_THREAD: Duration = Duration::from_millis(5);
/// Maximum duration of a search while other refusals wait. Offers found by then are the result.
const MAX_SEARCH: Duration = Duration::from_millis(5);
/// Maximum number of further decisions because offers were taken by others. None while other
/// refusals wait.
const MAX_TRIES: usize = 2;

/// Allocation, as of the state on disk.
#[derive(Debug, Clone)]
pub(super) struct Published {
    /// Number of the last record included.
    pub record: i64,
    pub snapshot: Snapshot,
}

/// Refusal that waits for counter-offers.
pub(super) struct Refused {
    pub error: AskError,
    pub open: Box<Open>,
    /// The request, to decide it again.
    pub asked: Asked,
    pub tries: usize,
    pub answer: Reply,
}

/// Background search for counter-offers.
#[derive(Debug)]
pub(super) struct Offering {
    queue: Queue,
    /// One permit for each search thread.
    threads: Arc<Semaphore>,
    newest: watch::Sender<Option<Published>>,
    /// Channel for requests to decide again.
    again: mpsc::WeakSender<Waiting>,
}

impl Offering {
    pub(super) fn new(again: mpsc::WeakSender<Waiting>) -> Self {
        // Leave one processor to the writer, if there are several.
        let thread_count =
            available_parallelism().map_or(1, |count| count.get().saturating_sub(1).max(1));
        Self {
            queue: Queue {
                places: Arc::new(Semaphore::new(MAX_OPEN)),
                threads: thread_count,
            },
            threads: Arc::new(Semaphore::new(thread_count)),
            newest: watch::Sender::new(None),
            again,
        }
    }

    /// Updates the state on disk.
    pub(super) fn publish(&self, published: Published) {
        self.newest.send_replace(Some(published));
    }

    pub(super) fn is_published(&self) -> bool {
        self.newest.borrow().is_some()
    }

    /// Starts a search, after which the refusal is answered. With too many waiting, it is answered
    /// without offers.
    pub(super) fn look(&self, refused: Refused) {
        let Ok(place) = self.queue.places.clone().try_acquire_owned() else {
            refused.answer_with(Offers::left_out());
            return;
        };
        let (threads, again, queue) =
            (self.threads.clone(), self.again.clone(), self.queue.clone());
        let newest = self.newest.subscribe();
        tokio::spawn(async move {
            match timeout(MAX_WAIT_FOR_THREAD, threads.acquire_owned()).await {
                Ok(thread) => {
                    refused
                        .look(newest, again, queue, (place, thread.ok()))
                        .await
                }
                Err(_) => refused.answer_with(Offers::left_out()),
            }
        });
    }

    /// Waits until all refusals are answered.
    pub(super) async fn finish(&self) {
        let all = u32::try_from(MAX_OPEN).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let _ = self.queue.places.acquire_many(all).await;
    }
}

/// Refusals that are not answered yet.
#[derive(Debug, Clone)]
struct Queue {
    /// One permit for each refusal.
    places: Arc<Semaphore>,
    /// Maximum number of concurrent searches.
    threads: usize,
}

impl Queue {
    /// Returns true if some of them wait for a thread.
    fn is_waiting(&self) -> bool {
        MAX_OPEN.saturating_sub(self.places.available_permits()) > self.threads
    }
}

impl Refused {
    async fn look(
        self,
        newest: watch::Receiver<Option<Published>>,
        again: mpsc::WeakSender<Waiting>,
        queue: Queue,
        _while_looking: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
    ) {
        if self.answer.is_closed() {
            return;
        }
        let Self {
            error,
            open,
            asked,
            tries,
            answer,
        } = self;
        let others = queue.clone();
        let found = beside_all_else(move || {
            let began = Instant::now();
            let found = open.look(|| began.elapsed() < MAX_SEARCH || !others.is_waiting());
            // The decision is on disk, so a state has been published.
            let newest = newest.borrow().clone();
            renewed(&open, &found, newest.as_ref())
        });
        let (offers, is_all) = found.await.unwrap_or_else(|| (Offers::left_out(), true));
        let (asker, command, once) = asked;
        let mut answer = Some(answer);
        if !is_all
            && tries < MAX_TRIES
            && !queue.is_waiting()
            && let Some(again) = again.upgrade()
            && let Ok(room) = again.try_reserve()
            && let Some(answer) = answer.take()
        {
            room.send(Waiting {
                asker,
                command,
                once,
                tries: tries + 1,
                answer,
            });
        }
        if let Some(answer) = answer {
            answer.send(Err(with(error, offers)));
        }
    }

    fn answer_with(self, offers: Offers) {
        self.answer.send(Err(with(self.error, offers)));
    }
}

/// Runs a closure in a thread of lowest priority, so that the writer goes first. `None` if the
/// thread cannot be started or fails.
async fn beside_all_else<T: Send + 'static>(
    what: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, ended) = oneshot::channel();
    let thread = std::thread::Builder::new().name("offers".to_owned());
    let started = thread.spawn(move || {
        // On Linux, this affects only the calling thread. If it is not permitted, the priority
        // stays normal.
        let _ = setpriority_process(None, LOWEST_PRIORITY);
        // The caller may be gone.
        let _ = done.send(what());
    });
    match started {
        Ok(_) => ended.await.ok(),
        Err(error) => {
            tracing::warn!(%error, "a thread to look for offers cannot be started");
            None
        }
    }
}

/// Returns the offers that are valid with the state on disk. The flag is true if these are all that
/// were found.
fn renewed(open: &Open, found: &Found, newest: Option<&Published>) -> (Offers, bool) {
    let Some(newest) = newest else {
        return (Offers::left_out(), true);
    };
    let (offers, is_all) = open.renewed(found, &newest.snapshot);
    let offers = Offers {
        record: u64::try_from(newest.record).ok(),
        left_out: !is_all || found.is_broken_off,
        ..offers
    };
    (offers, is_all)
}

/// Returns a refusal with these offers.
fn with(error: AskError, offers: Offers) -> AskError {
    match error {
        AskError::Desk(DeskError::NoRoom(mut refusal)) => {
            refusal.offers = offers;
            DeskError::NoRoom(refusal).into()
        }
        other => other,
    }
}
