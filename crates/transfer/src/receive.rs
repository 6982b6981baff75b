//! The receiver's account of a copy: what has arrived, what is in place, what failed.
//!
//! Everything a peer can repeat is done once: an entry that is recorded in the manifest is answered and otherwise left
//! alone, a block that is in is acknowledged and not written again. That is what lets streams die at any moment. An
//! answer goes to the stream that asked, since only that one will ask again when it is lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::sync::mpsc::OwnedPermit;

use crate::destination::{Destination, TempFile};
use crate::error::{Error, Failure, FailureKind};
use crate::frame_io::Buffers;
use crate::lock::Locked;
use crate::manifest::{Manifest, Record};
use crate::path::RelPath;
use crate::progress::{Event, Observer, Progress};
use crate::tree_hash::{BlockHasher, Hash, TreeHash};
use crate::wire::{Block, Frame, Head, Meta, NO_ENTRY, Written};

/// Files in the making at once, at most.
const OPEN_FILES: usize = 512;
/// Separate runs of blocks of one file, at most: bounds what scattered blocks can make us remember.
const SCATTERED: usize = 64 * 1024;
/// Entries that may wait in the manifest for one before them.
const WAITING: usize = 1 << 20;
/// Bytes of directory names kept until the end, when permissions and times are set.
const DIRECTORY_BYTES: usize = 64 * 1024 * 1024;
/// Reasons of failures kept for streams that ask again.
const REMEMBERED_FAILURES: usize = 1024;

/// What goes back for one question.
pub(crate) type Answer = (Frame, Option<Frame>);
/// The right to answer once; taking it is what limits a peer that asks and never listens.
pub(crate) type Reply = OwnedPermit<Answer>;

/// See the module.
pub(crate) struct Receiver {
    destination: Destination,
    state: Mutex<State>,
    done: Notify,
    pub buffers: Buffers,
    pub progress: Arc<Progress>,
    observer: Arc<dyn Observer>,
    label: Box<dyn Fn(&Head) -> String + Send + Sync>,
}

#[derive(Default)]
struct State {
    files: HashMap<u64, Arc<ArrivingFile>>,
    manifest: Manifest,
    failures: HashMap<u64, Failure>,
    directories: Vec<(Head, Meta)>,
    directory_bytes: usize,
    /// Whole entries being written, and who else asked for each.
    busy: HashMap<u64, Vec<Reply>>,
    end: Option<u64>,
    finishing: bool,
    done: Option<Hash>,
    /// Failures without a number, for the sender to hear before DONE.
    notes: Vec<(Head, Failure)>,
}

/// A file that comes in blocks.
struct ArrivingFile {
    head: Head,
    place: Result<RelPath, Failure>,
    meta: Meta,
    size: u64,
    block_log2: u32,
    temp: Mutex<Option<Arc<TempFile>>>,
    /// Bytes counted as done so far.
    counted: AtomicU64,
    blocks: Mutex<Blocks>,
}

struct Blocks {
    tree: TreeHash,
    /// Blocks being written, and who asked for each.
    writing: HashMap<u64, Vec<Reply>>,
    /// The sender's hash, once said, and who asked for the outcome.
    end: Option<Hash>,
    end_asked: Vec<Reply>,
    outcome: Option<Result<Written, Failure>>,
    concluding: bool,
}

impl Receiver {
    pub(crate) fn new(
        destination: Destination,
        progress: Arc<Progress>,
        observer: Arc<dyn Observer>,
        label: Box<dyn Fn(&Head) -> String + Send + Sync>,
    ) -> Arc<Self> {
        let (state, done, buffers) = (Mutex::default(), Notify::new(), Buffers::default());
        Arc::new(Self {
            destination,
            state,
            done,
            buffers,
            progress,
            observer,
            label,
        })
    }

    /// FILE: a file that will come in blocks. Nothing is created yet.
    pub(crate) fn file(&self, head: Head, meta: Meta, size: u64, block_log2: u32) -> Result<(), Error> {
        self.check_source(&head)?;
        let mut state = self.state.locked();
        if state.manifest.has(head.id) {
            return Ok(());
        }
        if let Some(file) = state.files.get(&head.id) {
            return match file.head == head && file.size == size && file.block_log2 == block_log2 {
                true => Ok(()),
                false => Err(Error::Protocol("it describes one file in two ways".into())),
            };
        }
        if state.files.len() >= OPEN_FILES {
            return Err(Error::Protocol("it has too many files open at once".into()));
        }
        let blocks = Blocks {
            tree: TreeHash::new(size, block_log2),
            writing: HashMap::new(),
            end: None,
            end_asked: Vec::new(),
            outcome: None,
            concluding: false,
        };
        let place = self.destination.place(&head);
        let (temp, blocks) = (Mutex::new(None), Mutex::new(blocks));
        state.files.insert(
            head.id,
            Arc::new(ArrivingFile {
                head,
                place,
                meta,
                size,
                block_log2,
                temp,
                counted: AtomicU64::new(0),
                blocks,
            }),
        );
        Ok(())
    }

    /// Whether an entry's frame can be meant for this copy.
    pub(crate) fn check(&self, frame: &Frame) -> Result<(), Error> {
        match frame {
            Frame::Small { head, .. }
            | Frame::Directory { head, .. }
            | Frame::Symlink { head, .. }
            | Frame::Failed { head, .. } => self.check_source(head),
            Frame::FileEnd { id, .. } => self.find(*id).map(|_| ()),
            _ => Ok(()),
        }
    }

    fn check_source(&self, head: &Head) -> Result<(), Error> {
        match (head.source as usize) < self.destination.sources() {
            true => Ok(()),
            false => Err(Error::Protocol("it speaks of a source nobody named".into())),
        }
    }

    fn find(&self, id: u64) -> Result<Option<Arc<ArrivingFile>>, Error> {
        let state = self.state.locked();
        match state.files.get(&id) {
            Some(file) => Ok(Some(file.clone())),
            None if state.manifest.has(id) => Ok(None),
            None => Err(Error::Protocol(
                "it sends part of a file it has not described".into(),
            )),
        }
    }

    /// Whether a block is what its file's description allows. `Ok(false)`: its file has been answered for already.
    pub(crate) fn expects(&self, block: &Block) -> Result<bool, Error> {
        let Some(file) = self.find(block.id)? else {
            return Ok(false);
        };
        let whole = 1u64 << file.block_log2;
        let fits = block.offset.is_multiple_of(whole)
            && block.offset < file.size
            && u64::from(block.len) == whole.min(file.size - block.offset);
        if fits {
            Ok(true)
        } else {
            Err(Error::Protocol("a block does not fit its file".into()))
        }
    }

    /// BLOCK with its data. Blocking.
    pub(crate) fn block(&self, block: &Block, data: &[u8], reply: Reply) {
        let ack = Frame::Ack {
            id: block.id,
            offset: block.offset,
        };
        let Ok(Some(file)) = self.find(block.id) else {
            reply.send((ack, None));
            return;
        };
        {
            let mut blocks = file.blocks.locked();
            if blocks.outcome.is_some() || blocks.tree.covers(block.offset) {
                drop(blocks);
                reply.send((ack, None));
                return;
            }
            if let Some(asked) = blocks.writing.get_mut(&block.offset) {
                asked.push(reply);
                return;
            }
            blocks.writing.insert(block.offset, vec![reply]);
        }
        let written = self.write_block(&file, block, data);
        let mut blocks = file.blocks.locked();
        let asked = blocks.writing.remove(&block.offset).unwrap_or_default();
        match written {
            Ok(hash) if blocks.outcome.is_none() => {
                blocks.tree.insert(block.offset, hash);
                if blocks.tree.held() > SCATTERED {
                    drop(blocks);
                    let failure = Failure::with(FailureKind::Limit, "its blocks come too scattered");
                    return self.fail_file(&file, failure, asked, ack);
                }
                file.counted.fetch_add(u64::from(block.len), Ordering::Relaxed);
                self.progress
                    .bytes_done
                    .fetch_add(u64::from(block.len), Ordering::Relaxed);
                let complete = blocks.concludes();
                drop(blocks);
                for reply in asked {
                    reply.send((ack.clone(), None));
                }
                if complete {
                    self.conclude_file(&file);
                }
            }
            Ok(_) => {
                drop(blocks);
                for reply in asked {
                    reply.send((ack.clone(), None));
                }
            }
            Err(failure) => {
                drop(blocks);
                self.fail_file(&file, failure, asked, ack);
            }
        }
    }

    fn write_block(
        &self,
        file: &ArrivingFile,
        block: &Block,
        data: &[u8],
    ) -> Result<crate::tree_hash::BlockHash, Failure> {
        let temp = self.temp_of(file)?;
        let mut hasher = BlockHasher::new(block.offset, u64::from(block.len), file.size);
        let (mut at, mut hashed) = (0, 0);
        for piece in &block.pieces {
            let data = data.get(at..at + piece.len as usize).unwrap_or_default();
            hasher.update_zeros(u64::from(piece.offset - hashed));
            hasher.update(data);
            temp.write(data, block.offset + u64::from(piece.offset))?;
            at += piece.len as usize;
            hashed = piece.offset + piece.len;
        }
        hasher.update_zeros(u64::from(block.len - hashed));
        Ok(hasher.finish())
    }

    fn temp_of(&self, file: &ArrivingFile) -> Result<Arc<TempFile>, Failure> {
        let mut temp = file.temp.locked();
        if let Some(temp) = &*temp {
            return Ok(temp.clone());
        }
        let place = file.place.as_ref().map_err(Clone::clone)?;
        let made = Arc::new(self.destination.create(file.head.id, place, file.size)?);
        made.set_size(file.size)?;
        Ok(temp.insert(made).clone())
    }

    /// FILE_END: the sender's hash. Blocking.
    pub(crate) fn file_end(&self, id: u64, hash: Hash, reply: Reply) {
        let Ok(Some(file)) = self.find(id) else {
            reply.send((self.recorded(id), None));
            return;
        };
        let mut blocks = file.blocks.locked();
        if let Some(outcome) = &blocks.outcome {
            reply.send((
                Frame::Result {
                    id,
                    outcome: outcome.clone(),
                },
                None,
            ));
            return;
        }
        blocks.end = Some(hash);
        blocks.end_asked.push(reply);
        let complete = blocks.concludes();
        drop(blocks);
        if complete {
            self.conclude_file(&file);
        }
    }

    /// All blocks are in and the hash is known: compare, and put the file in its place.
    fn conclude_file(&self, file: &ArrivingFile) {
        let (ours, theirs) = {
            let blocks = file.blocks.locked();
            (blocks.tree.root(), blocks.end)
        };
        let outcome = match (ours, theirs) {
            (Some(ours), Some(theirs)) if ours == theirs => {
                self.place_file(file, &ours).map(|written| (written, ours))
            }
            _ => Err(Failure::new(FailureKind::Verification)),
        };
        let hash = outcome.as_ref().ok().map(|(_, hash)| *hash);
        self.answer_file(file, outcome.map(|(written, _)| written), hash);
    }

    fn place_file(&self, file: &ArrivingFile, hash: &Hash) -> Result<Written, Failure> {
        self.temp_of(file)?;
        // Every block is in and none is being written: the last holder is here.
        let temp = file.temp.locked().take().and_then(Arc::into_inner);
        let temp = temp.ok_or(Failure::with(FailureKind::Io, "a block is still being written"))?;
        self.destination.finish(temp, &file.meta, file.size, hash)
    }

    fn fail_file(&self, file: &ArrivingFile, failure: Failure, asked: Vec<Reply>, ack: Frame) {
        let first = file.blocks.locked().outcome.is_none();
        if first {
            self.answer_file(file, Err(failure.clone()), None);
        }
        for reply in asked {
            let result = Frame::Result {
                id: file.head.id,
                outcome: Err(failure.clone()),
            };
            reply.send((ack.clone(), Some(result)));
        }
    }

    fn answer_file(&self, file: &ArrivingFile, outcome: Result<Written, Failure>, hash: Option<Hash>) {
        let asked = {
            let mut blocks = file.blocks.locked();
            if blocks.outcome.is_some() {
                return;
            }
            blocks.outcome = Some(outcome.clone());
            std::mem::take(&mut blocks.end_asked)
        };
        if outcome.is_err() {
            self.discard(file);
        }
        let record = match (&outcome, &hash) {
            (Ok(_), Some(hash)) => Record::File {
                size: file.size,
                hash,
            },
            _ => Record::Failed,
        };
        self.record(
            &file.head,
            record,
            outcome.as_ref(),
            hash.map(|hash| (file.size, hash)),
        );
        self.state.locked().files.remove(&file.head.id);
        for reply in asked {
            reply.send((
                Frame::Result {
                    id: file.head.id,
                    outcome: outcome.clone(),
                },
                None,
            ));
        }
    }

    /// Removes what was written of a file that failed.
    fn discard(&self, file: &ArrivingFile) {
        file.temp.locked().take();
        self.progress
            .bytes_done
            .fetch_sub(file.counted.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// An entry that comes whole: SMALL, DIRECTORY, SYMLINK, FAILED. Blocking.
    pub(crate) fn entry(&self, frame: Frame, reply: Reply) {
        let (Frame::Small { head, .. }
        | Frame::Directory { head, .. }
        | Frame::Symlink { head, .. }
        | Frame::Failed { head, .. }) = &frame
        else {
            return;
        };
        let head = head.clone();
        {
            let mut state = self.state.locked();
            if state.manifest.has(head.id) {
                drop(state);
                reply.send((self.recorded(head.id), None));
                return;
            }
            if let Some(asked) = state.busy.get_mut(&head.id) {
                asked.push(reply);
                return;
            }
            state.busy.insert(head.id, vec![reply]);
        }
        let (record, content, outcome) = match &frame {
            Frame::Small { meta, hash, data, .. } => {
                let size = data.len() as u64;
                let outcome = self.write_small(&head, meta, data, hash);
                if outcome.is_ok() {
                    self.progress.bytes_done.fetch_add(size, Ordering::Relaxed);
                }
                (Record::File { size, hash }, Some((size, *hash)), outcome)
            }
            Frame::Directory { meta, .. } => (Record::Directory, None, self.make_dir(&head, meta)),
            Frame::Symlink { meta, target, .. } => {
                let place = self.destination.place(&head);
                let outcome =
                    place.and_then(|place| self.destination.write_symlink(head.id, &place, meta, target));
                (Record::Symlink { target }, None, outcome)
            }
            Frame::Failed { failure, .. } => (Record::Failed, None, Err(failure.clone())),
            _ => return,
        };
        let record = if outcome.is_ok() { record } else { Record::Failed };
        // A file that had begun to arrive in blocks and failed at its source.
        let begun = self.state.locked().files.remove(&head.id);
        if let Some(file) = begun {
            let mut blocks = file.blocks.locked();
            blocks.outcome = Some(outcome.clone());
            drop(blocks);
            self.discard(&file);
        }
        self.record(&head, record, outcome.as_ref(), content);
        let asked = self.state.locked().busy.remove(&head.id).unwrap_or_default();
        for reply in asked {
            reply.send((
                Frame::Result {
                    id: head.id,
                    outcome: outcome.clone(),
                },
                None,
            ));
        }
    }

    fn write_small(&self, head: &Head, meta: &Meta, data: &[u8], hash: &Hash) -> Result<Written, Failure> {
        if blake3::hash(data) != *hash {
            return Err(Failure::new(FailureKind::Verification));
        }
        let place = self.destination.place(head)?;
        self.destination.write_small(head, &place, meta, data, hash)
    }

    fn make_dir(&self, head: &Head, meta: &Meta) -> Result<Written, Failure> {
        let cost = head.path.as_bytes().len() + size_of::<(Head, Meta)>();
        {
            let mut state = self.state.locked();
            if state.directory_bytes + cost > DIRECTORY_BYTES {
                return Err(Failure::with(
                    FailureKind::Limit,
                    "too many directories in one copy",
                ));
            }
            state.directory_bytes += cost;
        }
        let written = self.destination.make_dir(&self.destination.place(head)?)?;
        self.state.locked().directories.push((head.clone(), *meta));
        Ok(written)
    }

    /// What was said before about an entry, for a stream that asks again.
    fn recorded(&self, id: u64) -> Frame {
        let state = self.state.locked();
        let outcome = match state.failures.get(&id) {
            Some(failure) => Err(failure.clone()),
            None => Ok(Written::New),
        };
        Frame::Result { id, outcome }
    }

    fn record(
        &self,
        head: &Head,
        record: Record<'_>,
        outcome: Result<&Written, &Failure>,
        content: Option<(u64, Hash)>,
    ) {
        let mut state = self.state.locked();
        if !state.manifest.record(head.id, head.source, &head.path, record) {
            return;
        }
        if let Err(failure) = outcome
            && state.failures.len() < REMEMBERED_FAILURES
        {
            state.failures.insert(head.id, failure.clone());
        }
        drop(state);
        self.progress.entries_done.fetch_add(1, Ordering::Relaxed);
        match outcome {
            Ok(written) => {
                if content.is_some() {
                    self.progress.files_done.fetch_add(1, Ordering::Relaxed);
                }
                let (bytes, hash) = content.unzip();
                let same = *written == Written::Same;
                self.observer.event(Event::Done {
                    path: (self.label)(head),
                    bytes,
                    hash,
                    same,
                });
            }
            Err(failure) => self.failed(head, failure.clone()),
        }
    }

    fn failed(&self, head: &Head, failure: Failure) {
        self.progress.failures.fetch_add(1, Ordering::Relaxed);
        self.observer.event(Event::Failed {
            path: (self.label)(head),
            failure,
        });
    }

    /// END: how many entries there are.
    pub(crate) fn end(&self, entries: u64) {
        self.state.locked().end = Some(entries);
    }

    /// Whether a peer has left too many gaps in its numbering.
    pub(crate) fn too_scattered(&self) -> bool {
        self.state.locked().manifest.waiting() > WAITING
    }

    /// To be called after every change: when all is in place, finishes the directories and declares the copy done. Blocking.
    pub(crate) fn conclude(&self) {
        let mut state = self.state.locked();
        if state.finishing || state.end != Some(state.manifest.len()) || state.manifest.waiting() > 0 {
            return;
        }
        state.finishing = true;
        let mut directories = std::mem::take(&mut state.directories);
        drop(state);
        // What lies deeper has the higher number: its parent may be closed to us afterwards.
        directories.sort_unstable_by_key(|(head, _)| std::cmp::Reverse(head.id));
        for (head, meta) in directories {
            let finished = self
                .destination
                .place(&head)
                .and_then(|place| self.destination.finish_dir(&place, &meta));
            if let Err(failure) = finished {
                let failure = match failure.kind {
                    FailureKind::Metadata => failure,
                    _ => Failure::with(FailureKind::Metadata, failure.to_string()),
                };
                self.failed(&head, failure.clone());
                let mut state = self.state.locked();
                if state.notes.len() < REMEMBERED_FAILURES {
                    state.notes.push((Head { id: NO_ENTRY, ..head }, failure));
                }
            }
        }
        let mut state = self.state.locked();
        state.done = Some(state.manifest.hash());
        drop(state);
        self.done.notify_waiters();
    }

    /// The hash over everything, once everything is in place.
    pub(crate) fn conclusion(&self) -> Option<Hash> {
        self.state.locked().done
    }

    /// What is to be said at the end, on every stream.
    pub(crate) fn closing_frames(&self) -> Vec<Frame> {
        let state = self.state.locked();
        let Some(manifest) = state.done else {
            return Vec::new();
        };
        let notes = state.notes.iter().map(|(head, failure)| Frame::Failed {
            head: head.clone(),
            failure: failure.clone(),
        });
        notes.chain([Frame::Done { manifest }]).collect()
    }

    /// Resolves when everything is in place.
    pub(crate) async fn concluded(&self) {
        loop {
            let changed = self.done.notified();
            if self.conclusion().is_some() {
                return;
            }
            changed.await;
        }
    }
}

impl Blocks {
    /// Whether this is the moment to conclude; true once only.
    fn concludes(&mut self) -> bool {
        let now =
            !self.concluding && self.end.is_some() && self.tree.root().is_some() && self.writing.is_empty();
        self.concluding |= now;
        now
    }
}
