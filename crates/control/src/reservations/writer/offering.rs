//! Offers for what was refused: looked for beside the writer, by what was taken when it decided, so
//! that they delay whoever is refused and nobody else.
//!
//! An offer is good when it is taken at once. The book has gone on by the time it is found; so each
//! is held against what is on the disk by then, and the answer names the record up to which that
//! was so. Where one has gone to others meanwhile, the request is decided again, a few times at
//! most.

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

/// Refusals for which offers are looked for, or that wait for that; further ones are answered
/// without.
const MAX_OPEN: usize = 64;
/// As nice(2) has it.
const LOWEST_PRIORITY: i32 = 19;
/// How long a refusal waits for a thread that looks for offers; then it is answered without. Where
/// more is refused than can be looked for, those that wait longer get no more offers in all, only
/// later ones.
const MAX_WAIT_FOR_THREAD: Duration = Duration::from_millis(5);
/// How long offers are looked for while other refusals wait for that; those that are found by then
/// are all.
const MAX_SEARCH: Duration = Duration::from_millis(5);
/// How often a request is decided anew because offers for it went to others; not while other
/// refusals wait.
const MAX_TRIES: usize = 2;

/// What is taken, as the disk has it.
#[derive(Debug, Clone)]
pub(super) struct Published {
    /// The number of the last record that is in it.
    pub record: i64,
    pub snapshot: Snapshot,
}

/// A refusal that waits for its offers.
pub(super) struct Refused {
    pub error: AskError,
    pub open: Box<Open>,
    /// What was asked, to decide it again.
    pub asked: Asked,
    pub tries: usize,
    pub answer: Reply,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Offering {
    queue: Queue,
    /// One for each thread that looks for offers.
    threads: Arc<Semaphore>,
    newest: watch::Sender<Option<Published>>,
    /// Where a request is asked again.
    again: mpsc::WeakSender<Waiting>,
}

impl Offering {
    pub(super) fn new(again: mpsc::WeakSender<Waiting>) -> Self {
        // One processor is left to the writer, where there are more.
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

    /// Takes what is on the disk now.
    pub(super) fn publish(&self, published: Published) {
        self.newest.send_replace(Some(published));
    }

    pub(super) fn is_published(&self) -> bool {
        self.newest.borrow().is_some()
    }

    /// Has offers looked for, and the refusal answered with them; without, where too many wait for
    /// that.
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

    /// Waits until all are answered.
    pub(super) async fn finish(&self) {
        let all = u32::try_from(MAX_OPEN).unwrap_or(u32::MAX);
        // Nobody closes it.
        let _ = self.queue.places.acquire_many(all).await;
    }
}

/// The refusals that are not answered yet.
#[derive(Debug, Clone)]
struct Queue {
    /// One for each.
    places: Arc<Semaphore>,
    /// How many of them are looked after at once.
    threads: usize,
}

impl Queue {
    /// Whether some of them wait for a thread.
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
            // What was decided is on the disk, so something has been published.
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

/// Does something in a thread of its own that has only what time of the processors nobody else
/// wants: whoever decides and answers goes first. None where the thread cannot be started or fails.
async fn beside_all_else<T: Send + 'static>(
    what: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, ended) = oneshot::channel();
    let thread = std::thread::Builder::new().name("offers".to_owned());
    let started = thread.spawn(move || {
        // Of this thread alone, on Linux; where it is not allowed it is no worse than before.
        let _ = setpriority_process(None, LOWEST_PRIORITY);
        // Whoever asked may be gone.
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

/// Offers as they are by what is on the disk, and whether they are all that were found.
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

/// A refusal with these offers.
fn with(error: AskError, offers: Offers) -> AskError {
    match error {
        AskError::Desk(DeskError::NoRoom(mut refusal)) => {
            refusal.offers = offers;
            DeskError::NoRoom(refusal).into()
        }
        other => other,
    }
}
