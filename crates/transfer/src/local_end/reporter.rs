//! Counts and events of a copy that another crate carries out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::error::Failure;
use crate::path::RelPath;
use crate::progress::{Observer, StreamCounters, TransferEvent, TransferProgress};
use crate::reporter::CopyReporter;
use crate::route_info::RouteInfo;
use crate::send::Sources;
use crate::tree_hash::Hash;
use crate::wire::{EntryHead, EntryOutcome, NO_ENTRY};

/// Counters of a copy, and the observer of its entries.
pub struct EntryReporter {
    reporter: CopyReporter,
}

impl std::fmt::Debug for EntryReporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryReporter").finish_non_exhaustive()
    }
}

impl EntryReporter {
    /// Creates a reporter. `names` are the sources as the user knows them.
    pub fn new(
        progress: Arc<TransferProgress>,
        observer: Arc<dyn Observer>,
        names: Vec<String>,
    ) -> Self {
        Self {
            reporter: CopyReporter {
                progress,
                observer,
                labels: Sources::labels(names),
            },
        }
    }

    /// Returns the counters.
    pub fn progress(&self) -> &Arc<TransferProgress> {
        &self.reporter.progress
    }

    /// Counts an entry that the walk found, with the bytes of its content.
    pub fn found(&self, bytes: u64) {
        let progress = self.progress();
        progress.entries_found.fetch_add(1, Ordering::Relaxed);
        progress.bytes_found.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that the walk is over.
    pub fn walk_ended(&self) {
        self.progress().set_found(0, 0, true);
    }

    /// Counts bytes of files that were written.
    pub fn written(&self, bytes: u64) {
        let done = &self.progress().bytes_done;
        done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes back bytes of a file that failed.
    pub fn taken_back(&self, bytes: u64) {
        let done = &self.progress().bytes_done;
        done.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Reports the result of an entry, once per entry. `content` is the size of a file in place,
    /// and its hash if known.
    pub fn ended(
        &self,
        source: u32,
        path: &RelPath,
        outcome: Result<EntryOutcome, Failure>,
        content: Option<(u64, Option<Hash>)>,
    ) {
        self.reporter.ended(&head(source, path), outcome, content);
    }

    /// Counts and reports an entry for which there is nothing to copy.
    pub fn not_copied(&self, source: u32, path: &RelPath, failure: Failure) {
        self.found(0);
        self.ended(source, path, Err(failure), None);
    }

    /// Reports a late failure of an entry whose result was reported.
    pub fn failed(&self, source: u32, path: &RelPath, failure: Failure) {
        self.reporter.failed(&head(source, path), failure);
    }

    /// Reports that `bytes` of a file of `size` bytes need not be sent.
    pub fn resumed(&self, source: u32, path: &RelPath, bytes: u64, size: u64) {
        self.reporter.resumed(&head(source, path), bytes, size);
        self.written(bytes);
    }

    /// Adds and reports a stream with this name as its route.
    pub fn add_stream(&self, route: &str) -> Arc<StreamCounters> {
        let route = RouteInfo::without_depots(route);
        let counters = self.progress().add_stream(&route, None, false);
        self.event(TransferEvent::StreamOpened {
            stream: counters.number,
            route,
        });
        counters
    }

    /// Reports a lost stream.
    pub fn lost_stream(&self, counters: &StreamCounters, reason: &str) {
        self.event(TransferEvent::StreamLost {
            stream: Some(counters.number),
            route: counters.route.clone(),
            reason: reason.to_owned(),
            is_silent: false,
        });
    }

    /// Reports that nothing has arrived for `silence`, and that the copy gives up after `patience`.
    pub fn waiting(&self, silence: Duration, patience: Duration) {
        self.event(TransferEvent::Waiting { silence, patience });
    }

    /// Sets or clears the time for which nothing has arrived.
    pub fn set_silence(&self, silence: Option<Duration>) {
        self.progress().set_silence(silence);
    }

    /// Reports that data arrives again, after this time.
    pub fn arrival_resumed(&self, after: Duration) {
        self.event(TransferEvent::ArrivalResumed { after });
    }

    fn event(&self, event: TransferEvent) {
        self.reporter.observer.event(event);
    }
}

fn head(source: u32, path: &RelPath) -> EntryHead {
    EntryHead {
        id: NO_ENTRY,
        source,
        path: path.clone(),
    }
}
