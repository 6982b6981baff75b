//! The receiver's account of a copy: what has arrived, what is in place, what failed, and who waits
//! for an answer.
//!
//! A state machine: what happened goes in, [`Action`]s come out. It reads no clock, takes no lock
//! and does no I/O; the [`Receiver`](super::Receiver) brings it what streams carry and takes its
//! actions to the store.
//!
//! Everything a peer can repeat is done once (LH-COPY-19): an entry that is recorded is answered as
//! it was the first time and otherwise left alone, a block that is in is acknowledged and not
//! written again. That is what lets streams die at any moment. An answer goes to whoever asked,
//! since only that stream asks again when it is lost; a stream that has gone asks nothing of the
//! ledger, its answers simply go nowhere (LH-COPY-21, LH-COPY-27).

#![deny(clippy::indexing_slicing)] // what is counted here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::collections::HashMap;
use std::sync::Arc;

use crate::account::Exhausted;
use crate::error::{Failure, FailureKind};
use crate::manifest::{Manifest, Record};
use crate::store::{Announced, MadeDir};
use crate::tree_hash::{BlockHash, Hash};
use crate::wire::{Block, Frame, HardLink, Head, Meta, NO_ENTRY, Written};

mod entries;
mod expect;
mod files;
mod offers;
mod outcomes;
#[cfg(test)]
mod tests;

pub use expect::Asked;
pub(crate) use expect::Sent;
use expect::{Expectation, Unexpected};
use files::ArrivingFile;
pub(crate) use files::Expected;
pub(crate) use offers::Claim;
use outcomes::Outcomes;

/// Entries that may wait in the manifest for one before them (LH-COPY-30).
const MAX_WAITING_ENTRIES: usize = 1 << 20;
/// Failures of directories to be finished that are reported at the end (LH-COPY-30).
const MAX_NOTES: usize = 1024;
/// Bytes that a record in the manifest takes while it waits for one before it.
const WAITING_BYTES: u64 = 64;
/// The most bytes that one event makes the ledger remember: a file and its path, or a page of
/// outcomes and a reason.
pub(crate) const EVENT_BYTES: u64 = 8 * 1024;

/// What passes through the ledger unread.
pub(crate) trait Parts {
    /// Who asked: where an answer goes.
    type Asker;
    /// The data of a block.
    type Data;
    /// A file in the making. Whoever has it is the one that writes it.
    type File;
}

/// What goes back for one question.
pub(crate) type Answer = (Frame, Option<Frame>);

/// What is to be done.
pub(crate) enum Action<P: Parts> {
    /// Send this to who asked.
    Answer(P::Asker, Answer),
    /// Write a block, then say so with [`Ledger::block_written`]. At most one write of a file is
    /// under way.
    Write(BlockWrite<P>),
    /// The hashes agree: give the file its name, then say so with [`Ledger::file_placed`].
    Place(Placement<P>),
    /// Remove what was written of a file, or leave it for a later copy if `keep`; then say so with
    /// [`Ledger::discarded`].
    Discard { file: P::File, keep: bool },
    /// Report to the observer what became of an entry; once for each.
    Report(Report),
    /// So many bytes more, or fewer, are written.
    Count(i64),
    /// All entries are in place: finish these directories, in this order, then say so with
    /// [`Ledger::finished`].
    Finish(Vec<Directory>),
}

/// One block to be written.
pub(crate) struct BlockWrite<P: Parts> {
    /// The file it is of.
    pub announced: Arc<Announced>,
    pub file: P::File,
    pub block: Block,
    pub hash: BlockHash,
    pub data: P::Data,
}

/// One file to be given its name.
pub(crate) struct Placement<P: Parts> {
    pub announced: Arc<Announced>,
    pub hash: Hash,
    /// None if no block of it had to be written.
    pub file: Option<P::File>,
}

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub head: Head,
    pub outcome: Result<Written, Failure>,
    /// Size of a file that is in place, and its hash if that is known.
    pub content: Option<(u64, Option<Hash>)>,
}

/// A directory to be finished when all in it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    pub head: Head,
    pub meta: Meta,
    pub made: MadeDir,
}

/// Why a frame ends its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// It breaks the protocol.
    Protocol(&'static str),
    /// There is no memory for it.
    Limit(Exhausted),
    /// It was not asked for.
    NotAsked(Head, &'static str),
}

/// How far the copy is.
enum Stage {
    Receiving,
    /// The directories are being finished.
    Finishing,
    /// Everything is in place; the hash over all of it.
    Done(Hash),
}

/// See the module.
pub(crate) struct Ledger<P: Parts> {
    expectation: Expectation,
    sources: usize,
    files: HashMap<u64, ArrivingFile<P>>,
    /// Entries that come whole and are being written, and who asked for each.
    being_written: HashMap<u64, Vec<P::Asker>>,
    /// Files that were offered or said to be other names and are being compared, and who asked for
    /// each.
    being_compared: HashMap<u64, Vec<P::Asker>>,
    manifest: Manifest,
    outcomes: Outcomes,
    directories: Vec<Directory>,
    /// Files that failed and of which something is there still.
    unremoved: usize,
    /// How many entries there are, once END has said so.
    end: Option<u64>,
    stage: Stage,
    notes: Vec<(Head, Failure)>,
    memory: Memory,
}

/// What the ledger takes of the memory it was given, in bytes.
struct Memory {
    begun_with: u64,
    files: u64,
    directories: u64,
    /// What it may take, and why it may not take more.
    room: u64,
    refusal: Option<Exhausted>,
    /// More was taken than there is: the copy ends.
    exhausted: Option<Exhausted>,
}

impl<P: Parts> Ledger<P> {
    /// An account of what was `asked` for, of so many sources. It counts `begun_with` bytes as its
    /// own from the start and takes nothing before [`Self::give_room`].
    pub(crate) fn new(asked: Asked, sources: usize, begun_with: u64) -> Self {
        Self {
            expectation: Expectation::new(asked, sources),
            sources,
            files: HashMap::new(),
            being_written: HashMap::new(),
            being_compared: HashMap::new(),
            manifest: Manifest::default(),
            outcomes: Outcomes::default(),
            directories: Vec::new(),
            unremoved: 0,
            end: None,
            stage: Stage::Receiving,
            notes: Vec::new(),
            memory: Memory {
                begun_with,
                files: 0,
                directories: 0,
                room: 0,
                refusal: None,
                exhausted: None,
            },
        }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let waiting = self.manifest.waiting() as u64 * WAITING_BYTES;
        let memory = &self.memory;
        memory.begun_with + memory.files + memory.directories + waiting + self.outcomes.bytes()
    }

    /// It may take so many bytes. To be said before each event, [`EVENT_BYTES`] more than it takes,
    /// or with the reason why there are not so many.
    pub(crate) fn give_room(&mut self, room: u64, refusal: Option<Exhausted>) {
        (self.memory.room, self.memory.refusal) = (room, refusal);
    }

    /// Whether there is room for `more` bytes.
    fn fits(&self, more: u64) -> Result<(), Exhausted> {
        match self.memory.refusal {
            Some(exhausted) if self.bytes().saturating_add(more) > self.memory.room => {
                Err(exhausted)
            }
            _ => Ok(()),
        }
    }

    /// Whether the entry of a frame can be meant for this copy, and is part of what was asked for
    /// (LH-COPY-18). `Ok` with a failure: it is reported as an entry that failed, whatever it was
    /// sent as.
    ///
    /// # Errors
    /// [`Rejected`] if the stream that brought it must end.
    pub(crate) fn admit(&mut self, head: &Head, sent: Sent) -> Result<Option<Failure>, Rejected> {
        if let Some(exhausted) = self.memory.exhausted {
            return Err(Rejected::Limit(exhausted));
        }
        if self.manifest.waiting() > MAX_WAITING_ENTRIES {
            return Err(Rejected::Protocol("its numbering has too many gaps"));
        }
        if head.id == NO_ENTRY {
            return Err(Rejected::Protocol("it reports a failure of no entry"));
        }
        if self.end.is_some_and(|entries| head.id >= entries) {
            return Err(Rejected::Protocol(
                "it sends more entries than it has announced",
            ));
        }
        if (head.source as usize) >= self.sources {
            return Err(Rejected::Protocol("it speaks of a source nobody named"));
        }
        match self.expectation.admit(head, sent) {
            Ok(()) => Ok(None),
            Err(Unexpected::Fails(failure)) => Ok(Some(failure)),
            Err(Unexpected::NotAsked(what)) => Err(Rejected::NotAsked(head.clone(), what)),
        }
    }

    /// Whether what another name is said to be one of can be part of what was asked for
    /// (LH-COPY-45).
    ///
    /// # Errors
    /// [`Rejected`] if the stream that brought it must end.
    pub(crate) fn admit_link(&self, link: &HardLink) -> Result<(), Rejected> {
        let (source, path) = &link.first;
        if *source as usize >= self.sources {
            return Err(Rejected::Protocol("it speaks of a source nobody named"));
        }
        match self.expectation.may_name(path) {
            true => Ok(()),
            false => Err(Rejected::NotAsked(
                link.head.clone(),
                "another name of what is beneath a source that was to be one file",
            )),
        }
    }

    /// The first source of which nothing has come, when all has.
    pub(crate) fn missing(&self) -> Option<usize> {
        self.expectation.missing()
    }

    /// END: how many entries there are (LH-COPY-17).
    ///
    /// # Errors
    /// [`Rejected::Protocol`] if it was said otherwise before, or more have come.
    pub(crate) fn end(&mut self, entries: u64, out: &mut Vec<Action<P>>) -> Result<(), Rejected> {
        if !matches!(self.stage, Stage::Receiving) {
            return Ok(()); // All that was announced is here.
        }
        let mut under_way = self
            .files
            .keys()
            .chain(self.being_written.keys())
            .chain(self.being_compared.keys());
        if self.end.is_some_and(|before| before != entries)
            || entries < self.manifest.len()
            || under_way.any(|id| *id >= entries)
        {
            return Err(Rejected::Protocol("it counts its entries in two ways"));
        }
        self.end = Some(entries);
        self.conclude(out);
        Ok(())
    }

    /// What was written of a file that failed is removed.
    pub(crate) fn discarded(&mut self, out: &mut Vec<Action<P>>) {
        self.unremoved = self.unremoved.saturating_sub(1);
        self.conclude(out);
    }

    /// When every entry is recorded, nothing is left of those that failed and nothing is being
    /// written: asks for the directories to be finished, once.
    fn conclude(&mut self, out: &mut Vec<Action<P>>) {
        let all_recorded = self.end == Some(self.manifest.len()) && self.manifest.waiting() == 0;
        let all_quiet = self.unremoved == 0
            && self.files.is_empty()
            && self.being_written.is_empty()
            && self.being_compared.is_empty();
        if !all_recorded || !all_quiet || !matches!(self.stage, Stage::Receiving) {
            return;
        }
        self.stage = Stage::Finishing;
        let mut directories = std::mem::take(&mut self.directories);
        // What lies deeper has the higher number: its parent may be closed to us afterwards.
        directories.sort_unstable_by_key(|directory| std::cmp::Reverse(directory.head.id));
        out.push(Action::Finish(directories));
    }

    /// The directories are finished, but for what failed, which the sender receives before DONE
    /// (LH-COPY-25).
    pub(crate) fn finished(&mut self, failed: Vec<(Head, Failure)>) {
        self.memory.directories = 0;
        let notes = failed.into_iter().take(MAX_NOTES);
        self.notes = notes
            .map(|(head, failure)| {
                (
                    Head {
                        id: NO_ENTRY,
                        ..head
                    },
                    failure,
                )
            })
            .collect();
        self.stage = Stage::Done(self.manifest.hash());
    }

    /// The hash over everything, once everything is in place.
    pub(crate) fn conclusion(&self) -> Option<Hash> {
        match self.stage {
            Stage::Done(hash) => Some(hash),
            Stage::Receiving | Stage::Finishing => None,
        }
    }

    /// What is to be said at the end, on every stream; nothing before.
    pub(crate) fn closing_frames(&self) -> Vec<Frame> {
        let Some(manifest) = self.conclusion() else {
            return Vec::new();
        };
        let notes = self.notes.iter().map(|(head, failure)| Frame::Failed {
            head: head.clone(),
            failure: failure.clone(),
        });
        notes.chain([Frame::Done { manifest }]).collect()
    }

    /// Drops the files that are not finished, of a copy that ends early.
    pub(crate) fn drop_files(&mut self) {
        self.files.clear();
    }

    /// The directories that were to be finished, of a copy that ends early; the last made first.
    pub(crate) fn unfinished(&mut self) -> impl Iterator<Item = Directory> {
        std::mem::take(&mut self.directories).into_iter().rev()
    }

    /// What became of an entry, if it is recorded (LH-COPY-19).
    fn recorded(&self, id: u64) -> Option<Result<Written, Failure>> {
        self.manifest.has(id).then(|| self.outcomes.of(id))
    }

    /// Records what became of an entry; the first word counts. Gives the outcome that is recorded.
    /// To be followed by [`Self::conclude`].
    fn record(
        &mut self,
        head: &Head,
        record: Record<'_>,
        outcome: Result<Written, Failure>,
        out: &mut Vec<Action<P>>,
    ) -> Result<Written, Failure> {
        if let Some(recorded) = self.recorded(head.id) {
            return recorded;
        }
        let record = if outcome.is_ok() {
            record
        } else {
            Record::Failed
        };
        self.manifest
            .record(head.id, head.source, &head.path, record);
        self.outcomes.insert(head.id, &outcome);
        // Reported to whatever stream brings more.
        self.memory.exhausted = self.memory.exhausted.or(self.fits(0).err());
        let content = match record {
            Record::File { size, hash } => Some((size, Some(*hash))),
            Record::Unchanged { size, .. } => Some((size, None)),
            Record::HardLink { size, .. } => Some((size, None)),
            _ => None,
        };
        out.push(Action::Report(Report {
            head: head.clone(),
            outcome: outcome.clone(),
            content,
        }));
        outcome
    }
}

/// Whether a later copy may go on with what was written of a file that failed: not if its content
/// was wrong, or its source is another one by now (LH-COPY-35).
fn is_worth_keeping(failure: &Failure) -> bool {
    use FailureKind::{DiskFull, Io, Limit, PermissionDenied};
    matches!(failure.kind, DiskFull | Io | Limit | PermissionDenied)
}

/// RESULT of an entry.
fn result(id: u64, outcome: Result<Written, Failure>) -> Frame {
    Frame::Result { id, outcome }
}
