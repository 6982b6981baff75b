//! What can be watched while a copy runs: counters to look at, and events as they happen.

mod earlier;
mod events;
mod not_kept;
mod streams;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longhaul_session::FlowWatch;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::wire::Written;

use earlier::Earlier;
pub use events::{Event, Observer, RouteStanding, Standstill};
pub use not_kept::{NotKept, NotKeptCounts};
pub use streams::{Ends, StreamCounters};

/// Counters of one copy; entries are files, directories and links.
#[derive(Debug, Default)]
pub struct Progress {
    /// Entries the walk has found.
    pub entries_found: AtomicU64,
    /// Bytes of files the walk has found.
    pub bytes_found: AtomicU64,
    /// Whether the walk is over, so that the two above are final.
    pub walk_complete: AtomicBool,
    /// Entries in place and verified, or failed.
    pub entries_done: AtomicU64,
    /// Files among them that are in place.
    pub files_done: AtomicU64,
    /// Bytes of files written (acknowledged by the receiver), holes included.
    pub bytes_done: AtomicU64,
    /// Bytes among them that an earlier copy had left in place.
    pub bytes_resumed: AtomicU64,
    /// Bytes of file data that travelled in the clear.
    pub bytes_clear: AtomicU64,
    /// Files among those in place that were there already and did not travel.
    pub files_unchanged: AtomicU64,
    /// Bytes of them.
    pub bytes_unchanged: AtomicU64,
    /// Files among those in place that are other names of one of them, and did not travel for that.
    pub files_linked: AtomicU64,
    /// Bytes of them.
    pub bytes_linked: AtomicU64,
    /// Entries that failed.
    pub failures: AtomicU64,
    /// What is not kept of the sources, at the end that reads them.
    pub not_kept: NotKept,
    streams: Mutex<Vec<Arc<StreamCounters>>>,
    /// The walk has found more, or is over.
    found: Notify,
    /// Streams that the server allows, once it has reported that.
    max_streams: watch::Sender<Option<usize>>,
    standstill: watch::Sender<Option<Standstill>>,
    /// Number of times that something arrived on accepted streams.
    arrivals: Arc<AtomicU64>,
    /// Milliseconds for which nothing has arrived; zero while that is not worth showing.
    silent_millis: AtomicU64,
    /// What the copies before this one in the same run brought.
    earlier: Mutex<Earlier>,
}

impl Progress {
    /// So many bytes more were in place already.
    pub(crate) fn resumed(&self, bytes: u64) {
        let before_run = self.earlier.lock().take_resumed(bytes);
        self.bytes_resumed.fetch_add(before_run, Ordering::Relaxed);
    }

    /// One more file of so many bytes is in place: counted, if it did not travel.
    pub(crate) fn in_place(&self, written: Written, bytes: u64) {
        let (files, all_bytes) = match written {
            Written::New | Written::Same => return,
            Written::Unchanged => (&self.files_unchanged, &self.bytes_unchanged),
            Written::Linked => (&self.files_linked, &self.bytes_linked),
        };
        let (before_run, bytes) = match written {
            Written::Unchanged => self.earlier.lock().take_unchanged(bytes),
            _ => (1, bytes),
        };
        files.fetch_add(before_run, Ordering::Relaxed);
        all_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Another copy takes the place of this one in the same run. What this one brought counts as
    /// brought, though the next finds it there.
    pub(crate) fn begin_again(&self) {
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
        self.max_streams.send_replace(None);
    }

    /// Number of times that something arrived on accepted streams.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals.load(Ordering::Relaxed)
    }

    /// Time for which nothing has arrived; `None` while that is not worth showing.
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

    /// Bytes in place that have travelled: not those that an earlier copy had left, nor those of
    /// files that were there or are other names of one.
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

    /// How many bytes of files there are, as soon as that is known; none, as soon as there are
    /// `many` and the walk goes on.
    pub async fn size(&self, many: u64) -> Option<u64> {
        loop {
            // From here on nothing that is found goes unnoticed.
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

    /// How many streams the server allows the copy, once it has reported that.
    pub(crate) fn max_streams(&self) -> watch::Receiver<Option<usize>> {
        self.max_streams.subscribe()
    }

    /// How the copy stands still, while it does: for whoever may know another route.
    pub fn standstill(&self) -> watch::Receiver<Option<Standstill>> {
        self.standstill.subscribe()
    }

    /// The copy stands still like that, or does not.
    pub(crate) fn stands_still(&self, standstill: Option<Standstill>) {
        self.standstill.send_if_modified(|known| {
            let is_new = *known != standstill;
            *known = standstill;
            is_new
        });
    }

    /// The counters of every stream opened so far, in the order in which they were opened first.
    pub fn streams(&self) -> Vec<Arc<StreamCounters>> {
        self.streams.lock().clone()
    }

    /// Counters of a new stream over `route`, watched by `flow`; `reports` at a server's end.
    pub(crate) fn add_stream(
        &self,
        route: &str,
        flow: Option<Arc<FlowWatch>>,
        reports: bool,
    ) -> Arc<StreamCounters> {
        let mut streams = self.streams.lock();
        let counters = Arc::new(StreamCounters::new(
            streams.len() as u32,
            route,
            flow,
            reports,
            self.max_streams.clone(),
            self.arrivals.clone(),
        ));
        streams.push(counters.clone());
        counters
    }

    /// Forgets a stream that has ended, where nobody asks for it any more.
    pub(crate) fn remove_stream(&self, counters: &Arc<StreamCounters>) {
        self.streams
            .lock()
            .retain(|one| !Arc::ptr_eq(one, counters));
    }

    /// Takes over what another side's walk has found.
    pub(crate) fn mirror_found(&self, other: &Progress) {
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
