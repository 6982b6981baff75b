//! Files that arrive in blocks. Each has one writer at a time, and is concluded when the last block
//! and the hash are in.
//!
//! A block passes through here three times. When it has arrived, the requester is answered or the
//! block must be hashed. When it is hashed, it must be written, or waits for the file's writer. The
//! third time it has been written. Hashing runs in parallel with writing. Two concurrent writes to
//! one file would only wait for its inode's lock.

mod conclude;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{
    AnswerFrames, BlockWrite, CopyLedger, LedgerAction, LedgerTypes, Rejection, is_worth_keeping,
    result,
};
use crate::error::{Failure, FailureKind};
use crate::late_size::is_late;
use crate::store::AnnouncedFile;
use crate::tree_hash::{BlockHash, Hash, Subtree, TreeHash};
use crate::wire::{Block, EntryHead, Frame, MAX_HAVE_SUBTREES};

/// Maximum number of unfinished files at once (LH-COPY-30).
const MAX_DESCRIBED_FILES: usize = 4096;
/// Memory of a described file besides its path, and of each separate run of its blocks in its tree
/// and its journal, in bytes. Only the key's share of memory bounds the number of runs, however
/// scattered blocks are (LH-COPY-30).
const FILE_BYTES: u64 = 1024;
const RUN_BYTES: u64 = 192;

/// Classification of a block whose data is about to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockClass {
    /// Part of an entry that has been answered. Its data may be dropped.
    Settled,
    /// Part of a file of `size` bytes, with or without a permit among the open files.
    Wanted { size: u64, has_permit: bool },
}

/// A file that arrives in blocks.
pub(super) struct ArrivingFile<P: LedgerTypes> {
    announced: Arc<AnnouncedFile>,
    /// Size in bytes, late until LATE_END has told it.
    size: u64,
    /// End of the last block that has arrived, in bytes.
    reach: u64,
    /// End of the last block that has arrived and is shorter than others, in bytes. Two different
    /// ones do not fit any size.
    short_end: Option<u64>,
    tree: TreeHash,
    /// True if an earlier copy has left a part of it.
    is_resumed: bool,
    /// Maximum number of runs so far. Memory allocated for them is kept.
    most_runs: usize,
    /// Blocks that have arrived and are not written yet, by their offset.
    in_flight: HashMap<u64, ArrivingBlock<P>>,
    /// Blocks that are hashed and wait for the writer.
    queue: VecDeque<(Block, BlockHash, P::Data)>,
    writer: WriterState<P>,
    /// The sender's hash, once received.
    end: Option<Hash>,
    pub(super) end_asked: Vec<P::Asker>,
    /// Bytes counted as written.
    counted: u64,
}

/// A block that is being hashed, waits, or is being written.
struct ArrivingBlock<P: LedgerTypes> {
    hash: Option<BlockHash>,
    askers: Vec<P::Asker>,
}

/// State of the file's writer.
enum WriterState<P: LedgerTypes> {
    /// The file has no permit among the open files yet.
    Unopened,
    /// The file was refused a permit.
    Refused(Failure),
    /// Open, without a write in progress.
    Idle(P::File),
    /// A write is in progress.
    Writing,
    /// The file is being committed.
    Committing,
}

impl<P: LedgerTypes> ArrivingFile<P> {
    pub(super) fn is_being_committed(&self) -> bool {
        matches!(self.writer, WriterState::Committing)
    }

    /// Returns true if the file can have this block (LH-COPY-14).
    fn can_have(&self, block: &Block) -> bool {
        let (whole, len) = (1u64 << self.announced.block_log2, u64::from(block.len));
        let end = block.offset.saturating_add(len);
        block.offset.is_multiple_of(whole)
            && block.offset < self.size
            && match is_late(self.size) {
                // Only the last block may be shorter.
                true if len < whole => {
                    self.reach <= end && self.short_end.is_none_or(|known| known == end)
                }
                true => len == whole && self.short_end.is_none_or(|known| end < known),
                false => len == whole.min(self.size - block.offset),
            }
    }

    /// Returns true if no block that has arrived contradicts the size of a file of late size.
    pub(super) fn may_have_size(&self, size: u64) -> bool {
        self.reach <= size && self.short_end.is_none_or(|end| end == size)
    }

    /// Returns the number of bytes of the block at `offset`, which has arrived.
    fn len_at(&self, offset: u64) -> u64 {
        let end = match is_late(self.size) {
            true => self.reach,
            false => self.size,
        };
        (1 << self.announced.block_log2).min(end.saturating_sub(offset))
    }

    fn bytes(&self) -> u64 {
        let attributes = self.announced.meta.attribute_bytes();
        file_bytes(&self.announced.head) + attributes + self.most_runs as u64 * RUN_BYTES
    }

    /// Starts the next waiting write. The writer is idle or has just returned `file`.
    fn write_next(&mut self, file: P::File, out: &mut Vec<LedgerAction<P>>) {
        let Some((block, hash, data)) = self.queue.pop_front() else {
            self.writer = WriterState::Idle(file);
            return;
        };
        self.writer = WriterState::Writing;
        out.push(LedgerAction::Write(BlockWrite {
            announced: self.announced.clone(),
            file,
            block,
            hash,
            data,
        }));
    }
}

impl<P: LedgerTypes> CopyLedger<P> {
    /// Returns the memory for beginning a file with `subtrees`, in addition to that of any event.
    pub(crate) fn bytes_of(subtrees: &[Subtree]) -> u64 {
        (subtrees.len() as u64).saturating_mul(RUN_BYTES)
    }

    /// Handles FILE, which describes a file that arrives in blocks. Nothing is created yet. The
    /// subtrees `in_place` exist and count as written.
    ///
    /// # Errors
    /// [`Rejection`] if the stream that brought it must end.
    pub(crate) fn announce(
        &mut self,
        announced: AnnouncedFile,
        in_place: &[Subtree],
        out: &mut Vec<LedgerAction<P>>,
    ) -> Result<(), Rejection> {
        let id = announced.head.id;
        if self.recorded(id).is_some() {
            return Ok(());
        }
        if let Some(file) = self.files.get(&id) {
            // LH-COPY-13.
            return match *file.announced == announced {
                true => Ok(()),
                false => Err(Rejection::Protocol(
                    "it described a file twice, differently",
                )),
            };
        }
        if self.files.len() >= MAX_DESCRIBED_FILES {
            return Err(Rejection::Protocol("it has too many files open at once"));
        }
        let mut empty = TreeHash::new(announced.size, announced.block_log2);
        if self.manifest.is_observed() {
            empty = empty.keeping_coarse();
        }
        let tree = initial_tree(empty, in_place);
        let counted = tree.covered();
        let file = ArrivingFile {
            most_runs: tree.subtree_count(),
            size: announced.size,
            reach: 0,
            short_end: None,
            announced: Arc::new(announced),
            tree,
            is_resumed: counted > 0,
            in_flight: HashMap::new(),
            queue: VecDeque::new(),
            writer: WriterState::Unopened,
            end: None,
            end_asked: Vec::new(),
            counted,
        };
        let bytes = file.bytes();
        self.check_room(bytes).map_err(Rejection::Limit)?;
        self.memory.files += bytes;
        self.files.insert(id, file);
        if counted > 0 {
            out.push(LedgerAction::Count(counted as i64));
        }
        Ok(())
    }

    /// Classifies a block whose data is about to be read.
    ///
    /// # Errors
    /// [`Rejection::Protocol`] if it does not belong to a described file (LH-COPY-14).
    pub(crate) fn classify_block(&self, block: &Block) -> Result<BlockClass, Rejection> {
        let Some(file) = self.files.get(&block.id) else {
            return match self.recorded(block.id) {
                Some(_) => Ok(BlockClass::Settled),
                None => Err(UNDESCRIBED),
            };
        };
        if !file.can_have(block) {
            return Err(Rejection::Protocol("a block does not fit its file"));
        }
        Ok(BlockClass::Wanted {
            size: file.size,
            has_permit: !matches!(file.writer, WriterState::Unopened),
        })
    }

    /// Gives a file its permit among the open files, or the reason why it has none. Returns the
    /// permit if the file got one earlier.
    pub(crate) fn assign_permit(
        &mut self,
        id: u64,
        place: Result<P::File, Failure>,
        out: &mut Vec<LedgerAction<P>>,
    ) -> Option<P::File> {
        let Some(file) = self.files.get_mut(&id) else {
            return place.ok();
        };
        match (&file.writer, place) {
            (WriterState::Unopened, Ok(place)) => {
                file.write_next(place, out);
                None
            }
            (WriterState::Unopened, Err(failure)) => {
                file.writer = WriterState::Refused(failure.clone());
                if !file.queue.is_empty() {
                    self.fail_file(id, failure, out);
                }
                None
            }
            (_, place) => place.ok(),
        }
    }

    /// Handles an arrived block. Returns true if it must be hashed, followed by
    /// [`Self::block_hashed`]. Otherwise the requester is answered now, or together with earlier
    /// ones.
    pub(crate) fn block_arrived(
        &mut self,
        block: &Block,
        asker: P::Asker,
        out: &mut Vec<LedgerAction<P>>,
    ) -> bool {
        // Another block, or the end of a file of late size, may have come since it was classified.
        let contradicts = |file: &ArrivingFile<P>| !file.can_have(block);
        if self.files.get(&block.id).is_some_and(contradicts) {
            self.fail_file(block.id, Failure::new(FailureKind::Verification), out);
        }
        let Some(file) = self.files.get_mut(&block.id) else {
            // LH-COPY-20: this includes a failure whose earlier report was lost.
            let failed = self.recorded(block.id).and_then(Result::err);
            out.push(LedgerAction::Answer(
                asker,
                block_answer(block.id, block.offset, failed),
            ));
            return false;
        };
        let end = block.offset + u64::from(block.len);
        file.reach = file.reach.max(end);
        if u64::from(block.len) < 1 << file.announced.block_log2 {
            file.short_end = Some(end);
        }
        if let Some(in_flight) = file.in_flight.get_mut(&block.offset) {
            in_flight.askers.push(asker);
            return false;
        }
        if file.tree.covers(block.offset) {
            out.push(LedgerAction::Answer(
                asker,
                block_answer(block.id, block.offset, None),
            ));
            return false;
        }
        let in_flight = ArrivingBlock {
            hash: None,
            askers: vec![asker],
        };
        file.in_flight.insert(block.offset, in_flight);
        true
    }

    /// Handles a hashed block. It is written now, or waits for the writer of its file.
    pub(crate) fn block_hashed(
        &mut self,
        block: Block,
        hash: BlockHash,
        data: P::Data,
        out: &mut Vec<LedgerAction<P>>,
    ) {
        let id = block.id;
        let Some(file) = self.files.get_mut(&id) else {
            return; // It failed meanwhile, and who asked has the answer.
        };
        let Some(in_flight) = file.in_flight.get_mut(&block.offset) else {
            return;
        };
        in_flight.hash = Some(hash);
        file.queue.push_back((block, hash, data));
        match std::mem::replace(&mut file.writer, WriterState::Writing) {
            WriterState::Idle(place) => file.write_next(place, out),
            WriterState::Refused(failure) => {
                file.writer = WriterState::Refused(failure.clone());
                self.fail_file(id, failure, out);
            }
            other => file.writer = other,
        }
    }

    /// Fails a file because a block does not have the hash that its sender gave. Its data was
    /// changed in transit (LH-COPY-44).
    pub(crate) fn block_changed(&mut self, id: u64, out: &mut Vec<LedgerAction<P>>) {
        let what = "its data was changed on the way";
        self.fail_file(
            id,
            Failure::with_detail(FailureKind::Verification, what),
            out,
        );
    }

    /// Handles a written block, and takes back the file from its writer.
    pub(crate) fn block_written(
        &mut self,
        id: u64,
        offset: u64,
        place: P::File,
        written: Result<(), Failure>,
        out: &mut Vec<LedgerAction<P>>,
    ) {
        let Some(file) = self.files.get_mut(&id) else {
            // The file failed in the meantime.
            let failed = self.recorded(id).and_then(Result::err);
            let keep = failed.is_some_and(|failure| is_worth_keeping(&failure));
            out.push(LedgerAction::Discard { file: place, keep });
            return;
        };
        if let Err(failure) = written {
            file.writer = WriterState::Idle(place);
            self.fail_file(id, failure, out);
            return;
        }
        let in_flight = file.in_flight.remove(&offset);
        let (hash, askers) = in_flight.map_or((None, Vec::new()), |one| (one.hash, one.askers));
        if let Some(hash) = hash {
            file.tree.insert(offset, hash);
        }
        let more_runs = file.tree.subtree_count().saturating_sub(file.most_runs);
        if let Err(failure) = self.account_runs(id, more_runs) {
            if let Some(file) = self.files.get_mut(&id) {
                file.writer = WriterState::Idle(place);
            }
            out.extend(answers(
                askers,
                &block_answer(id, offset, Some(failure.clone())),
            ));
            self.fail_file(id, failure, out);
            return;
        }
        out.extend(answers(askers, &block_answer(id, offset, None)));
        if let Some(file) = self.files.get_mut(&id) {
            let len = file.len_at(offset);
            file.counted += len;
            self.has_late_blocks |= is_late(file.announced.size);
            out.push(LedgerAction::Count(len as i64));
            file.write_next(place, out);
        }
        self.conclude_file(id, out);
    }

    /// Returns HAVE with the parts in place, from offset `from`, of a file that an earlier copy
    /// began. Also returns the offset where there may be more (LH-COPY-36). For other files, HAVE
    /// is empty.
    pub(crate) fn have_frame(&self, id: u64, from: u64) -> Option<(Frame, Option<u64>)> {
        let file = self.files.get(&id)?;
        let most = if file.is_resumed {
            MAX_HAVE_SUBTREES + 1
        } else {
            0
        };
        let mut subtrees: Vec<Subtree> = file.tree.subtrees_from(from).take(most).collect();
        let more = subtrees.get(MAX_HAVE_SUBTREES).map(|next| next.offset);
        subtrees.truncate(MAX_HAVE_SUBTREES);
        let frame = Frame::Have {
            id,
            more: more.is_some(),
            subtrees,
        };
        Some((frame, more))
    }

    /// Accounts for the runs of blocks in memory.
    fn account_runs(&mut self, id: u64, more: usize) -> Result<(), Failure> {
        if more == 0 {
            return Ok(());
        }
        let bytes = more as u64 * RUN_BYTES;
        self.check_room(bytes)?;
        self.memory.files += bytes;
        if let Some(file) = self.files.get_mut(&id) {
            file.most_runs += more;
        }
        Ok(())
    }
}

/// Returns the tree of a file with the subtrees `in_place`. If these do not fit, the journal
/// belongs to another file and the tree is empty.
fn initial_tree(empty: TreeHash, in_place: &[Subtree]) -> TreeHash {
    let mut tree = empty.clone();
    for subtree in in_place {
        if !tree.insert_subtree(*subtree) {
            return empty;
        }
    }
    tree
}

const UNDESCRIBED: Rejection =
    Rejection::Protocol("it sent part of a file that it did not describe");

/// Returns ACK, followed by RESULT if the file has failed.
fn block_answer(id: u64, offset: u64, failure: Option<Failure>) -> AnswerFrames {
    let ack = Frame::Ack { id, offset };
    (ack, failure.map(|failure| result(id, Err(failure))))
}

fn answers<P: LedgerTypes>(
    askers: Vec<P::Asker>,
    answer: &AnswerFrames,
) -> impl Iterator<Item = LedgerAction<P>> {
    askers
        .into_iter()
        .map(move |asker| LedgerAction::Answer(asker, answer.clone()))
}

/// Returns the memory of a described file, in bytes.
fn file_bytes(head: &EntryHead) -> u64 {
    FILE_BYTES + head.path.as_bytes().len() as u64
}
