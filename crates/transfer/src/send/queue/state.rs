//! What the queue remembers, and how it chooses what goes next.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::StreamId;
use super::item::{BlockFile, Entry, Item, Key, size_of};
use crate::account::{Exhausted, Held};
use crate::error::Failure;
use crate::manifest::{Manifest, Record};
use crate::send::walk::Found;
use crate::tree_hash::Hash;
use crate::wire::{SMALL_MAX, Written};

/// How long work must at least have waited for its answer before an idle stream repeats it; three times what this stream's
/// own answers take, if that is longer, since streams of one bottleneck only get in each other's way.
const REPEAT_AFTER: Duration = Duration::from_secs(2);

/// Bytes that a piece of work takes from when it is taken until it is answered, and a record that waits in the manifest.
const UNANSWERED_BYTES: u64 = 208;
const WAITING_BYTES: u64 = 64;

pub(super) struct Unanswered {
    pub item: Item,
    pub carriers: Vec<StreamId>,
    pub since: Instant,
}

/// What one stream has taken.
#[derive(Default)]
pub(super) struct Carried {
    pub keys: HashSet<Key>,
    /// It takes no more work, and is over once all that it carries is answered.
    pub retiring: bool,
    /// How long its latest answer took.
    answer_time: Duration,
}

/// The file being cut into blocks.
pub(super) struct Cursor {
    pub file: Arc<BlockFile>,
    next: u64,
    /// A stream is opening it: the size is not known yet.
    pub opening: bool,
}

pub(super) struct State {
    /// Memory for what is unanswered and for records that wait; entries hold their own.
    held: Held,
    pub entries: VecDeque<Arc<Entry>>,
    pub returned: VecDeque<Item>,
    /// Files that turned out larger than the walk found them.
    pub grown: VecDeque<Arc<BlockFile>>,
    pub cursor: Option<Cursor>,
    pub next_id: u64,
    pub bytes_found: u64,
    pub walk_complete: bool,
    pub end_taken: bool,
    pub unanswered: HashMap<Key, Unanswered>,
    pub streams: HashMap<StreamId, Carried>,
    pub manifest: Manifest,
    pub their_manifest: Option<Hash>,
    pub agreed: Option<bool>,
    pub closed: bool,
}

impl State {
    pub(super) fn new(held: Held) -> Self {
        Self {
            held,
            entries: VecDeque::new(),
            returned: VecDeque::new(),
            grown: VecDeque::new(),
            cursor: None,
            next_id: 0,
            bytes_found: 0,
            walk_complete: false,
            end_taken: false,
            unanswered: HashMap::new(),
            streams: HashMap::new(),
            manifest: Manifest::default(),
            their_manifest: None,
            agreed: None,
            closed: false,
        }
    }

    /// Accounts for the memory that is held, and for `more` pieces of work to be taken.
    pub(super) fn account(&mut self, more: u64) -> Result<(), Exhausted> {
        let unanswered = (self.unanswered.len() as u64 + more) * UNANSWERED_BYTES;
        let waiting = self.manifest.waiting() as u64 * WAITING_BYTES;
        self.held.set_in_steps(unanswered + waiting)
    }

    /// Compares both sides' accounts as soon as both are complete.
    pub(super) fn conclude(&mut self) {
        if let Some(theirs) = self.their_manifest
            && self.walk_complete
            && self.manifest.len() == self.next_id
        {
            self.agreed = Some(self.manifest.hash() == theirs);
        }
    }

    /// The receiver gave a file up while its blocks are on their way.
    pub(super) fn give_up(&mut self, id: u64) -> Option<Arc<BlockFile>> {
        let on_its_way = self
            .unanswered
            .iter()
            .find_map(|(key, unanswered)| match (key, &unanswered.item) {
                (Key::Block(of, _), Item::Open(file) | Item::Block(file, _)) if *of == id => {
                    Some(file.clone())
                }
                _ => None,
            });
        let under_cursor = self
            .cursor
            .as_ref()
            .map(|c| c.file.clone())
            .filter(|f| f.entry.head.id == id);
        let file = on_its_way.or(under_cursor)?;
        file.finished.store(true, Ordering::Relaxed);
        if self.cursor.as_ref().is_some_and(|c| c.file.entry.head.id == id) {
            self.cursor = None;
        }
        Some(file)
    }

    /// Records an entry's outcome in the manifest; `false` if there was one.
    pub(super) fn finish(&mut self, entry: &Entry, outcome: &Result<Written, Failure>) -> bool {
        let record = match (outcome, &entry.found, entry.content.get()) {
            (Ok(_), Found::File { .. }, Some((size, hash))) => Record::File { size: *size, hash },
            (Ok(_), Found::Directory, _) => Record::Directory,
            (Ok(_), Found::Symlink { target }, _) => Record::Symlink { target },
            _ => Record::Failed,
        };
        self.manifest
            .record(entry.head.id, entry.head.source, &entry.head.path, record)
    }

    /// The file under the cursor has been opened: the cursor moves on to its second block.
    pub(super) fn advance(&mut self, file: &Arc<BlockFile>) {
        let Some(opened) = file.opened.get() else { return };
        let ours = self
            .cursor
            .as_ref()
            .is_some_and(|c| c.opening && Arc::ptr_eq(&c.file, file));
        if ours {
            let next = opened.block_size();
            self.cursor = (next < opened.size).then(|| Cursor {
                file: file.clone(),
                next,
                opening: false,
            });
        }
    }

    /// An answer came: what it was about, and how long it took.
    pub(super) fn settle(&mut self, key: Key) -> Option<Unanswered> {
        let unanswered = self.forget(key)?;
        for carrier in &unanswered.carriers {
            if let Some(carried) = self.streams.get_mut(carrier) {
                carried.answer_time = unanswered.since.elapsed();
            }
        }
        // It only gets less here.
        let _ = self.account(0);
        Some(unanswered)
    }

    /// No answer will come, nor is one needed.
    pub(super) fn forget(&mut self, key: Key) -> Option<Unanswered> {
        let unanswered = self.unanswered.remove(&key)?;
        for carrier in &unanswered.carriers {
            if let Some(carried) = self.streams.get_mut(carrier) {
                carried.keys.remove(&key);
            }
        }
        Some(unanswered)
    }

    /// `stream` carries `item` from now on.
    pub(super) fn carry(&mut self, item: &Item, stream: StreamId) {
        let key = item.key();
        let unanswered = self.unanswered.entry(key).or_insert_with(|| Unanswered {
            item: item.clone(),
            carriers: Vec::new(),
            since: Instant::now(),
        });
        if !unanswered.carriers.contains(&stream) {
            unanswered.carriers.push(stream);
        }
        if let Some(carried) = self.streams.get_mut(&stream) {
            carried.keys.insert(key);
        }
    }
}

/// What goes next, and its size as far as a batch counts it.
pub(super) fn next(state: &mut State) -> Option<(Item, u64)> {
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
                Some(file) => {
                    state.cursor = Some(Cursor {
                        file,
                        next: 0,
                        opening: false,
                    })
                }
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
            let file = BlockFile::new(entry);
            state.cursor = Some(Cursor {
                file: file.clone(),
                next: 0,
                opening: true,
            });
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

/// Work that has waited long for its answer on another stream, for an idle one to carry too.
pub(super) fn repeat(state: &mut State, stream: StreamId) -> Option<Item> {
    let now = Instant::now();
    let patience = REPEAT_AFTER.max(state.streams.get(&stream)?.answer_time * 3);
    let waited = state.unanswered.iter_mut().filter(|(_, u)| {
        matches!(u.carriers[..], [only] if only != stream)
            && now.duration_since(u.since) >= patience
            && !u.item.pointless()
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
