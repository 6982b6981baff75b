//! The receiver's account of a copy: what has arrived, what is in place, what failed, and which
//! streams wait for an answer.
//!
//! A state machine: events go in, [`LedgerAction`]s come out. It reads no clock, takes no lock and
//! does no I/O. The [`Receiver`](super::Receiver) passes on what streams carry, and performs the
//! actions on the store.
//!
//! Everything that a peer may repeat is done once (LH-COPY-19). A recorded entry gets the same
//! answer as the first time and is otherwise left alone. A block that is in is acknowledged and not
//! written again. Streams may therefore die at any moment. An answer goes to the stream that asked,
//! since only that stream's work is asked about again when it is lost. The answers of a stream that
//! is gone are dropped (LH-COPY-21, LH-COPY-27).

#![deny(clippy::indexing_slicing)] // what is counted here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::collections::HashMap;
use std::sync::Arc;

use crate::account::ResourceExhausted;
use crate::error::{Failure, FailureKind};
use crate::manifest::{Manifest, ManifestObserver, ManifestRecord};
use crate::store::{AnnouncedFile, MadeDir};
use crate::tree_hash::{BlockHash, Hash};
use crate::wire::{Block, EntryHead, EntryOutcome, Frame, HardLink, Meta, NO_ENTRY};

mod entries;
mod expect;
mod files;
mod offers;
mod outcomes;
#[cfg(test)]
mod tests;

pub use expect::RequestedEntries;
pub(crate) use expect::SentKind;
use expect::{Expectation, UnexpectedEntry};
use files::ArrivingFile;
pub(crate) use files::BlockClass;
pub(crate) use offers::SkipClaim;
use outcomes::Outcomes;

/// Maximum number of entries in the manifest that wait for an earlier one (LH-COPY-30).
const MAX_WAITING_ENTRIES: usize = 1 << 20;
/// Maximum number of failed directories that are reported at the end (LH-COPY-30).
const MAX_REPORTED_FAILURES: usize = 1024;
/// Memory of a record in the manifest while it waits for an earlier one, in bytes.
const WAITING_BYTES: u64 = 64;
/// Maximum memory that one event adds to the ledger, in bytes: a file and its path, or a page of
/// outcomes and a reason.
pub(crate) const MAX_EVENT_BYTES: u64 = 8 * 1024;

/// Types that the ledger passes on without looking inside.
pub(crate) trait LedgerTypes {
    /// Destination of an answer.
    type Asker;
    /// Data of a block.
    type Data;
    /// An unfinished file. Its owner is its only writer.
    type File;
}

/// Answer to one question.
pub(crate) type AnswerFrames = (Frame, Option<Frame>);

/// An action that the caller must perform.
#[allow(
    clippy::large_enum_variant,
    reason = "actions are performed at once, so few exist"
)]
pub(crate) enum LedgerAction<P: LedgerTypes> {
    /// Send an answer.
    Answer(P::Asker, AnswerFrames),
    /// Write a block, and then call [`CopyLedger::block_written`]. At most one write per file is in
    /// progress.
    Write(BlockWrite<P>),
    /// Commit a file whose hashes agree, and then call [`CopyLedger::file_committed`].
    Commit(FileCommit<P>),
    /// Remove what was written of a file, or leave it for a later copy if `keep`. Then call
    /// [`CopyLedger::discarded`].
    Discard { file: P::File, keep: bool },
    /// Report the outcome of an entry to the observer, once per entry.
    Report(EntryReport),
    /// Count this many bytes more, or fewer, as written.
    Count(i64),
    /// All entries are in place. Finish these directories in this order, and then call
    /// [`CopyLedger::finished`].
    Finish(Vec<Directory>),
}

/// A block to be written.
pub(crate) struct BlockWrite<P: LedgerTypes> {
    /// File of the block.
    pub announced: Arc<AnnouncedFile>,
    pub file: P::File,
    pub block: Block,
    pub hash: BlockHash,
    pub data: P::Data,
}

/// A file to be committed.
pub(crate) struct FileCommit<P: LedgerTypes> {
    pub announced: Arc<AnnouncedFile>,
    /// Size in bytes.
    pub size: u64,
    pub hash: Hash,
    /// `None` if no block of it had to be written.
    pub file: Option<P::File>,
}

/// Outcome of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryReport {
    pub head: EntryHead,
    pub outcome: Result<EntryOutcome, Failure>,
    /// Size of a file in place, and its hash if known.
    pub content: Option<(u64, Option<Hash>)>,
}

/// A directory to be finished when everything in it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    pub head: EntryHead,
    pub meta: Meta,
    pub made: MadeDir,
}

/// Reason why a frame ends its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// It violates the protocol.
    Protocol(&'static str),
    /// Its memory exceeds the limit.
    Limit(ResourceExhausted),
    /// It was not requested.
    NotAsked(EntryHead, &'static str),
}

/// Stage of the copy.
enum CopyStage {
    Receiving,
    /// The directories are being finished.
    Finishing,
    /// Everything is in place. Holds the hash over all of it.
    Done(Hash),
}

/// The receiver's account of a copy.
pub(crate) struct CopyLedger<P: LedgerTypes> {
    expectation: Expectation,
    sources: usize,
    files: HashMap<u64, ArrivingFile<P>>,
    /// Entries in one frame that are being written, with the requesters of each.
    being_written: HashMap<u64, Vec<P::Asker>>,
    /// Files that were offered or announced as links and are being compared, with the requesters of
    /// each.
    being_compared: HashMap<u64, Vec<P::Asker>>,
    manifest: Manifest,
    outcomes: Outcomes,
    directories: Vec<Directory>,
    /// Number of failed files of which something still exists.
    unremoved: usize,
    /// Number of entries, once END has given it.
    end: Option<u64>,
    stage: CopyStage,
    notes: Vec<(EntryHead, Failure)>,
    /// True once a block of a file of late size was answered as written.
    has_late_blocks: bool,
    memory: LedgerMemory,
}

/// Memory that the ledger uses of what it was given, in bytes.
struct LedgerMemory {
    begun_with: u64,
    files: u64,
    directories: u64,
    /// Maximum memory, and the reason why there is not more.
    room: u64,
    refusal: Option<ResourceExhausted>,
    /// Set when more memory was used than is available, which ends the copy.
    exhausted: Option<ResourceExhausted>,
}

impl<P: LedgerTypes> CopyLedger<P> {
    /// Creates the account of a copy that `asked` for this, of the given number of sources. It
    /// counts `begun_with` bytes from the start, and uses no more before [`Self::set_room`].
    pub(crate) fn new(asked: RequestedEntries, sources: usize, begun_with: u64) -> Self {
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
            stage: CopyStage::Receiving,
            notes: Vec::new(),
            has_late_blocks: false,
            memory: LedgerMemory {
                begun_with,
                files: 0,
                directories: 0,
                room: 0,
                refusal: None,
                exhausted: None,
            },
        }
    }

    /// Returns the number of bytes of memory that it uses.
    pub(crate) fn bytes(&self) -> u64 {
        let waiting = self.manifest.waiting_records() as u64 * WAITING_BYTES;
        let memory = &self.memory;
        memory.begun_with + memory.files + memory.directories + waiting + self.outcomes.bytes()
    }

    /// Sets the maximum memory. It must be called before each event, with [`MAX_EVENT_BYTES`] more
    /// than is used, or with the reason why there is not that much.
    pub(crate) fn set_room(&mut self, room: u64, refusal: Option<ResourceExhausted>) {
        (self.memory.room, self.memory.refusal) = (room, refusal);
    }

    /// Returns an error unless there is room for `more` bytes.
    fn check_room(&self, more: u64) -> Result<(), ResourceExhausted> {
        match self.memory.refusal {
            Some(exhausted) if self.bytes().saturating_add(more) > self.memory.room => {
                Err(exhausted)
            }
            _ => Ok(()),
        }
    }

    /// Checks that the entry of a frame can belong to this copy, and was requested (LH-COPY-18). A
    /// failure in `Ok` is reported as the failure of the entry, whatever it was sent as.
    ///
    /// # Errors
    /// [`Rejection`] if the stream that brought it must end.
    pub(crate) fn admit(
        &mut self,
        head: &EntryHead,
        sent: SentKind,
    ) -> Result<Option<Failure>, Rejection> {
        if let Some(exhausted) = self.memory.exhausted {
            return Err(Rejection::Limit(exhausted));
        }
        if self.manifest.waiting_records() > MAX_WAITING_ENTRIES {
            return Err(Rejection::Protocol("its numbering has too many gaps"));
        }
        if head.id == NO_ENTRY {
            return Err(Rejection::Protocol(
                "it reported the failure of an unknown entry",
            ));
        }
        if self.end.is_some_and(|entries| head.id >= entries) {
            return Err(Rejection::Protocol(
                "it sent more entries than it announced",
            ));
        }
        if (head.source as usize) >= self.sources {
            return Err(Rejection::Protocol("it names an unknown source"));
        }
        match self.expectation.admit(head, sent) {
            Ok(()) => Ok(None),
            Err(UnexpectedEntry::Fails(failure)) => Ok(Some(failure)),
            Err(UnexpectedEntry::NotAsked(what)) => Err(Rejection::NotAsked(head.clone(), what)),
        }
    }

    /// Checks that the first name of a link can belong to what was requested (LH-COPY-45).
    ///
    /// # Errors
    /// [`Rejection`] if the stream that brought it must end.
    pub(crate) fn admit_link(&self, link: &HardLink) -> Result<(), Rejection> {
        let (source, path) = &link.first;
        if *source as usize >= self.sources {
            return Err(Rejection::Protocol("it names an unknown source"));
        }
        match self.expectation.may_name(path) {
            true => Ok(()),
            false => Err(Rejection::NotAsked(
                link.head.clone(),
                "a hard link below a source that must be a single file",
            )),
        }
    }

    /// Returns the first source of which nothing has arrived, once everything has.
    pub(crate) fn missing_source(&self) -> Option<usize> {
        self.expectation.missing()
    }

    /// Handles END, which gives the number of entries (LH-COPY-17).
    ///
    /// # Errors
    /// [`Rejection::Protocol`] if an earlier END differs, or more entries have arrived.
    pub(crate) fn handle_end(
        &mut self,
        entries: u64,
        out: &mut Vec<LedgerAction<P>>,
    ) -> Result<(), Rejection> {
        if !matches!(self.stage, CopyStage::Receiving) {
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
            return Err(Rejection::Protocol(
                "it announced two different numbers of entries",
            ));
        }
        self.end = Some(entries);
        self.conclude(out);
        Ok(())
    }

    /// Notes that the remains of a failed file have been removed.
    pub(crate) fn discarded(&mut self, out: &mut Vec<LedgerAction<P>>) {
        self.unremoved = self.unremoved.saturating_sub(1);
        self.conclude(out);
    }

    /// Requests once that the directories be finished, when every entry is recorded and no remains
    /// of failed files are left.
    fn conclude(&mut self, out: &mut Vec<LedgerAction<P>>) {
        let all_recorded =
            self.end == Some(self.manifest.len()) && self.manifest.waiting_records() == 0;
        let all_quiet = self.unremoved == 0
            && self.files.is_empty()
            && self.being_written.is_empty()
            && self.being_compared.is_empty();
        if !all_recorded || !all_quiet || !matches!(self.stage, CopyStage::Receiving) {
            return;
        }
        self.stage = CopyStage::Finishing;
        let mut directories = std::mem::take(&mut self.directories);
        // Deeper directories have higher numbers. Finishing a parent may deny access to its
        // content.
        directories.sort_unstable_by_key(|directory| std::cmp::Reverse(directory.head.id));
        out.push(LedgerAction::Finish(directories));
    }

    /// Notes that the directories are finished. The sender receives the `failed` ones before DONE
    /// (LH-COPY-25).
    pub(crate) fn finished(&mut self, failed: Vec<(EntryHead, Failure)>) {
        self.memory.directories = 0;
        let notes = failed.into_iter().take(MAX_REPORTED_FAILURES);
        self.notes = notes
            .map(|(head, failure)| {
                (
                    EntryHead {
                        id: NO_ENTRY,
                        ..head
                    },
                    failure,
                )
            })
            .collect();
        self.stage = CopyStage::Done(self.manifest.hash());
    }

    /// Reports all records to `observer`. Must be called before any entry arrives.
    pub(crate) fn observe(&mut self, observer: Arc<dyn ManifestObserver>) {
        self.manifest.observe(observer);
    }

    /// Returns the number of entries, once everything is in place.
    pub(crate) fn entries(&self) -> u64 {
        self.manifest.len()
    }

    /// Returns the hash over everything, once everything is in place.
    pub(crate) fn conclusion(&self) -> Option<Hash> {
        match self.stage {
            CopyStage::Done(hash) => Some(hash),
            CopyStage::Receiving | CopyStage::Finishing => None,
        }
    }

    /// Returns true if it has data that the sender cannot send again: blocks of a file of late
    /// size.
    pub(crate) fn has_late_blocks(&self) -> bool {
        self.has_late_blocks
    }

    /// Returns the frames that end every stream. Empty before the end.
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

    /// Drops the unfinished files of a copy that ends early.
    pub(crate) fn drop_files(&mut self) {
        self.files.clear();
    }

    /// Returns the directories that were to be finished, of a copy that ends early. The last
    /// created comes first.
    pub(crate) fn unfinished(&mut self) -> impl Iterator<Item = Directory> {
        std::mem::take(&mut self.directories).into_iter().rev()
    }

    /// Returns the outcome of an entry, if it is recorded (LH-COPY-19).
    fn recorded(&self, id: u64) -> Option<Result<EntryOutcome, Failure>> {
        self.manifest.contains(id).then(|| self.outcomes.get(id))
    }

    /// Records the outcome of an entry, unless it has one, and returns the recorded one. Must be
    /// followed by [`Self::conclude`].
    fn record(
        &mut self,
        head: &EntryHead,
        record: ManifestRecord<'_>,
        outcome: Result<EntryOutcome, Failure>,
        out: &mut Vec<LedgerAction<P>>,
    ) -> Result<EntryOutcome, Failure> {
        if let Some(recorded) = self.recorded(head.id) {
            return recorded;
        }
        let record = if outcome.is_ok() {
            record
        } else {
            ManifestRecord::Failed
        };
        self.manifest
            .record(head.id, head.source, &head.path, record);
        self.outcomes.insert(head.id, &outcome);
        // Reported to any stream that brings more.
        self.memory.exhausted = self.memory.exhausted.or(self.check_room(0).err());
        let content = match record {
            ManifestRecord::File { size, hash, .. } => Some((size, Some(*hash))),
            ManifestRecord::Unchanged { size, .. } => Some((size, None)),
            ManifestRecord::HardLink { size, .. } => Some((size, None)),
            _ => None,
        };
        out.push(LedgerAction::Report(EntryReport {
            head: head.clone(),
            outcome: outcome.clone(),
            content,
        }));
        outcome
    }
}

/// Returns true if a later copy may resume what was written of a failed file. It may not if the
/// content was wrong, or the source has changed (LH-COPY-35).
fn is_worth_keeping(failure: &Failure) -> bool {
    use FailureKind::{DiskFull, Io, Limit, PermissionDenied};
    matches!(failure.kind, DiskFull | Io | Limit | PermissionDenied)
}

/// Returns the RESULT of an entry.
fn result(id: u64, outcome: Result<EntryOutcome, Failure>) -> Frame {
    Frame::Result { id, outcome }
}
