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

use super::asking::{PendingRequest, Reply};
use super::deciding::DecidableRequest;
use crate::reservations::desk::{
    AllocationSnapshot, FoundOffers, RefusedRequest, ReservationError,
};

/// Maximum number of refusals that wait for counter-offers. Further ones are answered without.
const MAX_PENDING_REFUSALS: usize = 64;
/// Priority as in nice(2).
const LOWEST_PRIORITY: i32 = 19;
/// Maximum wait of a refusal for a search thread; then it is answered without offers. Under
/// overload, a longer wait would only delay offers, not produce more.
const MAX_WAIT_FOR_THREAD: Duration = Duration::from_millis(5);
/// Maximum duration of a search while other refusals wait. Offers found by then are the result.
const MAX_SEARCH: Duration = Duration::from_millis(5);
/// Maximum number of further decisions because offers were taken by others. None while other
/// refusals wait.
const MAX_FURTHER_DECISIONS: usize = 2;

/// Allocation, as of the state on disk.
#[derive(Debug, Clone)]
pub(super) struct PublishedState {
    /// Number of the last record included.
    pub record: i64,
    pub snapshot: AllocationSnapshot,
}

/// Refusal that waits for counter-offers.
pub(super) struct PendingRefusal {
    pub refused: Box<RefusedRequest>,
    /// The request, to decide it again.
    pub asked: DecidableRequest,
    pub tries: usize,
    pub answer: Reply,
}

/// Background search for counter-offers.
#[derive(Debug)]
pub(super) struct OfferSearcher {
    queue: RefusalQueue,
    /// One permit for each search thread.
    threads: Arc<Semaphore>,
    newest: watch::Sender<Option<PublishedState>>,
    /// Channel for requests to decide again.
    again: mpsc::WeakSender<PendingRequest>,
}

impl OfferSearcher {
    pub(super) fn new(again: mpsc::WeakSender<PendingRequest>) -> Self {
        // Leave one processor to the writer, if there are several.
        let thread_count =
            available_parallelism().map_or(1, |count| count.get().saturating_sub(1).max(1));
        Self {
            queue: RefusalQueue {
                places: Arc::new(Semaphore::new(MAX_PENDING_REFUSALS)),
                threads: thread_count,
            },
            threads: Arc::new(Semaphore::new(thread_count)),
            newest: watch::Sender::new(None),
            again,
        }
    }

    /// Updates the state on disk.
    pub(super) fn publish(&self, published: PublishedState) {
        self.newest.send_replace(Some(published));
    }

    pub(super) fn is_published(&self) -> bool {
        self.newest.borrow().is_some()
    }

    /// Starts a search, after which the refusal is answered. With too many waiting, it is answered
    /// without offers.
    pub(super) fn search(&self, refused: PendingRefusal) {
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
                        .search(newest, again, queue, (place, thread.ok()))
                        .await
                }
                Err(_) => refused.answer_with(Offers::left_out()),
            }
        });
    }

    /// Waits until all refusals are answered.
    pub(super) async fn finish(&self) {
        let all = u32::try_from(MAX_PENDING_REFUSALS).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let _ = self.queue.places.acquire_many(all).await;
    }
}

/// Refusals that are not answered yet.
#[derive(Debug, Clone)]
struct RefusalQueue {
    /// One permit for each refusal.
    places: Arc<Semaphore>,
    /// Maximum number of concurrent searches.
    threads: usize,
}

impl RefusalQueue {
    /// Returns true if some of them wait for a thread.
    fn is_waiting(&self) -> bool {
        MAX_PENDING_REFUSALS.saturating_sub(self.places.available_permits()) > self.threads
    }
}

impl PendingRefusal {
    async fn search(
        self,
        newest: watch::Receiver<Option<PublishedState>>,
        again: mpsc::WeakSender<PendingRequest>,
        queue: RefusalQueue,
        _while_looking: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
    ) {
        if self.answer.is_closed() {
            return;
        }
        let (others, refused) = (queue.clone(), self.refused.clone());
        let found = run_in_background(move || {
            let began = Instant::now();
            let found =
                refused.find_offers(|| began.elapsed() < MAX_SEARCH || !others.is_waiting());
            // The decision is on disk, so a state has been published.
            let newest = newest.borrow().clone();
            current_offers(&refused, &found, newest.as_ref())
        });
        let (offers, is_all) = found.await.unwrap_or_else(|| (Offers::left_out(), true));
        if !is_all
            && self.tries < MAX_FURTHER_DECISIONS
            && !queue.is_waiting()
            && let Some(again) = again.upgrade()
            && let Ok(room) = again.try_reserve()
        {
            let (asker, command, once) = self.asked;
            room.send(PendingRequest {
                asker,
                command,
                once,
                tries: self.tries + 1,
                answer: self.answer,
            });
            return;
        }
        self.answer_with(offers);
    }

    fn answer_with(mut self, offers: Offers) {
        self.refused.refusal.offers = offers;
        let error = ReservationError::InsufficientBandwidth(self.refused);
        self.answer.send(Err(error.into()));
    }
}

/// Runs a closure in a thread of lowest priority, so that the writer goes first. `None` if the
/// thread cannot be started or fails.
async fn run_in_background<T: Send + 'static>(
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
            tracing::warn!(%error, "cannot start a thread to look for offers");
            None
        }
    }
}

/// Returns the offers that are valid with the state on disk. The flag is true if these are all that
/// were found.
fn current_offers(
    refused: &RefusedRequest,
    found: &FoundOffers,
    newest: Option<&PublishedState>,
) -> (Offers, bool) {
    let Some(newest) = newest else {
        return (Offers::left_out(), true);
    };
    let (offers, is_all) = refused.renewed(found, &newest.snapshot);
    let offers = Offers {
        record: u64::try_from(newest.record).ok(),
        left_out: !is_all || found.is_broken_off,
        ..offers
    };
    (offers, is_all)
}
