//! Reports that wait for the client. A client that takes them too slowly loses events, never the
//! copy (LH-FETCH-5).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use crate::account::Account;
use crate::fetch::message::FetchReport;
use crate::progress::{Observer, TransferEvent};
use crate::remote_copy::{CopyAsk, CopyEvent, EventReporter};
use crate::server::copy::CopyLog;

/// Maximum memory of the events that wait, in bytes.
pub(super) const MAX_QUEUED_BYTES: u64 = 1 << 20;
/// Memory of an event besides its path, in bytes.
const EVENT_BYTES: u64 = 256;
/// Maximum number of events that are sent in one piece.
const MAX_EVENTS_AT_ONCE: usize = 256;

/// Sending half of the queue.
#[derive(Clone)]
pub(super) struct ReportQueue {
    events: mpsc::UnboundedSender<CopyEvent>,
    counts: Arc<QueueCounts>,
}

#[derive(Default)]
struct QueueCounts {
    /// Bytes of the events that wait.
    bytes: AtomicU64,
    left_out: AtomicU64,
}

/// Receiving half of the queue.
pub(super) struct QueuedReports {
    events: mpsc::UnboundedReceiver<CopyEvent>,
    counts: Arc<QueueCounts>,
}

impl ReportQueue {
    pub(super) fn new() -> (Self, QueuedReports) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let counts = Arc::<QueueCounts>::default();
        let queue = Self {
            events: sender,
            counts: counts.clone(),
        };
        let queued = QueuedReports {
            events: receiver,
            counts,
        };
        (queue, queued)
    }

    /// Adds an event, unless too many wait.
    fn add(&self, event: CopyEvent) {
        let bytes = size(&event);
        let waiting = self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        if waiting.saturating_add(bytes) > MAX_QUEUED_BYTES || self.events.send(event).is_err() {
            self.counts.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.counts.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of events that were left out.
    pub(super) fn left_out(&self) -> u64 {
        self.counts.left_out.load(Ordering::Relaxed)
    }
}

impl QueuedReports {
    /// Waits for events, and returns some. Cancel safe.
    pub(super) async fn next(&mut self) -> Vec<FetchReport> {
        let mut events = Vec::new();
        if self.events.recv_many(&mut events, MAX_EVENTS_AT_ONCE).await == 0 {
            // The copy is over, which its task reports.
            std::future::pending::<()>().await;
        }
        self.take(events)
    }

    /// Returns all events that wait.
    pub(super) fn drain(&mut self) -> Vec<FetchReport> {
        let events = std::iter::from_fn(|| self.events.try_recv().ok()).collect();
        self.take(events)
    }

    fn take(&self, events: Vec<CopyEvent>) -> Vec<FetchReport> {
        let bytes = events.iter().map(size).sum();
        self.counts.bytes.fetch_sub(bytes, Ordering::Relaxed);
        events.into_iter().map(FetchReport::Event).collect()
    }
}

fn size(event: &CopyEvent) -> u64 {
    let text = match event {
        CopyEvent::Resumed { path, .. } | CopyEvent::Done { path, .. } => path.len(),
        CopyEvent::Failed { path, detail, .. } => path.len() + detail.len(),
        CopyEvent::StreamLost { reason, .. } | CopyEvent::BegunAgain { reason } => reason.len(),
        CopyEvent::StreamOpened { .. } | CopyEvent::Waiting { .. } | CopyEvent::Back { .. } => 0,
    };
    EVENT_BYTES + text as u64
}

/// Observer of a copy that this server fetches: its log, and the client.
pub(super) struct FetchObserver {
    log: CopyLog,
    client: EventReporter<Box<dyn Fn(CopyEvent) + Send + Sync>>,
}

impl FetchObserver {
    pub(super) fn new(ask: &CopyAsk, account: Arc<Account>, queue: ReportQueue) -> Self {
        Self {
            log: CopyLog(account),
            client: EventReporter {
                send: Box::new(move |event| queue.add(event)),
                report_done: ask.report_done,
                report_waiting: true,
            },
        }
    }
}

impl Observer for FetchObserver {
    fn event(&self, event: TransferEvent) {
        self.log.event(event.clone());
        self.client.event(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(path: &str) -> CopyEvent {
        CopyEvent::Done {
            path: path.into(),
            bytes: Some(1),
            blake3: None,
            same: false,
        }
    }

    /// LH-FETCH-5: the queue is bounded, and what does not fit is counted.
    #[tokio::test]
    async fn lh_fetch_5_a_slow_client_loses_events_and_learns_how_many() {
        let (queue, mut queued) = ReportQueue::new();
        let long = "x".repeat(4000);
        let fit = MAX_QUEUED_BYTES / (EVENT_BYTES + 4000);
        for _ in 0..fit + 7 {
            queue.add(done(&long));
        }
        assert_eq!(queue.left_out(), 7);
        let some = queued.next().await;
        assert_eq!(some.len(), MAX_EVENTS_AT_ONCE.min(fit as usize));
        let rest = queued.drain();
        assert_eq!((some.len() + rest.len()) as u64, fit);
        queue.add(done("y"));
        assert_eq!(queued.next().await, [FetchReport::Event(done("y"))]);
        assert_eq!(queue.left_out(), 7);
    }
}
