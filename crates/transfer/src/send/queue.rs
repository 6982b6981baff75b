//! The sender's queue: the one place from which all streams of a copy pull their work.
//!
//! Entries come in from the walk, in order; large files are cut into blocks; a stream takes what is next when it has room,
//! so a fast path carries more. What a stream has taken and the receiver has not answered is remembered; when the stream
//! dies it returns to the front of the queue. When nothing is left to take, an idle stream carries a second time what has
//! waited long for an answer elsewhere, so a stalled path can't hold up the end.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::account::{Account, Held, Resource};
use crate::error::{Error, Failure};
use crate::lock::Locked;
use crate::path::RelPath;
use crate::progress::{Event, Observer, Progress};
use crate::send::source::Sources;
use crate::send::walk::{Found, WalkSink};
use crate::tree_hash::Hash;
use crate::wire::{Frame, Head, Meta, Written};

mod item;
mod state;

use item::Key;
pub(crate) use item::{BlockFile, Entry, Item};
use state::{Carried, State, next, repeat};

/// Entries the walk may be ahead of the streams: bounds memory to a few MiB.
const WALK_AHEAD: usize = 8192;
/// Small entries a stream may have unanswered: enough for 1 KiB files at 1 Gbit/s over 200 ms.
const UNANSWERED_ENTRIES: usize = 32 * 1024;
/// Small entries, and bytes of them, that go into one batch.
const BATCH_ENTRIES: usize = 256;
const BATCH_BYTES: u64 = 512 * 1024;
/// Bytes that an entry takes beside its path.
const ENTRY_BYTES: u64 = 256;
/// How often a walk that waits looks whether there is memory.
const LOOK_FOR_MEMORY: Duration = Duration::from_millis(50);
/// Which stream, within one copy.
pub(crate) type StreamId = u32;

/// See the module.
pub(crate) struct Queue {
    state: Mutex<State>,
    /// The walk waits here for room.
    room: Condvar,
    /// Streams wait here for work, and everyone for the end.
    work: Notify,
    pub sources: Sources,
    pub account: Arc<Account>,
    pub progress: Arc<Progress>,
    pub observer: Arc<dyn Observer>,
    /// How entries are named to the observer.
    pub label: Box<dyn Fn(&Head) -> String + Send + Sync>,
}

/// What a stream gets when it asks.
pub(crate) enum Taken {
    Work(Vec<Item>),
    /// Nothing now; ask again when woken or after a while.
    Nothing,
    /// Nothing ever again.
    Over,
}

impl Queue {
    /// A queue of what is found beneath `sources`, whose memory and open files are on `account`.
    ///
    /// # Errors
    /// [`Error::Limit`] if the account has no memory left.
    pub(crate) fn new(
        sources: Sources,
        account: Arc<Account>,
        progress: Arc<Progress>,
        observer: Arc<dyn Observer>,
        label: Box<dyn Fn(&Head) -> String + Send + Sync>,
    ) -> Result<Arc<Self>, Error> {
        let held = account.take(Resource::Bookkeeping, 1)?;
        let mut state = State::new(held);
        state.account(0)?;
        Ok(Arc::new(Self {
            state: Mutex::new(state),
            room: Condvar::new(),
            work: Notify::new(),
            sources,
            account,
            progress,
            observer,
            label,
        }))
    }

    /// Walks all sources into the queue. Blocking; returns early when the queue is closed.
    pub(crate) fn walk(&self) {
        let finished = self.sources.walk(self);
        let mut state = self.state.locked();
        state.walk_complete = finished;
        self.progress
            .set_found(state.next_id, state.bytes_found, finished);
        drop(state);
        self.work.notify_waiters();
    }

    pub(crate) fn add_stream(&self, stream: StreamId) {
        self.state.locked().streams.insert(stream, Carried::default());
    }

    /// The stream takes no more work: [`Self::take`] says that it is over once all that it carries is answered.
    pub(crate) fn retire(&self, stream: StreamId) {
        if let Some(carried) = self.state.locked().streams.get_mut(&stream) {
            carried.retiring = true;
        }
        self.work.notify_waiters();
    }

    /// The stream is gone: what only it carried returns to the queue, to be taken first.
    pub(crate) fn remove_stream(&self, stream: StreamId) {
        let mut guard = self.state.locked();
        let state = &mut *guard;
        let Some(carried) = state.streams.remove(&stream) else {
            return;
        };
        let mut back = Vec::new();
        for key in carried.keys {
            let Some(unanswered) = state.unanswered.get_mut(&key) else {
                continue;
            };
            unanswered.carriers.retain(|carrier| *carrier != stream);
            if unanswered.carriers.is_empty()
                && let Some(unanswered) = state.unanswered.remove(&key)
            {
                back.push(unanswered.item);
            }
        }
        for item in back {
            match item {
                Item::Open(file) if file.opened.get().is_none() => {
                    // Its opener died with the stream before telling: the next taker opens it.
                    match &mut state.cursor {
                        Some(cursor) if Arc::ptr_eq(&cursor.file, &file) => cursor.opening = false,
                        _ => state.grown.push_front(file),
                    }
                }
                Item::Open(file) => {
                    state.advance(&file);
                    state.returned.push_front(Item::Block(file, 0));
                }
                item => state.returned.push_front(item),
            }
        }
        drop(guard);
        self.work.notify_waiters();
    }

    /// Work for `stream`.
    pub(crate) fn take(&self, stream: StreamId) -> Taken {
        let mut guard = self.state.locked();
        let state = &mut *guard;
        if state.closed || state.agreed.is_some() || !state.streams.contains_key(&stream) {
            return Taken::Over;
        }
        let (carried, retiring) = state
            .streams
            .get(&stream)
            .map_or((0, false), |carried| (carried.keys.len(), carried.retiring));
        if retiring && carried == 0 {
            return Taken::Over;
        }
        if retiring || carried >= UNANSWERED_ENTRIES {
            return Taken::Nothing;
        }
        let mut items = Vec::new();
        let mut bytes = 0u64;
        while items.len() < BATCH_ENTRIES && bytes < BATCH_BYTES {
            if state.account(1).is_err() {
                // What is unanswered takes all the memory there is for it.
                break;
            }
            let (item, size) = match next(state) {
                Some(next) => next,
                None => break,
            };
            bytes = size.saturating_add(bytes).saturating_add(item.head_bytes());
            state.carry(&item, stream);
            let large = matches!(item, Item::Open(_) | Item::Block(..));
            items.push(item);
            if large {
                break;
            }
        }
        if state.entries.len() < WALK_AHEAD / 2 {
            self.room.notify_all();
        }
        if items.is_empty()
            && let Some(item) = repeat(state, stream)
        {
            items.push(item);
        }
        if items.is_empty() {
            Taken::Nothing
        } else {
            Taken::Work(items)
        }
    }

    /// Resolves when there may be work, or the queue is over. To be created before [`Self::take`] is asked.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.work.notified()
    }

    /// The file under the cursor has been opened: its other blocks may go.
    pub(crate) fn opened(&self, file: &Arc<BlockFile>) {
        self.state.locked().advance(file);
        self.work.notify_waiters();
    }

    /// A small file turned out to be large: it goes in blocks.
    pub(crate) fn grown(&self, entry: &Arc<Entry>) {
        let mut state = self.state.locked();
        state.forget(Key::Entry(entry.head.id));
        state.grown.push_back(BlockFile::new(entry.clone()));
        drop(state);
        self.work.notify_waiters();
    }

    /// `stream` now also carries the end of `file`: its hash, or its failure.
    pub(crate) fn carries_end(&self, file: &Arc<BlockFile>, failure: Option<&Failure>, stream: StreamId) {
        let mut state = self.state.locked();
        let item = match failure {
            Some(failure) => Item::Failed(file.entry.clone(), failure.clone()),
            None => Item::FileEnd(file.clone()),
        };
        if failure.is_some() {
            file.finished.store(true, Ordering::Relaxed);
            if state.cursor.as_ref().is_some_and(|c| Arc::ptr_eq(&c.file, file)) {
                state.cursor = None;
            }
        }
        if state.manifest.has(file.entry.head.id) || !state.streams.contains_key(&stream) {
            if state.streams.contains_key(&stream) {
                return;
            }
            state.returned.push_front(item);
            drop(state);
            self.work.notify_waiters();
            return;
        }
        state.forget(item.key());
        state.carry(&item, stream);
        drop(state);
        self.work.notify_waiters();
    }

    /// A block was not sent after all, and no answer to it will come.
    pub(crate) fn unsent(&self, file: &BlockFile, offset: u64) {
        self.state.locked().forget(Key::Block(file.entry.head.id, offset));
    }

    /// An entry failed while it was being read: what is remembered for a repetition is the failure.
    pub(crate) fn entry_failed(&self, entry: &Arc<Entry>, failure: &Failure) {
        let mut state = self.state.locked();
        if let Some(unanswered) = state.unanswered.get_mut(&Key::Entry(entry.head.id)) {
            unanswered.item = Item::Failed(entry.clone(), failure.clone());
        }
    }

    /// The receiver says a block is written.
    pub(crate) fn acknowledged(&self, id: u64, offset: u64) {
        let mut state = self.state.locked();
        if let Some(unanswered) = state.settle(Key::Block(id, offset))
            && let Item::Open(file) | Item::Block(file, _) = &unanswered.item
            && let Some(opened) = file.opened.get()
        {
            let len = opened.block_size().min(opened.size - offset.min(opened.size));
            if !file.finished.load(Ordering::Relaxed) {
                file.acknowledged.fetch_add(len, Ordering::Relaxed);
                self.progress.bytes_done.fetch_add(len, Ordering::Relaxed);
            }
        }
    }

    /// The receiver says what became of an entry.
    pub(crate) fn answered(&self, id: u64, outcome: Result<Written, Failure>) {
        let mut state = self.state.locked();
        let mut file_blocks = None;
        let mut outcome = outcome;
        let entry = match state.settle(Key::Entry(id)).map(|unanswered| unanswered.item) {
            Some(Item::Entry(entry)) => Some(entry),
            Some(Item::Failed(entry, own)) => {
                // Written and verified after all, before our second thoughts arrived: then it is.
                if entry.content.get().is_none() || outcome.is_err() {
                    outcome = Err(own);
                }
                Some(entry)
            }
            Some(Item::FileEnd(file)) => {
                file.finished.store(true, Ordering::Relaxed);
                file_blocks = Some(file.clone());
                Some(file.entry.clone())
            }
            _ => None,
        };
        // A failure can come while blocks are still on their way.
        let entry = entry.or_else(|| {
            outcome.as_ref().err()?;
            let file = state.give_up(id)?;
            file_blocks = Some(file.clone());
            Some(file.entry.clone())
        });
        let Some(entry) = entry else { return };
        if !state.finish(&entry, &outcome) {
            return;
        }
        state.conclude();
        drop(state);
        // Blocks acknowledged on another stream may not have been heard of yet; those of a file that failed count no more.
        let counted = file_blocks.map_or(0, |file| file.acknowledged.load(Ordering::Relaxed));
        let size = entry
            .content
            .get()
            .filter(|_| outcome.is_ok())
            .map_or(0, |(size, _)| *size);
        self.progress.bytes_done.fetch_add(size, Ordering::Relaxed);
        self.progress.bytes_done.fetch_sub(counted, Ordering::Relaxed);
        self.report(&entry, outcome);
        self.work.notify_waiters();
    }

    /// Tells the observer, once for each entry.
    fn report(&self, entry: &Entry, outcome: Result<Written, Failure>) {
        self.progress.entries_done.fetch_add(1, Ordering::Relaxed);
        let path = (self.label)(&entry.head);
        match outcome {
            Ok(written) => {
                let content = entry.content.get();
                if matches!(entry.found, Found::File { .. }) {
                    self.progress.files_done.fetch_add(1, Ordering::Relaxed);
                }
                self.observer.event(Event::Done {
                    path,
                    bytes: content.map(|(size, _)| *size),
                    hash: content.map(|(_, hash)| *hash),
                    same: written == Written::Same,
                });
            }
            Err(failure) => self.note(path, failure),
        }
    }

    /// Tells the observer of a failure.
    pub(crate) fn note(&self, path: String, failure: Failure) {
        self.progress.failures.fetch_add(1, Ordering::Relaxed);
        self.observer.event(Event::Failed { path, failure });
    }

    /// The receiver says everything is in place, with its hash over everything. Answers on other streams may still be
    /// on their way; they are waited for.
    pub(crate) fn completed(&self, manifest: Hash) {
        let mut state = self.state.locked();
        state.their_manifest = Some(manifest);
        state.conclude();
        drop(state);
        self.work.notify_waiters();
    }

    /// Whether the receiver has said that everything is in place.
    pub(crate) fn said_done(&self) -> bool {
        self.state.locked().their_manifest.is_some()
    }

    /// Once everything is in place: whether both sides agree on what that is.
    pub(crate) fn conclusion(&self) -> Option<bool> {
        self.state.locked().agreed
    }

    /// The hash over all entries, once done.
    pub(crate) fn manifest(&self) -> Hash {
        self.state.locked().manifest.hash()
    }

    /// Ends it all: the walk stops and streams find no more work.
    pub(crate) fn close(&self) {
        self.state.locked().closed = true;
        self.room.notify_all();
        self.work.notify_waiters();
    }

    /// What the walk has found so far.
    pub(crate) fn totals(&self) -> Frame {
        let state = self.state.locked();
        Frame::Totals {
            entries: state.next_id,
            bytes: state.bytes_found,
            complete: state.walk_complete,
        }
    }

    /// The END frame.
    pub(crate) fn end(&self) -> Frame {
        let state = self.state.locked();
        Frame::End {
            entries: state.next_id,
            bytes: state.bytes_found,
        }
    }
}

impl WalkSink for Queue {
    fn hold(&self) -> Option<Held> {
        self.account.take(Resource::Bookkeeping, 1).ok()
    }

    fn found(&self, source: u32, path: RelPath, meta: Meta, found: Found) -> bool {
        let cost = ENTRY_BYTES + 2 * path.as_bytes().len() as u64 + found.bytes();
        let mut state = self.state.locked();
        let held = loop {
            if state.closed {
                return false;
            }
            if state.entries.len() < WALK_AHEAD
                && let Ok(held) = self.account.take(Resource::Bookkeeping, cost)
            {
                break held;
            }
            // Memory may be given back by other copies, which nobody tells.
            let waited = self.room.wait_timeout(state, LOOK_FOR_MEMORY);
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        };
        let id = state.next_id;
        state.next_id += 1;
        if let Found::File { size } = found {
            state.bytes_found += size;
        }
        let head = Head { id, source, path };
        state.entries.push_back(Arc::new(Entry {
            head,
            meta,
            found,
            content: OnceLock::new(),
            _held: held,
        }));
        self.progress.set_found(state.next_id, state.bytes_found, false);
        drop(state);
        self.work.notify_one();
        true
    }
}
