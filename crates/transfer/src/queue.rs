//! The sender's queue: the one place from which all streams of a copy pull their work.
//!
//! Entries come in from the walk, in order; large files are cut into blocks; a stream takes what is next when it has room,
//! so a fast path carries more. What a stream has taken and the receiver has not answered is remembered; when the stream
//! dies it returns to the front of the queue. When nothing is left to take, an idle stream carries a second time what has
//! waited long for an answer elsewhere, so a stalled path can't hold up the end.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::Failure;
use crate::lock::Locked;
use crate::manifest::{Manifest, Record};
use crate::path::RelPath;
use crate::progress::{Event, Observer, Progress};
use crate::read::OpenedFile;
use crate::source::Sources;
use crate::tree_hash::Hash;
use crate::walk::{Found, WalkSink};
use crate::wire::{Frame, Head, Meta, SMALL_MAX, Written};

/// Entries the walk may be ahead of the streams: bounds memory to a few MiB.
const WALK_AHEAD: usize = 8192;
/// Small entries a stream may have unanswered: enough for 1 KiB files at 1 Gbit/s over 200 ms.
const UNANSWERED_ENTRIES: usize = 32 * 1024;
/// Small entries, and bytes of them, that go into one batch.
const BATCH_ENTRIES: usize = 256;
const BATCH_BYTES: u64 = 512 * 1024;
/// How long work must at least have waited for its answer before an idle stream repeats it; three times what this stream's
/// own answers take, if that is longer, since streams of one bottleneck only get in each other's way.
const REPEAT_AFTER: Duration = Duration::from_secs(2);

/// Which stream, within one copy.
pub(crate) type StreamId = u32;

/// One entry of the sources.
#[derive(Debug)]
pub(crate) struct Entry {
    pub head: Head,
    pub meta: Meta,
    pub found: Found,
    /// Size and hash of a file, once it has been read.
    pub content: OnceLock<(u64, Hash)>,
}

/// A file that goes in blocks.
pub(crate) struct BlockFile {
    pub entry: Arc<Entry>,
    pub opened: OnceLock<OpenedFile>,
    /// Answered or given up: its remaining blocks needn't be sent.
    pub finished: AtomicBool,
}

/// A piece of work for one stream.
#[derive(Clone)]
pub(crate) enum Item {
    /// A whole entry in one frame.
    Entry(Arc<Entry>),
    /// Open the file, then send its first block.
    Open(Arc<BlockFile>),
    /// One block of an open file.
    Block(Arc<BlockFile>, u64),
    /// The hash, again, of a file all of which was sent.
    FileEnd(Arc<BlockFile>),
    /// An entry that failed while it was being read.
    Failed(Arc<Entry>, Failure),
    /// That the walk is over.
    End,
}

/// What the receiver's answer will be about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Entry(u64),
    Block(u64, u64),
    End,
}

impl Item {
    fn key(&self) -> Key {
        match self {
            Item::Entry(entry) | Item::Failed(entry, _) => Key::Entry(entry.head.id),
            Item::FileEnd(file) => Key::Entry(file.entry.head.id),
            Item::Open(file) => Key::Block(file.entry.head.id, 0),
            Item::Block(file, offset) => Key::Block(file.entry.head.id, *offset),
            Item::End => Key::End,
        }
    }

    /// Its file has been answered for: sending it is pointless.
    fn pointless(&self) -> bool {
        matches!(self, Item::Open(f) | Item::Block(f, _) | Item::FileEnd(f) if f.finished.load(Ordering::Relaxed))
    }
}

struct Unanswered {
    item: Item,
    carriers: Vec<StreamId>,
    since: Instant,
}

/// What one stream has taken.
#[derive(Default)]
struct Carried {
    keys: HashSet<Key>,
    /// How long its latest answer took.
    answer_time: Duration,
}

/// The file being cut into blocks.
struct Cursor {
    file: Arc<BlockFile>,
    next: u64,
    /// A stream is opening it: the size is not known yet.
    opening: bool,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Arc<Entry>>,
    returned: VecDeque<Item>,
    /// Files that turned out larger than the walk found them.
    grown: VecDeque<Arc<BlockFile>>,
    cursor: Option<Cursor>,
    next_id: u64,
    bytes_found: u64,
    walk_complete: bool,
    end_taken: bool,
    unanswered: HashMap<Key, Unanswered>,
    streams: HashMap<StreamId, Carried>,
    manifest: Manifest,
    their_manifest: Option<Hash>,
    agreed: Option<bool>,
    closed: bool,
}

/// See the module.
pub(crate) struct Queue {
    state: Mutex<State>,
    /// The walk waits here for room.
    room: Condvar,
    /// Streams wait here for work, and everyone for the end.
    work: Notify,
    pub sources: Sources,
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
    pub(crate) fn new(
        sources: Sources,
        progress: Arc<Progress>,
        observer: Arc<dyn Observer>,
        label: Box<dyn Fn(&Head) -> String + Send + Sync>,
    ) -> Arc<Self> {
        let state = Mutex::new(State::default());
        Arc::new(Self { state, room: Condvar::new(), work: Notify::new(), sources, progress, observer, label })
    }

    /// Walks all sources into the queue. Blocking; returns early when the queue is closed.
    pub(crate) fn walk(&self) {
        let finished = self.sources.walk(self);
        let mut state = self.state.locked();
        state.walk_complete = finished;
        self.progress.set_found(state.next_id, state.bytes_found, finished);
        drop(state);
        self.work.notify_waiters();
    }

    pub(crate) fn add_stream(&self, stream: StreamId) {
        self.state.locked().streams.insert(stream, Carried::default());
    }

    /// The stream is gone: what only it carried returns to the queue, to be taken first.
    pub(crate) fn remove_stream(&self, stream: StreamId) {
        let mut guard = self.state.locked();
        let state = &mut *guard;
        let Some(carried) = state.streams.remove(&stream) else { return };
        let mut back = Vec::new();
        for key in carried.keys {
            let Some(unanswered) = state.unanswered.get_mut(&key) else { continue };
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
                    self.advance(state, &file);
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
        let carried = state.streams.get(&stream).map_or(0, |carried| carried.keys.len());
        if carried >= UNANSWERED_ENTRIES {
            return Taken::Nothing;
        }
        let mut items = Vec::new();
        let mut bytes = 0u64;
        while items.len() < BATCH_ENTRIES && bytes < BATCH_BYTES {
            let (item, size) = match next(state) {
                Some(next) => next,
                None => break,
            };
            bytes = size.saturating_add(bytes);
            let key = item.key();
            let now = Instant::now();
            let unanswered =
                state.unanswered.entry(key).or_insert_with(|| Unanswered { item: item.clone(), carriers: vec![], since: now });
            if !unanswered.carriers.contains(&stream) {
                unanswered.carriers.push(stream);
            }
            if let Some(carried) = state.streams.get_mut(&stream) {
                carried.keys.insert(key);
            }
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
        if items.is_empty() { Taken::Nothing } else { Taken::Work(items) }
    }

    /// Resolves when there may be work, or the queue is over. To be created before [`Self::take`] is asked.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.work.notified()
    }

    /// The file under the cursor has been opened: its other blocks may go.
    pub(crate) fn opened(&self, file: &Arc<BlockFile>) {
        self.advance(&mut self.state.locked(), file);
        self.work.notify_waiters();
    }

    fn advance(&self, state: &mut State, file: &Arc<BlockFile>) {
        let Some(opened) = file.opened.get() else { return };
        let ours = state.cursor.as_ref().is_some_and(|c| c.opening && Arc::ptr_eq(&c.file, file));
        if ours {
            let next = opened.block_size();
            state.cursor = (next < opened.size).then(|| Cursor { file: file.clone(), next, opening: false });
        }
    }

    /// A small file turned out to be large: it goes in blocks.
    pub(crate) fn grown(&self, entry: &Arc<Entry>) {
        let mut state = self.state.locked();
        forget(&mut state, Key::Entry(entry.head.id));
        state.grown.push_back(Arc::new(BlockFile {
            entry: entry.clone(),
            opened: OnceLock::new(),
            finished: AtomicBool::new(false),
        }));
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
        let key = item.key();
        if state.manifest.has(file.entry.head.id) || !state.streams.contains_key(&stream) {
            if state.streams.contains_key(&stream) {
                return;
            }
            state.returned.push_front(item);
            drop(state);
            self.work.notify_waiters();
            return;
        }
        state.unanswered.insert(key, Unanswered { item, carriers: vec![stream], since: Instant::now() });
        if let Some(carried) = state.streams.get_mut(&stream) {
            carried.keys.insert(key);
        }
        drop(state);
        self.work.notify_waiters();
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
        if let Some(unanswered) = forget(&mut state, Key::Block(id, offset))
            && let Item::Open(file) | Item::Block(file, _) = &unanswered.item
            && let Some(opened) = file.opened.get()
        {
            let len = opened.block_size().min(opened.size - offset.min(opened.size));
            self.progress.bytes_done.fetch_add(len, Ordering::Relaxed);
        }
    }

    /// The receiver says what became of an entry.
    pub(crate) fn answered(&self, id: u64, outcome: Result<Written, Failure>) {
        let mut state = self.state.locked();
        let mut whole = false;
        let mut outcome = outcome;
        let entry = match forget(&mut state, Key::Entry(id)).map(|unanswered| unanswered.item) {
            Some(Item::Entry(entry)) => {
                whole = true;
                Some(entry)
            }
            Some(Item::Failed(entry, own)) => {
                // Written and verified after all, before our second thoughts arrived: then it is.
                if entry.content.get().is_none() || outcome.is_err() {
                    outcome = Err(own);
                }
                Some(entry)
            }
            Some(Item::FileEnd(file)) => {
                file.finished.store(true, Ordering::Relaxed);
                Some(file.entry.clone())
            }
            _ => None,
        };
        // A failure can come while blocks are still on their way.
        let entry = entry.or_else(|| outcome.as_ref().err().and_then(|_| state.give_up(id)));
        let Some(entry) = entry else { return };
        if !state.finish(&entry, &outcome) {
            return;
        }
        state.conclude();
        drop(state);
        if whole && outcome.is_ok() {
            let size = entry.content.get().map_or(0, |(size, _)| *size);
            self.progress.bytes_done.fetch_add(size, Ordering::Relaxed);
        }
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
        Frame::Totals { entries: state.next_id, bytes: state.bytes_found, complete: state.walk_complete }
    }

    /// The END frame.
    pub(crate) fn end(&self) -> Frame {
        let state = self.state.locked();
        Frame::End { entries: state.next_id, bytes: state.bytes_found }
    }
}

impl State {
    /// Compares both sides' accounts as soon as both are complete.
    fn conclude(&mut self) {
        if let Some(theirs) = self.their_manifest
            && self.walk_complete
            && self.manifest.len() == self.next_id
        {
            self.agreed = Some(self.manifest.hash() == theirs);
        }
    }

    /// The receiver gave a file up while its blocks are on their way.
    fn give_up(&mut self, id: u64) -> Option<Arc<Entry>> {
        let on_its_way = self.unanswered.iter().find_map(|(key, unanswered)| match (key, &unanswered.item) {
            (Key::Block(of, _), Item::Open(file) | Item::Block(file, _)) if *of == id => Some(file.clone()),
            _ => None,
        });
        let under_cursor = self.cursor.as_ref().map(|c| c.file.clone()).filter(|f| f.entry.head.id == id);
        let file = on_its_way.or(under_cursor)?;
        file.finished.store(true, Ordering::Relaxed);
        if self.cursor.as_ref().is_some_and(|c| c.file.entry.head.id == id) {
            self.cursor = None;
        }
        Some(file.entry.clone())
    }

    /// Records an entry's outcome in the manifest; `false` if there was one.
    fn finish(&mut self, entry: &Entry, outcome: &Result<Written, Failure>) -> bool {
        let record = match (outcome, &entry.found, entry.content.get()) {
            (Ok(_), Found::File { .. }, Some((size, hash))) => Record::File { size: *size, hash },
            (Ok(_), Found::Directory, _) => Record::Directory,
            (Ok(_), Found::Symlink { target }, _) => Record::Symlink { target },
            _ => Record::Failed,
        };
        self.manifest.record(entry.head.id, entry.head.source, &entry.head.path, record)
    }
}

/// What goes next, and its size as far as a batch counts it.
fn next(state: &mut State) -> Option<(Item, u64)> {
    while let Some(item) = state.returned.pop_front() {
        if item.pointless() {
            continue;
        }
        let size = match &item {
            Item::Block(..) => u64::MAX,
            Item::Entry(entry) => size_of(entry),
            _ => 0,
        };
        return Some((item, size));
    }
    let cursor_free = loop {
        match &mut state.cursor {
            Some(cursor) if cursor.file.finished.load(Ordering::Relaxed) => state.cursor = None,
            Some(cursor) if cursor.opening => break false,
            Some(cursor) => match cursor.file.opened.get() {
                None => {
                    cursor.opening = true;
                    return Some((Item::Open(cursor.file.clone()), u64::MAX));
                }
                Some(opened) => {
                    let (file, offset) = (cursor.file.clone(), cursor.next);
                    cursor.next += opened.block_size();
                    if cursor.next >= opened.size {
                        state.cursor = None;
                    }
                    return Some((Item::Block(file, offset), u64::MAX));
                }
            },
            None => match state.grown.pop_front() {
                Some(file) => state.cursor = Some(Cursor { file, next: 0, opening: false }),
                None => break true,
            },
        }
    };
    if let Some(entry) = state.entries.front() {
        if size_of(entry) <= SMALL_MAX {
            return state.entries.pop_front().map(|entry| {
                let size = size_of(&entry);
                (Item::Entry(entry), size)
            });
        }
        if cursor_free && let Some(entry) = state.entries.pop_front() {
            let file =
                Arc::new(BlockFile { entry, opened: OnceLock::new(), finished: AtomicBool::new(false) });
            state.cursor = Some(Cursor { file: file.clone(), next: 0, opening: true });
            return Some((Item::Open(file), u64::MAX));
        }
        return None;
    }
    if state.walk_complete && cursor_free && !state.end_taken {
        state.end_taken = true;
        return Some((Item::End, 0));
    }
    None
}

fn size_of(entry: &Entry) -> u64 {
    match entry.found {
        Found::File { size } => size,
        _ => 0,
    }
}

/// Work that has waited long for its answer on another stream, for an idle one to carry too.
fn repeat(state: &mut State, stream: StreamId) -> Option<Item> {
    let now = Instant::now();
    let patience = REPEAT_AFTER.max(state.streams.get(&stream)?.answer_time * 3);
    let waited = state.unanswered.iter_mut().filter(|(_, u)| {
        u.carriers.len() == 1 && u.carriers[0] != stream && now.duration_since(u.since) >= patience && !u.item.pointless()
    });
    let (key, unanswered) = waited.min_by_key(|(_, u)| u.since)?;
    // A file that is being opened has nothing to repeat yet.
    let item = match &unanswered.item {
        Item::Open(file) if file.opened.get().is_none() => return None,
        Item::Open(file) => Item::Block(file.clone(), 0),
        item => item.clone(),
    };
    unanswered.carriers.push(stream);
    let key = *key;
    state.streams.get_mut(&stream)?.keys.insert(key);
    Some(item)
}

/// An answer came, or none is needed any more.
fn forget(state: &mut State, key: Key) -> Option<Unanswered> {
    let unanswered = state.unanswered.remove(&key)?;
    for carrier in &unanswered.carriers {
        if let Some(stream) = state.streams.get_mut(carrier) {
            stream.keys.remove(&key);
            stream.answer_time = unanswered.since.elapsed();
        }
    }
    Some(unanswered)
}

impl WalkSink for Queue {
    fn found(&self, source: u32, path: RelPath, meta: Meta, found: Found) -> bool {
        let mut state = self.state.locked();
        while state.entries.len() >= WALK_AHEAD && !state.closed {
            state = self.room.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        if state.closed {
            return false;
        }
        let id = state.next_id;
        state.next_id += 1;
        if let Found::File { size } = found {
            state.bytes_found += size;
        }
        let head = Head { id, source, path };
        state.entries.push_back(Arc::new(Entry { head, meta, found, content: OnceLock::new() }));
        self.progress.set_found(state.next_id, state.bytes_found, false);
        drop(state);
        self.work.notify_one();
        true
    }
}
