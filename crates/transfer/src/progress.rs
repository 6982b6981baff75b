//! What can be watched while a copy runs: counters to look at, and events as they happen.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use drs::Tally;
use longhaul_session::{FlowWatch, Seen};

use crate::error::Failure;
use crate::lock::Locked;
use crate::tree_hash::Hash;
use crate::wire::FlowReport;

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
    /// Entries that failed.
    pub failures: AtomicU64,
    streams: Mutex<Vec<Arc<StreamCounters>>>,
}

/// Counters of one stream.
#[derive(Debug)]
pub struct StreamCounters {
    /// Counted from 0 in the order in which streams were opened.
    pub number: u32,
    /// The route it takes.
    pub route: String,
    /// Bytes of file data this stream carried.
    pub bytes: AtomicU64,
    /// Segments its connection on this host sent again; known when it has ended.
    pub retransmits: AtomicU64,
    /// Whether `retransmits` is known.
    pub retransmits_known: AtomicBool,
    /// Whether it is open.
    pub open: AtomicBool,
    /// How this end's connection does, where it is watched.
    pub watch: Option<Arc<FlowWatch>>,
    /// This is the server's end, which tells the other one how it does.
    tells: bool,
    far: Mutex<Option<FlowReport>>,
}

/// How a stream's two connections do, as the two ends see their own.
#[derive(Debug, Clone, Default)]
pub struct Ends {
    /// This end's.
    pub here: Seen,
    /// The server's, as far as it has told.
    pub there: Tally,
    /// How many streams the server advises.
    pub advised_there: Option<u32>,
    /// Segments that the server sent again.
    pub retransmits_there: Option<u64>,
}

impl StreamCounters {
    pub(crate) fn hear(&self, report: FlowReport) {
        *self.far.locked() = Some(report);
    }

    /// How this end does, where the other one is to be told.
    pub(crate) fn report(&self) -> Option<FlowReport> {
        let watch = self.watch.as_ref().filter(|_| self.tells)?;
        Some(FlowReport::of(&watch.seen()))
    }

    /// Whether there is something to tell.
    pub(crate) fn tells(&self) -> bool {
        self.tells && self.watch.is_some()
    }

    /// What both ends have seen.
    pub fn ends(&self) -> Ends {
        let here = self.watch.as_ref().map(|watch| watch.seen()).unwrap_or_default();
        let far = *self.far.locked();
        Ends {
            here,
            there: far.map(|report| report.tally()).unwrap_or_default(),
            advised_there: far
                .map(|report| report.streams.into())
                .filter(|&streams| streams > 0),
            retransmits_there: far.map(|report| report.retransmits),
        }
    }
}

impl Progress {
    /// The counters of every stream opened so far.
    pub fn streams(&self) -> Vec<Arc<StreamCounters>> {
        self.streams.locked().clone()
    }

    /// Counters of a new stream over `route`, watched by `watch`; `tells` at a server's end.
    pub(crate) fn add_stream(
        &self,
        route: &str,
        watch: Option<Arc<FlowWatch>>,
        tells: bool,
    ) -> Arc<StreamCounters> {
        let mut streams = self.streams.locked();
        let counters = Arc::new(StreamCounters {
            number: streams.len() as u32,
            route: route.to_owned(),
            bytes: AtomicU64::new(0),
            retransmits: AtomicU64::new(0),
            retransmits_known: AtomicBool::new(false),
            open: AtomicBool::new(true),
            watch,
            tells,
            far: Mutex::default(),
        });
        streams.push(counters.clone());
        counters
    }

    /// Forgets a stream that has ended, where nobody asks for it any more.
    pub(crate) fn remove_stream(&self, counters: &Arc<StreamCounters>) {
        self.streams.locked().retain(|one| !Arc::ptr_eq(one, counters));
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
            self.walk_complete.store(true, Ordering::Relaxed);
        }
    }
}

/// Something that happened. Paths are ready for a person to read, destination-side names as the user would give them.
#[derive(Debug, Clone)]
pub enum Event {
    /// A stream is open.
    StreamOpened {
        /// Its number.
        stream: u32,
        /// Its route.
        route: String,
    },
    /// A stream was lost; its unanswered blocks go to others.
    StreamLost {
        /// Its number, if it ever opened.
        stream: Option<u32>,
        /// Its route.
        route: String,
        /// What happened, naming the hop if that is known.
        reason: String,
    },
    /// An entry is in place and verified.
    Done {
        /// Which.
        path: String,
        /// Its size; none for directories and links.
        bytes: Option<u64>,
        /// Its BLAKE3 hash; none for directories and links.
        hash: Option<Hash>,
        /// It was there before, identical, and was left alone.
        same: bool,
    },
    /// An entry failed.
    Failed {
        /// Which.
        path: String,
        /// Why.
        failure: Failure,
    },
}

/// Hears events. Called from several threads; must not block.
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn event(&self, event: Event);
}

/// Hears nothing.
impl Observer for () {
    fn event(&self, _: Event) {}
}
