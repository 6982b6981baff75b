//! Progress of a running copy: counters, and events as they happen.

mod earlier;
mod events;
pub(crate) mod not_kept;
mod streams;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use drs::FlowWatch;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::route_info::RouteInfo;
use crate::wire::EntryOutcome;

use earlier::EarlierCopies;
pub use events::{Observer, RouteStanding, Standstill, TransferEvent};
pub use not_kept::{NotKept, NotKeptCounts};
pub(crate) use streams::CopyTerms;
pub use streams::{ConnectionEnds, StreamCounters};

/// Counters of one copy. Entries are files, directories and links.
#[derive(Debug, Default)]
pub struct TransferProgress {
    /// Entries the walk has found.
    pub entries_found: AtomicU64,
    /// Bytes of files the walk has found.
    pub bytes_found: AtomicU64,
    /// True once the walk is over, so that the two counters above are final.
    pub walk_complete: AtomicBool,
    /// Entries in place and verified, or failed.
    pub entries_done: AtomicU64,
    /// Files that are in place.
    pub files_done: AtomicU64,
    /// Bytes of files written (acknowledged by the receiver), holes included.
    pub bytes_done: AtomicU64,
    /// Bytes of files that an earlier copy had left in place.
    pub bytes_resumed: AtomicU64,
    /// Bytes of file data that travelled in plaintext.
    pub bytes_plaintext: AtomicU64,
    /// Bytes of file data that compression and existing files have kept off the network.
    pub bytes_saved: AtomicU64,
    /// Files in place that existed before and did not travel.
    pub files_unchanged: AtomicU64,
    /// Bytes of the unchanged files.
    pub bytes_unchanged: AtomicU64,
    /// Files in place that are further names of another one, and so did not travel.
    pub files_linked: AtomicU64,
    /// Bytes of the linked files.
    pub bytes_linked: AtomicU64,
    /// Entries that failed.
    pub failures: AtomicU64,
    /// Name of the latest large file whose transfer began.
    current_file: Mutex<String>,
    /// Properties of the sources that are not kept, at the end that reads them.
    pub not_kept: NotKept,
    streams: Mutex<Vec<Arc<StreamCounters>>>,
    /// Notified when the walk has found more or is over.
    found: Notify,
    /// Terms on which the server has accepted the copy, once it has.
    terms: watch::Sender<Option<CopyTerms>>,
    standstill: watch::Sender<Option<Standstill>>,
    /// Number of reads that returned data on accepted streams.
    arrivals: Arc<AtomicU64>,
    /// Time in milliseconds for which nothing has arrived. Zero while it is too short to show.
    silent_millis: AtomicU64,
    /// Totals of the earlier copies of the same run.
    earlier: Mutex<EarlierCopies>,
}

impl TransferProgress {
    /// Counts `bytes` more that were already in place.
    pub(crate) fn count_resumed(&self, bytes: u64) {
        let before_run = self.earlier.lock().take_resumed(bytes);
        self.bytes_resumed.fetch_add(before_run, Ordering::Relaxed);
    }

    /// Counts one more file of `bytes` bytes in place, by how it came there.
    pub(crate) fn count_in_place(&self, written: EntryOutcome, bytes: u64) {
        let (files, all_bytes) = match written {
            EntryOutcome::New | EntryOutcome::Same => return,
            EntryOutcome::Unchanged => (&self.files_unchanged, &self.bytes_unchanged),
            EntryOutcome::Linked => (&self.files_linked, &self.bytes_linked),
        };
        let (before_run, bytes) = match written {
            EntryOutcome::Unchanged => self.earlier.lock().take_unchanged(bytes),
            _ => (1, bytes),
        };
        files.fetch_add(before_run, Ordering::Relaxed);
        all_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Resets the counters for the copy that replaces this one in the same run. What this copy
    /// brought still counts as brought, though the next copy finds it in place.
    pub(crate) fn reset_for_next_copy(&self) {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        let travelled = self.bytes_travelled();
        let files = take(&self.files_done)
            .saturating_sub(take(&self.files_unchanged))
            .saturating_sub(take(&self.files_linked));
        self.earlier.lock().add(files, travelled);
        for counter in [
            &self.entries_found,
            &self.bytes_found,
            &self.entries_done,
            &self.bytes_done,
            &self.bytes_resumed,
            &self.bytes_unchanged,
            &self.bytes_linked,
            &self.failures,
        ] {
            take(counter);
        }
        self.not_kept.reset();
        self.walk_complete.store(false, Ordering::Release);
        self.terms.send_replace(None);
    }

    /// Returns the number of reads that returned data on accepted streams.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals.load(Ordering::Relaxed)
    }

    /// Returns the time for which nothing has arrived, or `None` while it is too short to show.
    pub fn silence(&self) -> Option<Duration> {
        let millis = self.silent_millis.load(Ordering::Relaxed);
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    pub(crate) fn set_silence(&self, silence: Option<Duration>) {
        let millis = silence.map_or(0, |silence| {
            u64::try_from(silence.as_millis()).unwrap_or(u64::MAX)
        });
        self.silent_millis.store(millis, Ordering::Relaxed);
    }

    /// Returns the number of entries found that are not in place.
    pub fn entries_left(&self) -> u64 {
        let done = self.entries_done.load(Ordering::Relaxed);
        let found = self.entries_found.load(Ordering::Relaxed);
        found.saturating_sub(done)
    }

    /// Returns the name of the latest large file whose transfer began. Empty if there is none.
    pub fn current_file(&self) -> String {
        self.current_file.lock().clone()
    }

    pub(crate) fn set_current_file(&self, name: String) {
        *self.current_file.lock() = name;
    }

    /// Returns the bytes in place that have travelled. Bytes that an earlier copy left, and files
    /// that are unchanged or linked, do not count.
    pub fn bytes_travelled(&self) -> u64 {
        let not = [
            &self.bytes_resumed,
            &self.bytes_unchanged,
            &self.bytes_linked,
        ];
        let done = self.bytes_done.load(Ordering::Relaxed);
        not.iter().fold(done, |travelled, bytes| {
            travelled.saturating_sub(bytes.load(Ordering::Relaxed))
        })
    }

    /// Waits for the number of bytes of all files. Returns `None` as soon as there are `many` and
    /// the walk continues.
    pub async fn total_bytes(&self, many: u64) -> Option<u64> {
        loop {
            // Register first, so that no later discovery is missed.
            let found = self.found.notified();
            let (is_complete, bytes) = (
                self.walk_complete.load(Ordering::Acquire),
                self.bytes_found.load(Ordering::Relaxed),
            );
            match is_complete {
                true => return Some(bytes),
                false if bytes >= many => return None,
                false => found.await,
            }
        }
    }

    /// Returns the terms on which the server has accepted the copy, once it has.
    pub(crate) fn terms(&self) -> watch::Receiver<Option<CopyTerms>> {
        self.terms.subscribe()
    }

    /// Returns the state of the copy's standstill, for a component that may find another route.
    pub fn standstill(&self) -> watch::Receiver<Option<Standstill>> {
        self.standstill.subscribe()
    }

    /// Sets or clears the standstill of the copy.
    pub(crate) fn set_standstill(&self, standstill: Option<Standstill>) {
        self.standstill.send_if_modified(|known| {
            let is_new = *known != standstill;
            *known = standstill;
            is_new
        });
    }

    /// Returns the counters of every stream so far, in the order of their first opening.
    pub fn streams(&self) -> Vec<Arc<StreamCounters>> {
        self.streams.lock().clone()
    }

    /// Adds the counters of a new stream over `route`, watched by `flow`. `reports` is true at a
    /// server's end.
    pub(crate) fn add_stream(
        &self,
        route: &RouteInfo,
        flow: Option<Arc<FlowWatch>>,
        reports: bool,
    ) -> Arc<StreamCounters> {
        let mut streams = self.streams.lock();
        let counters = Arc::new(StreamCounters::new(
            streams.len() as u32,
            route,
            flow,
            reports,
            self.terms.clone(),
            self.arrivals.clone(),
        ));
        streams.push(counters.clone());
        counters
    }

    /// Removes the counters of a stream that has ended and is no longer needed.
    pub(crate) fn remove_stream(&self, counters: &Arc<StreamCounters>) {
        self.streams
            .lock()
            .retain(|one| !Arc::ptr_eq(one, counters));
    }

    /// Takes over the totals of another side's walk.
    pub(crate) fn mirror_found(&self, other: &TransferProgress) {
        let (entries, bytes) = (&other.entries_found, &other.bytes_found);
        self.set_found(
            entries.load(Ordering::Relaxed),
            bytes.load(Ordering::Relaxed),
            true,
        );
    }

    pub(crate) fn set_found(&self, entries: u64, bytes: u64, complete: bool) {
        self.entries_found.fetch_max(entries, Ordering::Relaxed);
        self.bytes_found.fetch_max(bytes, Ordering::Relaxed);
        if complete {
            self.walk_complete.store(true, Ordering::Release);
        }
        self.found.notify_waiters();
    }
}
