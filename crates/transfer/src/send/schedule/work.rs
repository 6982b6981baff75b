//! Vocabulary of the schedule: what a stream must send, what an answer is about, and what the
//! schedule wants done.

use std::sync::Arc;
use std::time::Duration;

use super::entry::SourceEntry;
use crate::error::Failure;
use crate::tree_hash::Hash;
use crate::wire::{EntryOutcome, NO_ENTRY};

/// Number of a stream within one copy.
pub(crate) type StreamId = u32;

/// Subject of a receiver's answer: the unit that is in flight, returns, and is repeated. The order
/// is that in which the walk found the entries, with a file's blocks before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject {
    /// Number of the entry.
    pub entry: u64,
    pub part: SubjectPart,
}

/// Part of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SubjectPart {
    /// The block at this offset.
    Block(u64),
    /// The entry as a whole: its one frame, its end or its failure. Its result is the answer.
    Whole,
}

impl Subject {
    /// The end of the walk. The receiver's hash over everything is the answer.
    pub(super) const END: Self = Self::whole(NO_ENTRY);

    pub(super) const fn whole(entry: u64) -> Self {
        Self {
            entry,
            part: SubjectPart::Whole,
        }
    }

    pub(super) const fn block(entry: u64, offset: u64) -> Self {
        Self {
            entry,
            part: SubjectPart::Block(offset),
        }
    }

    pub(super) const fn is_block(&self) -> bool {
        matches!(self.part, SubjectPart::Block(_))
    }
}

/// Work that a stream must send.
#[derive(Debug, Clone)]
pub(crate) enum StreamWork {
    /// An entry in one frame.
    Entry(Arc<SourceEntry>),
    /// Offer a file with this size and hash, or otherwise as the walk found it.
    Offer {
        file: Arc<SourceEntry>,
        content: Option<(u64, Hash)>,
    },
    /// Announce a file as a link to one in place.
    Link(Arc<SourceEntry>),
    /// Read a file for its hash, and offer it.
    ReadOffer(Arc<SourceEntry>),
    /// Open the file, report its size, and send its first block. If `offered`, first offer it as
    /// the walk found it.
    Open {
        file: Arc<SourceEntry>,
        offered: bool,
    },
    /// Send the block of an open file at `offset`.
    Block { file: Arc<SourceEntry>, offset: u64 },
    /// Check that a file is unchanged of which the receiver has all, some of it from before, and
    /// send its hash.
    Complete { file: Arc<SourceEntry>, hash: Hash },
    /// Send the hash of a file that was read completely.
    FileEnd { file: Arc<SourceEntry>, hash: Hash },
    /// Report that an entry failed.
    Failed(Arc<SourceEntry>, Failure),
    /// Report the end of the walk, with its totals.
    End { entries: u64, bytes: u64 },
}

impl StreamWork {
    /// Returns true if it is a block of file data, which is never batched with other work.
    pub(crate) fn is_block(&self) -> bool {
        matches!(self, StreamWork::Open { .. } | StreamWork::Block { .. })
    }

    /// Returns the bytes that it adds to a batch.
    pub(crate) fn batch_bytes(&self) -> u64 {
        match self {
            StreamWork::Entry(entry) | StreamWork::ReadOffer(entry) => entry.batch_bytes(),
            StreamWork::Offer { file, .. } | StreamWork::Link(file) => file.offer_bytes(),
            _ => 0,
        }
    }
}

/// Next step of a stream.
#[derive(Debug)]
pub(crate) enum NextStep {
    /// Send this work.
    Send(Vec<StreamWork>),
    /// Wait. Ask again when woken, and at this time at the latest.
    Wait { until: Duration },
    /// The schedule is over.
    Over,
}

/// Message to send for a file that has been read in one piece.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WholeFileMessage {
    /// The file as it was read.
    File,
    /// Its failure.
    Failure(Failure),
    /// The file needs no message, as it is now sent in blocks or has its result.
    Nothing,
}

/// Streams to wake.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WakeTarget {
    #[default]
    None,
    One,
    All,
}

/// Actions that the schedule wants after an event.
#[derive(Debug, Default)]
pub(crate) struct ScheduleActions {
    pub wake: WakeTarget,
    /// If true, the walk may continue.
    pub wake_walk: bool,
    /// File that need not be open any more.
    pub close: Option<u64>,
    /// Result of an entry, for the observer.
    pub result: Option<EntryResult>,
    /// Parts of a file that the receiver had, for the observer.
    pub resumed: Option<ResumedReport>,
}

/// Parts of a file that an earlier copy had left.
#[derive(Debug)]
pub(crate) struct ResumedReport {
    pub entry: Arc<SourceEntry>,
    /// Bytes that existed, and size of the whole file.
    pub bytes: u64,
    pub size: u64,
}

/// Result of an entry.
#[derive(Debug)]
pub(crate) struct EntryResult {
    pub entry: Arc<SourceEntry>,
    /// Size of a file in place, and its hash if known.
    pub content: Option<(u64, Option<Hash>)>,
    pub outcome: Result<EntryOutcome, Failure>,
}

/// Memory of a schedule, in bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScheduleMemory {
    /// Entries without a result.
    pub entries: u64,
    /// Work in flight, open files, and records that wait in the manifest.
    pub work: u64,
}
